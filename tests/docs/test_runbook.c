/* SPDX-License-Identifier: Apache-2.0 */
/* What a daemon tells an operator stands in docs/runbook.md, and nothing else does. */
#include "tests/docs/page.h"

struct found {
    struct cairn_buf lines; /* "\nread.broken (error)\n", each once */
    size_t count;
};
static void cairn_found_release(struct found *found) {
    cairn_buf_release(&found->lines);
}

static void note(struct found *found, const char *event, size_t size, const char *level) {
    const char *line = TEXT("\n%.*s (%s)\n", (int)size, event, level);
    if (found->lines.size && strstr(found->lines.data, line)) return;
    cairn_docs_add(&found->lines, "%s", line);
    found->count++;
}

static void read_calls(const char *path, const char *text, const char *call, const char *level,
                       struct found *found) {
    for (const char *at = text; (at = strstr(at, call));) {
        at += strlen(call);
        at += strspn(at, " \n");
        size_t size = *at == '"' ? strcspn(at + 1, "\"\n") : 0;
        if (cairn_test_check(size > 0, __FILE__, __LINE__,
                             "%s: an event is a literal, so that its line is found", path))
            note(found, at + 1, size, level);
    }
}

static void read_source(const char *path, void *owner) {
    CAIRN_AUTO(buf) text = {0};
    if (!cairn_docs_load(path, &text)) return;
    read_calls(path, text.data, "cairn_log(ERROR,", "error", owner);
    read_calls(path, text.data, "cairn_log(WARN,", "warn", owner);
}

/* Headings of the form "### `read.broken` (error)". */
static void read_headings(const char *text, struct found *found) {
    static const char mark[] = "\n### `";
    for (const char *at = text; (at = strstr(at, mark));) {
        at += sizeof mark - 1;
        size_t size = strcspn(at, "`\n");
        bool error = cairn_text_starts(at + size, "` (error)\n");
        bool warn = cairn_text_starts(at + size, "` (warn)\n");
        if (cairn_test_check(error || warn, __FILE__, __LINE__,
                             "the heading of %.*s ends with (error) or (warn)", (int)size, at))
            note(found, at, size, error ? "error" : "warn");
    }
}

static void expect_in(const struct found *these, const struct found *those, const char *what) {
    for (char *at = these->lines.data; at && *at;) {
        char *end = strchr(at + 1, '\n') + 1, kept = *end;
        *end = '\0';
        bool there = those->lines.data && strstr(those->lines.data, at);
        cairn_test_check(there, __FILE__, __LINE__, "%.*s %s", (int)(end - at) - 2, at + 1, what);
        *end = kept;
        at = end;
    }
}

TEST(the_runbook_has_every_event_that_a_person_should_look_at_and_no_other) {
    __attribute__((cleanup(cairn_found_release))) struct found code = {0};
    __attribute__((cleanup(cairn_found_release))) struct found page = {0};
    CAIRN_AUTO(buf) text = {0};
    EACH_TEXT(one, "server", "uploader", "store", "common", "cli")
        cairn_docs_walk(one, ".c", read_source, &code);
    EXPECT(code.count > 20); /* else the calls are no longer written as this test reads them */
    if (!cairn_docs_load("docs/runbook.md", &text)) return;
    read_headings(text.data, &page);
    expect_in(&code, &page, "is logged; docs/runbook.md says what to do");
    expect_in(&page, &code, "is a heading of docs/runbook.md; it is logged so");
}
