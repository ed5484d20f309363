/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retain: plans a run's retention policy and applies it, by request or after a commit.
 *
 * Why:     what is shown and what is removed must come from one plan over one state of the catalog;
 *          the cost of a commit must not grow with the versions that a run keeps.
 * Promise: 1   a plan's tag covers its policy and every version that it removes; applying it is
 *              refused if the plan has changed meanwhile.
 *          2   Q27: each version is checked again in the transaction that trashes it, and stays if
 *              it is pinned, resumed from, the newest, or would be the newest without the versions
 *              that supersede it.
 *          3   nothing is deleted here: a version goes into the trash, from which undelete restores
 *              it until trash-grace is over (D1 of server/README.md).
 *          4   a commit removes what a plan over all versions of the run removes (retention.h#9).
 *          5   a base is reused only under the same policy and while the run's events show no other
 *              change of it, by any server (server/ledger/events.h).
 *          6   one thread at a time plans a run after a commit; it plans once more for all commits
 *              that came meanwhile. Otherwise each commit during a plan over everything, which
 *              holds the base, would make such a plan itself.
 * Limits:  as plan/retention.h; a round removes at most SRV_RETAIN_ROUND versions.
 *          SRV_RETAINED_MAX runs have a base, others are planned in full; a base has at most
 *          CAIRN_PLAN_WAITING_MAX versions, about 300 bytes each.
 * Threads: plans run in a transaction; the rest on any thread with a worker, outside of one. Bases
 *          and turns are locked by server_retained; a turn and its base belong to its taker.
 * Next:    server/retention/policy_routes.c, server/ledger/policies.h, plan/retention.h.
 */
#pragma once

#include "server/ledger/policies.h"
#include "server/server.h"

#define SRV_RETAIN_ROUND 1000
#define SRV_PLAN_TAG_BYTES 33
#define SRV_RETAINED_MAX 64
#define SRV_RETAINED_FROM 1024 /* versions; fewer are planned in full in a millisecond */

struct srv_retain_query {
    const struct cairn_run_name *name;
    const struct cairn_policy *policy; /* NULL: the policy in force for the run */
    bool allow_empty;
    int64_t now_ms;
    /* Future saves, in order; none counts as in flight. */
    const struct cairn_plan_item *assumed;
    size_t assumed_count;
};
struct srv_retain {
    struct cairn_policy policy;
    enum srv_scope scope; /* of the policy; NONE: it is part of the query, or none is set */
    struct srv_candidates candidates;
    struct cairn_plan_retention plan;
    char tag[SRV_PLAN_TAG_BYTES];
    bool allow_empty;
};
void srv_retain_release(struct srv_retain *retain);
enum cairn_code srv_retain_plan(struct srv_tx *tx, const struct srv_retain_query *query,
                                struct srv_retain *ret, struct cairn_error *err) CAIRN_MUST_USE;
struct srv_retain_done {
    uint64_t removed, bytes; /* of versions put into the trash */
};
/* Puts up to `most` of the versions that the plan removes into the trash; adds to *ret. */
enum cairn_code srv_retain_carry_out(struct srv *server, struct cairn_store_worker *worker,
                                     const struct srv_retain *retain, uint64_t most,
                                     struct srv_retain_done *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Applies the run's policy after a commit; a failure is logged and retried at the next commit. */
void srv_retain_after_commit(struct srv *server, struct cairn_store_worker *worker,
                             const struct cairn_run_name *name);

/* ---- bases of runs (exported for tests) ---- */

/* from, saves_max: SRV_RETAINED_FROM and CAIRN_PLAN_SAVES_MAX; less in tests. */
enum cairn_code srv_retained_new(size_t from, uint32_t saves_max, struct srv_retained **ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
void srv_retained_free(struct srv_retained *retained);
struct srv_retained_base;
/* Versions to remove, in the order of Q25. */
struct srv_leaving {
    struct cairn_version_id *ids;
    size_t count, capacity;
    enum srv_scope scope; /* of the policy */
};
void srv_leaving_release(struct srv_leaving *leaving);
/* A thread's turn to plan a run; must not move. */
struct srv_retained_turn {
    struct srv_retained_turn *next;
    const struct cairn_run_name *name;
    struct srv_retained_base *base; /* of the run; NULL: none */
    bool again;                     /* another commit came during this turn */
};
/* False: another thread has the run's turn and plans again after it. End a turn with put. retained
 * may be NULL. */
bool srv_retained_take(struct srv_retained *retained, const struct cairn_run_name *name,
                       struct srv_retained_turn *ret) CAIRN_MUST_USE;
/* Keeps the turn's base. True: another commit came meanwhile, so plan again. */
bool srv_retained_put(struct srv_retained *retained, struct srv_retained_turn *turn) CAIRN_MUST_USE;
/* Plans by the policy in force; *base is updated, replaced, or freed and set to NULL. */
enum cairn_code srv_retained_plan(struct srv_tx *tx, const struct srv_retained *retained,
                                  const struct cairn_run_name *name, int64_t now_ms,
                                  struct srv_retained_base **base, struct srv_leaving *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
