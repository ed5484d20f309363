/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retention: which versions of a run a policy keeps, each with all its reasons, and which it would
 * remove; what goes after one more save; which versions a policy wants in one store.
 *
 * Why:     people believe a tool that deletes only when it says beforehand what goes, why the rest
 *          stays, and means the same a moment later; so this is a function of its arguments alone.
 *          A plan over all versions of a run costs what the run keeps (100 ms of CPU at 50,000),
 *          and nearly all of those stay whatever the next few hundred saves are. A base is a plan's
 *          knowledge of the others, so that a save costs what it can remove.
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
 *          9   over a base and the versions after it, what goes is exactly what
 *              cairn_plan_retention removes of all of them.
 *          10  where a base cannot know that (a clock that was set back, a newer version that
 *              changed in a way that gives an older one its place again, too many saves since),
 *              it says so, and the caller makes a new plan over everything.
 *          11  aliased, leased and resumed from are not looked at in the base: what only they hold
 *              is handed out, and the caller asks again before it removes (retain.h#2).
 *          12  rules of copies add up: the newest N, and every step that K divides; what is in
 *              flight or superseded is wanted nowhere.
 * Limits:  CAIRN_PLAN_ITEMS_MAX versions; O(rules * n log n). Of a base: CAIRN_PLAN_WAITING_MAX
 *          versions wait, CAIRN_PLAN_SAVES_MAX saves follow, best rules of at most
 *          CAIRN_PLAN_BEST_MAX versions; a run that needs more has no base.
 * Threads: stateless; a base has one owner.
 * Next:    api/wire/policy.h; server/retention/retain.h keeps bases; server/copies/tiering.c;
 *          tests/plan/test_retention.c compares it with a plain model,
 *          tests/plan/test_retention_base.c a base with plans over everything.
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
/* The attempt in whose line it counts. */
static inline uint64_t cairn_plan_line(const struct cairn_plan_item *item) {
    return item->line ? item->line : item->attempt;
}
/* The order of Q25: below 0 when a is older, above when b is. */
int cairn_plan_order(const struct cairn_plan_item *a, const struct cairn_plan_item *b);
static inline bool cairn_plan_removes(const struct cairn_plan_retention *plan, size_t item) {
    return plan->first[item] == plan->first[item + 1];
}

/* ---- what goes after one more save ---- */

#define CAIRN_PLAN_SAVES_MAX 512
#define CAIRN_PLAN_WAITING_MAX 2048
#define CAIRN_PLAN_BEST_MAX 1024
#define CAIRN_PLAN_HELD_MAX 32 /* versions that go unless an alias or a lease holds them */

/* A version of the base that may go before CAIRN_PLAN_SAVES_MAX further saves. */
struct cairn_plan_waiting {
    uint32_t item; /* of the query that the base was made of */
    bool shown;
    bool goes;   /* by the last cairn_plan_base_next; until then not */
    bool handed; /* it went at some time */
    bool over;   /* set by the caller: it is in the trash */
    int64_t committed_ms;
    int32_t saves_left; /* it stays while no more saves are shown; -1: no such rule keeps it */
    uint32_t places[CAIRN_KEEP_MONTHLY - CAIRN_KEEP_HOURLY + 1]; /* of its bucket; 0: none */
    int32_t better_left[CAIRN_POLICY_BEST_MAX];                  /* by metric, as saves_left */
    double metrics[CAIRN_POLICY_BEST_MAX];
};
/* A shown version after the base, as it was at the last look. */
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
    double *best[CAIRN_POLICY_BEST_MAX]; /* the values that a rule keeps of the base, best first */
    size_t best_count[CAIRN_POLICY_BEST_MAX];
    uint64_t shown;
    uint32_t saves_max;
    int64_t newest_ms, latest_ms; /* of the newest one, and the latest date of those not ahead */
    /* What is not waiting stays as long as these hold. */
    int64_t newest_ms_max; /* the newest version's date */
    int64_t now_ms_end;    /* before this moment */
    bool timed;            /* the policy has rules of time */
};
void cairn_plan_base_release(struct cairn_plan_base *base);

/* query: newest 1, not allow_empty, a policy with a rule; its items in the order of Q25. plan: of
 * that query. *ret_made false: there is none (see Limits). saves_max: CAIRN_PLAN_SAVES_MAX, or
 * fewer in tests. */
enum cairn_code cairn_plan_base_make(const struct cairn_plan_query *query,
                                     const struct cairn_plan_retention *plan, uint32_t saves_max,
                                     struct cairn_plan_base *ret, bool *ret_made,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* query: the versions after the base, in the order of Q25, under the same policy. Sets `goes` of
 * each that waits, and ret_goes[i] for each item of the query. *ret_made false: retention.h#10,
 * and the base is of no more use. */
enum cairn_code cairn_plan_base_next(struct cairn_plan_base *base,
                                     const struct cairn_plan_query *query, bool *ret_goes,
                                     bool *ret_made, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- copies in one store ---- */

/* ret: one for each item. */
enum cairn_code cairn_plan_copies(const struct cairn_policy_copies *rules,
                                  const struct cairn_plan_item *items, size_t count, bool *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
