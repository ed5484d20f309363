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

#include "api/wire/rights.h"
#include "tests/server/world.h"

struct office {
    struct cairn_world world;
    char admin[100];
};
void cairn_office_release(struct office *office);
#define AUTO_OFFICE __attribute__((cleanup(cairn_office_release))) struct office

bool cairn_office_open(struct office *office);
bool cairn_office_open_with(struct office *office, const char *const *env);
/* The operator's token out of its file. */
bool cairn_office_admin(struct office *office);
/* The status of one request on a connection of its own. body NULL: none; more: header lines. */
int cairn_office_say(const struct office *office, const char *token, const char *method,
                     const char *path, const char *more, const char *body, struct cairn_buf *ret);

struct made {
    char id[CAIRN_TOKEN_ID_BYTES], text[CAIRN_TOKEN_TEXT_BYTES];
};
bool cairn_office_make(struct office *office, const char *scopes, const char *project,
                       uint64_t expires_s, struct made *ret);
enum cairn_code cairn_office_end(struct office *office, const struct made *made);

void cairn_office_expect(int line, int got, int wanted, const char *what);
#define EXPECT_SAID(wanted, office, token, method, path, body)                                     \
    cairn_office_expect(__LINE__, cairn_office_say(office, token, method, path, NULL, body, NULL), \
                        wanted, method " " path)
