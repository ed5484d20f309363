/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multipart_inside: what the files of the state machine share; for store/multipart*.c alone.
 *
 * Why:     the machine decides the next request, and the proof decides whether an object that is
 *          there is ours; both move the same states.
 * Promise: 1   once begun or recovered, a shard changes its state by cairn_multipart_enter alone.
 * Limits:  as in store/multipart.h.
 * Threads: the caller's lock.
 * Next:    multipart.c (the machine), multipart_proof.c (HEAD, and reading back).
 */
#pragma once

#include <inttypes.h>
#include <stdio.h>

#include "store/multipart.h"

enum cairn_multipart_state {
    STATE_BEGIN,    /* PUT or CREATE comes next                               */
    STATE_PARTS,    /* parts are sent                                         */
    STATE_COMPLETE, /* all parts acknowledged                                 */
    STATE_HEAD,     /* what is there is looked at                             */
    STATE_LIST,     /* which parts arrived is looked at                       */
    STATE_CHECK,    /* ours is there; its checksums must come with the source */
    STATE_ABORT,
    STATE_DURABLE,
    STATE_FAILED,
};

#define FAIL(mp, fail_code, ...)                                                                   \
    do {                                                                                           \
        struct cairn_error fail_why = {0};                                                         \
        cairn_fail(&fail_why, (fail_code), __VA_ARGS__);                                           \
        cairn_multipart_give_up((mp), &fail_why);                                                  \
    } while (0)

/* ---- multipart.c ---- */

void cairn_multipart_enter(struct cairn_multipart *mp, enum cairn_multipart_state state);
/* An action that is neither PART, PUT nor COMPLETE is under way now. */
void cairn_multipart_take(struct cairn_multipart *mp, enum cairn_multipart_kind kind,
                          struct cairn_multipart_action *ret);
/* A request of it failed: another try, or the shard fails. */
void cairn_multipart_again_or_fail(struct cairn_multipart *mp,
                                   const struct cairn_store_request *request, const char *doing);
/* Checksum of [offset, offset + length), which must be of whole blocks or reach the end. */
uint32_t cairn_multipart_range_crc32c(const struct cairn_multipart *mp, uint64_t offset,
                                      uint64_t length);
/* True when mp->crc32c holds the checksum of the whole. */
bool cairn_multipart_whole_known(struct cairn_multipart *mp);
/* HEAD found nothing. */
void cairn_multipart_nothing_there(struct cairn_multipart *mp);
/* Is it worth another look at the object? Then a pause comes before it. */
bool cairn_multipart_look_again(struct cairn_multipart *mp);

/* ---- multipart_proof.c ---- */

void cairn_multipart_head_result(struct cairn_multipart *mp,
                                 const struct cairn_store_request *request);
void cairn_multipart_read_result(struct cairn_multipart *mp,
                                 const struct cairn_multipart_action *action,
                                 const struct cairn_store_request *request);
/* In STATE_CHECK: an object of ours, as far as HEAD tells. */
void cairn_multipart_next_check(struct cairn_multipart *mp, struct cairn_multipart_action *ret);
