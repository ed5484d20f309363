/* SPDX-License-Identifier: Apache-2.0 */
/* Links and file names in pages lead somewhere. */
#include "tests/docs/page.h"

struct pages {
    size_t count, links, names, sources, functions;
    struct cairn_buf tree; /* "/path" of each file, a line each */
    struct cairn_buf code; /* of the product */
};

static bool exists(const char *folder, int folder_size, const char *target, int target_size) {
    struct stat status;
    const char *path = TEXT("%s/%.*s%s%.*s", cairn_test_tree(), folder_size, folder,
                            folder_size ? "/" : "", target_size, target);
    return stat(path, &status) == 0;
}

/* Listings show output and code, not links. */
static void blank_listings(char *text) {
    for (char *at = text; (at = strstr(at, "```"));) {
        char *to = strstr(at + 3, "```");
        char *end = to ? to + 3 : at + strlen(at);
        for (; at < end; at++)
            if (*at != '\n') *at = ' ';
    }
}

static void check_links(const char *path, const char *text, struct pages *pages) {
    const char *slash = strrchr(path, '/');
    int folder_size = slash ? (int)(slash - path) : 0;
    for (const char *at = text; (at = strstr(at, "]("));) {
        at += 2;
        size_t size = strcspn(at, "#)\n");
        bool away = cairn_text_starts(at, "http://") || cairn_text_starts(at, "https://") ||
                    cairn_text_starts(at, "mailto:");
        if (away || !size) continue;
        pages->links++;
        cairn_test_check(exists(path, folder_size, at, (int)size), __FILE__, __LINE__,
                         "%s: the link to %.*s leads somewhere", path, (int)size, at);
    }
}

/* `folder/file` in backquotes, when the folder is one of this tree's and nothing in it stands for
 * something else. */
static void check_names(const char *path, const char *text, struct pages *pages) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    static const char *const roots[] = {"include", "api",      "store",  "plan", "formats",
                                        "client",  "uploader", "server", "cli",  "common",
                                        "tests",   "examples", "bench",  "docs", "setup"};
    for (const char *at = text; (at = strchr(at, '`')); at++) {
        const char *name = at + 1;
        size_t root = strspn(name, letters), size = root;
        if (name[root] != '/') continue;
        while (name[size] == '/' || (name[size] && strchr(letters, name[size]))) size++;
        if (name[size] != '`') continue;
        for (size_t i = 0; i < CAIRN_COUNT(roots); i++) {
            if (strlen(roots[i]) != root || strncmp(roots[i], name, root) != 0) continue;
            pages->names++;
            cairn_test_check(exists("", 0, name, (int)size), __FILE__, __LINE__,
                             "%s: `%.*s` is there", path, (int)size, name);
        }
    }
}

/* ---- sources and functions ---- */

static bool is_source(const char *name, size_t size) {
    EACH_TEXT(text, ".c", ".h", ".def", ".py") {
        size_t end = strlen(text);
        if (size > end && !strncmp(name + size - end, text, end)) return true;
    }
    return false;
}

/* `file.c` is a file of the tree; `room/file.c` one of the page's folder, of the root or of
 * include/, which C sources leave out. */
static bool leads_to_source(const struct pages *pages, const char *page, int folder_size,
                            const char *name, int size) {
    const char *end = TEXT("/%.*s\n", size, name);
    if (!memchr(name, '/', (size_t)size)) return strstr(pages->tree.data, end) != NULL;
    return exists(page, folder_size, name, size) || exists("", 0, name, size) ||
           exists("include", 7, name, size);
}

static void check_sources(const char *path, const char *text, struct pages *pages) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    const char *slash = strrchr(path, '/');
    int folder_size = slash ? (int)(slash - path) : 0;
    for (const char *at = text; (at = strchr(at, '`')); at++) {
        const char *name = at + 1;
        size_t size = strspn(name, letters);
        if (name[size] != '`' || !is_source(name, size)) continue;
        pages->sources++;
        cairn_test_check(leads_to_source(pages, path, folder_size, name, (int)size), __FILE__,
                         __LINE__, "%s: there is no %.*s", path, (int)size, name);
    }
}

/* `cairn_x`, `srv_x` and `cairn_x()` stand in some source. */
static void check_functions_of(const char *prefix, const char *path, const char *text,
                               struct pages *pages) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    for (const char *at = text; (at = strstr(at, prefix)); at++) {
        size_t size = strspn(at + 1, letters);
        const char *after = at + 1 + size;
        if (after[0] != '`' && strncmp(after, "()`", 3) != 0) continue;
        if (after[-1] == '_') continue; /* how names begin */
        pages->functions++;
        const char *in = pages->code.data, *end = in + pages->code.size;
        while ((in = memmem(in, (size_t)(end - in), at + 1, size)) && strchr(letters, in[size]))
            in += size;
        cairn_test_check(in != NULL, __FILE__, __LINE__, "%s: no source has %.*s", path, (int)size,
                         at + 1);
    }
}

static void note_path(const char *path, void *owner) {
    struct pages *pages = owner;
    cairn_docs_add(&pages->tree, "/%s\n", path);
    CAIRN_AUTO(buf) text = {0};
    if (cairn_text_starts(path, "tests/") || !is_source(path, strlen(path))) return;
    if (!cairn_docs_load(path, &text)) return;
    REQUIRE(cairn_buf_append(&pages->code, text.data, text.size, NULL) == CAIRN_OK);
}

static void check_page(const char *path, void *owner) {
    struct pages *pages = owner;
    CAIRN_AUTO(buf) text = {0};
    if (!cairn_docs_load(path, &text)) return;
    blank_listings(text.data);
    check_links(path, text.data, pages);
    check_names(path, text.data, pages);
    check_sources(path, text.data, pages);
    cairn_docs_blank_blocks(text.data); /* names of metrics: compared with their table */
    check_functions_of("`cairn_", path, text.data, pages);
    check_functions_of("`srv_", path, text.data, pages);
    pages->count++;
}

TEST(every_link_file_and_function_of_every_page_leads_somewhere) {
    struct pages pages = {.tree.limit = 4 * CAIRN_MIB, .code.limit = 64 * CAIRN_MIB};
    cairn_docs_walk("", "", note_path, &pages);
    cairn_docs_walk("", ".md", check_page, &pages);
    EXPECT(pages.count > 8 && pages.links > 20 && pages.names > 20);
    EXPECT(pages.sources > 200 && pages.functions > 20);
    cairn_buf_release(&pages.tree);
    cairn_buf_release(&pages.code);
}
