/* SPDX-License-Identifier: Apache-2.0 */
/* Which objects of a folder can be read without waiting; see store/ready.h. */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "store/dir/inside.h"
#include "store/ready.h"

#ifndef RWF_NOWAIT /* the C library is older than the flag; this is the kernel's number */
#define RWF_NOWAIT 8
#endif

/* tmpfs knows no RWF_NOWAIT, and needs none: it is memory. Other file systems that do not know it
 * refuse the first read. */
static bool flags_of(int fd, int *ret) {
    struct statfs system;
    if (fstatfs(fd, &system) != 0) return false;
    *ret = system.f_type == TMPFS_MAGIC ? 0 : RWF_NOWAIT;
    return true;
}

/* Without a second descriptor past the page cache: only what that cache has is wanted. */
bool cairn_store_dir_ready(struct cairn_store *store, const char *key,
                           struct cairn_store_ready *ret) {
    const struct cairn_store_dir *dir = (const struct cairn_store_dir *)store;
    struct cairn_store_dir_place place;
    struct stat status;
    CAIRN_AUTO_FD folder_fd = -1;
    if (cairn_store_dir_place_of(key, &place, NULL) || cairn_store_dir_is_temporary(place.name))
        return false;
    if (cairn_store_dir_folder(dir, place.folder, &folder_fd, NULL)) return false;
    CAIRN_AUTO_FD fd =
        openat(folder_fd, place.name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
    struct cairn_store_ready ready = {.fd = fd, .open = true};
    if (!flags_of(fd, &ready.flags)) return false;
    *ret = ready;
    fd = -1;
    return true;
}
