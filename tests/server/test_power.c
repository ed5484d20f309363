/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as server/save" */
/* What the catalog has acknowledged is there after a power cut. */
#include "tests/support/power.h"

#include "common/file.h"
#include "server/db/sql.h"
#include "tests/harness.h"

#define CHANGES 60

static const struct cairn_srv_statement insert = {"insert", "t",
                                                  "INSERT INTO meta(name, value) VALUES(?1, 'x')"};
static const struct cairn_srv_statement counting = {"count", "",
                                                    "SELECT count(*) FROM meta WHERE value = 'x'"};

static enum cairn_code add(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, &insert, SQL_T(argument));
}

static enum cairn_code count(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    bool found = false;
    return cairn_srv_sql_number(tx, &found, argument, err, &counting);
}

TEST(d02_an_acknowledged_change_is_there_after_a_power_cut) /* D1, D02 */
{
    struct cairn_error err = {0};
    struct cairn_srv_catalog *catalog = NULL;
    char folder[300];
    snprintf(folder, sizeof(folder), "%s/data", cairn_test_folder());
    cairn_power_start();
    REQUIRE_OK(cairn_srv_catalog_open(folder, &catalog, &err));
    for (int64_t i = 0; i < CHANGES; i++) {
        char name[32], image[400];
        snprintf(name, sizeof(name), "change-%" PRId64, i);
        REQUIRE_OK(cairn_srv_catalog_write(catalog, add, name, &err));
        if (i % 7) continue;
        snprintf(image, sizeof(image), "%s/image-%" PRId64, cairn_test_folder(), i);
        REQUIRE(cairn_power_cut(folder, image));
        struct cairn_srv_catalog *after = NULL;
        int64_t rows = 0;
        EXPECT_CODE(cairn_srv_catalog_open(image, &after, &err), CAIRN_OK);
        if (!after) break;
        EXPECT_CODE(cairn_srv_catalog_read(after, count, &rows, &err), CAIRN_OK);
        EXPECT_EQ_U64(rows, i + 1);
        cairn_srv_catalog_free(after);
    }
    cairn_srv_catalog_free(catalog);
}
