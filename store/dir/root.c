/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the path still name the folder that was opened, and following it where it does not: a mount
 * came, or went and left the folder that it had covered. What is under way keeps to its folder.
 */
#include <fcntl.h>
#include <unistd.h>

#include "store/dir/inside.h"

bool cairn_store_dir_moved(const struct cairn_store *store) {
    const struct cairn_store_dir *dir = (const struct cairn_store_dir *)store;
    struct stat there, opened;
    if (stat(store->url, &there) != 0 || fstat(dir->root_fd, &opened) != 0) return true;
    return there.st_dev != opened.st_dev || there.st_ino != opened.st_ino;
}

enum cairn_code cairn_store_dir_follow(struct cairn_store *store, struct cairn_error *err) {
    struct cairn_store_dir *dir = (struct cairn_store_dir *)store;
    CAIRN_AUTO_FD fd = open(store->url, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return cairn_fail_errno(err, "open the folder %s", store->url);
    CAIRN_TRY(cairn_dir_sync(fd, err));
    if (dup3(fd, dir->root_fd, O_CLOEXEC) < 0)
        return cairn_fail_errno(err, "open the folder %s", store->url);
    atomic_fetch_add(&dir->roots, 1);
    return CAIRN_OK;
}

void cairn_store_dir_forget(struct cairn_store_dir_worker *worker) {
    unsigned roots = atomic_load(&cairn_store_dir_of(worker)->roots);
    if (worker->roots == roots) return;
    memset(worker->synced, 0, sizeof worker->synced);
    memset(worker->made, 0, sizeof worker->made);
    if (worker->sync_fd >= 0) close(worker->sync_fd);
    worker->sync_fd = -1;
    worker->roots = roots;
}

bool cairn_store_dir_can_wait(struct cairn_store_dir_worker *worker) {
    const struct cairn_store_dir *dir = cairn_store_dir_of(worker);
    if (!dir->together) return false;
    if (worker->sync_fd < 0) {
        CAIRN_AUTO_FD fd = openat(dir->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct stat root;
        if (fd < 0 || fstat(fd, &root) != 0) return false;
        worker->sync_device = root.st_dev;
        worker->sync_fd = fd;
        fd = -1;
    }
    return true;
}

bool cairn_store_dir_covers(const struct cairn_store_dir_worker *worker, int folder_fd) {
    struct stat folder;
    return fstat(folder_fd, &folder) == 0 && folder.st_dev == worker->sync_device;
}
