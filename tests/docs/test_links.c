/* SPDX-License-Identifier: Apache-2.0 */
/* Links and file names in pages lead somewhere. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/text.h"
#include "tests/docs/page.h"
#include "tests/harness.h"

struct pages {
    size_t count, links, names;
};

static bool exists(const char *folder, int folder_size, const char *target, int target_size) {
    char path[2000];
    struct stat status;
    snprintf(path, sizeof path, "%s/%.*s%s%.*s", CAIRN_SOURCE_DIR, folder_size, folder,
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

static void check_page(const char *path, void *owner) {
    struct pages *pages = owner;
    CAIRN_AUTO(buf) text = {0};
    if (!cairn_docs_load(path, &text)) return;
    blank_listings(text.data);
    check_links(path, text.data, pages);
    check_names(path, text.data, pages);
    pages->count++;
}

TEST(every_link_of_every_page_leads_somewhere) {
    struct pages pages = {0};
    cairn_docs_walk("", ".md", check_page, &pages);
    EXPECT(pages.count > 8 && pages.links > 20 && pages.names > 20);
}
