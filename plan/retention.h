/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retention: which versions a policy keeps, with all reasons, and which it removes; the same after
 * one more save; which versions a policy wants in one store.
 *
 * Why:     users trust a deleting tool only if it announces what it will remove and why the rest
 *          stays, and then does exactly that; so this is a pure function of its arguments. A plan
 *          over all versions of a run costs 100 ms of CPU at 50,000, and nearly all of them stay
 *          for the next few hundred saves. A base keeps a plan's results, so that a save costs only
 *          the versions that it can remove.
 * Promise: 1   rules add up: a version kept by any rule is kept, with every such rule as a reason.
 *          2   never removed: the newest K of Q28; pinned, leased, aliased, resumed-from and
 *              in-flight versions; a superseded version until K newer non-superseded ones exist.
 *          3   a policy without a rule removes nothing.
 *          4   rules of order, time and metric choose among committed, non-superseded versions; a
 *              label also keeps a superseded version, because a person set it.
 *          5   time rules count buckets that hold a version, never elapsed time: an idle run loses
 *              nothing. A bucket keeps its newest version. "Within" counts from the newest version,
 *              not from now.
 *          6   of equal metrics the newer version is better. A version without the metric is never
 *              chosen by it, and is kept while it may still be measured: for the policy's
 *              unmeasured_grace after its commit. Best adds to the other rules and replaces none.
 *          7   the result does not depend on the order of items; the same arguments give the same
 *              answer.
 *          8   a version dated after now, while a newer one is not, was saved under a fast clock:
 *              time rules keep it until that date, and do not count it, so it displaces no other
 *              version.
 *          9   for a base and the versions after it, the removed ones are exactly those that
 *              cairn_plan_retention removes from all of them.
 *          10  where a base cannot know that (a clock set back, a changed newer version that
 *              restores an older one's place, too many saves since), it says so, and the caller
 *              makes a new full plan.
 *          11  a base ignores aliased, leased and resumed-from marks: versions held only by these
 *              are returned as removable, and the caller checks them before it removes
 *              (retain.h#2).
 *          12  copy rules add up: the newest N, and every step divisible by K; in-flight and
 *              superseded versions are not copied.
 * Limits:  CAIRN_PLAN_ITEMS_MAX versions; O(rules * n log n). A base: CAIRN_PLAN_WAITING_MAX
 *          waiting versions, CAIRN_PLAN_SAVES_MAX saves, best rules of at most CAIRN_PLAN_BEST_MAX
 *          versions; a run that exceeds these has no base.
 * Threads: stateless; a base has one owner.
 * Next:    api/wire/policy.h; server/retention/retain.h keeps bases; server/copies/tiering.c;
 *          tests/plan/test_retention.c compares with a plain model,
 *          tests/plan/test_retention_base.c compares a base with full plans.
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
    uint64_t line; /* attempt whose line it belongs to; 0: its own */
    int64_t committed_ms;
    uint64_t bytes;
    unsigned marks;                        /* CAIRN_PLAN_* */
    uint32_t labels;                       /* bit i: the policy's labels[i] matches */
    double metrics[CAIRN_POLICY_BEST_MAX]; /* per best rule; NAN: not measured */
};

struct cairn_plan_query {
    const struct cairn_policy *policy;
    const struct cairn_plan_item *items; /* without trashed, aborted and gone versions */
    size_t count;
    uint32_t newest; /* K of Q28, at least 1 */
    /* The newest is not kept for being newest, and a policy without rules keeps nothing instead of
     * all. Pinned, leased, aliased, resumed-from and in-flight versions stay. */
    bool allow_empty;
    int64_t now_ms;
};

struct cairn_plan_reason {
    uint32_t item;
    enum cairn_keep why;
    uint32_t which;     /* index into the policy's best (also for unmeasured) or labels */
    uint64_t place, of; /* place-th of the `of` that the rule keeps; 0: no count */
};
struct cairn_plan_retention {
    struct cairn_plan_reason *reasons; /* by item, then in the order of enum cairn_keep */
    size_t reason_count, reason_capacity;
    uint32_t *first; /* item i has reasons first[i] up to first[i + 1]; none: removed */
    size_t count;
    uint64_t kept, kept_bytes, removed, removed_bytes, in_flight;
};
void cairn_plan_retention_release(struct cairn_plan_retention *plan);

enum cairn_code cairn_plan_retention(const struct cairn_plan_query *query,
                                     struct cairn_plan_retention *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* The attempt whose line the version belongs to. */
static inline uint64_t cairn_plan_line(const struct cairn_plan_item *item) {
    return item->line ? item->line : item->attempt;
}
/* The order of Q25: negative if a is older, positive if b is. */
int cairn_plan_order(const struct cairn_plan_item *a, const struct cairn_plan_item *b);
static inline bool cairn_plan_removes(const struct cairn_plan_retention *plan, size_t item) {
    return plan->first[item] == plan->first[item + 1];
}

/* ---- removals after one more save ---- */

#define CAIRN_PLAN_SAVES_MAX 512
#define CAIRN_PLAN_WAITING_MAX 2048
#define CAIRN_PLAN_BEST_MAX 1024
#define CAIRN_PLAN_HELD_MAX 32 /* removable versions but for an alias or lease */

/* A version of the base that may be removed within CAIRN_PLAN_SAVES_MAX further saves. */
struct cairn_plan_waiting {
    uint32_t item; /* in the query of the base */
    bool shown;
    bool goes;   /* result of the last cairn_plan_base_next; false before */
    bool handed; /* `goes` was true at some time */
    bool over;   /* set by the caller: trashed */
    int64_t committed_ms;
    int32_t saves_left; /* kept while at most this many more saves are shown; -1: no such rule */
    uint32_t places[CAIRN_KEEP_MONTHLY - CAIRN_KEEP_HOURLY + 1]; /* rank of its bucket; 0: none */
    int32_t better_left[CAIRN_POLICY_BEST_MAX];                  /* per metric, as saves_left */
    double metrics[CAIRN_POLICY_BEST_MAX];
};
/* A shown version newer than the base, as of the last look. */
struct cairn_plan_followed {
    uint64_t line, step, attempt, n;
    bool goes;
    double metrics[CAIRN_POLICY_BEST_MAX];
};
struct cairn_plan_base {
    struct cairn_plan_waiting *waiting; /* in the order of Q25 */
    size_t waiting_count, waiting_capacity;
    struct cairn_plan_followed *followed; /* in the order of Q25 */
    size_t followed_count, followed_capacity;
    double *best[CAIRN_POLICY_BEST_MAX]; /* values that a best rule keeps, best first */
    size_t best_count[CAIRN_POLICY_BEST_MAX];
    uint64_t shown;
    uint32_t saves_max;
    int64_t newest_ms, latest_ms; /* latest_ms: latest date not in the future */
    /* Versions that are not waiting stay as long as these hold. */
    int64_t newest_ms_max; /* the newest version's date */
    int64_t now_ms_end;    /* before this moment */
    bool timed;
};
void cairn_plan_base_release(struct cairn_plan_base *base);

/* query: newest 1, no allow_empty, a policy with a rule, items in the order of Q25. plan: of that
 * query. *ret_made false: no base (see Limits). saves_max: CAIRN_PLAN_SAVES_MAX, fewer in tests. */
enum cairn_code cairn_plan_base_make(const struct cairn_plan_query *query,
                                     const struct cairn_plan_retention *plan, uint32_t saves_max,
                                     struct cairn_plan_base *ret, bool *ret_made,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* query: the versions after the base, in the order of Q25, same policy. Sets `goes` of each waiting
 * version and ret_goes[i] per item. *ret_made false: retention.h#10, and the base is useless. */
enum cairn_code cairn_plan_base_next(struct cairn_plan_base *base,
                                     const struct cairn_plan_query *query, bool *ret_goes,
                                     bool *ret_made, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- copies in one store ---- */

/* Sets ret[i] per item. */
enum cairn_code cairn_plan_copies(const struct cairn_policy_copies *rules,
                                  const struct cairn_plan_item *items, size_t count, bool *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
