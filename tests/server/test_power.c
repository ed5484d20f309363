/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as server/save" */
/* What the catalog has acknowledged is there after a power cut. */
#include <sys/mman.h>

#include "tests/support/power.h"

#include "tests/server/rows.h"

#define CHANGES 60

TEST(d02_an_acknowledged_change_is_there_after_a_power_cut, err) { /* D1, D02 */
    const char *folder = TEXT("%s/data", cairn_test_folder());
    POWER_RECORDED();
    CATALOG(catalog, folder);
    int64_t before = rows_of(catalog);
    for (int64_t i = 0; i < CHANGES; i++) {
        REQUIRE_OK(srv_catalog_write(catalog, add, TEXT("change-%" PRId64, i), &err));
        if (i % 7) continue;
        const char *image = TEXT("%s/image-%" PRId64, cairn_test_folder(), i);
        REQUIRE(cairn_power_cut(folder, image));
        struct srv_catalog *after = NULL;
        EXPECT_CODE(srv_catalog_open(image, &after, &err), CAIRN_OK);
        if (!after) break;
        EXPECT_EQ_U64(rows_of(after), before + i + 1);
        srv_catalog_free(after);
    }
}

TEST(a_suite_that_syncs_more_files_than_the_recorder_holds_may_follow) { /* power.h#3 */
    for (int i = 0; i < 1100; i++) {
        CAIRN_AUTO_FD fd = memfd_create("power", MFD_CLOEXEC);
        if (!EXPECT(fd >= 0 && fsync(fd) == 0)) break;
    }
}
