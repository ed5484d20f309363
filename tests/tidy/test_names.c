/* SPDX-License-Identifier: Apache-2.0 */
/* names: files that a header names are there. */
#include <stdio.h>
#include <sys/stat.h>

#include "tests/harness.h"
#include "tests/tidy/tree.h"

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
