/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker of a folder store remembers of the files that it has synced and published. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/dir/inside.h"
#include "tests/harness.h"

TEST(only_what_a_worker_published_itself_needs_no_second_sync) { /* inside.h#3 */
    struct cairn_store_dir_worker worker = {0};
    struct stat st;
    char path[600];
    snprintf(path, sizeof path, "%s/published", cairn_test_folder());
    CAIRN_AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && write(fd, "x", 1) == 1 && fstat(fd, &st) == 0);
    EXPECT(!cairn_store_dir_remembers(&worker, &st));
    cairn_store_dir_remember(&worker, fd);
    EXPECT(cairn_store_dir_remembers(&worker, &st));
    REQUIRE(pwrite(fd, "yy", 2, 0) == 2 && fstat(fd, &st) == 0);
    EXPECT(!cairn_store_dir_remembers(&worker, &st)); /* it is another content now */
    cairn_store_dir_remember(&worker, fd);
    struct stat other = st;
    other.st_ino++;
    EXPECT(!cairn_store_dir_remembers(&worker, &other));
    for (int i = 0; i < CAIRN_STORE_DIR_PUBLISHED_MAX; i++) {
        REQUIRE(ftruncate(fd, 10 + i) == 0);
        cairn_store_dir_remember(&worker, fd);
    }
    EXPECT(!cairn_store_dir_remembers(&worker, &st)); /* forgotten is synced again, no more */
}
