/* SPDX-License-Identifier: Apache-2.0 */
/* Walking a directory that becomes a checkpoint. */
#include "cli/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/keys.h"
#include "common/encode.h"

#define FILES_MAX 1048576
#define DEPTH_MAX 64

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

static enum cairn_code add(struct cairn_cli_tree *tree, const char *name, uint64_t bytes,
                           struct cairn_error *err) {
    struct cairn_error why = {0};
    if (cairn_shard_name_check(cairn_view_of(name), &why) != CAIRN_OK) {
        refuse(tree, name, why.message);
        return CAIRN_OK;
    }
    if (tree->count == FILES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "more than %d files", FILES_MAX);
    if (tree->count == tree->capacity) {
        size_t capacity = tree->capacity ? 2 * tree->capacity : 64;
        struct cairn_cli_file *files = realloc(tree->files, capacity * sizeof *files);
        if (!files) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of files");
        tree->files = files;
        tree->capacity = capacity;
    }
    char *copy = strdup(name);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of files");
    tree->files[tree->count++] = (struct cairn_cli_file){.name = copy, .bytes = bytes};
    tree->total_bytes += bytes;
    return CAIRN_OK;
}

static enum cairn_code walk(struct cairn_cli_tree *tree, const char *folder, unsigned depth,
                            struct cairn_error *err);

static enum cairn_code take_entry(struct cairn_cli_tree *tree, const char *name, unsigned depth,
                                  struct cairn_error *err) {
    struct stat own, target;
    if (fstatat(tree->root_fd, name, &own, AT_SYMLINK_NOFOLLOW))
        return cairn_fail_errno(err, "%s", name);
    if (S_ISDIR(own.st_mode)) return walk(tree, name, depth + 1, err);
    bool is_link = S_ISLNK(own.st_mode);
    if (is_link && fstatat(tree->root_fd, name, &target, 0)) {
        refuse(tree, name, "a link to nothing");
        return CAIRN_OK;
    }
    if (!is_link) target = own;
    if (S_ISREG(target.st_mode)) return add(tree, name, (uint64_t)target.st_size, err);
    refuse(tree, name,
           is_link && S_ISDIR(target.st_mode)
               ? "a link to a folder"
               : "neither a file nor a folder (device, socket or pipe)");
    return CAIRN_OK;
}

static enum cairn_code walk(struct cairn_cli_tree *tree, const char *folder, unsigned depth,
                            struct cairn_error *err) {
    if (depth > DEPTH_MAX) {
        refuse(tree, folder, "too deep");
        return CAIRN_OK;
    }
    int fd = openat(tree->root_fd, *folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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
    if (!entries && *folder) tree->empty_folders++;
    return code;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct cairn_cli_file *)a)->name,
                  ((const struct cairn_cli_file *)b)->name);
}

static enum cairn_code open_root(struct cairn_cli_tree *tree, const char *path,
                                 struct cairn_error *err) {
    struct stat status;
    if (stat(path, &status)) return cairn_fail_errno(err, "%s", path);
    if (S_ISDIR(status.st_mode)) {
        tree->root_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (tree->root_fd < 0) return cairn_fail_errno(err, "%s", path);
        return walk(tree, "", 0, err);
    }
    const char *slash = strrchr(path, '/');
    CAIRN_AUTO(buf) folder = {0};
    if (slash)
        CAIRN_TRY(cairn_buf_append(&folder, path, (size_t)(slash - path) + 1, err));
    else
        CAIRN_TRY(cairn_buf_append_text(&folder, ".", err));
    tree->root_fd = open(folder.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tree->root_fd < 0) return cairn_fail_errno(err, "%s", folder.data);
    return take_entry(tree, slash ? slash + 1 : path, 0, err);
}

enum cairn_code cairn_cli_tree_open(const char *path, struct cairn_cli_tree *ret,
                                    struct cairn_error *err) {
    *ret = (struct cairn_cli_tree){.root_fd = -1};
    enum cairn_code code = open_root(ret, path, err);
    if (code == CAIRN_OK && ret->refused)
        code =
            cairn_fail(err, CAIRN_INVALID,
                       "%zu names cannot be kept (listed above); nothing was sent", ret->refused);
    if (code == CAIRN_OK && !ret->count)
        code = cairn_fail(err, CAIRN_INVALID, "%s holds no file", path);
    if (code != CAIRN_OK) {
        cairn_cli_tree_release(ret);
        return code;
    }
    qsort(ret->files, ret->count, sizeof *ret->files, by_name);
    if (ret->empty_folders)
        fprintf(stderr, "note: %zu empty folders are not kept; a checkpoint holds files\n",
                ret->empty_folders);
    return CAIRN_OK;
}

void cairn_cli_tree_release(struct cairn_cli_tree *tree) {
    for (size_t i = 0; i < tree->count; i++) free(tree->files[i].name);
    free(tree->files);
    if (tree->root_fd >= 0) close(tree->root_fd);
    *tree = (struct cairn_cli_tree){.root_fd = -1};
}

enum cairn_code cairn_cli_tree_file(const struct cairn_cli_tree *tree, size_t index, int *ret_fd,
                                    struct cairn_error *err) {
    int fd = openat(tree->root_fd, tree->files[index].name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return cairn_fail_errno(err, "%s", tree->files[index].name);
    *ret_fd = fd;
    return CAIRN_OK;
}
