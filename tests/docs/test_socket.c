/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of docs/socket.md are the messages that the uploader takes. */
#include <stdio.h>

#include "common/text.h"
#include "tests/docs/page.h"
#include "tests/harness.h"

#define MESSAGES_MAX 64

struct messages {
    char names[MESSAGES_MAX][32];
    size_t count;
};

/* Names behind a mark, up to an end; both are as they stand in the text. */
static void collect(const char *text, const char *mark, const char *end, struct messages *ret) {
    const char *stop = strstr(text, end);
    for (const char *at = text; (at = strstr(at, mark)) && (!stop || at < stop);) {
        at += strlen(mark);
        REQUIRE(ret->count < MESSAGES_MAX);
        size_t size = strspn(at, "abcdefghijklmnopqrstuvwxyz");
        if (!EXPECT(size > 0 && size < sizeof ret->names[0])) return;
        snprintf(ret->names[ret->count++], sizeof ret->names[0], "%.*s", (int)size, at);
    }
}

static void expect_in(const struct messages *these, const struct messages *those,
                      const char *what) {
    for (size_t i = 0; i < these->count; i++) {
        bool there = false;
        for (size_t k = 0; k < those->count; k++)
            there = there || !strcmp(these->names[i], those->names[k]);
        cairn_test_check(there, __FILE__, __LINE__, "%s %s", these->names[i], what);
    }
}

TEST(the_page_of_the_socket_has_every_message_of_a_trainer_and_no_other) {
    CAIRN_AUTO(buf) source = {0}, page = {0};
    struct messages taken = {0}, described = {0};
    if (!cairn_docs_load("uploader/trainers/session.c", &source)) return;
    if (!cairn_docs_load("docs/socket.md", &page)) return;
    const char *table = strstr(source.data, "} handlers[] = {");
    REQUIRE(table != NULL);
    collect(table, "\n    {\"", "\n};", &taken);
    collect(page.data, "| client | `", "\n## ", &described);
    EXPECT(taken.count > 10);
    expect_in(&taken, &described, "is taken by the uploader; docs/socket.md has it");
    expect_in(&described, &taken, "stands in docs/socket.md; the uploader takes it");
}
