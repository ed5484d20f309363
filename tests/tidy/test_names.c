/* SPDX-License-Identifier: Apache-2.0 */
/* names: what stands once in the whole tree, and files that a header names. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/text.h"
#include "tests/harness.h"
#include "tests/tidy/tree.h"

/* ---- names and where they stand ---- */

#define NAMES_MAX 4096

struct names {
    struct cairn_tidy_name {
        char name[80], path[160];
    } at[NAMES_MAX];
    size_t count;
};

/* Where the name stands already, or NULL: then it stands in `path` from now on. */
static const char *note(struct names *names, const char *name, size_t size, const char *path) {
    char text[sizeof names->at[0].name];
    snprintf(text, sizeof text, "%.*s", (int)size, name);
    for (size_t i = 0; i < names->count; i++)
        if (!strcmp(names->at[i].name, text)) return names->at[i].path;
    if (!EXPECT(names->count < NAMES_MAX)) return NULL;
    struct cairn_tidy_name *at = &names->at[names->count++];
    snprintf(at->name, sizeof at->name, "%s", text);
    snprintf(at->path, sizeof at->path, "%s", path);
    return NULL;
}

static bool is_ours(const char *path) {
    static const char *const others[] = {"tests/", "bench/", "examples/"};
    for (size_t i = 0; i < CAIRN_COUNT(others); i++)
        if (cairn_text_starts(path, others[i])) return false;
    return true;
}

/* ---- events ---- */

/* The literal that is the event of each cairn_log(LEVEL, "event", ...). */
static void look_for_events(void *owner, const struct cairn_tidy_file *file) {
    struct names *names = owner;
    if (!is_ours(file->path)) return;
    for (const char *at = file->code; (at = strstr(at, "cairn_log(")); at++) {
        size_t open = strcspn(at, "\";");
        if (at[open] != '"') continue;
        const char *event = file->text + (at - file->code) + open + 1;
        size_t size = strcspn(event, "\"");
        const char *first = note(names, event, size, file->path);
        cairn_test_check(!first, __FILE__, __LINE__, "%s: the event %.*s is logged in %s already",
                         file->path, (int)size, event, first ? first : "");
    }
}

TEST(each_event_is_logged_in_one_place) {
    CAIRN_AUTO_HEAP struct names *names = calloc(1, sizeof *names);
    REQUIRE(names);
    cairn_tidy_walk(CAIRN_TIDY_SOURCE, look_for_events, names);
    EXPECT(names->count > 100);
}

/* ---- what to read next ---- */

static bool exists(const char *folder, int folder_size, const char *name, int size) {
    char path[2000];
    struct stat status;
    snprintf(path, sizeof path, "%s/%.*s%.*s", CAIRN_SOURCE_DIR, folder_size, folder, size, name);
    return stat(path, &status) == 0;
}

/* The size of a file's or folder's name that begins here, as a header spells it: from the root or
 * beside itself; 0: another word. */
static size_t file_name(const char *at) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    static const char *const ends[] = {".h", ".c", ".def", ".md", ".py", ".yaml", "/"};
    size_t size = strspn(at, letters);
    while (size && at[size - 1] == '.') size--;
    for (size_t i = 0; i < CAIRN_COUNT(ends); i++) {
        size_t end = strlen(ends[i]);
        if (size > end && !strncmp(at + size - end, ends[i], end)) return size;
    }
    return 0;
}

static void look_for_next(void *owner, const struct cairn_tidy_file *file) {
    size_t *names = owner;
    const char *next = strstr(file->text, "\n * Next:    "), *end = strstr(file->text, "\n */");
    if (!next || !end || next > end) return;
    const char *slash = strrchr(file->path, '/');
    int folder = slash ? (int)(slash - file->path) + 1 : 0;
    for (const char *at = next; at < end;) {
        size_t size = file_name(at);
        size_t word = strcspn(at, " \n,;:()");
        if (size) {
            ++*names;
            cairn_test_check(exists("", 0, at, (int)size) || exists("include/", 8, at, (int)size) ||
                                 exists(file->path, folder, at, (int)size),
                             __FILE__, __LINE__, "%s: Next: %.*s is there", file->path, (int)size,
                             at);
        }
        at += word ? word : 1;
    }
}

TEST(what_a_header_says_to_read_next_is_there) {
    size_t names = 0;
    cairn_tidy_walk(CAIRN_TIDY_HEADER, look_for_next, &names);
    EXPECT(names > 100);
}
