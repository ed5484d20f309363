/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempts: rows of attempts: who opened one, what it resumed from, which processes are its ranks,
 * and when nobody asks for it any more.
 *
 * Why:     an attempt call that is repeated must be answered as it was the first time (Q2), and the
 *          store's record of an attempt is written from its row, whenever that succeeds (Q5). One
 *          job string used by two incarnations of a job would mix their bytes in one checkpoint
 *          (V2, V38); their processes differ. A site restarts its jobs for years, so rows of what
 *          is over go.
 * Promise: 1    a row is written once and changes only by becoming recorded; a reconcile may put
 *               the store's record in its place.
 *          Q2   a known rank with another process is CAIRN_JOB_REUSED; the same again is no change.
 *          Q54  an unknown process is CAIRN_JOB_REUSED once a known one of the attempt was reported
 *               ended by its own node. Where all carry an incarnation that alone decides: the same
 *               one is taken whoever has ended, another one never.
 *          Q56  a version that needs a rank of which nothing can come any more is named.
 *          2    a digit from 1 to 8 for each rank, by the upload rate of its node in the attempt
 *               before, divided by the node's ranks. Rates within a quarter of the best are 8, so
 *               that noise changes no share.
 *          3    "" (equal) where a rank's node or a rate is not known, the world has another size,
 *               or all are alike.
 *          4    the ranks of a run's two newest attempts stay.
 *          5    an attempt of which each rank has ended has no tombstone. One of a newest attempt
 *               that lives stays (Q31): a process of it may have been cut off for any time.
 *          6    of a run that was removed for so long, and whose versions are all forgotten, one
 *               row stays: its name with the number and the nonce of its newest attempt (Q1, Q6).
 * Limits:  65,536 ranks a call; an incarnation of 128 bytes; the superseded ids of one attempt 1
 *          MiB together; CAIRN_SRV_OVER_ROUND removed runs in a round. Without incarnations a
 *          process whose end nobody has reported yet counts as alive.
 * Threads: inside a transaction; a struct belongs to its caller.
 * Next:    server/intake/attempt_calls.c, server/guard/records.h; cairn_session_weights in
 *          include/cairn/cairn.h.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "common/json.h"
#include "server/db/sql.h"
#include "server/ledger/leases.h"
#include "server/ledger/runs.h"
#include "server/ledger/versions.h"

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
    char *weights; /* owned; server/ledger/attempts.h */
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
CAIRN_SRV_WORD cairn_srv_attempt_set_recorded(struct cairn_srv_tx *tx, int64_t run_id,
                                              uint64_t number, enum cairn_srv_recorded state,
                                              struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(attempt_set_recorded), SQL_I(run_id), SQL_I(number),
                             SQL_I(state));
}
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

/* ---- ranks ---- */

#define CAIRN_SRV_RANKS_MAX 65536

/* attempt_ranks.ended */
enum cairn_srv_end {
    CAIRN_SRV_END_NONE,   /* as far as anybody knows it lives */
    CAIRN_SRV_END_SEEN,   /* its process has ended */
    CAIRN_SRV_END_SETTLED /* and its node has reported all that it held of it */
};

struct cairn_srv_joining {
    int64_t run_id;
    uint64_t attempt;
    const char *job, *node;
    const char *incarnation; /* "": the call carries none */
    json_t *ranks;           /* [{rank, proc}] */
    json_t *ended;           /* [rank] of this node, or NULL */
};
/* ranks of a call, against the attempt's world size, and ended, which are of the attempt before. */
enum cairn_code cairn_srv_members_check(const json_t *ranks, const json_t *ended,
                                        uint64_t world_size,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Takes the ranks in, or none of them. */
enum cairn_code cairn_srv_members_join(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_joining *joining,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Why an open version can never become whole: "" when no rank that it still needs has ended. */
enum cairn_code cairn_srv_members_gone(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_version *version,
                                       char ret_reason[CAIRN_SRV_REASON_BYTES],
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* What gone will look at (sql.h); of a version that need not be there yet. */
enum cairn_code cairn_srv_members_gone_expect(struct cairn_srv_tx *tx,
                                              const struct cairn_srv_version *version,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* How far this process of this rank was reported ended by this node; CAIRN_SRV_END_NONE with
 * *ret_known false when the attempt has no such process. */
struct cairn_srv_process {
    int64_t run_id;
    uint64_t attempt, rank;
    const char *proc, *node;
};
enum cairn_code cairn_srv_member_end_get(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_process *process, bool *ret_known,
                                         enum cairn_srv_end *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Never backwards. A rank that a reconcile has forgotten (its row is not in the store) is put in
 * again. */
enum cairn_code cairn_srv_member_end_put(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_process *process,
                                         enum cairn_srv_end end,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* Where a rank of an attempt runs; "" where it has not said. */
enum cairn_code cairn_srv_member_node(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                      uint32_t rank, char ret[CAIRN_NAME_BYTES_MAX + 1],
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Nodes with ranks of an attempt that ever sent a heartbeat; the name lives during the call. */
enum cairn_code cairn_srv_attempt_nodes(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                        void (*each)(void *argument,
                                                     const struct cairn_srv_node_mark *node),
                                        void *argument, struct cairn_error *err) CAIRN_MUST_USE;
/* What a heartbeat with a grant of the attempt says of its node's uploader (Q58): JSON. */
struct cairn_srv_attempt_uploader {
    int64_t run_id;
    uint64_t attempt;
    const char *node, *uploader;
};
/* *ret: it stands there so. */
enum cairn_code cairn_srv_attempt_uploader_is(struct cairn_srv_tx *tx,
                                              const struct cairn_srv_attempt_uploader *said,
                                              bool *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Older attempts of the run are forgotten. */
enum cairn_code cairn_srv_attempt_uploader_put(struct cairn_srv_tx *tx,
                                               const struct cairn_srv_attempt_uploader *said,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* Of these, those that have not said good-bye, by name, limit at most; *ret_complete: every rank of
 * the attempt has joined it, and each of their nodes has sent a heartbeat with its grant. */
enum cairn_code cairn_srv_attempt_peers(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                        uint64_t limit, bool *ret_complete,
                                        enum cairn_code (*each)(void *argument, const char *node,
                                                                const char *uploader,
                                                                struct cairn_error *err),
                                        void *argument, struct cairn_error *err) CAIRN_MUST_USE;
/* Those of them that a version needs still: a rank not sealed, or a shard not registered. */
enum cairn_code
cairn_srv_version_needs_nodes(struct cairn_srv_tx *tx, const struct cairn_srv_version *version,
                              void (*each)(void *argument, const struct cairn_srv_node_mark *node),
                              void *argument, struct cairn_error *err) CAIRN_MUST_USE;

/* What was found of a rank's probe. */
struct cairn_srv_probe {
    uint64_t rank;
    const char *node;   /* lives during the call */
    const char *result; /* "": all was well; else the slug of a code, a space and the reason */
    int64_t at_ms;      /* wall clock; 0: it was not tried */
};
/* *ret_known false: the attempt has no such rank on that node. */
enum cairn_code cairn_srv_member_probed(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                        const struct cairn_srv_probe *probe, bool *ret_known,
                                        struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_srv_probe_page {
    int64_t run_id;
    uint64_t attempt;
    int64_t after; /* a rank, or -1 */
    uint64_t limit;
};
typedef enum cairn_code cairn_srv_probe_each(void *owner, const struct cairn_srv_probe *probe,
                                             struct cairn_error *err);
enum cairn_code cairn_srv_members_probed(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_probe_page *page,
                                         cairn_srv_probe_each *each, void *owner,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- weights ---- */

/* By what is known of `attempt`, for the next one. The caller frees *ret. */
enum cairn_code cairn_srv_weights(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                  uint64_t world_size, char **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* ---- jobs and runs that are over ---- */

#define CAIRN_SRV_OVER_ROUND 1000

CAIRN_SRV_WORD cairn_srv_over_ended(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                    struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(tombstones_drop_of_ended), SQL_I(run_id),
                             SQL_I(attempt));
}
/* before: a catalog tick; rows of what was over by then are not kept any more. */
enum cairn_code cairn_srv_over_forget(struct cairn_srv_tx *tx, uint64_t before,
                                      struct cairn_error *err) CAIRN_MUST_USE;
