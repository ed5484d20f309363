/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempts: rows of attempts and of their ranks, and when they are forgotten.
 *
 * Why:     a repeated attempt call must get its first answer (Q2), and the store's record is
 *          written from the row, whenever that succeeds (Q5). Two incarnations of a job with one
 *          job string would mix their bytes in one checkpoint (V2, V38); their processes differ. A
 *          site restarts jobs for years, so old rows must go.
 * Promise: 1   a row changes only by becoming recorded; a reconcile may replace it by the store's
 *              record.
 *          Q2  a known rank with another process is CAIRN_JOB_REUSED; a repeat is no change.
 *          Q54  an unknown process is CAIRN_JOB_REUSED once the node of a known one has reported
 *               its end. Where all carry an incarnation, only that decides: the same is accepted,
 *               another never.
 *          Q56  a version that needs a rank from which nothing more can come is named.
 *          2   weights have a digit from 1 to 8 per rank: its node's upload rate in the previous
 *              attempt, divided by the node's ranks. Rates within a quarter of the best are 8:
 *              noise is ignored.
 *          3   weights are "" (equal) if a node or rate is unknown, the world size differs, or all
 *              agree.
 *          4   the ranks of a run's two newest attempts stay.
 *          5   an attempt whose ranks have all ended has no tombstones. Those of a live newest
 *              attempt stay (Q31): its processes may have been cut off for any time.
 *          6   of a run removed long enough ago, with all versions forgotten, one row stays: its
 *              name with the number and the nonce of its newest attempt (Q1, Q6).
 * Limits:  65,536 ranks a call; an incarnation of 128 bytes; 1 MiB of superseded ids an attempt;
 *          CAIRN_SRV_OVER_ROUND removed runs a round. Without incarnations a process counts as
 *          alive until its end is reported.
 * Threads: inside a transaction; a struct belongs to its caller.
 * Next:    server/intake/attempt_calls.c, server/guard/records.h; include/cairn/cairn.h.
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
/* Neither supersedes a version. With keep, a new version of a step below `latest` is ordered at its
 * step (Q25; version_insert in statements.def); with ahead, it is the newest. */
#define CAIRN_SRV_RESUME_KEEP "keep"
#define CAIRN_SRV_RESUME_AHEAD "ahead"

struct cairn_srv_attempt {
    uint64_t number, world_size;
    char nonce[CAIRN_NONCE_TEXT_BYTES];
    char resume[CAIRN_SRV_RESUME_BYTES]; /* as requested; "": from the store's record */
    bool has_choice, recorded;
    struct cairn_version_id choice; /* the version resumed from */
    uint64_t choice_step;
    char *weights; /* owned; see #2 */
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

enum cairn_srv_recorded { /* state of an attempt's record in the store */
                          CAIRN_SRV_RECORD_MISSING = 0,
                          CAIRN_SRV_RECORD_THERE = 1,
                          CAIRN_SRV_RECORD_COPY_MISSING = 2 /* only the record's copy is missing */
};
/* The run's oldest attempt in that state. */
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
/* Finds a run with an attempt whose copy is missing. Reads all attempts. */
enum cairn_code cairn_srv_attempt_copy_missing(struct cairn_srv_tx *tx, bool *ret_found,
                                               struct cairn_run_name *ret,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* Over all runs; fills only name, attempt and nonce. */
enum cairn_code cairn_srv_attempt_newest_recorded(struct cairn_srv_tx *tx, bool *ret_found,
                                                  struct cairn_attempt_record *ret,
                                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Reconcile: the store's record replaces rows with its number or job. A record keeps only `keep` of
 * the requested resume: "" matches any request (Q2). */
enum cairn_code cairn_srv_attempt_take(struct cairn_srv_tx *tx, int64_t run_id,
                                       const struct cairn_attempt_record *record, int64_t wall_ms,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* ---- ranks ---- */

#define CAIRN_SRV_RANKS_MAX 65536

/* values of attempt_ranks.ended */
enum cairn_srv_end {
    CAIRN_SRV_END_NONE,   /* not reported ended */
    CAIRN_SRV_END_SEEN,   /* its process has ended */
    CAIRN_SRV_END_SETTLED /* and its node has reported all its data */
};

struct cairn_srv_joining {
    int64_t run_id;
    uint64_t attempt;
    const char *job, *node;
    const char *incarnation; /* "": none in the call */
    json_t *ranks;           /* [{rank, proc}] */
    json_t *ended;           /* ranks of this node that have ended, or NULL */
};
/* Checks ranks against the world size; ended belongs to the previous attempt. */
enum cairn_code cairn_srv_members_check(const json_t *ranks, const json_t *ended,
                                        uint64_t world_size,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Joins all ranks, or none. */
enum cairn_code cairn_srv_members_join(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_joining *joining,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Why an open version can never become whole; "" while it needs no ended rank. */
enum cairn_code cairn_srv_members_gone(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_version *version,
                                       char ret_reason[CAIRN_SRV_REASON_BYTES],
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* cairn_srv_sql_expect for members_gone; the version may not exist yet. */
enum cairn_code cairn_srv_members_gone_expect(struct cairn_srv_tx *tx,
                                              const struct cairn_srv_version *version,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Reported end of the rank's process on this node; *ret_known false, and END_NONE: unknown. */
struct cairn_srv_process {
    int64_t run_id;
    uint64_t attempt, rank;
    const char *proc, *node;
};
enum cairn_code cairn_srv_member_end_get(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_process *process, bool *ret_known,
                                         enum cairn_srv_end *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Never backwards. Inserts a rank that a reconcile dropped (the store has no such row). */
enum cairn_code cairn_srv_member_end_put(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_process *process,
                                         enum cairn_srv_end end,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* The node of an attempt's rank; "" if unknown. */
enum cairn_code cairn_srv_member_node(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                      uint32_t rank, char ret[CAIRN_NAME_BYTES_MAX + 1],
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Nodes with ranks of the attempt and at least one heartbeat; names live during the call. */
enum cairn_code cairn_srv_attempt_nodes(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                        void (*each)(void *argument,
                                                     const struct cairn_srv_node_mark *node),
                                        void *argument, struct cairn_error *err) CAIRN_MUST_USE;
/* JSON about a node's uploader, from a heartbeat with the attempt's grant (Q58). */
struct cairn_srv_attempt_uploader {
    int64_t run_id;
    uint64_t attempt;
    const char *node, *uploader;
};
/* *ret: the row is equal. */
enum cairn_code cairn_srv_attempt_uploader_is(struct cairn_srv_tx *tx,
                                              const struct cairn_srv_attempt_uploader *said,
                                              bool *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Drops rows of the run's older attempts. */
enum cairn_code cairn_srv_attempt_uploader_put(struct cairn_srv_tx *tx,
                                               const struct cairn_srv_attempt_uploader *said,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* Uploaders by node name that have not said goodbye, at most limit; *ret_complete: every rank has
 * joined, and each of their nodes has sent a heartbeat with the attempt's grant. */
enum cairn_code cairn_srv_attempt_peers(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                        uint64_t limit, bool *ret_complete,
                                        enum cairn_code (*each)(void *argument, const char *node,
                                                                const char *uploader,
                                                                struct cairn_error *err),
                                        void *argument, struct cairn_error *err) CAIRN_MUST_USE;
/* Nodes that the version still needs: a rank not sealed, or a shard not registered. */
enum cairn_code
cairn_srv_version_needs_nodes(struct cairn_srv_tx *tx, const struct cairn_srv_version *version,
                              void (*each)(void *argument, const struct cairn_srv_node_mark *node),
                              void *argument, struct cairn_error *err) CAIRN_MUST_USE;

/* Result of a rank's probe. */
struct cairn_srv_probe {
    uint64_t rank;
    const char *node;   /* lives during the call */
    const char *result; /* "": success; else a code's slug, a space and the reason */
    int64_t at_ms;      /* wall clock; 0: not tried */
};
/* *ret_known false: no such rank on that node. */
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

/* Weights for the next attempt, from the rates of `attempt`. The caller frees *ret. */
enum cairn_code cairn_srv_weights(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                  uint64_t world_size, char **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;

#define CAIRN_SRV_OVER_ROUND 1000

CAIRN_SRV_WORD cairn_srv_over_ended(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                    struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(tombstones_drop_of_ended), SQL_I(run_id),
                             SQL_I(attempt));
}
/* Drops rows of attempts and runs that ended before that catalog tick. */
enum cairn_code cairn_srv_over_forget(struct cairn_srv_tx *tx, uint64_t before,
                                      struct cairn_error *err) CAIRN_MUST_USE;
