/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retain: a policy's plan for a run, and carrying it out.
 *
 * Why:     what is shown to a person and what is removed, by hand or after a commit, must come from
 *          one plan over one state of the catalog.
 * Promise: 1   a plan's tag stands for its policy and for every version that it removes; whoever
 *              applies it is refused when another plan would come out by then.
 *          2   Q27: each version is asked again in the transaction that puts it into the trash, and
 *              stays when it was pinned, is resumed from, is the newest, or would be the newest if
 *              what supersedes it were not there.
 *          3   nothing is deleted here: a version goes into the trash, from which undelete brings
 *              it back until trash-grace is over (D1 of server/README.md).
 * Limits:  as plan/retention.h; a round removes at most CAIRN_SRV_RETAIN_ROUND versions.
 * Threads: plan inside a transaction; the rest on any thread with a worker, outside of one.
 * Next:    server/ledger/policies.h, server/retention/retain_calls.c, server/commit/commit.c.
 */
#pragma once

#include "server/ledger/policies.h"
#include "server/server.h"

#define CAIRN_SRV_RETAIN_ROUND 1000
#define CAIRN_SRV_PLAN_TAG_BYTES 33

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
