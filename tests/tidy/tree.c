/* SPDX-License-Identifier: Apache-2.0 */
/* tree: what is a source and what is not, and the walk over it. */
#include "tests/tidy/tree.h"

#include <dirent.h>

static enum cairn_tidy_kind kind_of(const char *path) {
    static const struct {
        const char *end;
        enum cairn_tidy_kind kind;
    } ends[] = {
        {".c", CAIRN_TIDY_SOURCE},   {".h", CAIRN_TIDY_HEADER},   {".def", CAIRN_TIDY_TABLE},
        {".py", CAIRN_TIDY_PYTHON},  {".md", CAIRN_TIDY_OTHER},   {".txt", CAIRN_TIDY_OTHER},
        {".sh", CAIRN_TIDY_OTHER},   {".yaml", CAIRN_TIDY_OTHER}, {".yml", CAIRN_TIDY_OTHER},
        {".json", CAIRN_TIDY_OTHER}, {".html", CAIRN_TIDY_OTHER}, {".toml", CAIRN_TIDY_OTHER}};
    /* A program in docs/ is a document that happens to run. */
    if (!strncmp(path, "docs/", 5)) return CAIRN_TIDY_OTHER;
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < CAIRN_COUNT(ends); i++)
        if (!strcmp(dot, ends[i].end)) return ends[i].kind;
    bool script = !strcmp(path, "test") || !strcmp(path, "quickstart") ||
                  !strcmp(path, ".ci/run") || !strncmp(path, "docker/", 7);
    return script ? CAIRN_TIDY_OTHER : 0;
}

/* Build results, and what version control and editors keep for themselves, are no sources. */
static bool is_skipped(const char *path, const char *name) {
    if (!strcmp(name, ".ci")) return false;
    return name[0] == '.' || !strcmp(path, "build") || !strcmp(name, "__pycache__");
}

/* The tree is read once: each rule looks at all of it. */
static struct {
    struct kept {
        enum cairn_tidy_kind kind;
        struct cairn_tidy_file file;
    } * files;
    size_t count;
    bool read;
} tree;

static void keep(const char *path) {
    enum cairn_tidy_kind kind = kind_of(path);
    if (!kind) return;
    const char *full = TEXT("%s/%s", cairn_test_tree(), path);
    CAIRN_AUTO(buf) text = {0};
    if (cairn_file_load(full, &text, NULL) != CAIRN_OK || text.size == 0) return;
    struct kept *grown = realloc(tree.files, (tree.count + 1) * sizeof *grown);
    if (!grown) abort();
    tree.files = grown;
    char *code = malloc(text.size + 1);
    if (!code) abort();
    cairn_tidy_blank(text.data, code);
    tree.files[tree.count++] = (struct kept){kind, {strdup(path), strdup(text.data), code}};
}

static void read_folder(const char *folder) {
    const char *full = TEXT("%s/%s", cairn_test_tree(), folder);
    DIR *directory = opendir(full);
    if (!directory) return;
    struct dirent *entry;
    while ((entry = readdir(directory))) {
        struct stat status;
        const char *path = TEXT("%s%s%s", folder, *folder ? "/" : "", entry->d_name);
        if (is_skipped(path, entry->d_name) ||
            fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISDIR(status.st_mode))
            read_folder(path);
        else if (S_ISREG(status.st_mode))
            keep(path);
    }
    closedir(directory);
}

void cairn_tidy_walk(unsigned kinds, void (*visit)(void *owner, const struct cairn_tidy_file *file),
                     void *owner) {
    if (!tree.read) read_folder("");
    tree.read = true;
    for (size_t i = 0; i < tree.count; i++)
        if (tree.files[i].kind & kinds) visit(owner, &tree.files[i].file);
}
