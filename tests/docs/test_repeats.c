/* SPDX-License-Identifier: Apache-2.0 */
/* docs/http.md says of each call that changes something what a repeat of it does. */
#include <ctype.h>

#include "tests/docs/page.h"

static const struct {
    const char *method, *path;
} routes[] = {
#define ROUTE(id, handler, method, need, path, query, ...) {method, path},
#include "api/routes.def"
#undef ROUTE
};

/* Of a route its last word that is no parameter, "" where it changes nothing. */
static void word_of(size_t route, char ret[64]) {
    const char *end = routes[route].path + strlen(routes[route].path), *at = end;
    ret[0] = '\0';
    if (!strcmp(routes[route].method, "GET") || !strcmp(routes[route].method, "HEAD")) return;
    while (at > routes[route].path && (at[-1] != '/' || *at == '{')) {
        if (at[-1] == '/') end = at - 1;
        at--;
    }
    /* /v1/runs/{project}/{run} is called by `runs`. */
    snprintf(ret, 64, "%.*s", (int)(end - at), at);
}

/* How often a cell has `word` behind the method; *ret_all counts all words of the cell. */
static unsigned count_in(const char *cell, const char *end, const char *method, const char *word,
                         unsigned *ret_all) {
    char now[8] = "";
    unsigned found = 0;
    *ret_all = 0;
    for (const char *at = cell; at < end; at++) {
        size_t size = 0;
        while (isupper((unsigned char)at[size])) size++;
        if (size > 2 && size < sizeof now) {
            snprintf(now, sizeof now, "%.*s", (int)size, at);
            at += size;
        }
        if (*at != '`') continue;
        const char *close = strchr(at + 1, '`');
        if (!close || close >= end) break;
        ++*ret_all;
        size = (size_t)(close - at) - 1;
        found += !strcmp(now, method) && size == strlen(word) && !memcmp(at + 1, word, size);
        at = close;
    }
    return found;
}

static unsigned count_rows(const char *table, const char *method, const char *word,
                           unsigned *ret_all) {
    unsigned found = 0;
    *ret_all = 0;
    for (const char *row = table; *row == '|'; row = strchr(row, '\n') + 1) {
        const char *end = strchr(row + 1, '|');
        unsigned all;
        found += count_in(row, end, method, word, &all);
        *ret_all += all;
    }
    return found;
}

TEST(the_page_says_of_each_call_that_changes_something_what_a_repeat_does) {
    CAIRN_AUTO(buf) page = {0};
    REQUIRE(cairn_docs_load("docs/http.md", &page));
    const char *table = strstr(page.data, "| call, by the last word of its path |");
    REQUIRE(table != NULL);
    unsigned all = 0, calls = 0;
    for (size_t i = 0; i < CAIRN_COUNT(routes); i++) {
        char word[64], before[64];
        bool again = false;
        word_of(i, word);
        if (!word[0]) continue;
        for (size_t k = 0; k < i && !again; k++) {
            word_of(k, before);
            again = !strcmp(before, word) && !strcmp(routes[k].method, routes[i].method);
        }
        calls += !again;
        cairn_test_check(count_rows(table, routes[i].method, word, &all) == 1, __FILE__, __LINE__,
                         "%s %s: one row of the table has %s `%s`", routes[i].method,
                         routes[i].path, routes[i].method, word);
    }
    EXPECT_EQ_U64(all, calls + 1); /* and `confirm` */
}
