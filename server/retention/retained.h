/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retained: what a policy removes after a commit, at the cost of what it can remove.
 *
 * Why:     a plan over all that a run keeps took 115 ms of CPU at 54,750 versions, each commit.
 * Promise: 1   what goes is what a plan over all versions of the run removes (retention.h#9).
 *          2   a base is used again only while the run's events say that nothing else of it was
 *              changed, by whatever server; and under the same policy.
 * Limits:  CAIRN_SRV_RETAINED_MAX runs have a base, the others are planned whole; a base has at
 *          most CAIRN_PLAN_WAITING_MAX versions, about 300 bytes each.
 * Threads: locked by server_retained; a base belongs to who took it.
 * Next:    plan/retention.h, server/retention/retain.h.
 */
#pragma once

#include "server/ledger/policies.h"
#include "server/server.h"

#define CAIRN_SRV_RETAINED_MAX 64
#define CAIRN_SRV_RETAINED_FROM 1024 /* versions; fewer are planned whole in a millisecond */

struct cairn_srv_retained;
/* from, saves_max: as CAIRN_SRV_RETAINED_FROM and CAIRN_PLAN_SAVES_MAX, or less in tests. */
enum cairn_code cairn_srv_retained_new(size_t from, uint32_t saves_max,
                                       struct cairn_srv_retained **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_retained_free(struct cairn_srv_retained *retained); /* NULL is fine */

struct cairn_srv_retained_base; /* of one run */
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
