/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies: retention policies of runs, projects and the server, and the versions that they judge.
 *
 * Why:     which policy holds for a run, and what of its versions a plan is made of, is decided
 *          once, for previews, for those who apply one, and after each commit.
 * Promise: 1    a run's own policy holds, else its project's, else the server's; where there is
 *               none, that is one without a rule, which removes nothing.
 * Limits:  api/wire/policy.h; CAIRN_PLAN_ITEMS_MAX versions.
 * Threads: inside a transaction; structs belong to their caller.
 * Next:    plan/retention.h, server/retention/retain.h.
 */
#pragma once

#include "common/hash/hash.h"
#include "plan/retention.h"
#include "server/ledger/versions.h"

/* Where a policy stands; in the order in which they give way. */
enum cairn_srv_scope {
    CAIRN_SRV_SCOPE_RUN,
    CAIRN_SRV_SCOPE_PROJECT,
    CAIRN_SRV_SCOPE_SERVER,
    CAIRN_SRV_SCOPE_NONE,
};
/* name: run "" is the project, both "" the server. policy NULL: there is none any more. */
enum cairn_code cairn_srv_policy_put(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                     const struct cairn_policy *policy,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* The one that holds there; name as above. */
enum cairn_code cairn_srv_policy_get(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                     struct cairn_policy *ret, enum cairn_srv_scope *ret_scope,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* Of its JSON: equal ones mean the same. */
enum cairn_code cairn_srv_policy_digest(const struct cairn_policy *policy,
                                        uint8_t ret[CAIRN_SHA256_BYTES],
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* Of a run: what is open or committed and not in the trash, one item each. */
struct cairn_srv_candidates {
    struct cairn_version_id *ids;  /* owned */
    struct cairn_plan_item *items; /* owned */
    size_t count, id_capacity, item_capacity;
};
void cairn_srv_candidates_release(struct cairn_srv_candidates *candidates);
/* In the order of Q25; after: those after this one alone, NULL: all. */
enum cairn_code cairn_srv_candidates_load(struct cairn_srv_tx *tx, int64_t run_id,
                                          const struct cairn_policy *policy,
                                          const struct cairn_plan_item *after,
                                          struct cairn_srv_candidates *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* One more, that nobody has saved. */
enum cairn_code cairn_srv_candidates_add(struct cairn_srv_candidates *candidates,
                                         const struct cairn_version_id *id,
                                         const struct cairn_plan_item *item,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* What the policy asks of labels and metrics, both objects or NULL. */
void cairn_srv_candidate_judge(const struct cairn_policy *policy, const json_t *labels,
                               const json_t *metrics, struct cairn_plan_item *item);
