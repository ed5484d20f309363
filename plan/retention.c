/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule walks the versions in its own order and notes what it keeps; at the end the notes are
 * put together by version. See retention.h. */
#include "plan/retention.h"

#include <math.h>
#include <stdlib.h>

#include "common/buf.h"

#define HOUR_MS INT64_C(3600000)
#define DAY_MS (24 * HOUR_MS)

struct planner {
    const struct cairn_plan_query *query;
    struct cairn_plan_retention *plan;
    uint32_t *shown;  /* committed and not superseded, in the order of Q25, newest first */
    uint32_t *sorted; /* those in a rule's own order */
    size_t shown_count;
    uint32_t which; /* of best, while it is sorted by it */
    struct cairn_error *err;
};

static const struct cairn_plan_item *item_at(const struct planner *planner, uint32_t index) {
    return &planner->query->items[index];
}

/* ---- orders ---- */

static int compare_u64(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

int cairn_plan_order(const struct cairn_plan_item *a, const struct cairn_plan_item *b) {
    int order = compare_u64(cairn_plan_line(a), cairn_plan_line(b));
    if (!order) order = compare_u64(a->step, b->step);
    if (!order) order = compare_u64(a->attempt, b->attempt);
    return order ? order : compare_u64(a->n, b->n);
}

static int newest_first(const void *a, const void *b, void *argument) {
    const struct planner *planner = argument;
    return cairn_plan_order(item_at(planner, *(const uint32_t *)b),
                            item_at(planner, *(const uint32_t *)a));
}

static int latest_first(const void *a, const void *b, void *argument) {
    const struct planner *planner = argument;
    int64_t at_a = item_at(planner, *(const uint32_t *)a)->committed_ms;
    int64_t at_b = item_at(planner, *(const uint32_t *)b)->committed_ms;
    if (at_a != at_b) return at_a > at_b ? -1 : 1;
    return newest_first(a, b, argument);
}

static int best_first(const void *a, const void *b, void *argument) {
    const struct planner *planner = argument;
    double of_a = item_at(planner, *(const uint32_t *)a)->metrics[planner->which];
    double of_b = item_at(planner, *(const uint32_t *)b)->metrics[planner->which];
    bool largest = planner->query->policy->best[planner->which].largest;
    if (of_a < of_b) return largest ? 1 : -1;
    if (of_a > of_b) return largest ? -1 : 1;
    return newest_first(a, b, argument); /* retention.h#6 */
}

/* Lists are mostly in their order already: a run's rows come in that of Q25, and time goes on. */
static void sort(struct planner *planner, uint32_t *list, size_t count,
                 int (*compare)(const void *a, const void *b, void *argument)) {
    size_t sorted = 1;
    while (sorted < count && compare(&list[sorted - 1], &list[sorted], planner) <= 0) sorted++;
    if (sorted < count) qsort_r(list, count, sizeof(*list), compare, planner);
}

/* ---- reasons ---- */

static enum cairn_code keep(struct planner *planner, struct cairn_plan_reason reason) {
    struct cairn_plan_retention *plan = planner->plan;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(plan->reasons, plan->reason_count, plan->reason_capacity, UINT32_MAX,
                               "reasons of a retention plan", planner->err));
    plan->reasons[plan->reason_count++] = reason;
    return CAIRN_OK;
}

/* The first `most` of a list. */
static enum cairn_code keep_first_of(struct planner *planner, enum cairn_keep why,
                                     const uint32_t *list, size_t count, uint64_t most) {
    for (size_t i = 0; i < count && i < most; i++) {
        struct cairn_plan_reason reason = {list[i], why, planner->which, i + 1, most};
        CAIRN_TRY(keep(planner, reason));
    }
    return CAIRN_OK;
}

static enum cairn_code keep_by_order(struct planner *planner) {
    const uint64_t *numbers = planner->query->policy->numbers;
    size_t count = planner->shown_count;
    CAIRN_TRY(
        keep_first_of(planner, CAIRN_KEEP_LAST, planner->shown, count, numbers[CAIRN_KEEP_LAST]));
    for (size_t i = 0; i < count; i++) planner->sorted[i] = planner->shown[count - 1 - i];
    CAIRN_TRY(keep_first_of(planner, CAIRN_KEEP_FIRST, planner->sorted, count,
                            numbers[CAIRN_KEEP_FIRST]));
    uint64_t every = numbers[CAIRN_KEEP_EVERY_STEPS];
    for (size_t i = 0; every && i < count; i++) {
        if (item_at(planner, planner->shown[i])->step % every) continue;
        struct cairn_plan_reason reason = {planner->shown[i], CAIRN_KEEP_EVERY_STEPS, 0, 0, 0};
        CAIRN_TRY(keep(planner, reason));
    }
    return CAIRN_OK;
}

/* ---- time ---- */

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

/* Months since March of the year 0, from days since 1970: years of 400-year eras that begin in
 * March, so that the leap day is a year's last. */
static int64_t month_of(int64_t day) {
    day += 719468; /* days from the first of March of the year 0 to 1970 */
    int64_t era = floor_div(day, 146097), day_of_era = day - era * 146097;
    int64_t year =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    return (era * 400 + year) * 12 + (5 * day_of_year + 2) / 153;
}

int64_t cairn_plan_bucket(enum cairn_keep why, int64_t ms) {
    int64_t day = floor_div(ms, DAY_MS);
    if (why == CAIRN_KEEP_HOURLY) return floor_div(ms, HOUR_MS);
    if (why == CAIRN_KEEP_DAILY) return day;
    if (why == CAIRN_KEEP_WEEKLY) return floor_div(day + 3, 7); /* 1970 began on a Thursday */
    return month_of(day);
}

/* retention.h#5: of the newest `most` buckets that hold one, the newest. */
static enum cairn_code keep_buckets(struct planner *planner, enum cairn_keep why, size_t count) {
    uint64_t most = planner->query->policy->numbers[why], found = 0;
    int64_t before = 0;
    for (size_t i = 0; i < count && found < most; i++) {
        int64_t bucket = cairn_plan_bucket(why, item_at(planner, planner->sorted[i])->committed_ms);
        if (found && bucket == before) continue;
        before = bucket;
        struct cairn_plan_reason reason = {planner->sorted[i], why, 0, ++found, most};
        CAIRN_TRY(keep(planner, reason));
    }
    return CAIRN_OK;
}

/* retention.h#8: kept by each rule of time that the policy has, without a place in its count. */
static enum cairn_code keep_ahead(struct planner *planner, uint32_t index) {
    const struct cairn_policy *policy = planner->query->policy;
    for (enum cairn_keep why = CAIRN_KEEP_HOURLY; why <= CAIRN_KEEP_MONTHLY; why++) {
        struct cairn_plan_reason reason = {index, why, 0, 0, 0};
        if (policy->numbers[why]) CAIRN_TRY(keep(planner, reason));
    }
    struct cairn_plan_reason within = {index, CAIRN_KEEP_WITHIN, 0, 0, 0};
    return policy->within_ms ? keep(planner, within) : CAIRN_OK;
}

/* Those that the rules of time count, into `sorted`: all but what is dated ahead. */
static enum cairn_code set_aside_ahead(struct planner *planner, size_t *ret_count) {
    bool dated = false; /* a newer version has a date that has come */
    *ret_count = 0;
    for (size_t i = 0; i < planner->shown_count; i++) {
        uint32_t index = planner->shown[i];
        bool ahead = item_at(planner, index)->committed_ms > planner->query->now_ms;
        if (ahead && dated)
            CAIRN_TRY(keep_ahead(planner, index));
        else
            planner->sorted[(*ret_count)++] = index;
        dated = dated || !ahead;
    }
    return CAIRN_OK;
}

static enum cairn_code keep_by_time(struct planner *planner) {
    size_t count = 0;
    CAIRN_TRY(set_aside_ahead(planner, &count));
    if (!count) return CAIRN_OK;
    sort(planner, planner->sorted, count, latest_first);
    for (enum cairn_keep why = CAIRN_KEEP_HOURLY; why <= CAIRN_KEEP_MONTHLY; why++)
        CAIRN_TRY(keep_buckets(planner, why, count));
    uint64_t within_ms = planner->query->policy->within_ms;
    int64_t newest_ms = item_at(planner, planner->shown[0])->committed_ms;
    for (size_t i = 0; within_ms && i < count; i++) {
        int64_t ms = item_at(planner, planner->sorted[i])->committed_ms;
        if (ms < newest_ms && (uint64_t)newest_ms - (uint64_t)ms > within_ms) break;
        struct cairn_plan_reason reason = {planner->sorted[i], CAIRN_KEEP_WITHIN, 0, 0, 0};
        CAIRN_TRY(keep(planner, reason));
    }
    return CAIRN_OK;
}

/* What was committed after `now`, as saves that are assumed, has waited for nothing yet. */
static enum cairn_code keep_unmeasured(struct planner *planner, uint32_t index) {
    uint64_t grace_ms = cairn_policy_unmeasured_grace_ms(planner->query->policy);
    int64_t ms = item_at(planner, index)->committed_ms, now_ms = planner->query->now_ms;
    struct cairn_plan_reason reason = {index, CAIRN_KEEP_UNMEASURED, planner->which, 0, 0};
    if (!grace_ms || (now_ms > ms && (uint64_t)now_ms - (uint64_t)ms >= grace_ms)) return CAIRN_OK;
    return keep(planner, reason);
}

static enum cairn_code keep_best(struct planner *planner) {
    for (planner->which = 0; planner->which < planner->query->policy->best_count;
         planner->which++) {
        size_t count = 0;
        for (size_t i = 0; i < planner->shown_count; i++) {
            if (isfinite(item_at(planner, planner->shown[i])->metrics[planner->which]))
                planner->sorted[count++] = planner->shown[i];
            else
                CAIRN_TRY(keep_unmeasured(planner, planner->shown[i]));
        }
        sort(planner, planner->sorted, count, best_first);
        CAIRN_TRY(keep_first_of(planner, CAIRN_KEEP_BEST, planner->sorted, count,
                                planner->query->policy->best[planner->which].count));
    }
    planner->which = 0;
    return CAIRN_OK;
}

/* ---- whatever the policy says ---- */

static enum cairn_code keep_labelled(struct planner *planner, uint32_t index) {
    for (uint32_t i = 0; i < planner->query->policy->labels_count; i++) {
        if (!(item_at(planner, index)->labels & 1u << i)) continue;
        struct cairn_plan_reason reason = {index, CAIRN_KEEP_LABELS, i, 0, 0};
        CAIRN_TRY(keep(planner, reason));
    }
    return CAIRN_OK;
}

/* Fewer than K that are newer and not superseded? Those are the first of `shown`. */
static bool lacks_newer(const struct planner *planner, const struct cairn_plan_item *item) {
    uint32_t newest = planner->query->newest;
    return planner->shown_count < newest ||
           cairn_plan_order(item_at(planner, planner->shown[newest - 1]), item) < 0;
}

static enum cairn_code hold(struct planner *planner, uint32_t index, bool empty) {
    static const struct {
        unsigned mark;
        enum cairn_keep why;
    } marks[] = {
        {CAIRN_PLAN_PINNED, CAIRN_KEEP_PINNED},       {CAIRN_PLAN_LEASED, CAIRN_KEEP_LEASED},
        {CAIRN_PLAN_ALIASED, CAIRN_KEEP_ALIASED},     {CAIRN_PLAN_RESUMED, CAIRN_KEEP_RESUMED},
        {CAIRN_PLAN_IN_FLIGHT, CAIRN_KEEP_IN_FLIGHT},
    };
    const struct cairn_plan_item *item = item_at(planner, index);
    for (size_t i = 0; i < CAIRN_COUNT(marks); i++) {
        struct cairn_plan_reason reason = {index, marks[i].why, 0, 0, 0};
        if (item->marks & marks[i].mark) CAIRN_TRY(keep(planner, reason));
    }
    if (item->marks & CAIRN_PLAN_IN_FLIGHT) return CAIRN_OK;
    CAIRN_TRY(keep_labelled(planner, index));
    if (planner->query->allow_empty) return CAIRN_OK;
    struct cairn_plan_reason superseded = {index, CAIRN_KEEP_SUPERSEDED, 0, 0, 0};
    struct cairn_plan_reason no_rule = {index, CAIRN_KEEP_NO_RULE, 0, 0, 0};
    if (item->marks & CAIRN_PLAN_SUPERSEDED && lacks_newer(planner, item))
        CAIRN_TRY(keep(planner, superseded));
    return empty ? keep(planner, no_rule) : CAIRN_OK; /* retention.h#3 */
}

/* ---- together ---- */

static int by_item(const void *a, const void *b) {
    const struct cairn_plan_reason *one = a, *other = b;
    if (one->item != other->item) return one->item < other->item ? -1 : 1;
    if (one->why != other->why) return one->why < other->why ? -1 : 1;
    return one->which < other->which ? -1 : one->which > other->which;
}

static enum cairn_code put_together(struct planner *planner) {
    struct cairn_plan_retention *plan = planner->plan;
    const struct cairn_plan_query *query = planner->query;
    if (plan->reason_count)
        qsort(plan->reasons, plan->reason_count, sizeof(*plan->reasons), by_item);
    uint32_t at = 0;
    for (size_t i = 0; i < query->count; i++) {
        uint64_t *bytes = &plan->removed_bytes;
        plan->first[i] = at;
        while (at < plan->reason_count && plan->reasons[at].item == i) at++;
        if (plan->first[i] == at) {
            plan->removed++;
        } else if (query->items[i].marks & CAIRN_PLAN_IN_FLIGHT) {
            plan->in_flight++;
            continue;
        } else {
            plan->kept++;
            bytes = &plan->kept_bytes;
        }
        if (cairn_add_overflows(*bytes, query->items[i].bytes, bytes))
            return cairn_fail(planner->err, CAIRN_INVALID, "the versions' sizes overflow");
    }
    plan->first[query->count] = at;
    plan->count = query->count;
    return CAIRN_OK;
}

static enum cairn_code make_plan(struct planner *planner) {
    const struct cairn_plan_query *query = planner->query;
    bool empty = cairn_policy_empty(query->policy);
    for (uint32_t i = (uint32_t)query->count; i-- > 0;) {
        if (!(query->items[i].marks & (CAIRN_PLAN_IN_FLIGHT | CAIRN_PLAN_SUPERSEDED)))
            planner->shown[planner->shown_count++] = i;
    }
    sort(planner, planner->shown, planner->shown_count, newest_first);
    CAIRN_TRY(keep_by_order(planner));
    CAIRN_TRY(keep_by_time(planner));
    CAIRN_TRY(keep_best(planner));
    if (!query->allow_empty)
        CAIRN_TRY(keep_first_of(planner, CAIRN_KEEP_NEWEST, planner->shown, planner->shown_count,
                                query->newest));
    for (uint32_t i = 0; i < query->count; i++) CAIRN_TRY(hold(planner, i, empty));
    return put_together(planner);
}

void cairn_plan_retention_release(struct cairn_plan_retention *plan) {
    free(plan->reasons);
    free(plan->first);
    *plan = (struct cairn_plan_retention){0};
}

enum cairn_code cairn_plan_retention(const struct cairn_plan_query *query,
                                     struct cairn_plan_retention *ret, struct cairn_error *err) {
    CAIRN_ASSERT(query->newest);
    if (query->count > CAIRN_PLAN_ITEMS_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a retention plan has at most %d versions",
                          CAIRN_PLAN_ITEMS_MAX);
    CAIRN_AUTO(plan_retention) plan = {0};
    CAIRN_AUTO_HEAP uint32_t *shown = calloc(query->count + 1, sizeof(*shown));
    CAIRN_AUTO_HEAP uint32_t *sorted = calloc(query->count + 1, sizeof(*sorted));
    plan.first = calloc(query->count + 1, sizeof(*plan.first));
    if (!shown || !sorted || !plan.first)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a retention plan");
    struct planner planner = {
        .query = query, .plan = &plan, .shown = shown, .sorted = sorted, .err = err};
    CAIRN_TRY(make_plan(&planner));
    *ret = plan;
    plan = (struct cairn_plan_retention){0};
    return CAIRN_OK;
}
