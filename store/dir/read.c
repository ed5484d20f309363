/* SPDX-License-Identifier: Apache-2.0 */
/* Keys as paths; list, get, head, and the parts of an unfinished upload. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/crc.h"
#include "common/memory.h"
#include "common/text.h"
#include "store/dir/inside.h"

/* ---- keys as paths below the root ---- */

/* Another process may prune a folder between two of our calls, but not for ever. */
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

static bool component_valid(const char *start, size_t size) {
    if (size == 0 || size > 255) return false;
    return !(size <= 2 && start[0] == '.' && start[size - 1] == '.');
}

enum cairn_code cairn_store_dir_place_of(const char *key, struct cairn_store_dir_place *ret,
                                         struct cairn_error *err) {
    size_t size = strlen(key);
    if (size > CAIRN_KEY_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "the key has %zu bytes; at most %d are taken", size,
                          CAIRN_KEY_BYTES_MAX);
    const char *start = key;
    for (;;) {
        size_t length = strcspn(start, "/");
        if (!component_valid(start, length))
            return cairn_fail(err, CAIRN_INVALID, "\"%.*s\" cannot be part of a key", (int)length,
                              start);
        if (!start[length]) break;
        start += length + 1;
    }
    size_t folder_size = start == key ? 0 : (size_t)(start - key) - 1;
    memcpy(ret->folder, key, folder_size);
    ret->folder[folder_size] = '\0';
    memcpy(ret->name, start, strlen(start) + 1);
    return CAIRN_OK;
}

/* NOT_FOUND for absent names and for keys below an object; STORE for a link in the path. */
static enum cairn_code fail_at(struct cairn_error *err, int os_errno, const char *doing) {
    if (os_errno == ENOENT || os_errno == ENOTDIR || os_errno == EISDIR)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s: nothing is there", doing);
    if (os_errno == ELOOP || os_errno == EXDEV)
        return cairn_fail(err, CAIRN_STORE, "%s: a symbolic link is in the way, none is followed",
                          doing);
    errno = os_errno;
    return cairn_fail_errno(err, "%s", doing);
}

/* openat below the root without following links; -1 and errno. path "" is the folder itself. */
static int open_at(const struct cairn_store_dir *dir, int from_fd, const char *path, int flags) {
    return dir->beneath ? cairn_open_beneath(from_fd, path, flags)
                        : cairn_open_by_component(from_fd, path, flags);
}

enum cairn_code cairn_store_dir_folder(const struct cairn_store_dir *dir, const char *folder,
                                       int *ret_fd, struct cairn_error *err) {
    int fd = open_at(dir, dir->root_fd, folder, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return fail_at(err, errno, "open folder");
    *ret_fd = fd;
    return CAIRN_OK;
}

enum cairn_code cairn_store_dir_open_file(int folder_fd, const char *name, bool write,
                                          struct cairn_file *ret, struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = write ? cairn_file_open_write(folder_fd, name, ret, &why)
                                 : cairn_file_open_read(folder_fd, name, ret, &why);
    if (code == CAIRN_OK) return code;
    /* CAIRN_INVALID: a folder, FIFO or device is no object. */
    if (code == CAIRN_INVALID) why.os_errno = ENOENT;
    return fail_at(err, why.os_errno, "open");
}

/* FNV-1a: a collision only skips one sync of an entry that another process is making. */
static uint64_t path_hash(const char *path, size_t size) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) hash = (hash ^ (uint8_t)path[i]) * UINT64_C(0x100000001b3);
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

/* Opens one folder, makes it if absent, and makes its entry durable. Another process may have made
 * an existing folder without syncing it yet, so this worker syncs each entry once. */
static enum cairn_code enter_folder(struct cairn_store_dir_worker *worker, int parent_fd,
                                    const char *name, uint64_t hash, bool together, int *ret_fd,
                                    struct cairn_error *err) {
    const struct cairn_store_dir *dir = cairn_store_dir_of(worker);
    bool made = mkdirat(parent_fd, name, dir->folder_mode) == 0;
    if (!made && errno != EEXIST)
        return cairn_file_tell_inodes(err, parent_fd,
                                      cairn_fail_errno(err, "make folder %s", name));
    CAIRN_AUTO_FD fd = open_at(dir, parent_fd, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0 && errno == ENOTDIR)
        return cairn_fail(err, CAIRN_STORE,
                          "%s is an object, so a folder cannot hold keys below it", name);
    if (fd < 0 && errno != ENOENT) return fail_at(err, errno, "open folder");
    if (fd < 0) return cairn_fail_errno(err, "open folder %s", name); /* pruned: try again */
    if (made) (void)!fchmod(fd, dir->folder_mode); /* a file system without modes keeps its own */
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
    CAIRN_AUTO_FD at = open_at(dir, dir->root_fd, "", O_RDONLY | O_DIRECTORY);
    if (at < 0) return cairn_fail_errno(err, "open the store's root");
    for (const char *start = folder; *start;) {
        char name[256];
        size_t length = strcspn(start, "/");
        memcpy(name, start, length);
        name[length] = '\0';
        start += length;
        uint64_t hash = path_hash(folder, (size_t)(start - folder));
        int next = -1;
        CAIRN_TRY(enter_folder(worker, at, name, hash, together, &next, err));
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
        int fd = open_at(dir, dir->root_fd, folder, O_RDONLY | O_DIRECTORY);
        if (fd >= 0) {
            *ret_fd = fd;
            return CAIRN_OK;
        }
        /* The folder was pruned since, perhaps with its parents: forget all. */
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
            open_at(dir, dir->root_fd, slash ? path : "", O_RDONLY | O_DIRECTORY);
        if (parent >= 0 && unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT) return;
        if (parent < 0 && errno != ENOENT) return;
        if (!slash) return;
    }
}

/* ---- listing: a walk in key order, one page at a time ---- */

/* A folder sorts as its name plus '/': in key order a page's last key leads to the next page. */
#define ITEMS_MAX 100000000 /* of one folder */
#define PAGE_ENTRIES_MAX 1000

struct name {
    char *text; /* ends with '/' for a folder */
};
struct names {
    struct name *items;
    size_t count, capacity;
};
struct walk {
    const struct cairn_store_dir *dir;
    const char *prefix, *after; /* after: NULL on the first page */
    bool temporaries;           /* list only temporaries, or everything else */
    struct cairn_store_listing *listing;
    bool full;
    char path[CAIRN_KEY_BYTES_MAX + 2]; /* folder being read; ends with '/' unless root */
};

static void cairn_names_release(struct names *names) {
    for (size_t i = 0; i < names->count; i++) free(names->items[i].text);
    free(names->items);
}

static int by_text(const void *a, const void *b) {
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

/* True if this key, or keys below it, can belong to the page. */
static bool may_be_listed(struct walk *walk, const char *name, bool folder) {
    char key[CAIRN_KEY_BYTES_MAX + 2];
    size_t base = strlen(walk->path), size = strlen(name);
    if (base + size + folder > CAIRN_KEY_BYTES_MAX) return false;
    memcpy(key, walk->path, base);
    memcpy(key + base, name, size);
    key[base + size] = '/';
    key[base + size + folder] = '\0';
    bool in_prefix =
        cairn_text_starts(key, walk->prefix) || (folder && cairn_text_starts(walk->prefix, key));
    if (!in_prefix || !walk->after) return in_prefix;
    return strcmp(key, walk->after) > 0 || (folder && cairn_text_starts(walk->after, key));
}

/* inside.h#7. */
static bool is_ballast(const struct walk *walk, const char *name) {
    return strcmp(walk->path, CAIRN_STORE_DIR_BALLAST_FOLDER "/") == 0 &&
           cairn_text_starts(name, CAIRN_STORE_DIR_BALLAST_NAME);
}

static enum cairn_code read_names(struct walk *walk, DIR *stream, struct names *names,
                                  struct cairn_error *err) {
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry)
            return errno ? cairn_fail_errno(err, "read the folder %s", walk->path) : CAIRN_OK;
        const char *name = entry->d_name;
        bool folder = false;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        /* Links and devices are neither keys nor folders. */
        unsigned char type = entry->d_type;
        struct stat st;
        if (type == DT_UNKNOWN &&
            fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_LNK;
        folder = type == DT_DIR;
        if (!(type == DT_DIR || type == DT_REG) || !may_be_listed(walk, name, folder)) continue;
        if (!folder && cairn_store_dir_is_temporary(name) != walk->temporaries) continue;
        if (is_ballast(walk, name)) continue;
        CAIRN_TRY(CAIRN_ARRAY_ROOM(names->items, names->count, names->capacity, ITEMS_MAX,
                                   "names of a listing", err));
        size_t size = strlen(name);
        char *copy = malloc(size + 2);
        if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a listing");
        memcpy(copy, name, size);
        copy[size] = '/';
        copy[size + folder] = '\0';
        names->items[names->count++].text = copy;
    }
}

/* A temporary's path contains its upload's id. */
static char *upload_id_of(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return strndup(name + 1, CAIRN_UUID_TEXT_BYTES - 1);
}

static enum cairn_code add_entry(struct walk *walk, const struct stat *st,
                                 struct cairn_error *err) {
    struct cairn_store_listing *listing = walk->listing;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(listing->entries, listing->count, listing->capacity, ITEMS_MAX,
                               "names of a listing", err));
    struct cairn_store_entry entry = {
        .key = strdup(walk->path),
        .upload_id = walk->temporaries ? upload_id_of(walk->path) : NULL,
        .size_bytes = (uint64_t)st->st_size,
        .modified_ms = (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000};
    listing->entries[listing->count++] = entry;
    if (!entry.key || (walk->temporaries && !entry.upload_id))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a listing");
    return cairn_store_listed_check(walk->prefix, &entry, err);
}

static enum cairn_code visit_file(struct walk *walk, int folder_fd, const char *name,
                                  struct cairn_error *err) {
    struct stat st;
    if (fstatat(folder_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? CAIRN_OK : cairn_fail_errno(err, "stat %s", walk->path);
    struct cairn_store_listing *listing = walk->listing;
    if (listing->count < PAGE_ENTRIES_MAX) return add_entry(walk, &st, err);
    walk->full = true;
    listing->next_page = strdup(listing->entries[listing->count - 1].key);
    return listing->next_page ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory to list");
}

/* Reads the folder walk->path recursively; a key's length bounds the depth. */
static enum cairn_code walk_folder(struct walk *walk, int folder_fd, struct cairn_error *err) {
    DIR *stream = fdopendir(folder_fd);
    if (!stream) {
        close(folder_fd);
        return cairn_fail_errno(err, "read the folder %s", walk->path);
    }
    __attribute__((cleanup(cairn_names_release))) struct names names = {0};
    enum cairn_code code = read_names(walk, stream, &names, err);
    if (names.count) qsort(names.items, names.count, sizeof *names.items, by_text);
    size_t base = strlen(walk->path);
    for (size_t i = 0; i < names.count && code == CAIRN_OK && !walk->full; i++) {
        const char *name = names.items[i].text;
        size_t size = strlen(name);
        memcpy(walk->path + base, name, size + 1);
        if (name[size - 1] != '/') {
            code = visit_file(walk, dirfd(stream), name, err);
        } else {
            names.items[i].text[size - 1] = '\0';
            int fd = open_at(walk->dir, dirfd(stream), name, O_RDONLY | O_DIRECTORY);
            if (fd >= 0)
                code = walk_folder(walk, fd, err);
            else if (errno != ENOENT)
                code = fail_at(err, errno, "open a folder");
        }
        walk->path[base] = '\0';
    }
    closedir(stream);
    return code;
}

/* ---- listing of given keys ---- */

/* Index of the first key behind the page before. */
static size_t first_behind(const struct cairn_store_request *request) {
    size_t low = 0, high = request->page ? request->only_count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(request->only(request->only_owner, middle), request->page) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The folder of consecutive keys; fd -1: there is none. */
struct only_folder {
    char path[CAIRN_KEY_BYTES_MAX + 1];
    size_t size; /* of the path; 0: not looked for */
    int fd;
};

/* Splits a key, and opens its folder if the key before was not in the same. */
static enum cairn_code enter_only(const struct walk *walk, const char *key,
                                  struct only_folder *folder, const char **ret_name,
                                  struct cairn_error *err) {
    const char *slash = strrchr(key, '/');
    size_t size = slash ? (size_t)(slash - key) : 0;
    bool same = size && size == folder->size && !memcmp(key, folder->path, size) &&
                strlen(key) <= CAIRN_KEY_BYTES_MAX;
    *ret_name = slash ? slash + 1 : key;
    if (same && component_valid(*ret_name, strlen(*ret_name))) return CAIRN_OK;
    struct cairn_store_dir_place place;
    CAIRN_TRY(cairn_store_dir_place_of(key, &place, err));
    if (folder->fd >= 0) close(folder->fd);
    folder->fd = -1;
    folder->size = size;
    memcpy(folder->path, place.folder, size + 1);
    enum cairn_code code = cairn_store_dir_folder(walk->dir, place.folder, &folder->fd, err);
    return code == CAIRN_NOT_FOUND ? CAIRN_OK : code;
}

static enum cairn_code visit_only(struct walk *walk, const char *key, struct only_folder *folder,
                                  struct cairn_error *err) {
    const char *name = NULL;
    struct stat st;
    CAIRN_TRY(enter_only(walk, key, folder, &name, err));
    if (folder->fd < 0 || cairn_store_dir_is_temporary(name)) return CAIRN_OK;
    if (fstatat(folder->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? CAIRN_OK : cairn_fail_errno(err, "stat %s", key);
    if (!S_ISREG(st.st_mode)) return CAIRN_OK;
    memcpy(walk->path, key, strlen(key) + 1);
    return add_entry(walk, &st, err);
}

/* Looks for each key: half the time of reading and sorting the folder and looking at its files. */
static enum cairn_code list_only(struct walk *walk, const struct cairn_store_request *request,
                                 struct cairn_error *err) {
    struct cairn_store_listing *listing = walk->listing;
    struct only_folder folder = {.fd = -1};
    enum cairn_code code = CAIRN_OK;
    for (size_t i = first_behind(request); i < request->only_count && !code; i++) {
        if (listing->count == PAGE_ENTRIES_MAX) {
            listing->next_page = strdup(listing->entries[listing->count - 1].key);
            if (!listing->next_page) code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory to list");
            break;
        }
        code = visit_only(walk, request->only(request->only_owner, i), &folder, err);
    }
    if (folder.fd >= 0) close(folder.fd);
    if (code != CAIRN_OK) cairn_store_listing_release(listing);
    return code;
}

/* Begins at the deepest folder in the prefix. */
static enum cairn_code list_page(struct cairn_store_dir_worker *worker,
                                 struct cairn_store_dir_job *job, bool temporaries,
                                 struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    struct walk walk = {.dir = cairn_store_dir_of(worker),
                        .prefix = request->key,
                        .after = request->page,
                        .temporaries = temporaries,
                        .listing = request->listing};
    if (request->only && !temporaries) return list_only(&walk, request, err);
    const char *slash = strrchr(request->key, '/');
    int fd = -1;
    if (slash) {
        struct cairn_store_dir_place place;
        size_t size = (size_t)(slash - request->key) + 1;
        if (size > CAIRN_KEY_BYTES_MAX) return CAIRN_OK;
        memcpy(walk.path, request->key, size);
        walk.path[size - 1] = '\0';
        CAIRN_TRY(cairn_store_dir_place_of(walk.path, &place, err));
    }
    enum cairn_code code = cairn_store_dir_folder(walk.dir, walk.path, &fd, err);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    CAIRN_TRY(code);
    if (slash) walk.path[slash - request->key] = '/';
    code = walk_folder(&walk, fd, err);
    if (code != CAIRN_OK) cairn_store_listing_release(request->listing);
    return code;
}

enum cairn_code cairn_store_dir_list(struct cairn_store_dir_worker *worker,
                                     struct cairn_store_dir_job *job, bool *ret_more,
                                     struct cairn_error *err) {
    *ret_more = false;
    return list_page(worker, job, false, err);
}

/* An upload's entry has the temporary file's path as key: aborting needs only its folder and the
 * upload's id, and the final name is stored nowhere. */
enum cairn_code cairn_store_dir_uploads(struct cairn_store_dir_worker *worker,
                                        struct cairn_store_dir_job *job, bool *ret_more,
                                        struct cairn_error *err) {
    *ret_more = false;
    return list_page(worker, job, true, err);
}

/* Opens the request's object for reading, once per job. */
static enum cairn_code open_object(struct cairn_store_dir_worker *worker,
                                   struct cairn_store_dir_job *job, struct cairn_error *err) {
    struct cairn_store_dir_place place;
    CAIRN_TRY(cairn_store_dir_place_of(job->request->key, &place, err));
    if (cairn_store_dir_is_temporary(place.name))
        return cairn_fail(err, CAIRN_NOT_FOUND, "nothing is there, only an unfinished object");
    CAIRN_TRY(
        cairn_store_dir_folder(cairn_store_dir_of(worker), place.folder, &job->folder_fd, err));
    return cairn_store_dir_open_file(job->folder_fd, place.name, false, &job->file, err);
}

/* Objects are never written in place, so inode, size and time identify a key's content. */
static void etag_of(const struct stat *st, char *ret_etag, size_t capacity) {
    snprintf(ret_etag, capacity, "%" PRIx64 "-%" PRIx64 "-%" PRIx64 "%09" PRIu64,
             (uint64_t)st->st_ino, (uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec,
             (uint64_t)st->st_mtim.tv_nsec);
}

static enum cairn_code get_begin(struct cairn_store_dir_worker *worker,
                                 struct cairn_store_dir_job *job, struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    CAIRN_TRY(open_object(worker, job, err));
    struct stat st;
    if (fstat(job->file.fd, &st) != 0) return cairn_fail_errno(err, "stat");
    char etag[sizeof request->etag];
    etag_of(&st, etag, sizeof etag);
    if (request->etag[0] && strcmp(etag, request->etag) != 0)
        return cairn_fail(err, CAIRN_PRECONDITION, "it is no longer the object that was asked for");
    memcpy(request->etag, etag, sizeof etag);
    request->object_bytes = (uint64_t)st.st_size;
    if (request->up_to && request->offset <= request->object_bytes)
        request->length = cairn_min_u64(request->length, request->object_bytes - request->offset);
    uint64_t end;
    if (cairn_add_overflows(request->offset, request->length, &end) || end > request->object_bytes)
        return cairn_fail(err, CAIRN_RANGE, "%" PRIu64 " bytes at %" PRIu64 " of %" PRIu64,
                          request->length, request->offset, request->object_bytes);
    return CAIRN_OK;
}

enum cairn_code cairn_store_dir_get(struct cairn_store_dir_worker *worker,
                                    struct cairn_store_dir_job *job, bool *ret_more,
                                    struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    if (!job->begun) CAIRN_TRY(get_begin(worker, job, err));
    uint64_t left = request->length - job->moved_bytes;
    size_t size = (size_t)cairn_min_u64(left, CAIRN_STORE_DIR_STEP_BYTES);
    uint8_t *into = (uint8_t *)request->into + job->moved_bytes;
    CAIRN_TRY(cairn_file_read_at(&job->file, into, size, request->offset + job->moved_bytes, err));
    if (request->wants_crc32c) job->crc32c = cairn_crc32c(job->crc32c, into, size);
    job->moved_bytes += size;
    request->got_crc32c = job->crc32c;
    *ret_more = job->moved_bytes < request->length;
    return CAIRN_OK;
}

static void read_attributes(int fd, struct cairn_store_request *request) {
    char value[sizeof request->object_token];
    ssize_t size = fgetxattr(fd, CAIRN_STORE_DIR_XATTR_UPLOAD, value, sizeof value - 1);
    if (size > 0) {
        value[size] = '\0';
        memcpy(request->object_token, value, (size_t)size + 1);
    }
    uint8_t crc[4];
    size = fgetxattr(fd, CAIRN_STORE_DIR_XATTR_CRC32C, value, sizeof value);
    struct cairn_view text = {value, size > 0 ? (size_t)size : 0};
    if (text.size != 8 || cairn_hex_decode(text, crc, sizeof crc, NULL) != CAIRN_OK) return;
    request->object_has_crc32c = true;
    request->object_crc32c =
        (uint32_t)crc[0] << 24 | (uint32_t)crc[1] << 16 | (uint32_t)crc[2] << 8 | crc[3];
}

enum cairn_code cairn_store_dir_head(struct cairn_store_dir_worker *worker,
                                     struct cairn_store_dir_job *job, bool *ret_more,
                                     struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    *ret_more = false;
    CAIRN_TRY(open_object(worker, job, err));
    struct stat st;
    if (fstat(job->file.fd, &st) != 0) return cairn_fail_errno(err, "stat");
    bool durable = cairn_store_dir_remembers(worker, &st);
    if (request->token && !durable && !cairn_store_dir_of(worker)->read_only) { /* inside.h#3 */
        if (fsync(job->file.fd) != 0) return cairn_fail_errno(err, "sync");
        CAIRN_TRY(cairn_dir_sync(job->folder_fd, err));
    }
    request->object_bytes = (uint64_t)st.st_size;
    etag_of(&st, request->etag, sizeof request->etag);
    read_attributes(job->file.fd, request);
    return CAIRN_OK;
}

enum cairn_code cairn_store_dir_upload_parts(struct cairn_store_dir_worker *worker,
                                             struct cairn_store_dir_job *job, bool *ret_more,
                                             struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    if (!job->begun) {
        /* Without a list of parts the caller compares checksums; missing bytes read as zeros. */
        struct cairn_store_dir_place place;
        CAIRN_TRY(cairn_store_dir_place_of(request->key, &place, err));
        if (!request->upload_id_in || !cairn_uuid_text_valid(cairn_view_of(request->upload_id_in)))
            return cairn_fail(err, CAIRN_NOT_FOUND, "no such upload");
        CAIRN_TRY(
            cairn_store_dir_folder(cairn_store_dir_of(worker), place.folder, &job->folder_fd, err));
        char name[CAIRN_STORE_DIR_TEMPORARY_BYTES];
        cairn_store_dir_temporary(request->upload_id_in, name);
        CAIRN_TRY(cairn_store_dir_open_file(job->folder_fd, name, false, &job->file, err));
        CAIRN_TRY(cairn_file_size(&job->file, &request->object_bytes, err));
        job->scratch = cairn_pages_map(CAIRN_STORE_DIR_STEP_BYTES);
        if (!job->scratch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to read parts");
    }
    if (request->length == 0 || request->object_bytes == 0) request->part_count = 0;
    *ret_more = request->part_count > 0;
    if (!*ret_more) return CAIRN_OK;
    size_t index = (size_t)(job->moved_bytes / request->length);
    bool whole = false;
    /* Continues to read the part. */
    uint64_t in_part = request->length - job->moved_bytes % request->length;
    uint64_t in_file = request->object_bytes - job->moved_bytes;
    uint64_t left = cairn_min_u64(in_part, in_file);
    size_t size = (size_t)cairn_min_u64(left, CAIRN_STORE_DIR_STEP_BYTES);
    CAIRN_TRY(cairn_file_read_at(&job->file, job->scratch, size, job->moved_bytes, err));
    job->crc32c = cairn_crc32c(job->crc32c, job->scratch, size);
    job->moved_bytes += size;
    whole = size == left;
    if (!whole) return CAIRN_OK;
    struct cairn_store_part *part = &request->parts[index];
    *part = (struct cairn_store_part){.number = (uint32_t)index + 1,
                                      .size_bytes = job->moved_bytes - index * request->length,
                                      .has_crc32c = true,
                                      .crc32c = job->crc32c};
    snprintf(part->etag, sizeof part->etag, "%08" PRIx32, job->crc32c);
    job->crc32c = 0;
    *ret_more = job->moved_bytes < request->object_bytes && index + 1 < request->part_count;
    if (!*ret_more) request->part_count = index + 1;
    return CAIRN_OK;
}
