/* SPDX-License-Identifier: Apache-2.0 */
/* names: what stands once in the whole tree, and files that a header names. */
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
    EACH_TEXT(text, "tests/", "bench/", "examples/")
        if (cairn_text_starts(path, text)) return false;
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

/* ---- promises ---- */

/* The size of a promise's number at the start of a line of a header's introduction, or 0. */
static size_t promise_of(const char *line, const char **ret_label) {
    const char *label = line + strlen(" *          ");
    if (strncmp(line, " * Promise: ", 12) != 0 && strncmp(line, " *          ", 12) != 0) return 0;
    size_t capitals = strspn(label, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    size_t digits = strspn(label + capitals, "0123456789");
    size_t size = capitals + digits;
    size += digits && label[size] >= 'a' && label[size] <= 'z';
    *ret_label = label;
    return digits && capitals <= 2 && !strncmp(label + size, "  ", 2) ? size : 0;
}

/* A rule of docs/protocol.md or a line of docs/promises.md, which a header repeats. */
static bool is_of_a_page(const char *label, size_t size) {
    size_t digits = strspn(label + 1, "0123456789");
    return *label == 'Q' || *label == 'P' || digits == 2 || (size == 3 && digits == 2);
}

/* A rule of protocol.md and a promise of promises.md are kept by several parts, each its share. All
 * other labels stand in one header. */
static bool stands_once(const char *label) {
    return *label != 'Q' && *label != 'P';
}

struct promises {
    struct names *names;
    size_t cited;
};

static void collect_promises(void *owner, const struct cairn_tidy_file *file) {
    struct promises *promises = owner;
    const char *end = strstr(file->text, "\n */");
    for (const char *line = file->text; line && end && line < end;) {
        const char *label = NULL, *next = strchr(line, '\n');
        size_t size = promise_of(line, &label);
        if (size && *label >= '0' && *label <= '9') {
            char name[80];
            const char *slash = strrchr(file->path, '/');
            snprintf(name, sizeof name, "%s#%.*s", slash + 1, (int)size, label);
            (void)note(promises->names, name, strlen(name), file->path);
            snprintf(name, sizeof name, "%s#%.*s", file->path, (int)size, label);
            cairn_test_check(!note(promises->names, name, strlen(name), file->path), __FILE__,
                             __LINE__, "%s is promised once", name);
        } else if (size) {
            cairn_test_check(is_of_a_page(label, size), __FILE__, __LINE__,
                             "%s: the promise %.*s is a number, or a rule of a page", file->path,
                             (int)size, label);
            const char *first =
                stands_once(label) ? note(promises->names, label, size, file->path) : NULL;
            cairn_test_check(!first, __FILE__, __LINE__, "%s: %.*s stands in %s already",
                             file->path, (int)size, label, first ? first : "");
        }
        line = next ? next + 1 : NULL;
    }
}

static void check_citations(void *owner, const struct cairn_tidy_file *file) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_/";
    struct promises *promises = owner;
    for (const char *at = file->text; (at = strstr(at, ".h#")); at += 3) {
        const char *start = at;
        while (start > file->text && strchr(letters, start[-1])) start--;
        size_t digits = strspn(at + 3, "0123456789");
        if (!digits || start == at) continue;
        size_t size = (size_t)(at - start) + 3 + digits;
        size += start[size] >= 'a' && start[size] <= 'z';
        promises->cited++;
        size_t before = promises->names->count;
        cairn_test_check(note(promises->names, start, size, file->path) != NULL, __FILE__, __LINE__,
                         "%s: %.*s is a promise of that header", file->path, (int)size, start);
        promises->names->count = before;
    }
}

TEST(a_promise_is_numbered_in_its_header_and_cited_by_file_and_number) {
    CAIRN_AUTO_HEAP struct names *names = calloc(1, sizeof *names);
    struct promises promises = {.names = names};
    REQUIRE(names);
    cairn_tidy_walk(CAIRN_TIDY_HEADER, collect_promises, &promises);
    cairn_tidy_walk(CAIRN_TIDY_CODE, check_citations, &promises);
    EXPECT(names->count > 400);
    EXPECT(promises.cited > 200);
}

/* ---- what to read next ---- */

static bool exists(const char *folder, int folder_size, const char *name, int size) {
    struct stat status;
    const char *path = TEXT("%s/%.*s%.*s", cairn_test_tree(), folder_size, folder, size, name);
    return stat(path, &status) == 0;
}

/* The size of a file's or folder's name that begins here, as a header spells it: from the root or
 * beside itself; 0: another word. */
static size_t file_name(const char *at) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    size_t size = strspn(at, letters);
    while (size && at[size - 1] == '.') size--;
    EACH_TEXT(text, ".h", ".c", ".def", ".md", ".py", ".yaml", "/") {
        size_t end = strlen(text);
        if (size > end && !strncmp(at + size - end, text, end)) return size;
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
