/* SPDX-License-Identifier: Apache-2.0 */
/* Element types stand in docs/format.md with the numbers and widths that are stored. */
#include "api/table/dtype.h"
#include "tests/docs/page.h"

static const struct {
    const char *name, *shown;
    unsigned number, bits;
} rows[] = {
#define ROW(name, number, bits, shown) {#name, #shown, number, bits},
    CAIRN_DTYPES(ROW)
#undef ROW
};

TEST(every_element_type_stands_in_the_page_of_the_format) {
    CAIRN_AUTO(buf) page = {0};
    REQUIRE(cairn_docs_load("docs/format.md", &page));
    for (size_t i = 0; i < CAIRN_COUNT(rows); i++) {
        char row[64];
        if (strcmp(rows[i].name, rows[i].shown) == 0)
            snprintf(row, sizeof row, "| %u %s | %u |", rows[i].number, rows[i].name, rows[i].bits);
        else
            snprintf(row, sizeof row, "| %u %s | %u | %s |", rows[i].number, rows[i].name,
                     rows[i].bits, rows[i].shown);
        cairn_test_check(strstr(page.data, row) != NULL, __FILE__, __LINE__,
                         "docs/format.md has no row %s", row);
    }
}
