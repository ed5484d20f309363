/* SPDX-License-Identifier: Apache-2.0 */
/* Walking a directory that becomes a checkpoint. */
#include "cli/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "api/documents/keys.h"
#include "api/wire/messages.h"
#include "cli/output.h"
#include "common/buf.h"
#include "common/file.h"
#include "common/text.h"

#define FILES_MAX 1048576
#define DEPTH_MAX CAIRN_CLI_TREE_DEPTH
#define ATTRIBUTES_BYTES_MAX 4096 /* of their names; more are not looked at */
#define LINKS_MAX 40 /* from one name to its file, as the kernel has it */
#define NO_FILE "neither a file nor a folder (device, socket or pipe)"

static int open_in(const struct cairn_cli_tree *tree, int folder_fd, const char *name, int flags) {
    bool none = tree->links == CAIRN_CLI_LINKS_NONE;
    return cairn_open_below(folder_fd, name, flags, none ? CAIRN_LINKS_NONE : CAIRN_LINKS_FOLLOWED);
}

static void refuse(struct cairn_cli_tree *tree, const char *name, const char *why) {
    char clean[256];
    size_t used = 0;
    bool text = cairn_utf8_valid(cairn_view_of(name));
    for (; *name && used + 5 < sizeof clean; name++) {
        unsigned char byte = (unsigned char)*name;
        if (byte < 0x20 || byte == 0x7f || (!text && byte > 0x7f))
            used += (size_t)snprintf(clean + used, sizeof clean - used, "\\x%02x", *name & 0xff);
        else
            clean[used++] = *name;
    }
    clean[used] = '\0';
    fprintf(stderr, "cannot keep %s: %s\n", clean, why);
    tree->refused++;
}

static enum cairn_code append(struct cairn_cli_file **items, size_t *count, size_t *capacity,
                              const struct cairn_cli_file *item, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(*items, *count, *capacity, FILES_MAX, "files", err));
    char *copy = strdup(item->name);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of files");
    (*items)[*count] = *item;
    (*items)[(*count)++].name = copy;
    return CAIRN_OK;
}

/* ---- what is not kept ---- */

static bool has_more_names(const struct stat *status) {
    return S_ISREG(status->st_mode) && status->st_nlink > 1;
}

/* Where they cannot be listed there are none to tell of. */
static void count_attributes(struct cairn_cli_tree *tree, const char *name) {
    char path[PATH_MAX], names[ATTRIBUTES_BYTES_MAX];
    int length = snprintf(path, sizeof path, "/proc/self/fd/%d/%s", tree->root_fd, name);
    if (length < 0 || (size_t)length >= sizeof path) return;
    ssize_t size = listxattr(path, names, sizeof names);
    bool others = false, lists = false;
    for (ssize_t at = 0; at < size; at += (ssize_t)strlen(names + at) + 1) {
        bool list = strncmp(names + at, "system.posix_acl_", 17) == 0;
        lists |= list;
        others |= !list && strncmp(names + at, "security.", 9) != 0;
    }
    tree->unkept.attributes += others;
    tree->unkept.access_lists += lists;
}

static void count_unkept(struct cairn_cli_tree *tree, const char *name,
                         const struct stat *status) {
    count_attributes(tree, name);
    tree->unkept.bits += (status->st_mode & 07000) != 0;
    tree->unkept.owners += status->st_uid != geteuid();
    tree->unkept.links += has_more_names(status);
}

static bool can_be_kept(struct cairn_cli_tree *tree, const char *name) {
    struct cairn_error why = {0};
    bool ours = strcmp(name, CAIRN_TREE_SHARD) == 0;
    if (!ours && cairn_shard_name_check(cairn_view_of(name), &why) == CAIRN_OK) return true;
    refuse(tree, name, ours ? "what describes a tree has this name in the store" : why.message);
    return false;
}

static enum cairn_code add(struct cairn_cli_tree *tree, const char *name, const struct stat *status,
                           struct cairn_error *err) {
    const struct cairn_cli_file file = {.name = (char *)(uintptr_t)name,
                                        .bytes = (uint64_t)status->st_size,
                                        .mode = status->st_mode & 0777};
    if (!can_be_kept(tree, name)) return CAIRN_OK;
    bool asks = (status->st_mode & 0444) != 0444; /* else its mode keeps nobody from reading it */
    if (asks && faccessat(tree->root_fd, name, R_OK, AT_EACCESS)) {
        refuse(tree, name, "it may not be read");
        return CAIRN_OK;
    }
    count_unkept(tree, name, status);
    tree->total_bytes += file.bytes;
    return append(&tree->files, &tree->count, &tree->capacity, &file, err);
}

static enum cairn_code walk(struct cairn_cli_tree *tree, const char *folder, unsigned depth,
                            struct cairn_error *err);

static enum cairn_code take_folder(struct cairn_cli_tree *tree, const char *name,
                                   const struct stat *status, unsigned depth,
                                   struct cairn_error *err) {
    const struct cairn_cli_file folder = {.name = (char *)(uintptr_t)name,
                                          .mode = status->st_mode & 0777};
    count_unkept(tree, name, status);
    CAIRN_TRY(append(&tree->folders, &tree->folder_count, &tree->folder_capacity, &folder, err));
    return walk(tree, name, depth + 1, err);
}

/* Is it one of the folders that are being walked? */
static bool is_above(const struct cairn_cli_tree *tree, const struct stat *folder, unsigned depth) {
    for (unsigned i = 0; i <= depth; i++)
        if (tree->above[i].device == folder->st_dev && tree->above[i].inode == folder->st_ino)
            return true;
    return false;
}

/* Links that stay in the tree are kept as links, whether what they name is there or not. */
static enum cairn_code take_link(struct cairn_cli_tree *tree, const char *name, unsigned depth,
                                 struct cairn_error *err) {
    char target[PATH_MAX];
    struct stat status;
    ssize_t size = readlinkat(tree->root_fd, name, target, sizeof target - 1);
    if (size < 0) return cairn_fail_errno(err, "%s", name);
    target[size] = '\0';
    if (cairn_utf8_valid(cairn_view_of(target)) && cairn_cli_link_stays(name, target)) {
        if (!can_be_kept(tree, name)) return CAIRN_OK;
        if (json_object_set_new(tree->meta.links, name, json_string(target)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of links");
        return CAIRN_OK;
    }
    if (tree->links != CAIRN_CLI_LINKS_FOLLOWED) {
        refuse(tree, name,
               "a link that points out of the tree; --follow keeps what it points to");
        return CAIRN_OK;
    }
    if (fstatat(tree->root_fd, name, &status, 0)) {
        bool round = errno == ELOOP;
        refuse(tree, name, round ? "a link that leads back to itself" : "a link to nothing");
        return CAIRN_OK;
    }
    if (S_ISDIR(status.st_mode) && is_above(tree, &status, depth))
        refuse(tree, name, "a link to a folder that it is in: to follow it would never end");
    else if (S_ISDIR(status.st_mode))
        return take_folder(tree, name, &status, depth, err);
    else if (S_ISREG(status.st_mode))
        return add(tree, name, &status, err);
    else
        refuse(tree, name, NO_FILE);
    return CAIRN_OK;
}

static enum cairn_code take_entry(struct cairn_cli_tree *tree, const char *name, unsigned depth,
                                  struct cairn_error *err) {
    struct stat status;
    if (fstatat(tree->root_fd, name, &status, AT_SYMLINK_NOFOLLOW))
        return cairn_fail_errno(err, "%s", name);
    if (cairn_cli_patterns_match(&tree->patterns, name, S_ISDIR(status.st_mode))) {
        tree->excluded++;
        return CAIRN_OK;
    }
    if (S_ISDIR(status.st_mode)) return take_folder(tree, name, &status, depth, err);
    if (S_ISLNK(status.st_mode)) return take_link(tree, name, depth, err);
    if (S_ISREG(status.st_mode)) return add(tree, name, &status, err);
    refuse(tree, name, NO_FILE);
    return CAIRN_OK;
}

static enum cairn_code walk(struct cairn_cli_tree *tree, const char *folder, unsigned depth,
                            struct cairn_error *err) {
    if (depth > DEPTH_MAX) {
        refuse(tree, folder, "too deep");
        return CAIRN_OK;
    }
    int fd = open_in(tree, tree->root_fd, *folder ? folder : ".", O_DIRECTORY);
    struct stat own = {0};
    if (fd >= 0 && !fstat(fd, &own)) {
        tree->above[depth].device = own.st_dev;
        tree->above[depth].inode = own.st_ino;
    }
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream) return cairn_fail_errno(err, "folder %s", *folder ? folder : ".");
    enum cairn_code code = CAIRN_OK;
    struct dirent *entry;
    size_t entries = 0;
    while (code == CAIRN_OK && (entry = readdir(stream))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        CAIRN_AUTO(buf) name = {0};
        entries++;
        code = *folder ? cairn_buf_printf(&name, err, "%s/%s", folder, entry->d_name)
                       : cairn_buf_append_text(&name, entry->d_name, err);
        if (code == CAIRN_OK) code = take_entry(tree, name.data, depth, err);
    }
    closedir(stream);
    if (entries || !*folder || code != CAIRN_OK || !can_be_kept(tree, folder)) return code;
    if (json_array_append_new(tree->meta.folders, json_string(folder)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of folders");
    return CAIRN_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct cairn_cli_file *)a)->name,
                  ((const struct cairn_cli_file *)b)->name);
}

static enum cairn_code open_file_root(struct cairn_cli_tree *tree, const char *path,
                                      const struct stat *status, struct cairn_error *err) {
    const char *slash = strrchr(path, '/');
    CAIRN_AUTO(buf) folder = {0};
    if (slash)
        CAIRN_TRY(cairn_buf_append(&folder, path, (size_t)(slash - path) + 1, err));
    else
        CAIRN_TRY(cairn_buf_append_text(&folder, ".", err));
    tree->root_fd = open_in(tree, AT_FDCWD, folder.data, O_DIRECTORY);
    if (tree->root_fd < 0) return cairn_fail_errno(err, "%s", folder.data);
    const char *name = slash ? slash + 1 : path;
    /* A link that is named on the command line has been followed: it stands for its file. */
    if (S_ISREG(status->st_mode)) return add(tree, name, status, err);
    refuse(tree, name, NO_FILE);
    return CAIRN_OK;
}

/* The tree's own patterns come first, so that the caller's decide. */
static enum cairn_code read_ignored(struct cairn_cli_tree *tree, struct cairn_error *err) {
    CAIRN_AUTO(buf) lines = {.limit = CAIRN_MIB};
    struct cairn_file file = {0};
    uint64_t size = 0;
    CAIRN_AUTO_FD fd = cairn_open_below(tree->root_fd, CAIRN_CLI_IGNORE_FILE, 0, CAIRN_LINKS_NONE);
    /* Without it more would be kept than was wanted. */
    if (fd < 0 && errno != ENOENT)
        return cairn_fail(err, CAIRN_INVALID, "%s cannot be read: %s", CAIRN_CLI_IGNORE_FILE,
                          errno == ELOOP ? "it is a link, and none is followed" : strerror(errno));
    if (fd >= 0) {
        file = (struct cairn_file){.fd = fd, .direct_fd = -1};
        enum cairn_code code = cairn_file_size(&file, &size, err);
        if (!code) code = cairn_buf_reserve(&lines, (size_t)size, err);
        if (!code) code = cairn_file_read_at(&file, lines.data, (size_t)size, 0, err);
        lines.size = (size_t)size;
        if (!code)
            code = cairn_cli_patterns_add_lines(&tree->patterns, cairn_buf_view(&lines), err);
        if (code) return cairn_within(err, code, "%s", CAIRN_CLI_IGNORE_FILE);
    }
    for (size_t i = 0; tree->exclude && i < tree->exclude->count; i++)
        CAIRN_TRY(cairn_cli_patterns_add(&tree->patterns, tree->exclude->items[i], err));
    return CAIRN_OK;
}

static enum cairn_code open_root(struct cairn_cli_tree *tree, const char *path, int folder_fd,
                                 struct cairn_error *err) {
    struct stat status;
    CAIRN_AUTO_FD fd = folder_fd >= 0 ? fcntl(folder_fd, F_DUPFD_CLOEXEC, 0)
                                      : open_in(tree, AT_FDCWD, path, O_PATH);
    if (fd < 0 || fstat(fd, &status)) return cairn_fail_errno(err, "%s", path);
    if (!S_ISDIR(status.st_mode)) return open_file_root(tree, path, &status, err);
    tree->root_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tree->root_fd < 0) return cairn_fail_errno(err, "%s", path);
    CAIRN_TRY(read_ignored(tree, err));
    return walk(tree, "", 0, err);
}

/* The most frequent mode; meta names the files that have another. */
static unsigned common_mode(const struct cairn_cli_file *items, size_t count, unsigned otherwise) {
    size_t counts[01000] = {0};
    unsigned best = otherwise;
    for (size_t i = 0; i < count; i++)
        if (++counts[items[i].mode] > counts[best]) best = items[i].mode;
    return best;
}

static enum cairn_code note_modes(struct cairn_cli_tree_meta *meta,
                                  const struct cairn_cli_file *items, size_t count, unsigned common,
                                  struct cairn_error *err) {
    for (size_t i = 0; i < count; i++) {
        if (items[i].mode == common) continue;
        if (json_object_set_new(meta->modes, items[i].name,
                                json_integer((json_int_t)items[i].mode)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of modes");
    }
    return CAIRN_OK;
}

static enum cairn_code finish_meta(struct cairn_cli_tree *tree, struct cairn_error *err) {
    struct cairn_cli_tree_meta *meta = &tree->meta;
    meta->file_mode = common_mode(tree->files, tree->count, 0644);
    meta->folder_mode = common_mode(tree->folders, tree->folder_count, 0755);
    CAIRN_TRY(note_modes(meta, tree->files, tree->count, meta->file_mode, err));
    return note_modes(meta, tree->folders, tree->folder_count, meta->folder_mode, err);
}

enum cairn_code cairn_cli_tree_open(const char *path, int folder_fd, enum cairn_cli_links links,
                                    const struct cairn_cli_texts *exclude,
                                    struct cairn_cli_tree *ret, struct cairn_error *err) {
    *ret = (struct cairn_cli_tree){.root_fd = -1, .links = links, .exclude = exclude};
    ret->meta = (struct cairn_cli_tree_meta){
        .there = true, .modes = json_object(), .links = json_object(), .folders = json_array()};
    enum cairn_code code = open_root(ret, path, folder_fd, err);
    if (code == CAIRN_OK && ret->refused)
        code =
            cairn_fail(err, CAIRN_INVALID,
                       "%s cannot be kept (listed above); nothing was sent",
                       cairn_cli_counted(ret->refused, "name", "names").text);
    if (code == CAIRN_OK && !ret->count)
        code = cairn_fail(err, CAIRN_INVALID, "%s holds no file", path);
    if (code == CAIRN_OK) code = finish_meta(ret, err);
    if (code != CAIRN_OK) {
        cairn_cli_tree_release(ret);
        return code;
    }
    qsort(ret->files, ret->count, sizeof *ret->files, by_name);
    return CAIRN_OK;
}

void cairn_cli_tree_release(struct cairn_cli_tree *tree) {
    for (size_t i = 0; i < tree->count; i++) free(tree->files[i].name);
    for (size_t i = 0; i < tree->folder_count; i++) free(tree->folders[i].name);
    free(tree->files);
    free(tree->folders);
    cairn_cli_tree_meta_release(&tree->meta);
    cairn_cli_patterns_release(&tree->patterns);
    if (tree->root_fd >= 0) close(tree->root_fd);
    *tree = (struct cairn_cli_tree){.root_fd = -1};
}

enum cairn_code cairn_cli_tree_file(const struct cairn_cli_tree *tree, size_t index, int *ret_fd,
                                    struct cairn_error *err) {
    const char *name = tree->files[index].name;
    struct stat status;
    CAIRN_AUTO_FD fd = open_in(tree, tree->root_fd, name, 0);
    if (fd < 0 || fstat(fd, &status)) return cairn_fail_errno(err, "%s", name);
    if (!S_ISREG(status.st_mode))
        return cairn_fail(err, CAIRN_CONFLICT, "%s was a file, and is none any more", name);
    *ret_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

/* ---- through links ---- */

/* The target of the link at path[0, size), as a path below the root, and what follows it. */
static enum cairn_code follow(const char *path, size_t size, const char *target,
                              struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) joined = {.limit = 2 * PATH_MAX};
    size_t folder = size;
    while (folder && path[folder - 1] != '/') folder--;
    CAIRN_TRY(cairn_buf_printf(&joined, err, "%.*s%s%s", (int)folder, path, target, path + size));
    ret->size = 0;
    char *rest = joined.data;
    for (char *part; (part = strsep(&rest, "/"));) {
        if (!*part || strcmp(part, ".") == 0) continue;
        if (strcmp(part, "..") != 0) {
            CAIRN_TRY(cairn_buf_printf(ret, err, "%s%s", ret->size ? "/" : "", part));
            continue;
        }
        char *slash = ret->size ? strrchr(ret->data, '/') : NULL;
        ret->size = slash ? (size_t)(slash - ret->data) : 0;
        if (ret->data) ret->data[ret->size] = '\0';
    }
    return CAIRN_OK;
}

enum cairn_code cairn_cli_tree_resolve(const struct cairn_cli_tree *tree, const char *name,
                                       struct cairn_buf *ret, struct cairn_error *err) {
    ret->size = 0;
    CAIRN_TRY(cairn_buf_append_text(ret, name, err));
    for (unsigned links = 0; links < LINKS_MAX; links++) {
        const char *target = NULL;
        size_t size = 0;
        while (!target && size < ret->size) {
            size += strcspn(ret->data + size, "/");
            target = json_string_value(json_object_getn(tree->meta.links, ret->data, size));
            if (!target && size < ret->size) size++;
        }
        if (!target) return CAIRN_OK;
        CAIRN_AUTO(buf) path = {0};
        CAIRN_TRY(cairn_buf_append_text(&path, ret->data, err));
        CAIRN_TRY(follow(path.data, size, target, ret, err));
    }
    return cairn_fail(err, CAIRN_INVALID, "%s: too many links", name);
}
