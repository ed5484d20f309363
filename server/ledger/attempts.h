/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempts: rows of attempts: who opened one, what it resumed from and what it superseded.
 *
 * Why:     an attempt call that is repeated must be answered as it was the first time (Q2), and the
 *          store's record of an attempt is written from its row, whenever that succeeds (Q5).
 * Promise: 1    a row is written once and changes only by becoming recorded; a reconcile may put
 *               the store's record in its place.
 * Limits:  the superseded ids of one attempt 1 MiB together.
 * Threads: inside a transaction; a struct belongs to its caller.
 * Next:    server/ledger/members.h, server/intake/attempt_calls.c, server/guard/attempt_records.h.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "server/ledger/runs.h"

#define CAIRN_SRV_RESUME_BYTES 65
/* Both supersede nothing. What the first one saves of a step below that of `latest` joins at its
 * step (Q25; version_insert in statements.def), what the second one saves is newest. */
#define CAIRN_SRV_RESUME_KEEP "keep"
#define CAIRN_SRV_RESUME_AHEAD "ahead"

/* As it was opened. */
struct cairn_srv_attempt {
    uint64_t number, world_size;
    char nonce[CAIRN_NONCE_TEXT_BYTES];
    char resume[CAIRN_SRV_RESUME_BYTES]; /* what was asked for; "": taken over from the store */
    bool has_choice, recorded;
    struct cairn_version_id choice; /* what it resumed from */
    uint64_t choice_step;
    char *weights; /* owned; server/ledger/weights.h */
};
enum cairn_code cairn_srv_attempt_of_job(struct cairn_srv_tx *tx, int64_t run_id, const char *job,
                                         bool *ret_found, struct cairn_srv_attempt *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_srv_attempt_new {
    const struct cairn_srv_attempt *attempt;
    const char *job, *incarnation;
    const struct cairn_srv_ids *superseded;
    int64_t wall_ms;
};
enum cairn_code cairn_srv_attempt_insert(struct cairn_srv_tx *tx, int64_t run_id,
                                         const struct cairn_srv_attempt_new *opened,
                                         struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_srv_recorded { /* the record of an attempt, in the store */
                          CAIRN_SRV_RECORD_MISSING = 0,
                          CAIRN_SRV_RECORD_THERE = 1,
                          CAIRN_SRV_RECORD_COPY_MISSING = 2 /* only its copy is not there yet */
};
/* The oldest attempt of a run of which that is known. */
enum cairn_code cairn_srv_attempt_unrecorded(struct cairn_srv_tx *tx,
                                             const struct cairn_run_name *name,
                                             enum cairn_srv_recorded state, bool *ret_found,
                                             int64_t *ret_run_id, struct cairn_attempt_record *ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_attempt_set_recorded(struct cairn_srv_tx *tx, int64_t run_id,
                                               uint64_t number, enum cairn_srv_recorded state,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* Some run with an attempt whose copy is missing. Reads all attempts. */
enum cairn_code cairn_srv_attempt_copy_missing(struct cairn_srv_tx *tx, bool *ret_found,
                                               struct cairn_run_name *ret,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* Of all runs; only name, attempt and nonce are filled. */
enum cairn_code cairn_srv_attempt_newest_recorded(struct cairn_srv_tx *tx, bool *ret_found,
                                                  struct cairn_attempt_record *ret,
                                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Reconcile: the store's record takes the place of what the catalog had under its number or its
 * job. Of what the call asked for only `keep` stands in a record: "" joins with any (Q2). */
enum cairn_code cairn_srv_attempt_take(struct cairn_srv_tx *tx, int64_t run_id,
                                       const struct cairn_attempt_record *record, int64_t wall_ms,
                                       struct cairn_error *err) CAIRN_MUST_USE;
