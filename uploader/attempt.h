/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempt: the rights under which this node writes, shared by its sessions and saves.
 *
 * Why:     a fence (a newer attempt of the run) must stop everything of the older one at once, and
 *          heartbeats name each right once, however many ranks hold it.
 * Promise: T1  one struct per grant text; it lives while a session or save uses it.
 *          T2  stale is final (Q6).
 * Limits:  as many as there are sessions and open saves.
 * Threads: all functions need uploader_state held; the text fields are immutable.
 * Next:    protocol rules Q2-Q6.
 */
#pragma once

#include "api/grant.h"
#include "uploader/daemon.h"

struct cairn_up_attempt {
    struct cairn_up_attempt *next;
    struct cairn_grant grant;
    char text[CAIRN_GRANT_BYTES_MAX];
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2]; /* "project/run" */
    uint32_t users;
    uint64_t reserving_bytes; /* taken from the budget, pages not made yet */
    bool stale;
    struct cairn_error foreign; /* the server refuses the grant for good (Q49), or CAIRN_OK */
};
enum cairn_code cairn_up_attempt_join(struct cairn_up *up, const char *grant_text,
                                      struct cairn_up_attempt **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* NULL is allowed; frees it with the last user. */
void cairn_up_attempt_leave(struct cairn_up *up, struct cairn_up_attempt *attempt);
/* The right of (run, attempt, nonce), if any session or save of this node holds it. */
struct cairn_up_attempt *cairn_up_attempt_find(struct cairn_up *up, const char *run_text,
                                               uint64_t number, const char *nonce);
