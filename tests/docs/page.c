/* SPDX-License-Identifier: Apache-2.0 */
/* Walking the tree, and comparing or writing one block of one page. */
#include "tests/docs/page.h"

#include <dirent.h>
#include <stdarg.h>

#define PATH_BYTES 1000

static void full_path(const char *path, char ret[PATH_BYTES]) {
    snprintf(ret, PATH_BYTES, "%s/%s", cairn_test_tree(), path);
}

void cairn_docs_add(struct cairn_buf *buf, const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    EXPECT(size >= 0 && (size_t)size < sizeof text);
    EXPECT(cairn_buf_append_text(buf, text, NULL) == CAIRN_OK);
}

bool cairn_docs_load(const char *path, struct cairn_buf *ret) {
    char full[PATH_BYTES];
    struct cairn_error err = {0};
    full_path(path, full);
    ret->limit = 4 * CAIRN_MIB;
    enum cairn_code code = cairn_file_load(full, ret, &err);
    return EXPECT(code == CAIRN_OK && ret->size > 0);
}

/* What version control, editors and builds keep for themselves is no part of the tree. */
static bool is_skipped(const char *path, const char *name) {
    return name[0] == '.' || !strcmp(path, "build") || !strcmp(name, "__pycache__");
}

static bool ends_with(const char *text, const char *end) {
    size_t size = strlen(text), wanted = strlen(end);
    return size >= wanted && !strcmp(text + size - wanted, end);
}

void cairn_docs_walk(const char *folder, const char *end,
                     void (*visit)(const char *path, void *owner), void *owner) {
    char full[PATH_BYTES];
    full_path(folder, full);
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
            cairn_docs_walk(path, end, visit, owner);
        else if (S_ISREG(status.st_mode) && ends_with(path, end))
            visit(path, owner);
    }
    closedir(directory);
}

/* ---- blocks ---- */

/* What stands between the two marks, without the marks' own lines. */
static bool find_block(const char *text, const char *block, size_t *ret_begin, size_t *ret_end) {
    char begin[128], end[128];
    snprintf(begin, sizeof begin, "<!-- begin %s -->\n", block);
    snprintf(end, sizeof end, "<!-- end %s -->\n", block);
    const char *from = strstr(text, begin);
    const char *to = from ? strstr(from, end) : NULL;
    if (!to) return false;
    *ret_begin = (size_t)(from - text) + strlen(begin);
    *ret_end = (size_t)(to - text);
    return true;
}

static void write_block(const char *page, const struct cairn_buf *text, size_t begin, size_t end,
                        struct cairn_view wanted) {
    char full[PATH_BYTES];
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) whole = {0};
    full_path(page, full);
    REQUIRE(cairn_buf_append(&whole, text->data, begin, NULL) == CAIRN_OK);
    REQUIRE(cairn_buf_append(&whole, wanted.data, wanted.size, NULL) == CAIRN_OK);
    REQUIRE(cairn_buf_append(&whole, text->data + end, text->size - end, NULL) == CAIRN_OK);
    REQUIRE_OK(cairn_file_replace(full, cairn_buf_view(&whole), 0644, &err));
    fprintf(stderr, "%s is written anew\n", page);
}

/* The line in which two texts begin to differ. */
static void show_difference(const char *found, size_t found_size, struct cairn_view wanted) {
    const char *want = wanted.data;
    size_t line = 0, at = 0;
    while (at < found_size && at < wanted.size && found[at] == want[at]) {
        if (found[at] == '\n') line = at + 1;
        at++;
    }
    int found_line = (int)strcspn(found + line, "\n");
    int want_line = line < wanted.size ? (int)strcspn(want + line, "\n") : 0;
    if (line >= found_size) found_line = 0;
    fprintf(stderr, "  the page: %.*s\n  the code: %.*s\n", found_line, found + line, want_line,
            line < wanted.size ? want + line : "");
}

void cairn_docs_block_check(const char *page, const char *block, struct cairn_view wanted) {
    CAIRN_AUTO(buf) text = {0};
    size_t begin = 0, end = 0;
    if (!cairn_docs_load(page, &text)) return;
    REQUIRE(find_block(text.data, block, &begin, &end));
    bool same = end - begin == wanted.size && !memcmp(text.data + begin, wanted.data, wanted.size);
    const char *writes = getenv("CAIRN_DOCS_WRITE");
    if (!same && writes && !strcmp(writes, "1")) {
        write_block(page, &text, begin, end, wanted);
        return;
    }
    if (cairn_test_check(same, __FILE__, __LINE__, "%s: block %s is what the code says", page,
                         block))
        return;
    show_difference(text.data + begin, end - begin, wanted);
    fprintf(stderr, "  to write the page anew: CAIRN_DOCS_WRITE=1 ./test -R docs/generated\n");
}

void cairn_docs_blank_blocks(char *text) {
    char *at = text;
    while ((at = strstr(at, "<!-- begin "))) {
        char *to = strstr(at, "<!-- end ");
        if (!to) return;
        for (; at < to; at++)
            if (*at != '\n') *at = ' ';
    }
}
