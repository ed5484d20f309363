/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listing: a walk in the order of keys, one page at a time.
 *
 * A folder sorts as its name with a '/' behind it, which makes the walk's order the byte order of
 * whole keys, so the last key of a page is all that the next page needs.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/text.h"
#include "store/dir/inside.h"

#define ITEMS_MAX 100000000 /* of one folder */
#define PAGE_ENTRIES_MAX 1000

struct name {
    char *text; /* a folder's ends with '/' */
};
struct names {
    struct name *items;
    size_t count, capacity;
};
struct walk {
    const struct cairn_store_dir *dir;
    const char *prefix, *after; /* after: NULL on the first page */
    bool temporaries;           /* these and nothing else, or all but these */
    struct cairn_store_listing *listing;
    bool full;
    char path[CAIRN_KEY_BYTES_MAX + 2]; /* of the folder being read, ends with '/' unless root */
};

static void cairn_names_release(struct names *names) {
    for (size_t i = 0; i < names->count; i++) free(names->items[i].text);
    free(names->items);
}

static int by_text(const void *a, const void *b) {
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

/* ---- one folder ---- */

static enum cairn_code names_add(struct names *names, const char *text, bool folder,
                                 struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(names->items, names->count, names->capacity, ITEMS_MAX,
                               "names of a listing", err));
    size_t size = strlen(text);
    char *copy = malloc(size + 2);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a listing");
    memcpy(copy, text, size);
    copy[size] = '/';
    copy[size + folder] = '\0';
    names->items[names->count++].text = copy;
    return CAIRN_OK;
}

/* Links, devices and the like are neither keys nor folders. */
static bool kind_of(int folder_fd, const struct dirent *entry, bool *ret_folder) {
    unsigned char type = entry->d_type;
    struct stat st;
    if (type == DT_UNKNOWN && fstatat(folder_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_LNK;
    }
    *ret_folder = type == DT_DIR;
    return type == DT_DIR || type == DT_REG;
}

/* Could keys below here, or this key, still belong to the page? */
static bool wanted(struct walk *walk, const char *name, bool folder) {
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
        if (!kind_of(dirfd(stream), entry, &folder) || !wanted(walk, name, folder)) continue;
        if (!folder && cairn_store_dir_is_temporary(name) != walk->temporaries) continue;
        CAIRN_TRY(names_add(names, name, folder, err));
    }
}

/* ---- entries ---- */

/* The uuid of a temporary's path is its upload's id. */
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
    if (fstatat(folder_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? CAIRN_OK : cairn_fail_errno(err, "stat %s", walk->path);
    }
    struct cairn_store_listing *listing = walk->listing;
    if (listing->count < PAGE_ENTRIES_MAX) return add_entry(walk, &st, err);
    walk->full = true;
    listing->next_page = strdup(listing->entries[listing->count - 1].key);
    return listing->next_page ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory to list");
}

/* Reads the folder walk->path, and with it what is below. Depth is bounded by a key's length. */
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
            int fd =
                cairn_store_dir_open_at(walk->dir, dirfd(stream), name, O_RDONLY | O_DIRECTORY);
            if (fd >= 0)
                code = walk_folder(walk, fd, err);
            else if (errno != ENOENT)
                code = cairn_store_dir_fail(err, errno, "open a folder");
        }
        walk->path[base] = '\0';
    }
    closedir(stream);
    return code;
}

/* ---- the two operations ---- */

/* Begins at the deepest folder that the prefix names. */
static enum cairn_code list(struct cairn_store_dir_worker *worker, struct cairn_store_dir_job *job,
                            bool temporaries, struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    struct walk walk = {.dir = cairn_store_dir_of(worker),
                        .prefix = request->key,
                        .after = request->page,
                        .temporaries = temporaries,
                        .listing = request->listing};
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
    return list(worker, job, false, err);
}

/* The key of an upload's entry is the path of its temporary file: aborting needs its folder and the
 * upload's id only, and the final name is nowhere written down. */
enum cairn_code cairn_store_dir_uploads(struct cairn_store_dir_worker *worker,
                                        struct cairn_store_dir_job *job, bool *ret_more,
                                        struct cairn_error *err) {
    *ret_more = false;
    return list(worker, job, true, err);
}
