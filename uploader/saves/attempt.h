/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempt: the rights under which this node writes, shared by its sessions and saves; and how far
 *          the count of each of its ranks has got.
 *
 * Why:     a fence (a newer attempt of the run) must stop everything of the older one at once, and
 *          heartbeats name each right once, however many ranks hold it. What a rank has counted
 *          outlives its connection, as the attempt does.
 * Promise: 1   one struct per grant text; it lives while a session or save uses it.
 *          2   stale is final (Q6).
 *          3   Q12: a rank begins no save that is counted here, but for those that this node has.
 * Limits:  as many as there are sessions and open saves; of each rank the last
 *          CAIRN_UP_COUNTED_STEPS_MAX steps that it began.
 * Threads: all functions need uploader_state held; the text fields are immutable.
 * Next:    protocol rules Q2-Q6 and Q12; uploader/server/abandoned.h.
 */
#pragma once

#include "api/wire/rights.h"
#include "uploader/up.h"

#define CAIRN_UP_COUNTED_STEPS_MAX 1024

struct cairn_up_counted { /* by one rank */
    struct cairn_up_counted *next;
    uint32_t rank, world_size;
    struct { /* a ring; n: the begins 1 to n of that step are counted; 0: a free place */
        uint64_t step;
        uint32_t n;
    } steps[CAIRN_UP_COUNTED_STEPS_MAX];
    size_t place; /* of the next new step */
};
struct cairn_up_attempt {
    struct cairn_up_attempt *next;
    struct cairn_up_counted *counted; /* a list, owned */
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

/* ---- Q12 ---- */
/* The rank has counted n begins of that step. Without memory it is forgotten, and nothing is
 * concluded from it. */
void cairn_up_attempt_count(struct cairn_up_attempt *attempt, uint32_t rank, uint32_t world_size,
                            uint64_t step, uint32_t n);
/* How many; 0: nothing is known. */
uint32_t cairn_up_counted_of(const struct cairn_up_counted *counted, uint64_t step);
/* NULL: nothing is known of that rank. */
const struct cairn_up_counted *cairn_up_attempt_counted(const struct cairn_up_attempt *attempt,
                                                        uint32_t rank);
