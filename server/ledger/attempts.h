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
 *          SRV_OVER_ROUND removed runs a round. Without incarnations a process counts as
 *          alive until its end is reported.
 * Threads: inside a transaction; a struct belongs to its caller.
 * Next:    server/intake/attempt_calls.c, server/guard/records.h; include/cairn/cairn.h.
 */
#pragma once

#include "api/documents/records.h"
#include "server/ledger/leases.h"
#include "server/ledger/versions.h"

#define SRV_RESUME_BYTES 65
/* Neither supersedes a version. With keep, a new version of a step below `latest` is ordered at its
 * step (Q25; version_insert in statements.def); with ahead, it is the newest. */
#define SRV_RESUME_KEEP "keep"
#define SRV_RESUME_AHEAD "ahead"

struct srv_attempt {
    uint64_t number, world_size;
    char nonce[CAIRN_NONCE_TEXT_BYTES];
    char resume[SRV_RESUME_BYTES]; /* as requested; "": from the store's record */
    bool has_choice, recorded;
    struct cairn_version_id choice; /* the version resumed from */
    uint64_t choice_step;
    char *weights; /* owned; see #2 */
};
enum cairn_code srv_attempt_of_job(struct srv_tx *tx, int64_t run_id, const char *job,
                                   bool *ret_found, struct srv_attempt *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
struct srv_attempt_new {
    const struct srv_attempt *attempt;
    const char *job, *incarnation;
    const struct srv_ids *superseded;
    int64_t wall_ms;
};
enum cairn_code srv_attempt_insert(struct srv_tx *tx, int64_t run_id,
                                   const struct srv_attempt_new *opened,
                                   struct cairn_error *err) CAIRN_MUST_USE;

enum srv_recorded { /* state of an attempt's record in the store */
                    SRV_RECORD_MISSING = 0,
                    SRV_RECORD_THERE = 1,
                    SRV_RECORD_COPY_MISSING = 2 /* only the record's copy is missing */
};
/* The run's oldest attempt in that state. */
enum cairn_code srv_attempt_unrecorded(struct srv_tx *tx, const struct cairn_run_name *name,
                                       enum srv_recorded state, bool *ret_found,
                                       int64_t *ret_run_id, struct cairn_attempt_record *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
SRV_RUNS(attempt_set_recorded, (int64_t run_id, uint64_t number, enum srv_recorded state),
         attempt_set_recorded, SQL_I(run_id), SQL_I(number), SQL_I(state));
/* Finds a run with an attempt whose copy is missing. Reads all attempts. */
SRV_WORD srv_attempt_copy_missing(struct srv_tx *tx, bool *ret_found, struct cairn_run_name *ret,
                                  struct cairn_error *err) {
    SQL_FIRST(rows, ret_found, tx, err, SQL(attempt_copy_owed));
    if (!*ret_found) return CAIRN_OK;
    srv_rows_name(&rows, 0, ret);
    return CAIRN_OK;
}
/* Over all runs; fills only name, attempt and nonce. */
SRV_WORD srv_attempt_newest_recorded(struct srv_tx *tx, bool *ret_found,
                                     struct cairn_attempt_record *ret, struct cairn_error *err) {
    return srv_sql_row(tx, ROW(attempt_newest), ret, ret_found, err, SQL(attempt_newest_recorded));
}
/* Reconcile: the store's record replaces rows with its number or job. A record keeps only `keep` of
 * the requested resume: "" matches any request (Q2). */
enum cairn_code srv_attempt_take(struct srv_tx *tx, int64_t run_id,
                                 const struct cairn_attempt_record *record, int64_t wall_ms,
                                 struct cairn_error *err) CAIRN_MUST_USE;

/* ---- ranks ---- */

#define SRV_RANKS_MAX 65536

/* values of attempt_ranks.ended */
enum srv_end {
    SRV_END_NONE,   /* not reported ended */
    SRV_END_SEEN,   /* its process has ended */
    SRV_END_SETTLED /* and its node has reported all its data */
};

struct srv_joining {
    int64_t run_id;
    uint64_t attempt;
    const char *job, *node;
    const char *incarnation; /* "": none in the call */
    json_t *ranks;           /* [{rank, proc}] */
    json_t *ended;           /* ranks of this node that have ended, or NULL */
};
/* Checks ranks against the world size; ended belongs to the previous attempt. */
enum cairn_code srv_members_check(const json_t *ranks, const json_t *ended, uint64_t world_size,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Joins all ranks, or none. */
enum cairn_code srv_members_join(struct srv_tx *tx, const struct srv_joining *joining,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Why an open version can never become whole; "" while it needs no ended rank. */
enum cairn_code srv_members_gone(struct srv_tx *tx, const struct srv_version *version,
                                 char ret_reason[SRV_REASON_BYTES],
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* srv_sql_expect for members_gone; the version may not exist yet. */
enum cairn_code srv_members_gone_expect(struct srv_tx *tx, const struct srv_version *version,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Reported end of the rank's process on this node; *ret_known false, and END_NONE: unknown. */
struct srv_process {
    int64_t run_id;
    uint64_t attempt, rank;
    const char *proc, *node;
};
enum cairn_code srv_member_end_get(struct srv_tx *tx, const struct srv_process *process,
                                   bool *ret_known, enum srv_end *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
SRV_RUNS(over_ended, (int64_t run_id, uint64_t attempt), tombstones_drop_of_ended, SQL_I(run_id),
         SQL_I(attempt));
/* Never backwards. Inserts a rank that a reconcile dropped (the store has no such row). */
SRV_WORD srv_member_end_put(struct srv_tx *tx, const struct srv_process *process, enum srv_end end,
                            struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(member_put_ended), SQL_I(process->run_id),
                          SQL_I(process->attempt), SQL_I(process->rank), SQL_T(process->proc),
                          SQL_T(process->node), SQL_I(end)));
    return srv_over_ended(tx, process->run_id, process->attempt, err);
}

/* The node of an attempt's rank; "" if unknown. */
enum cairn_code srv_member_node(struct srv_tx *tx, int64_t run_id, uint64_t attempt, uint32_t rank,
                                char ret[CAIRN_NAME_BYTES_MAX + 1],
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Rows of nodes with ranks of the attempt and at least one heartbeat; srv_row_node_mark. */
SRV_OPENS(attempt_nodes, (int64_t run_id, uint64_t attempt), attempt_nodes, SQL_I(run_id),
          SQL_I(attempt));
/* JSON about a node's uploader, from a heartbeat with the attempt's grant (Q58). */
struct srv_attempt_uploader {
    int64_t run_id;
    uint64_t attempt;
    const char *node, *uploader;
};
/* *ret: the row is equal. */
SRV_FINDS(attempt_uploader_is, (const struct srv_attempt_uploader *said), attempt_uploader_is,
          SQL_I(said->run_id), SQL_I(said->attempt), SQL_T(said->node), SQL_T(said->uploader));
/* Drops rows of the run's older attempts. */
SRV_WORD srv_attempt_uploader_put(struct srv_tx *tx, const struct srv_attempt_uploader *said,
                                  struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(attempt_uploader_put), SQL_I(said->run_id),
                          SQL_I(said->attempt), SQL_T(said->node), SQL_T(said->uploader)));
    return srv_sql_run(tx, NULL, err, SQL(attempt_uploaders_drop_older), SQL_I(said->run_id),
                       SQL_I(said->attempt));
}
/* Rows of uploaders by node name that have not said goodbye, at most limit; *ret_complete: every
 * rank has joined, and each of their nodes has sent a heartbeat with the attempt's grant. */
enum cairn_code srv_attempt_peers(struct srv_tx *tx, const struct srv_run *run, uint64_t limit,
                                  bool *ret_complete, struct srv_rows *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Rows of nodes that the version still needs: a rank not sealed, or a shard not registered. */
SRV_OPENS(version_needs_nodes, (const struct srv_version *version), attempt_nodes_unfinished,
          SQL_I(version->run_id), SQL_I(version->attempt), SQL_T(version->id.text));

/* Result of a rank's probe. */
struct srv_probe {
    uint64_t rank;
    const char *node;   /* of a row: lives until the next */
    const char *result; /* "": success; else a code's slug, a space and the reason */
    int64_t at_ms;      /* wall clock; 0: not tried */
};
/* *ret_known false: no such rank on that node. */
SRV_CHANGES(member_probed, (int64_t run_id, uint64_t attempt, const struct srv_probe *probe),
            member_probe, SQL_I(run_id), SQL_I(attempt), SQL_I(probe->rank), SQL_T(probe->node),
            SQL_T(probe->result), SQL_I(probe->at_ms));
struct srv_probe_page {
    int64_t run_id;
    uint64_t attempt;
    int64_t after; /* a rank, or -1 */
    uint64_t limit;
};
SRV_OPENS(probes_open, (const struct srv_probe_page *page), members_probed, SQL_I(page->run_id),
          SQL_I(page->attempt), SQL_I(page->after), SQL_I(page->limit));

/* Weights for the next attempt, from the rates of `attempt`. The caller frees *ret. */
enum cairn_code srv_weights(struct srv_tx *tx, int64_t run_id, uint64_t attempt,
                            uint64_t world_size, char **ret,
                            struct cairn_error *err) CAIRN_MUST_USE;

#define SRV_OVER_ROUND 1000

/* Drops rows of attempts and runs that ended before that catalog tick. */
enum cairn_code srv_over_forget(struct srv_tx *tx, uint64_t before,
                                struct cairn_error *err) CAIRN_MUST_USE;
