/* SPDX-License-Identifier: Apache-2.0 */
/* Keys as paths below the root: checking, opening, making and pruning folders. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "store/dir/inside.h"

/* A folder may be pruned by another process between two of our calls; it cannot happen for ever. */
#define MAKE_TRIES_MAX 16

void cairn_store_dir_temporary(const char *uuid, char ret_name[CAIRN_STORE_DIR_TEMPORARY_BYTES]) {
    snprintf(ret_name, CAIRN_STORE_DIR_TEMPORARY_BYTES, ".%.36s.tmp", uuid);
}

bool cairn_store_dir_is_temporary(const char *name) {
    size_t uuid_size = CAIRN_UUID_TEXT_BYTES - 1;
    return strlen(name) == CAIRN_STORE_DIR_TEMPORARY_BYTES - 1 && name[0] == '.' &&
           strcmp(name + 1 + uuid_size, ".tmp") == 0 &&
           cairn_uuid_text_valid((struct cairn_view){name + 1, uuid_size});
}

/* ---- keys ---- */

static bool component_valid(const char *start, size_t size) {
    if (size == 0 || size > 255) return false;
    return !(size <= 2 && start[0] == '.' && start[size - 1] == '.');
}

enum cairn_code cairn_store_dir_place_of(const char *key, struct cairn_store_dir_place *ret,
                                         struct cairn_error *err) {
    size_t size = strlen(key);
    if (size > CAIRN_KEY_BYTES_MAX) {
        return cairn_fail(err, CAIRN_INVALID, "the key has %zu bytes; at most %d are taken", size,
                          CAIRN_KEY_BYTES_MAX);
    }
    const char *start = key;
    for (;;) {
        size_t length = strcspn(start, "/");
        if (!component_valid(start, length)) {
            return cairn_fail(err, CAIRN_INVALID, "\"%.*s\" cannot be part of a key", (int)length,
                              start);
        }
        if (!start[length]) break;
        start += length + 1;
    }
    size_t folder_size = start == key ? 0 : (size_t)(start - key) - 1;
    memcpy(ret->folder, key, folder_size);
    ret->folder[folder_size] = '\0';
    memcpy(ret->name, start, strlen(start) + 1);
    return CAIRN_OK;
}

enum cairn_code cairn_store_dir_fail(struct cairn_error *err, int os_errno, const char *doing) {
    if (os_errno == ENOENT || os_errno == ENOTDIR || os_errno == EISDIR) {
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s: nothing is there", doing);
    }
    if (os_errno == ELOOP || os_errno == EXDEV) {
        return cairn_fail(err, CAIRN_STORE, "%s: a symbolic link is in the way, none is followed",
                          doing);
    }
    errno = os_errno;
    return cairn_fail_errno(err, "%s", doing);
}

/* ---- opening ---- */

static int open_beneath(int from_fd, const char *path, int flags) {
    struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    return (int)syscall(SYS_openat2, from_fd, path, &how, sizeof how);
}

/* Without openat2: each component by itself, so that a link is seen wherever it stands. */
static int open_by_component(int from_fd, const char *path, int flags) {
    CAIRN_AUTO_FD at = -1;
    for (;;) {
        char name[256];
        size_t length = strcspn(path, "/");
        if (length >= sizeof name) {
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, path, length);
        name[length] = '\0';
        bool last = path[length] == '\0';
        int wanted = last ? flags : O_RDONLY | O_DIRECTORY;
        int fd = openat(at >= 0 ? at : from_fd, name, wanted | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;
        if (fd < 0 && errno == ENOTDIR) { /* a link to a folder reads like that, too */
            int from = at >= 0 ? at : from_fd;
            bool link = fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
            errno = link ? ELOOP : ENOTDIR;
        }
        if (fd < 0 || last) return fd;
        if (at >= 0) close(at);
        at = fd;
        path += length + 1;
    }
}

int cairn_store_dir_open_at(const struct cairn_store_dir *dir, int from_fd, const char *path,
                            int flags) {
    if (!*path) path = ".";
    return dir->beneath ? open_beneath(from_fd, path, flags)
                        : open_by_component(from_fd, path, flags);
}

enum cairn_code cairn_store_dir_folder(const struct cairn_store_dir *dir, const char *folder,
                                       int *ret_fd, struct cairn_error *err) {
    int fd = cairn_store_dir_open_at(dir, dir->root_fd, folder, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return cairn_store_dir_fail(err, errno, "open folder");
    *ret_fd = fd;
    return CAIRN_OK;
}

enum cairn_code cairn_store_dir_open_file(int folder_fd, const char *name, bool write,
                                          struct cairn_file *ret, struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = write ? cairn_file_open_write(folder_fd, name, ret, &why)
                                 : cairn_file_open_read(folder_fd, name, ret, &why);
    if (code == CAIRN_OK) return code;
    /* CAIRN_INVALID: a folder, a FIFO or a device of that name is no object. */
    if (code == CAIRN_INVALID) why.os_errno = ENOENT;
    return cairn_store_dir_fail(err, why.os_errno, "open");
}

/* ---- making ---- */

/* FNV-1a: a collision would only leave out one sync of an entry that another process is making. */
static uint64_t path_hash(const char *path, size_t size) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ (uint8_t)path[i]) * UINT64_C(0x100000001b3);
    }
    return hash ? hash : 1;
}

static bool is_synced(const struct cairn_store_dir_worker *worker, uint64_t hash) {
    for (unsigned i = 0; i < CAIRN_STORE_DIR_SYNCED_MAX; i++) {
        if (worker->synced[i] == hash) return true;
    }
    return false;
}

static bool is_made(const struct cairn_store_dir_worker *worker, uint64_t hash) {
    for (unsigned i = 0; i < CAIRN_STORE_DIR_SYNCED_MAX; i++)
        if (worker->made[i] == hash) return true;
    return false;
}

static void note_synced(struct cairn_store_dir_worker *worker, uint64_t hash) {
    worker->synced[worker->synced_next++ % CAIRN_STORE_DIR_SYNCED_MAX] = hash;
}

/* Opens, and makes if need be, one folder; its entry is durable afterwards. A folder that is
 * already there may just have been made by a process that has not synced it yet, so its entry is
 * synced as well when this worker meets it first. */
static enum cairn_code enter(struct cairn_store_dir_worker *worker, int parent_fd, const char *name,
                             uint64_t hash, bool together, int *ret_fd, struct cairn_error *err) {
    const struct cairn_store_dir *dir = cairn_store_dir_of(worker);
    bool made = mkdirat(parent_fd, name, dir->folder_mode) == 0;
    if (!made && errno != EEXIST)
        return cairn_file_tell_inodes(err, parent_fd,
                                      cairn_fail_errno(err, "make folder %s", name));
    CAIRN_AUTO_FD fd = cairn_store_dir_open_at(dir, parent_fd, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0 && errno == ENOTDIR) {
        return cairn_fail(err, CAIRN_STORE,
                          "%s is an object, so a folder cannot hold keys below it", name);
    }
    if (fd < 0 && errno != ENOENT) return cairn_store_dir_fail(err, errno, "open folder");
    if (fd < 0) return cairn_fail_errno(err, "open folder %s", name); /* pruned: again */
    if (made) (void)!fchmod(fd, dir->folder_mode); /* a file system without modes has its own */
    if (together && (made || !is_synced(worker, hash))) {
        if (!is_made(worker, hash))
            worker->made[worker->made_next++ % CAIRN_STORE_DIR_SYNCED_MAX] = hash;
    } else if (made || !is_synced(worker, hash)) {
        CAIRN_TRY(cairn_dir_sync(parent_fd, err));
        note_synced(worker, hash);
    }
    *ret_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

void cairn_store_dir_folders_synced(struct cairn_store_dir_worker *worker, bool well) {
    for (unsigned i = 0; i < CAIRN_STORE_DIR_SYNCED_MAX && well; i++)
        if (worker->made[i]) note_synced(worker, worker->made[i]);
    memset(worker->made, 0, sizeof worker->made);
    worker->made_next = 0;
}

static enum cairn_code walk_and_make(struct cairn_store_dir_worker *worker, const char *folder,
                                     bool together, int *ret_fd, struct cairn_error *err) {
    const struct cairn_store_dir *dir = cairn_store_dir_of(worker);
    CAIRN_AUTO_FD at = cairn_store_dir_open_at(dir, dir->root_fd, "", O_RDONLY | O_DIRECTORY);
    if (at < 0) return cairn_fail_errno(err, "open the store's root");
    for (const char *start = folder; *start;) {
        char name[256];
        size_t length = strcspn(start, "/");
        memcpy(name, start, length);
        name[length] = '\0';
        start += length;
        uint64_t hash = path_hash(folder, (size_t)(start - folder));
        int next = -1;
        CAIRN_TRY(enter(worker, at, name, hash, together, &next, err));
        close(at);
        at = next;
        if (*start == '/') start++;
    }
    *ret_fd = at;
    at = -1;
    return CAIRN_OK;
}

enum cairn_code cairn_store_dir_folder_make(struct cairn_store_dir_worker *worker,
                                            const char *folder, bool together, int *ret_fd,
                                            struct cairn_error *err) {
    const struct cairn_store_dir *dir = cairn_store_dir_of(worker);
    uint64_t hash = path_hash(folder, strlen(folder));
    if (!*folder || is_synced(worker, hash) || (together && is_made(worker, hash))) {
        int fd = cairn_store_dir_open_at(dir, dir->root_fd, folder, O_RDONLY | O_DIRECTORY);
        if (fd >= 0) {
            *ret_fd = fd;
            return CAIRN_OK;
        }
        /* It was pruned since, and perhaps its parents: nothing that was noted holds. */
        memset(worker->synced, 0, sizeof worker->synced);
        memset(worker->made, 0, sizeof worker->made);
    }
    for (int i = 1;; i++) {
        struct cairn_error why = {0};
        enum cairn_code code = walk_and_make(worker, folder, together, ret_fd, &why);
        if (code != CAIRN_OK && err) *err = why;
        if (code == CAIRN_OK || why.os_errno != ENOENT || i == MAKE_TRIES_MAX) return code;
    }
}

void cairn_store_dir_prune(const struct cairn_store_dir *dir, const char *folder) {
    char path[CAIRN_KEY_BYTES_MAX + 1];
    memcpy(path, folder, strlen(folder) + 1);
    while (*path) {
        char *slash = strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;
        if (slash) *slash = '\0';
        CAIRN_AUTO_FD parent =
            cairn_store_dir_open_at(dir, dir->root_fd, slash ? path : "", O_RDONLY | O_DIRECTORY);
        if (parent >= 0 && unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT) return;
        if (parent < 0 && errno != ENOENT) return;
        if (!slash) return;
    }
}
