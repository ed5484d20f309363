/* SPDX-License-Identifier: Apache-2.0 */
/*
 * members: which processes are the ranks of an attempt, and whom it takes in later.
 *
 * Why:     one job string used by two incarnations of a job would mix their bytes in one checkpoint
 *          (V2, V38); their processes differ.
 * Promise: Q2   a known rank with another process is CAIRN_JOB_REUSED; the same again is no change.
 *          Q54  an unknown process is CAIRN_JOB_REUSED once a known one of the attempt was reported
 *               ended by its own node. Where all carry an incarnation that alone decides: the same
 *               one is taken whoever has ended, another one never.
 *          Q56  a version that needs a rank of which nothing can come any more is named.
 * Limits:  65,536 ranks a call; an incarnation of 128 bytes. Without incarnations a process whose
 *          end nobody has reported yet counts as alive.
 * Threads: inside a transaction.
 * Next:    server/intake/attempt_calls.c, server/intake/intake.h.
 */
#pragma once

#include "common/json.h"
#include "server/db/sql.h"
#include "server/ledger/node_rows.h"
#include "server/ledger/versions.h"

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
/* These ranks' processes on this node have ended. */
enum cairn_code cairn_srv_members_end(struct cairn_srv_tx *tx,
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
enum cairn_code cairn_srv_attempt_peers(
    struct cairn_srv_tx *tx, const struct cairn_srv_run *run, uint64_t limit, bool *ret_complete,
    enum cairn_code (*each)(void *argument, const char *node, const char *uploader,
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
                                         cairn_srv_probe_each *each,
                                         void *owner, struct cairn_error *err) CAIRN_MUST_USE;
