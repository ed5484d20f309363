/* SPDX-License-Identifier: Apache-2.0 */
/*
 * office: a real server that asks for tokens, its operator's token, and requests byte by byte.
 *
 * Why:     what a header may hold is only tested with one that no client would write.
 * Promise: 1   at its end the operator's secret is in no line of the log.
 * Limits:  one server.
 * Threads: say() from any, the rest from one.
 * Next:    tests/server/world.h.
 */
#pragma once

#include "tests/server/world.h"

struct office {
    struct cairn_world world;
    char admin[100];
};
void cairn_office_release(struct office *office);
#define AUTO_OFFICE __attribute__((cleanup(cairn_office_release))) struct office

bool office_open(struct office *office);
bool cairn_office_open_with(struct office *office, const char *const *env);
/* The operator's token out of its file. */
bool office_admin(struct office *office);
/* The status of one request on a connection of its own. body NULL: none; more: header lines. */
int office_say(const struct office *office, const char *token, const char *method, const char *path,
               const char *more, const char *body, struct cairn_buf *ret);

struct made {
    char id[CAIRN_TOKEN_ID_BYTES], text[CAIRN_TOKEN_TEXT_BYTES];
};
bool office_make(struct office *office, const char *scopes, const char *project, uint64_t expires_s,
                 struct made *ret);
enum cairn_code office_end(struct office *office, const struct made *made);

void office_expect(int line, int got, int wanted, const char *what);
#define EXPECT_SAID(wanted, office, token, method, path, body)                                     \
    office_expect(__LINE__, office_say(office, token, method, path, NULL, body, NULL), wanted,     \
                  method " " path)
/* A transcript of requests with one token: SAYS(&office, token, "200 GET /v1/runs", "403 PUT
 * /v1/runs/a/b {}"). */
#define SAYS(office, token, ...)                                                                   \
    office_says(__LINE__, office, token, ((const char *const[]){__VA_ARGS__, NULL}))
/* The whole answer to one request, a line of SAYS: ANSWER(&office, token, "200 GET ..."). */
#define ANSWER(office, token, request) office_answer(__LINE__, office, token, request)
const char *office_answer(int line, const struct office *office, const char *token,
                          const char *request);
void office_says(int line, const struct office *office, const char *token,
                 const char *const *requests);
#define OFFICE()                                                                                   \
    AUTO_OFFICE office = {0};                                                                      \
    REQUIRE(office_open(&office))
/* There are these runs: RUNS("llm/a", "other/b"). */
#define RUNS(...) REQUIRE(office_runs(&office, ((const char *const[]){__VA_ARGS__, NULL})))
bool office_runs(struct office *office, const char *const *runs);
#define MADE(name, scopes, project)                                                                \
    struct made name;                                                                              \
    REQUIRE(office_make(&office, scopes, project, 0, &name))
