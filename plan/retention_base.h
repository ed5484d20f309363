/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retention_base: what a policy removes after one more save, from what was found of those before.
 *
 * Why:     a plan over all versions of a run costs what the run keeps: 100 ms of CPU at 50,000. Of
 *          those nearly all stay whatever the next few hundred saves are. A base is a plan's
 *          knowledge of the others, so that a save costs what it can remove.
 * Promise: 1   over the base and the versions after it, what goes is exactly what
 *              cairn_plan_retention removes of all of them.
 *          2   where a base cannot know that (a clock that was set back, a newer version that
 *              changed in a way that gives an older one its place again, too many saves since),
 *              it says so, and the caller makes a new plan over everything.
 *          3   aliased, leased and resumed from are not looked at in the base: what only they hold
 *              is handed out, and the caller asks again before it removes (retain.h#2).
 * Limits:  CAIRN_PLAN_WAITING_MAX versions wait, CAIRN_PLAN_SAVES_MAX saves follow, best rules of
 *          at most CAIRN_PLAN_BEST_MAX versions; a run that needs more has no base.
 * Threads: one owner.
 * Next:    plan/retention.h; server/retention/retain.h keeps bases.
 *          compares both over histories.
 */
#pragma once

#include "plan/retention.h"

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
    int32_t better_left[CAIRN_POLICY_BEST_MAX]; /* by metric, as saves_left */
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
 * each that waits, and ret_goes[i] for each item of the query. *ret_made false: retention_base.h#2,
 * and the base is of no more use. */
enum cairn_code cairn_plan_base_next(struct cairn_plan_base *base,
                                     const struct cairn_plan_query *query, bool *ret_goes,
                                     bool *ret_made, struct cairn_error *err) CAIRN_MUST_USE;
