/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retain: a policy's plan for a run, and carrying it out, by hand or after a commit.
 *
 * Why:     what is shown to a person and what is removed must come from one plan over one state of
 *          the catalog; and a commit must not pay for all that a run has kept.
 * Promise: 1   a plan's tag stands for its policy and for every version that it removes; a call
 *              that applies it is refused when another plan would come out by then.
 *          2   Q27: each version is asked again in the transaction that puts it into the trash, and
 *              stays when it was pinned, is resumed from, is the newest, or would be the newest if
 *              what supersedes it were not there.
 *          3   nothing is deleted here: a version goes into the trash, from which undelete brings
 *              it back until trash-grace is over (D1 of server/README.md).
 *          4   what goes after a commit is what a plan over all versions of the run removes
 *              (retention.h#9).
 *          5   a base is used again only while the run's events say that nothing else of it was
 *              changed, by whatever server; and under the same policy (server/events/since.h).
 * Limits:  as plan/retention.h; a round removes at most CAIRN_SRV_RETAIN_ROUND versions.
 *          CAIRN_SRV_RETAINED_MAX runs have a base, the others are planned whole; a base has at
 *          most CAIRN_PLAN_WAITING_MAX versions, about 300 bytes each.
 * Threads: plans inside a transaction; the rest on any thread with a worker, outside of one. Bases
 *          are locked by server_retained; one that was taken belongs to its taker.
 * Next:    server/retention/policy_routes.c, server/ledger/policies.h, plan/retention.h.
 */
#pragma once

#include "server/ledger/policies.h"
#include "server/server.h"

#define CAIRN_SRV_RETAIN_ROUND 1000
#define CAIRN_SRV_PLAN_TAG_BYTES 33
#define CAIRN_SRV_RETAINED_MAX 64
#define CAIRN_SRV_RETAINED_FROM 1024 /* versions; fewer are planned whole in a millisecond */

struct cairn_srv_retain_query {
    const struct cairn_run_name *name;
    const struct cairn_policy *policy; /* NULL: the one that holds for the run */
    bool allow_empty;                  /* plan/retention.h */
    int64_t now_ms;
    /* Saves to come, behind each other; those are never in flight. */
    const struct cairn_plan_item *assumed;
    size_t assumed_count;
};
struct cairn_srv_retain {
    struct cairn_policy policy;
    enum cairn_srv_scope scope; /* where it stands; NONE: in the question, or nowhere */
    struct cairn_srv_candidates candidates;
    struct cairn_plan_retention plan; /* over candidates */
    char tag[CAIRN_SRV_PLAN_TAG_BYTES];
    bool allow_empty;
};
void cairn_srv_retain_release(struct cairn_srv_retain *retain);
enum cairn_code cairn_srv_retain_plan(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_retain_query *query,
                                      struct cairn_srv_retain *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_srv_retain_done {
    uint64_t removed, bytes; /* of what went */
};
/* Puts what the plan removes into the trash, at most `most` of it; *ret is added to. */
enum cairn_code cairn_srv_retain_carry_out(struct cairn_srv *server,
                                           struct cairn_store_worker *worker,
                                           const struct cairn_srv_retain *retain, uint64_t most,
                                           struct cairn_srv_retain_done *ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* The run's policy, after a version of it was committed; what fails is logged and comes with the
 * next commit. */
void cairn_srv_retain_after_commit(struct cairn_srv *server, struct cairn_store_worker *worker,
                                   const struct cairn_run_name *name);

/* ---- bases of runs; tests read them ---- */

struct cairn_srv_retained;
/* from, saves_max: as CAIRN_SRV_RETAINED_FROM and CAIRN_PLAN_SAVES_MAX, or less in tests. */
enum cairn_code cairn_srv_retained_new(size_t from, uint32_t saves_max,
                                       struct cairn_srv_retained **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_retained_free(struct cairn_srv_retained *retained); /* NULL is fine */
struct cairn_srv_retained_base;                                    /* of one run */
/* What is to go, in the order of Q25. */
struct cairn_srv_leaving {
    struct cairn_version_id *ids; /* owned */
    size_t count, capacity;
    enum cairn_srv_scope scope; /* where the policy stands */
    bool by_base;               /* not from a plan over everything */
};
void cairn_srv_leaving_release(struct cairn_srv_leaving *leaving);
/* The base of a run, NULL: there is none; it is given back with put. retained may be NULL. */
struct cairn_srv_retained_base *cairn_srv_retained_take(struct cairn_srv_retained *retained,
                                                        const struct cairn_run_name *name);
/* take_base may be NULL. */
void cairn_srv_retained_put(struct cairn_srv_retained *retained,
                            struct cairn_srv_retained_base *take_base);
/* By the policy that holds for the run; *base is used, replaced, or freed and NULL. */
enum cairn_code cairn_srv_retained_plan(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_retained *retained,
                                        const struct cairn_run_name *name, int64_t now_ms,
                                        struct cairn_srv_retained_base **base,
                                        struct cairn_srv_leaving *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
