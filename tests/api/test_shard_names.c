/* SPDX-License-Identifier: Apache-2.0 */
/* None of a version's shard names may be a folder of another: a bucket could hold both, a folder
 * could not. */
#include "api/documents/names.h"

#include "tests/harness.h"

/* NULL ends the names; true: all were taken. */
static bool stand_beside(const char *const *names, struct cairn_error *err) {
    CAIRN_AUTO(shard_names) set = {0};
    for (; *names; names++)
        if (cairn_shard_names_add(&set, cairn_view_of(*names), err) != CAIRN_OK) return false;
    return true;
}
#define STAND(...) stand_beside((const char *const[]){__VA_ARGS__, NULL}, &err)

TEST(shard_names_that_are_no_folders_of_each_other_are_taken, err) {
    EXPECT(STAND("opt", "opt-state", "opt.state", "opta/state", "model"));
    EXPECT(STAND("rank-00000/part-0.bin", "rank-00000/part-1.bin", "rank-00001/part-0.bin"));
    EXPECT(STAND("a/b/c", "a/b/d", "a/c", "b"));
    EXPECT(STAND("opt", "opt"));
}

TEST(shard_names_none_is_a_folder_of_another_in_whatever_order_they_come, err) {
    EXPECT(!STAND("opt", "opt/state"));
    EXPECT(strstr(err.message, "\"opt\"") && strstr(err.message, "\"opt/state\""));
    EXPECT_CODE(err.code, CAIRN_INVALID);
    EXPECT(!STAND("opt/state", "opt"));
    EXPECT(strstr(err.message, "\"opt\"") != NULL);
    EXPECT(!STAND("a/b/c/d", "x", "a/b"));
    EXPECT(!STAND("a/b", "x", "a/b/c/d"));
    EXPECT(!STAND("a", "b", "c", "b/1"));
}

TEST(shard_names_many_are_compared_at_once, err) {
    CAIRN_AUTO(shard_names) set = {0};
    for (unsigned i = 0; i < 65536; i++) {
        REQUIRE_OK(cairn_shard_names_add(
            &set, cairn_view_of(TEXT("dir-%u/sub-%u/file-%u", i % 7, i % 1000, i)), &err));
    }
    EXPECT_CODE(cairn_shard_names_add(&set, CAIRN_VIEW("dir-3/sub-17"), &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_shard_names_add(&set, CAIRN_VIEW("dir-0/sub-0/file-0/x"), &err),
                CAIRN_INVALID);
}

TEST(shard_names_folders_of_a_name_are_told_in_order) {
    struct cairn_view name = CAIRN_VIEW("a/bc/d"), folder = {name.data, 0};
    REQUIRE(cairn_shard_name_folder(name, &folder));
    EXPECT_EQ_U64(folder.size, 1);
    REQUIRE(cairn_shard_name_folder(name, &folder));
    EXPECT_EQ_U64(folder.size, 4);
    EXPECT(!cairn_shard_name_folder(name, &folder));
}
