/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retention: which versions of a run a policy keeps, each with all its reasons, and which it would
 * remove.
 *
 * Why:     people believe a tool that deletes only when it says beforehand what goes, why the rest
 *          stays, and means the same a moment later; so this is a function of its arguments alone.
 * Promise: 1   rules add up: what one of them keeps is kept, and every rule that keeps it is among
 *              its reasons.
 *          2   never removed: the newest K of Q28, what is pinned, leased, aliased, resumed from
 *              or in flight, and a superseded one until K newer ones that are not superseded exist.
 *          3   a policy without a rule removes nothing.
 *          4   rules of order, time and metric choose among what is committed and not superseded;
 *              a label keeps a superseded version, too, since somebody put it there.
 *          5   rules of time count buckets that hold a version, never time that passed: a run that
 *              stands still loses nothing. In a bucket the newest is kept. "Within" is counted from
 *              the newest version, not from now.
 *          6   of equal metrics the newer is the better; a version without that metric is never
 *              chosen by it, and kept while it may still be measured: for the policy's
 *              unmeasured_grace from its commit on. Best adds to the other rules and replaces none.
 *          7   the order of the items changes nothing; the same arguments have the same answer.
 *          8   one that is dated after now, while a newer one is not, was saved under a clock that
 *              ran ahead: rules of time keep it until its date has come, and count it nowhere, so
 *              that it takes no place of another one.
 * Limits:  CAIRN_PLAN_ITEMS_MAX versions; O(rules * n log n).
 * Threads: stateless.
 * Next:    api/wire/policy.h; tests/plan/test_retention.c compares it with a plain model.
 */
#pragma once

#include "api/wire/policy.h"

#define CAIRN_PLAN_ITEMS_MAX 10000000

#define CAIRN_PLAN_IN_FLIGHT 1u /* open, or without its record */
#define CAIRN_PLAN_SUPERSEDED 2u
#define CAIRN_PLAN_PINNED 4u
#define CAIRN_PLAN_LEASED 8u
#define CAIRN_PLAN_ALIASED 16u
#define CAIRN_PLAN_RESUMED 32u

struct cairn_plan_item {
    uint64_t attempt, step, n;
    uint64_t line; /* the attempt in whose line it counts; 0: its own */
    int64_t committed_ms;
    uint64_t bytes;
    unsigned marks;                        /* CAIRN_PLAN_* */
    uint32_t labels;                       /* bit i: the policy's labels[i] chooses it */
    double metrics[CAIRN_POLICY_BEST_MAX]; /* of the policy's best[i]; NAN: it has none */
};

struct cairn_plan_query {
    const struct cairn_policy *policy;
    const struct cairn_plan_item
        *items; /* what is in the trash, aborted or gone is not among them */
    size_t count;
    uint32_t newest; /* K of Q28, at least 1 */
    /* Not even the newest is kept for being that, and no rule keeps nothing instead of all. What
     * is pinned, leased, aliased, resumed from or in flight stays. */
    bool allow_empty;
    int64_t now_ms;
};

struct cairn_plan_reason {
    uint32_t item;
    enum cairn_keep why;
    uint32_t which;     /* of the policy's best (also of what is unmeasured) or labels */
    uint64_t place, of; /* the place-th of `of` that the rule keeps; 0: the rule does not count */
};
struct cairn_plan_retention {
    struct cairn_plan_reason
        *reasons; /* item by item, each item's in the order of enum cairn_keep */
    size_t reason_count, reason_capacity;
    uint32_t *first; /* item i has reasons first[i] up to first[i + 1]; none: it is removed */
    size_t count;
    uint64_t kept, kept_bytes, removed, removed_bytes, in_flight;
};
void cairn_plan_retention_release(struct cairn_plan_retention *plan);

enum cairn_code cairn_plan_retention(const struct cairn_plan_query *query,
                                     struct cairn_plan_retention *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* The number of the hour, day, week or month (of UTC) that `why` counts. */
int64_t cairn_plan_bucket(enum cairn_keep why, int64_t ms);
/* The attempt in whose line it counts. */
static inline uint64_t cairn_plan_line(const struct cairn_plan_item *item) {
    return item->line ? item->line : item->attempt;
}
/* The order of Q25: below 0 when a is older, above when b is. */
int cairn_plan_order(const struct cairn_plan_item *a, const struct cairn_plan_item *b);
static inline bool cairn_plan_removes(const struct cairn_plan_retention *plan, size_t item) {
    return plan->first[item] == plan->first[item + 1];
}
