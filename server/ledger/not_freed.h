/* SPDX-License-Identifier: Apache-2.0 */
/*
 * not_freed: deleted versions whose bytes the store keeps, and when they are tried again.
 *
 * Why:     a bucket with versioning or object lock keeps what was deleted; who pays for it must see
 *          how much that is and why, and it must go by itself once it may.
 * Promise: 1   a row is there from the sweep that left something to the one that left nothing; its
 *              version's row stays as long, so that the sweep knows where to look.
 *          2   the pauses between two tries grow to a day: what is locked for years costs no
 *              round of the sweep more than a few requests a day.
 *          3   the first row and its end are events (checkpoint.not_freed, checkpoint.freed).
 * Limits:  a reason of CAIRN_SRV_LEFT_REASON_BYTES.
 * Threads: inside a transaction.
 * Next:    server/sweep/sweep_objects.c; store/store.h.
 */
#pragma once

#include "server/ledger/versions.h"

#define CAIRN_SRV_LEFT_REASON_BYTES 200

/* What a sweep left. */
struct cairn_srv_left {
    enum cairn_code code;
    char reason[CAIRN_SRV_LEFT_REASON_BYTES]; /* as the store worded it */
    bool counted; /* false: the store does not tell; at least what the catalog knows of */
    uint64_t objects, bytes;
};
struct cairn_srv_not_freed {
    bool there;
    struct cairn_srv_left left;
    int64_t since_ms, tried_ms; /* wall clock */
    uint64_t tries, next_tick;
};
enum cairn_code cairn_srv_not_freed_get(struct cairn_srv_tx *tx, const char *version,
                                        struct cairn_srv_not_freed *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_not_freed_note(struct cairn_srv_tx *tx, const char *version,
                                         const struct cairn_srv_left *left,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Nothing is left of it. */
enum cairn_code cairn_srv_not_freed_drop(struct cairn_srv_tx *tx, const char *version,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* The next round tries all of them. */
enum cairn_code cairn_srv_not_freed_hurry(struct cairn_srv_tx *tx,
                                          struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_srv_not_freed_sum {
    uint64_t versions, bytes;
};
enum cairn_code cairn_srv_not_freed_sum(struct cairn_srv_tx *tx,
                                        struct cairn_srv_not_freed_sum *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_srv_not_freed_row {
    struct cairn_srv_not_freed not_freed;
    struct cairn_version_id version;
    struct cairn_run_name name;
    uint64_t step;
    enum cairn_state state;
};
/* In the order of their ids, behind that one. */
enum cairn_code cairn_srv_not_freed_each(
    struct cairn_srv_tx *tx, const char *after, uint64_t limit,
    enum cairn_code (*each)(const struct cairn_srv_not_freed_row *row, void *owner,
                            struct cairn_error *err),
    void *owner, struct cairn_error *err) CAIRN_MUST_USE;
