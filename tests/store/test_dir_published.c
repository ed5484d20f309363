/* SPDX-License-Identifier: Apache-2.0 */
/* What the workers of a folder store remember of the files that they have synced and published. */
#include "store/dir/inside.h"
#include "tests/harness.h"

TEST(only_what_a_worker_of_the_store_published_needs_no_second_sync) { /* inside.h#3 */
    struct cairn_store_dir dir = {0};
    cairn_lock_init(&dir.lock, CAIRN_LOCK_store_dir);
    struct cairn_store_dir_worker worker = {.base.store = &dir.base}, second = worker;
    struct stat st;
    CAIRN_AUTO_FD fd =
        open(TEXT("%s/published", cairn_test_folder()), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && write(fd, "x", 1) == 1 && fstat(fd, &st) == 0);
    EXPECT(!cairn_store_dir_remembers(&worker, &st));
    cairn_store_dir_remember(&worker, &st);
    EXPECT(cairn_store_dir_remembers(&worker, &st));
    EXPECT(cairn_store_dir_remembers(&second, &st)); /* whoever of them did it */
    second.roots = 1;
    EXPECT(!cairn_store_dir_remembers(&second, &st)); /* below another root */
    REQUIRE(pwrite(fd, "yy", 2, 0) == 2 && fstat(fd, &st) == 0);
    EXPECT(!cairn_store_dir_remembers(&worker, &st)); /* it is another content now */
    cairn_store_dir_remember(&worker, &st);
    struct stat other = st;
    other.st_ino += CAIRN_STORE_DIR_PUBLISHED_MAX;
    EXPECT(!cairn_store_dir_remembers(&worker, &other));
    cairn_store_dir_remember(&worker, &other);
    EXPECT(cairn_store_dir_remembers(&worker, &other));
    EXPECT(!cairn_store_dir_remembers(&worker, &st)); /* forgotten is synced again, no more */
    free(dir.locked.published);
    cairn_lock_release(&dir.lock);
}
