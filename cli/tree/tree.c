/* SPDX-License-Identifier: Apache-2.0 */
/* tree: patterns; modes, links and empty folders as meta; the walk over a directory. */
#include "cli/tree/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "api/documents/keys.h"
#include "api/wire/messages.h"
#include "cli/shell/output.h"
#include "common/buf.h"
#include "common/file.h"
#include "common/text.h"

/* ---- patterns: fnmatch() per component; "**" and slashes are handled here ---- */

#define PATTERNS_MAX 10000

/* Next component without its slash; false: none. */
static bool next_component(const char **at, char ret[CAIRN_SHARD_NAME_BYTES_MAX + 1]) {
    if (!**at) return false;
    size_t size = strcspn(*at, "/");
    if (size > CAIRN_SHARD_NAME_BYTES_MAX) size = CAIRN_SHARD_NAME_BYTES_MAX;
    memcpy(ret, *at, size);
    ret[size] = '\0';
    *at += size;
    if (**at == '/') ++*at;
    return true;
}

/* Backtracking: after a mismatch, the last "**" takes one more component. Earlier ones matched as
 * early as possible, so only the last is retried. */
static bool matches_glob(const char *pattern, const char *name) {
    char wanted[CAIRN_SHARD_NAME_BYTES_MAX + 1], found[CAIRN_SHARD_NAME_BYTES_MAX + 1];
    const char *after_stars = NULL, *from = NULL;
    while (*name) {
        const char *rest = pattern, *behind = name;
        bool more = next_component(&rest, wanted);
        if (more && strcmp(wanted, "**") == 0) {
            if (!*rest) return true;
            after_stars = pattern = rest;
            from = name;
            continue;
        }
        (void)next_component(&behind, found);
        if (more && fnmatch(wanted, found, FNM_NOESCAPE) == 0) {
            pattern = rest;
            name = behind;
        } else if (after_stars) {
            (void)next_component(&from, found);
            pattern = after_stars;
            name = from;
        } else {
            return false;
        }
    }
    return !*pattern;
}

/* The ] of the [ at `from`, or NULL: fnmatch() would silently take an unclosed [ literally. */
static const char *bracket_end(const char *from, const char *end) {
    const char *at = from + 1;
    if (at < end && (*at == '!' || *at == '^')) at++;
    if (at < end && *at == ']') at++;
    for (; at < end && *at != '/'; at++) {
        if (*at == ']') return at;
        if (*at != '[' || at + 1 == end || !strchr(":.=", at[1])) continue;
        const char closes[3] = {at[1], ']', '\0'}, *class = strstr(at + 2, closes);
        if (class && class < end) at = class + 1; /* [:digit:] has a ] of its own */
    }
    return NULL;
}

enum cairn_code cli_patterns_add(struct cli_patterns *patterns, const char *text,
                                 struct cairn_error *err) {
    struct cli_pattern pattern = {.keeps = text[0] == '!'};
    text += pattern.keeps;
    size_t size = strlen(text);
    if (size > CAIRN_SHARD_NAME_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "a pattern has at most %d bytes: %.80s...",
                          CAIRN_SHARD_NAME_BYTES_MAX, text);
    pattern.folders = size && text[size - 1] == '/';
    while (size && text[size - 1] == '/') size--;
    pattern.anchored = memchr(text, '/', size) != NULL;
    while (size && *text == '/') text++, size--;
    if (!size) return cairn_fail(err, CAIRN_INVALID, "an empty pattern");
    for (const char *at = text; (at = memchr(at, '[', (size_t)(text + size - at))); at++) {
        at = bracket_end(at, text + size);
        if (!at)
            return cairn_fail(err, CAIRN_INVALID,
                              "the pattern %.200s has a [ that no ] ends; [[] is the character "
                              "itself",
                              text);
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM(patterns->items, patterns->count, patterns->capacity, PATTERNS_MAX,
                               "patterns", err));
    pattern.text = strndup(text, size);
    if (!pattern.text) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a pattern");
    patterns->items[patterns->count++] = pattern;
    return CAIRN_OK;
}

/* Adds a file's lines; empty lines and # comments are skipped. */
static enum cairn_code add_pattern_lines(struct cli_patterns *patterns, struct cairn_view lines,
                                         struct cairn_error *err) {
    const char *at = lines.data, *end = at + lines.size;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        size_t size = (size_t)(stop - at);
        while (size && (at[size - 1] == ' ' || at[size - 1] == '\t' || at[size - 1] == '\r'))
            size--;
        if (size && *at != '#') {
            CAIRN_AUTO_HEAP char *line = strndup(at, size);
            if (!line) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a pattern");
            CAIRN_TRY(cli_patterns_add(patterns, line, err));
        }
        at = stop < end ? stop + 1 : end;
    }
    return CAIRN_OK;
}

void cli_patterns_release(struct cli_patterns *patterns) {
    for (size_t i = 0; i < patterns->count; i++) free(patterns->items[i].text);
    free(patterns->items);
    *patterns = (struct cli_patterns){0};
}

static bool is_matched(const struct cli_patterns *patterns, const char *name, bool folder) {
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    for (size_t i = patterns->count; i-- > 0;) {
        const struct cli_pattern *pattern = &patterns->items[i];
        if (pattern->folders && !folder) continue;
        if (matches_glob(pattern->text, pattern->anchored ? name : last)) return !pattern->keeps;
    }
    return false;
}

bool cli_patterns_match(const struct cli_patterns *patterns, const char *name, bool folder) {
    char path[CAIRN_SHARD_NAME_BYTES_MAX + 1];
    if (!patterns->count) return false;
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        size_t size = (size_t)(slash - name);
        if (size >= sizeof path) break;
        memcpy(path, name, size);
        path[size] = '\0';
        if (is_matched(patterns, path, true)) return true;
    }
    return is_matched(patterns, name, folder);
}

/* ---- "cairn_tree" of a manifest's meta ---- */

#define MODE_MAX 0777
#define TARGET_BYTES_MAX 1024
#define VALUES_MAX 10000000 /* files, links and folders each, as many as a tree may have */

void cli_tree_meta_release(struct cli_tree_meta *meta) {
    json_decref(meta->modes);
    json_decref(meta->links);
    json_decref(meta->folders);
    *meta = (struct cli_tree_meta){0};
}

static bool name_good(const char *name) {
    return name && cairn_shard_name_check(cairn_view_of(name), NULL) == CAIRN_OK;
}

/* Whether the link stays in the tree: relative, ".." only in front, at most once per folder. */
static bool link_stays(const char *name, const char *target) {
    size_t depth = 0;
    if (!*target || *target == '/' || strlen(target) > TARGET_BYTES_MAX) return false;
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) depth++;
    bool down = false;
    while (*target) {
        size_t size = strcspn(target, "/");
        bool up = size == 2 && !strncmp(target, "..", 2);
        if (up && (down || !depth--)) return false;
        if (!up && size && !(size == 1 && *target == '.')) down = true;
        target += size;
        target += strspn(target, "/");
    }
    return true;
}

static bool parse_mode(const char *text, unsigned *ret) {
    char *end = NULL;
    bool octal = text && *text >= '0' && *text <= '7';
    unsigned long value = octal ? strtoul(text, &end, 8) : MODE_MAX + 1;
    *ret = (unsigned)value;
    return end && !*end && value <= MODE_MAX;
}

static bool read_modes(const json_t *json, struct cli_tree_meta *ret) {
    const char *text = NULL;
    json_t *names = NULL;
    json_object_foreach((json_t *)(uintptr_t)json, text, names) {
        unsigned mode = 0;
        if (!parse_mode(text, &mode) || !json_is_array(names)) return false;
        CAIRN_JSON_EACH(name, names) {
            if (!name_good(json_string_value(name)) ||
                json_object_set_new(ret->modes, json_string_value(name),
                                    json_integer((json_int_t)mode)))
                return false;
        }
    }
    return true;
}

static bool read_links(const json_t *json, struct cli_tree_meta *ret) {
    const char *name = NULL;
    json_t *target = NULL;
    json_object_foreach((json_t *)(uintptr_t)json, name, target) {
        const char *text = json_string_value(target);
        if (!name_good(name) || !text || !link_stays(name, text) ||
            json_object_set(ret->links, name, target))
            return false;
    }
    return true;
}

static bool read_folders(const json_t *json, struct cli_tree_meta *ret) {
    CAIRN_JSON_EACH(name, json) {
        if (!name_good(json_string_value(name)) || json_array_append(ret->folders, name))
            return false;
    }
    return true;
}

static bool read_tree(const json_t *tree, struct cli_tree_meta *ret) {
    ret->modes = json_object();
    ret->links = json_object();
    ret->folders = json_array();
    ret->there = true;
    return ret->modes && ret->links && ret->folders &&
           parse_mode(json_string_value(json_object_get(tree, "file_mode")), &ret->file_mode) &&
           parse_mode(json_string_value(json_object_get(tree, "folder_mode")), &ret->folder_mode) &&
           read_modes(json_object_get(tree, "modes"), ret) &&
           read_links(json_object_get(tree, "links"), ret) &&
           read_folders(json_object_get(tree, "folders"), ret);
}

enum cairn_code cli_tree_meta_read(struct cairn_view meta_json, struct cli_tree_meta *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *meta = NULL;
    *ret = (struct cli_tree_meta){.file_mode = 0666, .folder_mode = 0777};
    struct cairn_json_limits limits = {CLI_TREE_BYTES_MAX, VALUES_MAX};
    CAIRN_TRY(cairn_json_parse(meta_json, limits, &meta, err));
    const json_t *tree = json_object_get(meta, CAIRN_META_TREE);
    if (!tree || read_tree(tree, ret)) return CAIRN_OK;
    fputs("note: the modes and links of this tree are not understood and left out\n", stderr);
    cli_tree_meta_release(ret);
    *ret = (struct cli_tree_meta){.file_mode = 0666, .folder_mode = 0777};
    return CAIRN_OK;
}

bool cli_tree_meta_is_apart(const char *meta_json) {
    CAIRN_AUTO_JSON json_t *meta = NULL;
    struct cairn_json_limits limits = {CAIRN_MIB, 1000000};
    if (cairn_json_parse(cairn_view_of(meta_json), limits, &meta, NULL)) return false;
    const char *shard =
        json_string_value(json_object_get(json_object_get(meta, CAIRN_META_TREE), "shard"));
    return shard && !strcmp(shard, CAIRN_TREE_SHARD);
}

unsigned cli_tree_meta_mode(const struct cli_tree_meta *meta, const char *name, bool folder) {
    const json_t *mode = meta->there ? json_object_get(meta->modes, name) : NULL;
    if (mode) return (unsigned)json_integer_value(mode);
    return folder ? meta->folder_mode : meta->file_mode;
}

static json_t *modes_json(const struct cli_tree_meta *meta) {
    char text[16];
    json_t *modes = json_object(), *mode = NULL;
    const char *name = NULL;
    json_object_foreach(meta->modes, name, mode) {
        snprintf(text, sizeof text, "%o", (unsigned)json_integer_value(mode));
        json_t *names = json_object_get(modes, text);
        if (!names && !json_object_set_new(modes, text, json_array()))
            names = json_object_get(modes, text);
        if (json_array_append_new(names, json_string(name))) {
            json_decref(modes);
            return NULL;
        }
    }
    return modes;
}

enum cairn_code cli_tree_meta_write(const struct cli_tree_meta *meta, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    char file[16], folder[16];
    snprintf(file, sizeof file, "%o", meta->file_mode);
    snprintf(folder, sizeof folder, "%o", meta->folder_mode);
    CAIRN_AUTO_JSON json_t *json = json_pack(
        "{s:{s:s, s:s, s:o, s:O, s:O}}", CAIRN_META_TREE, "file_mode", file, "folder_mode", folder,
        "modes", modes_json(meta), "links", meta->links, "folders", meta->folders);
    if (!json) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for modes and links");
    ret->limit = CLI_TREE_BYTES_MAX;
    return cairn_json_dump(json, ret, err);
}

/* ---- the walk ---- */

#define FILES_MAX 1048576
#define DEPTH_MAX CLI_TREE_DEPTH
#define ATTRIBUTES_BYTES_MAX 4096 /* of their names; more are ignored */
#define LINKS_MAX 40              /* in a chain, as in the kernel */
#define NO_FILE "neither a file nor a folder (device, socket or pipe)"

static int open_in(const struct cli_tree *tree, int folder_fd, const char *name, int flags) {
    bool none = tree->links == CLI_LINKS_NONE;
    return cairn_open_below(folder_fd, name, flags, none ? CAIRN_LINKS_NONE : CAIRN_LINKS_FOLLOWED);
}

static void refuse(struct cli_tree *tree, const char *name, const char *why) {
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

static enum cairn_code append(struct cli_file **items, size_t *count, size_t *capacity,
                              const struct cli_file *item, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(*items, *count, *capacity, FILES_MAX, "files", err));
    char *copy = strdup(item->name);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of files");
    (*items)[*count] = *item;
    (*items)[(*count)++].name = copy;
    return CAIRN_OK;
}

/* ---- counting what is not kept ---- */

static void count_unkept(struct cli_tree *tree, const char *name, const struct stat *status) {
    /* File systems that cannot list attributes have none. */
    char path[PATH_MAX], names[ATTRIBUTES_BYTES_MAX];
    int length = snprintf(path, sizeof path, "/proc/self/fd/%d/%s", tree->root_fd, name);
    if (length >= 0 && (size_t)length < sizeof path) {
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
    tree->unkept.bits += (status->st_mode & 07000) != 0;
    tree->unkept.owners += status->st_uid != geteuid();
    tree->unkept.links += (S_ISREG(status->st_mode) && status->st_nlink > 1);
}

static bool can_be_kept(struct cli_tree *tree, const char *name) {
    struct cairn_error why = {0};
    bool ours = strcmp(name, CAIRN_TREE_SHARD) == 0;
    if (!ours && cairn_shard_name_check(cairn_view_of(name), &why) == CAIRN_OK) return true;
    refuse(tree, name, ours ? "what describes a tree has this name in the store" : why.message);
    return false;
}

static enum cairn_code add(struct cli_tree *tree, const char *name, const struct stat *status,
                           struct cairn_error *err) {
    const struct cli_file file = {.name = (char *)(uintptr_t)name,
                                  .bytes = (uint64_t)status->st_size,
                                  .mode = status->st_mode & 0777};
    if (!can_be_kept(tree, name)) return CAIRN_OK;
    bool asks = (status->st_mode & 0444) != 0444; /* else everybody may read the file */
    if (asks && faccessat(tree->root_fd, name, R_OK, AT_EACCESS)) {
        refuse(tree, name, "it may not be read");
        return CAIRN_OK;
    }
    count_unkept(tree, name, status);
    tree->total_bytes += file.bytes;
    return append(&tree->files, &tree->count, &tree->capacity, &file, err);
}

static enum cairn_code walk(struct cli_tree *tree, const char *folder, unsigned depth,
                            struct cairn_error *err);

static enum cairn_code take_folder(struct cli_tree *tree, const char *name,
                                   const struct stat *status, unsigned depth,
                                   struct cairn_error *err) {
    const struct cli_file folder = {.name = (char *)(uintptr_t)name,
                                    .mode = status->st_mode & 0777};
    count_unkept(tree, name, status);
    CAIRN_TRY(append(&tree->folders, &tree->folder_count, &tree->folder_capacity, &folder, err));
    return walk(tree, name, depth + 1, err);
}

/* Whether the folder is an ancestor in the walk: a loop of links. */
static bool is_above(const struct cli_tree *tree, const struct stat *folder, unsigned depth) {
    for (unsigned i = 0; i <= depth; i++)
        if (tree->above[i].device == folder->st_dev && tree->above[i].inode == folder->st_ino)
            return true;
    return false;
}

/* A link within the tree is kept as a link, even if dangling. */
static enum cairn_code take_link(struct cli_tree *tree, const char *name, unsigned depth,
                                 struct cairn_error *err) {
    char target[PATH_MAX];
    struct stat status;
    ssize_t size = readlinkat(tree->root_fd, name, target, sizeof target - 1);
    if (size < 0) return cairn_fail_errno(err, "%s", name);
    target[size] = '\0';
    if (cairn_utf8_valid(cairn_view_of(target)) && link_stays(name, target)) {
        if (!can_be_kept(tree, name)) return CAIRN_OK;
        if (json_object_set_new(tree->meta.links, name, json_string(target)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of links");
        return CAIRN_OK;
    }
    if (tree->links != CLI_LINKS_FOLLOWED) {
        refuse(tree, name, "a link that points out of the tree; --follow keeps what it points to");
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

static enum cairn_code take_entry(struct cli_tree *tree, const char *name, unsigned depth,
                                  struct cairn_error *err) {
    struct stat status;
    if (fstatat(tree->root_fd, name, &status, AT_SYMLINK_NOFOLLOW))
        return cairn_fail_errno(err, "%s", name);
    if (cli_patterns_match(&tree->patterns, name, S_ISDIR(status.st_mode))) {
        tree->excluded++;
        return CAIRN_OK;
    }
    if (S_ISDIR(status.st_mode)) return take_folder(tree, name, &status, depth, err);
    if (S_ISLNK(status.st_mode)) return take_link(tree, name, depth, err);
    if (S_ISREG(status.st_mode)) return add(tree, name, &status, err);
    refuse(tree, name, NO_FILE);
    return CAIRN_OK;
}

static enum cairn_code walk(struct cli_tree *tree, const char *folder, unsigned depth,
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
    return strcmp(((const struct cli_file *)a)->name, ((const struct cli_file *)b)->name);
}

/* Patterns of .cairnignore come first, so that the caller's decide. */
static enum cairn_code read_ignored(struct cli_tree *tree, struct cairn_error *err) {
    CAIRN_AUTO(buf) lines = {.limit = CAIRN_MIB};
    struct cairn_file file = {0};
    uint64_t size = 0;
    CAIRN_AUTO_FD fd = cairn_open_below(tree->root_fd, CLI_IGNORE_FILE, 0, CAIRN_LINKS_NONE);
    /* An unreadable .cairnignore is an error: unwanted files would be kept. */
    if (fd < 0 && errno != ENOENT)
        return cairn_fail(err, CAIRN_INVALID, "%s cannot be read: %s", CLI_IGNORE_FILE,
                          errno == ELOOP ? "it is a link, and none is followed" : strerror(errno));
    if (fd >= 0) {
        file = (struct cairn_file){.fd = fd, .direct_fd = -1};
        enum cairn_code code = cairn_file_size(&file, &size, err);
        if (!code) code = cairn_buf_reserve(&lines, (size_t)size, err);
        if (!code) code = cairn_file_read_at(&file, lines.data, (size_t)size, 0, err);
        lines.size = (size_t)size;
        if (!code) code = add_pattern_lines(&tree->patterns, cairn_buf_view(&lines), err);
        if (code) return cairn_within(err, code, "%s", CLI_IGNORE_FILE);
    }
    for (size_t i = 0; tree->exclude && i < tree->exclude->count; i++)
        CAIRN_TRY(cli_patterns_add(&tree->patterns, tree->exclude->items[i], err));
    return CAIRN_OK;
}

static enum cairn_code open_root(struct cli_tree *tree, const char *path, int folder_fd,
                                 struct cairn_error *err) {
    struct stat status;
    CAIRN_AUTO_FD fd = folder_fd >= 0 ? fcntl(folder_fd, F_DUPFD_CLOEXEC, 0)
                                      : open_in(tree, AT_FDCWD, path, O_PATH);
    if (fd < 0 || fstat(fd, &status)) return cairn_fail_errno(err, "%s", path);
    if (!S_ISDIR(status.st_mode)) {
        const char *slash = strrchr(path, '/');
        CAIRN_AUTO(buf) folder = {0};
        if (slash)
            CAIRN_TRY(cairn_buf_append(&folder, path, (size_t)(slash - path) + 1, err));
        else
            CAIRN_TRY(cairn_buf_append_text(&folder, ".", err));
        tree->root_fd = open_in(tree, AT_FDCWD, folder.data, O_DIRECTORY);
        if (tree->root_fd < 0) return cairn_fail_errno(err, "%s", folder.data);
        const char *name = slash ? slash + 1 : path;
        tree->one_file = true;
        /* A link named on the command line is followed: it stands for its file. */
        if (S_ISREG(status.st_mode)) return add(tree, name, &status, err);
        refuse(tree, name, NO_FILE);
        return CAIRN_OK;
    }
    tree->root_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tree->root_fd < 0) return cairn_fail_errno(err, "%s", path);
    CAIRN_TRY(read_ignored(tree, err));
    return walk(tree, "", 0, err);
}

/* The most frequent mode; meta lists the exceptions. */
static unsigned common_mode(const struct cli_file *items, size_t count, unsigned otherwise) {
    size_t counts[01000] = {0};
    unsigned best = otherwise;
    for (size_t i = 0; i < count; i++)
        if (++counts[items[i].mode] > counts[best]) best = items[i].mode;
    return best;
}

static enum cairn_code note_modes(struct cli_tree_meta *meta, const struct cli_file *items,
                                  size_t count, unsigned common, struct cairn_error *err) {
    for (size_t i = 0; i < count; i++) {
        if (items[i].mode == common) continue;
        if (json_object_set_new(meta->modes, items[i].name,
                                json_integer((json_int_t)items[i].mode)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of modes");
    }
    return CAIRN_OK;
}

static enum cairn_code finish_meta(struct cli_tree *tree, struct cairn_error *err) {
    struct cli_tree_meta *meta = &tree->meta;
    meta->file_mode = common_mode(tree->files, tree->count, 0644);
    meta->folder_mode = common_mode(tree->folders, tree->folder_count, 0755);
    CAIRN_TRY(note_modes(meta, tree->files, tree->count, meta->file_mode, err));
    return note_modes(meta, tree->folders, tree->folder_count, meta->folder_mode, err);
}

enum cairn_code cli_tree_open(const char *path, int folder_fd, enum cli_links links,
                              const struct cli_texts *exclude, struct cli_tree *ret,
                              struct cairn_error *err) {
    *ret = (struct cli_tree){.root_fd = -1, .links = links, .exclude = exclude};
    ret->meta = (struct cli_tree_meta){
        .there = true, .modes = json_object(), .links = json_object(), .folders = json_array()};
    enum cairn_code code = open_root(ret, path, folder_fd, err);
    if (code == CAIRN_OK && ret->refused)
        code = cairn_fail(err, CAIRN_INVALID, "%s cannot be kept (listed above); nothing was sent",
                          cairn_counted(ret->refused, "name").text);
    if (code == CAIRN_OK && !ret->count)
        code = cairn_fail(err, CAIRN_INVALID, "%s holds no file", path);
    if (code == CAIRN_OK) code = finish_meta(ret, err);
    if (code != CAIRN_OK) {
        cli_tree_release(ret);
        return code;
    }
    qsort(ret->files, ret->count, sizeof *ret->files, by_name);
    return CAIRN_OK;
}

void cli_tree_release(struct cli_tree *tree) {
    for (size_t i = 0; i < tree->count; i++) free(tree->files[i].name);
    for (size_t i = 0; i < tree->folder_count; i++) free(tree->folders[i].name);
    free(tree->files);
    free(tree->folders);
    cli_tree_meta_release(&tree->meta);
    cli_patterns_release(&tree->patterns);
    if (tree->root_fd >= 0) close(tree->root_fd);
    *tree = (struct cli_tree){.root_fd = -1};
}

enum cairn_code cli_tree_file(const struct cli_tree *tree, size_t index, int *ret_fd,
                              struct cairn_error *err) {
    const char *name = tree->files[index].name;
    struct stat status;
    CAIRN_AUTO_FD fd = open_in(tree, tree->root_fd, name, 0);
    if (fd < 0 || fstat(fd, &status)) return cairn_fail_errno(err, "%s", name);
    if (!S_ISREG(status.st_mode))
        return cairn_fail(err, CAIRN_CONFLICT,
                          "%s was a file when it was listed and is not one now", name);
    *ret_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

/* ---- resolving links ---- */

enum cairn_code cli_tree_resolve(const struct cli_tree *tree, const char *name,
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
        /* Replaces the link path[0, size) by its target, relative to the root, and appends the
         * rest. */
        CAIRN_AUTO(buf) joined = {.limit = 2 * PATH_MAX};
        size_t folder = size;
        while (folder && path.data[folder - 1] != '/') folder--;
        CAIRN_TRY(cairn_buf_printf(&joined, err, "%.*s%s%s", (int)folder, path.data, target,
                                   path.data + size));
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
    }
    return cairn_fail(err, CAIRN_INVALID, "%s: too many links", name);
}
