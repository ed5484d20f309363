/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule walks the versions in its own order and records reasons, finally grouped by version. */
#include "plan/retention.h"

#include <math.h>
#include <stdlib.h>

#include "common/buf.h"

#define HOUR_MS INT64_C(3600000)
#define DAY_MS (24 * HOUR_MS)

struct planner {
    const struct cairn_plan_query *query;
    struct cairn_plan_retention *plan;
    uint32_t *shown;  /* committed, not superseded; newest first by Q25 */
    uint32_t *sorted; /* the same in a rule's order */
    size_t shown_count;
    uint32_t which; /* index of the best rule in progress */
    struct cairn_error *err;
};

static const struct cairn_plan_item *item_at(const struct planner *planner, uint32_t index) {
    return &planner->query->items[index];
}

static bool is_shown(const struct cairn_plan_item *item) {
    return !(item->marks & (CAIRN_PLAN_IN_FLIGHT | CAIRN_PLAN_SUPERSEDED));
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

/* Lists are mostly sorted already: rows arrive in the order of Q25, and time increases. */
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

static enum cairn_code keep_first_of(struct planner *planner, enum cairn_keep why,
                                     const uint32_t *list, size_t count, uint64_t most) {
    for (size_t i = 0; i < count && i < most; i++) {
        struct cairn_plan_reason reason = {list[i], why, planner->which, i + 1, most};
        CAIRN_TRY(keep(planner, reason));
    }
    return CAIRN_OK;
}

/* ---- time ---- */

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

static int64_t bucket_of(enum cairn_keep why, int64_t ms) {
    int64_t day = floor_div(ms, DAY_MS);
    if (why == CAIRN_KEEP_HOURLY) return floor_div(ms, HOUR_MS);
    if (why == CAIRN_KEEP_DAILY) return day;
    if (why == CAIRN_KEEP_WEEKLY) return floor_div(day + 3, 7);
    /* Months since March of year 0, from days since 1970: 400-year eras begin in March, so that the
     * leap day ends a year. */
    day += 719468; /* days from 1 March of year 0 to 1970 */
    int64_t era = floor_div(day, 146097), day_of_era = day - era * 146097;
    int64_t year =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    return (era * 400 + year) * 12 + (5 * day_of_year + 2) / 153;
}

/* retention.h#5: keeps the newest version of each of the newest `most` non-empty buckets. */
static enum cairn_code keep_buckets(struct planner *planner, enum cairn_keep why, size_t count) {
    uint64_t most = planner->query->policy->numbers[why], found = 0;
    int64_t before = 0;
    for (size_t i = 0; i < count && found < most; i++) {
        int64_t bucket = bucket_of(why, item_at(planner, planner->sorted[i])->committed_ms);
        if (found && bucket == before) continue;
        before = bucket;
        struct cairn_plan_reason reason = {planner->sorted[i], why, 0, ++found, most};
        CAIRN_TRY(keep(planner, reason));
    }
    return CAIRN_OK;
}

/* retention.h#8: kept by each time rule of the policy, without a place in its count. */
static enum cairn_code keep_ahead(struct planner *planner, uint32_t index) {
    const struct cairn_policy *policy = planner->query->policy;
    for (enum cairn_keep why = CAIRN_KEEP_HOURLY; why <= CAIRN_KEEP_MONTHLY; why++) {
        struct cairn_plan_reason reason = {index, why, 0, 0, 0};
        if (policy->numbers[why]) CAIRN_TRY(keep(planner, reason));
    }
    struct cairn_plan_reason within = {index, CAIRN_KEEP_WITHIN, 0, 0, 0};
    return policy->within_ms ? keep(planner, within) : CAIRN_OK;
}

static enum cairn_code keep_by_time(struct planner *planner) {
    /* Fills `sorted` with the versions that time rules count: all but those dated ahead. */
    size_t count = 0;
    bool dated = false; /* a newer version has a past date */
    for (size_t i = 0; i < planner->shown_count; i++) {
        uint32_t index = planner->shown[i];
        bool ahead = item_at(planner, index)->committed_ms > planner->query->now_ms;
        if (ahead && dated)
            CAIRN_TRY(keep_ahead(planner, index));
        else
            planner->sorted[count++] = index;
        dated = dated || !ahead;
    }
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

/* A version committed after `now`, as in assumed saves, has not waited yet. */
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

/* ---- marks and labels ---- */

/* Fewer than K newer non-superseded versions exist; those are the first of `shown`. */
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
    for (uint32_t i = 0; i < planner->query->policy->labels_count; i++) {
        if (!(item_at(planner, index)->labels & 1u << i)) continue;
        struct cairn_plan_reason reason = {index, CAIRN_KEEP_LABELS, i, 0, 0};
        CAIRN_TRY(keep(planner, reason));
    }
    if (planner->query->allow_empty) return CAIRN_OK;
    struct cairn_plan_reason superseded = {index, CAIRN_KEEP_SUPERSEDED, 0, 0, 0};
    struct cairn_plan_reason no_rule = {index, CAIRN_KEEP_NO_RULE, 0, 0, 0};
    if (item->marks & CAIRN_PLAN_SUPERSEDED && lacks_newer(planner, item))
        CAIRN_TRY(keep(planner, superseded));
    return empty ? keep(planner, no_rule) : CAIRN_OK; /* retention.h#3 */
}

/* ---- grouping by version ---- */

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
        if (is_shown(&query->items[i])) planner->shown[planner->shown_count++] = i;
    }
    sort(planner, planner->shown, planner->shown_count, newest_first);
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

/* ---- bases ---- */

/* A base converts each reason of a plan into the events that end it, if those can occur soon. */
#define BUCKETS (CAIRN_KEEP_MONTHLY - CAIRN_KEEP_HOURLY + 1)

void cairn_plan_base_release(struct cairn_plan_base *base) {
    free(base->waiting);
    free(base->followed);
    for (size_t i = 0; i < CAIRN_POLICY_BEST_MAX; i++) free(base->best[i]);
    *base = (struct cairn_plan_base){0};
}

static bool is_timed(const struct cairn_policy *policy) {
    for (enum cairn_keep why = CAIRN_KEEP_HOURLY; why <= CAIRN_KEEP_MONTHLY; why++)
        if (policy->numbers[why]) return true;
    return policy->within_ms != 0;
}

static int32_t bounded(uint64_t number) {
    return (int32_t)cairn_min_u64(number, INT32_MAX);
}

static int64_t later(int64_t ms, uint64_t by_ms) {
    int64_t sum;
    return by_ms > INT64_MAX || __builtin_add_overflow(ms, (int64_t)by_ms, &sum) ? INT64_MAX : sum;
}

/* ---- making a base ---- */

struct maker {
    const struct cairn_plan_query *query;
    const struct cairn_plan_retention *plan;
    struct cairn_plan_base *base;
    int64_t *dates; /* room for one per item */
    int64_t within_cut, unmeasured_cut;
    size_t held;
    bool made;
    struct cairn_error *err;
};

/* When the rules cease to keep a version of the base. */
struct lapse {
    struct cairn_plan_waiting waiting;
    bool stays; /* kept throughout the base's saves */
    bool within, unmeasured;
};

static void take_reason(const struct maker *maker, const struct cairn_plan_reason *reason,
                        struct lapse *lapse) {
    struct cairn_plan_waiting *waiting = &lapse->waiting;
    int32_t left = bounded(reason->of - reason->place), most = (int32_t)maker->base->saves_max;
    switch (reason->why) {
    case CAIRN_KEEP_LAST:
    case CAIRN_KEEP_NEWEST:
    case CAIRN_KEEP_SUPERSEDED: /* of is 0, so none left */
        if (left > waiting->saves_left) waiting->saves_left = left;
        lapse->stays = lapse->stays || left >= most;
        return;
    case CAIRN_KEEP_HOURLY:
    case CAIRN_KEEP_DAILY:
    case CAIRN_KEEP_WEEKLY:
    case CAIRN_KEEP_MONTHLY:
        waiting->places[reason->why - CAIRN_KEEP_HOURLY] = (uint32_t)bounded(reason->place);
        /* The newest bucket may get a newer version; no place means dated ahead. */
        lapse->stays = lapse->stays || !reason->place || (reason->place > 1 && left >= most);
        return;
    case CAIRN_KEEP_WITHIN:
        lapse->within = true;
        return;
    case CAIRN_KEEP_BEST:
        waiting->better_left[reason->which] = left;
        lapse->stays = lapse->stays || left >= most;
        return;
    case CAIRN_KEEP_UNMEASURED:
        lapse->unmeasured = true;
        return;
    case CAIRN_KEEP_LEASED:
    case CAIRN_KEEP_ALIASED:
    case CAIRN_KEEP_RESUMED: /* retention.h#11 */
        return;
    default:
        lapse->stays = true;
    }
}

static void judge(const struct maker *maker, size_t index, struct lapse *ret) {
    const struct cairn_plan_retention *plan = maker->plan;
    const struct cairn_plan_item *item = &maker->query->items[index];
    *ret = (struct lapse){.waiting = {.item = (uint32_t)index,
                                      .shown = is_shown(item),
                                      .committed_ms = item->committed_ms,
                                      .saves_left = -1}};
    memcpy(ret->waiting.metrics, item->metrics, sizeof(item->metrics));
    for (size_t i = 0; i < CAIRN_POLICY_BEST_MAX; i++) ret->waiting.better_left[i] = -1;
    for (uint32_t i = plan->first[index]; i < plan->first[index + 1]; i++)
        take_reason(maker, &plan->reasons[i], ret);
}

static int by_date(const void *a, const void *b) {
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return one < other ? -1 : one > other;
}

/* Cut-off date for versions that only this rule keeps: the oldest twice saves_max of them wait. */
static int64_t cut_of(struct maker *maker, bool within) {
    size_t count = 0, most = 2 * (size_t)maker->base->saves_max;
    for (size_t i = 0; i < maker->query->count; i++) {
        struct lapse lapse;
        judge(maker, i, &lapse);
        if (!lapse.stays && (within ? lapse.within : lapse.unmeasured))
            maker->dates[count++] = lapse.waiting.committed_ms;
    }
    if (count <= most) return INT64_MAX;
    qsort(maker->dates, count, sizeof(*maker->dates), by_date);
    return maker->dates[most];
}

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* True: a time rule keeps the version longer than the waiting ones; notes until when. */
static bool stays_for_long(const struct maker *maker, const struct lapse *lapse) {
    const struct cairn_policy *policy = maker->query->policy;
    struct cairn_plan_base *base = maker->base;
    int64_t ms = lapse->waiting.committed_ms;
    if (lapse->within && ms > maker->within_cut) {
        base->newest_ms_max = earlier(base->newest_ms_max, later(ms, policy->within_ms));
        return true;
    }
    if (!lapse->unmeasured || ms <= maker->unmeasured_cut) return false;
    base->now_ms_end =
        earlier(base->now_ms_end, later(ms, cairn_policy_unmeasured_grace_ms(policy)));
    return true;
}

static enum cairn_code add_waiting(struct maker *maker) {
    struct cairn_plan_base *base = maker->base;
    for (size_t i = 0; i < maker->query->count; i++) {
        struct lapse lapse;
        judge(maker, i, &lapse);
        if (lapse.stays || stays_for_long(maker, &lapse)) continue;
        const struct cairn_plan_item *item = &maker->query->items[i];
        bool held = item->marks & (CAIRN_PLAN_ALIASED | CAIRN_PLAN_LEASED | CAIRN_PLAN_RESUMED);
        maker->held += held;
        if (base->waiting_count == CAIRN_PLAN_WAITING_MAX || maker->held > CAIRN_PLAN_HELD_MAX) {
            maker->made = false;
            return CAIRN_OK;
        }
        CAIRN_TRY(CAIRN_ARRAY_ROOM(base->waiting, base->waiting_count, base->waiting_capacity,
                                   CAIRN_PLAN_WAITING_MAX, "versions that a policy may remove",
                                   maker->err));
        base->waiting[base->waiting_count++] = lapse.waiting;
    }
    return CAIRN_OK;
}

/* Notes the values that each best rule keeps, best first. */
static enum cairn_code note_best(struct maker *maker) {
    const struct cairn_policy *policy = maker->query->policy;
    const struct cairn_plan_retention *plan = maker->plan;
    struct cairn_plan_base *base = maker->base;
    for (uint32_t i = 0; i < policy->best_count; i++) {
        base->best[i] = calloc(policy->best[i].count, sizeof(*base->best[i]));
        if (!base->best[i]) return cairn_fail(maker->err, CAIRN_NO_MEMORY, "no memory for metrics");
    }
    for (size_t i = 0; i < plan->reason_count; i++) {
        const struct cairn_plan_reason *reason = &plan->reasons[i];
        if (reason->why != CAIRN_KEEP_BEST) continue;
        base->best[reason->which][reason->place - 1] =
            maker->query->items[reason->item].metrics[reason->which];
        base->best_count[reason->which]++;
    }
    return CAIRN_OK;
}

static void note_dates(struct maker *maker) {
    struct cairn_plan_base *base = maker->base;
    const struct cairn_plan_query *query = maker->query;
    bool dated = false;
    for (size_t i = query->count; i-- > 0;) {
        const struct cairn_plan_item *item = &query->items[i];
        if (!is_shown(item)) continue;
        bool first = !base->shown++, late = item->committed_ms > query->now_ms;
        if (first) base->newest_ms = item->committed_ms;
        if (late && dated && base->timed) /* retention.h#8: kept until that date */
            base->now_ms_end = earlier(base->now_ms_end, item->committed_ms);
        else if (first || item->committed_ms > base->latest_ms)
            base->latest_ms = item->committed_ms;
        dated = dated || !late;
    }
}

static bool is_small(const struct cairn_policy *policy) {
    for (uint32_t i = 0; i < policy->best_count; i++)
        if (policy->best[i].count > CAIRN_PLAN_BEST_MAX) return false;
    return true;
}

enum cairn_code cairn_plan_base_make(const struct cairn_plan_query *query,
                                     const struct cairn_plan_retention *plan, uint32_t saves_max,
                                     struct cairn_plan_base *ret, bool *ret_made,
                                     struct cairn_error *err) {
    CAIRN_ASSERT(query->newest == 1 && !query->allow_empty);
    CAIRN_ASSERT(plan->count == query->count);
    CAIRN_AUTO(plan_base)
    base = {.saves_max = saves_max,
            .latest_ms = INT64_MIN,
            .newest_ms_max = INT64_MAX,
            .now_ms_end = INT64_MAX,
            .timed = is_timed(query->policy)};
    struct maker maker = {
        .query = query, .plan = plan, .base = &base, .made = is_small(query->policy), .err = err};
    CAIRN_AUTO_HEAP int64_t *dates = calloc(query->count + 1, sizeof(*dates));
    if (!dates) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a retention plan");
    maker.dates = dates;
    if (maker.made && plan->removed <= saves_max) {
        note_dates(&maker);
        maker.within_cut = cut_of(&maker, true);
        maker.unmeasured_cut = cut_of(&maker, false);
        CAIRN_TRY(note_best(&maker));
        CAIRN_TRY(add_waiting(&maker));
    } else {
        maker.made = false;
    }
    *ret_made = maker.made;
    if (!maker.made) return CAIRN_OK;
    *ret = base;
    base = (struct cairn_plan_base){0};
    return CAIRN_OK;
}

/* ---- following a base ---- */

struct follower {
    struct cairn_plan_base *base;
    const struct cairn_plan_query *query;
    uint32_t *shown; /* indexes of shown query items */
    int64_t *dates;  /* their dates, sorted */
    uint32_t shown_count;
    int64_t newest_ms;                /* of the newest version */
    uint64_t moved[BUCKETS];          /* buckets by which the base's versions moved back */
    bool joined[BUCKETS];             /* a newer version is in the base's newest bucket */
    struct cairn_plan_retention plan; /* of the query alone */
};

static int compare_order(const struct cairn_plan_followed *a, const struct cairn_plan_item *b) {
    const struct cairn_plan_item was = {
        .line = a->line, .step = a->step, .attempt = a->attempt, .n = a->n};
    return cairn_plan_order(&was, b);
}

/* True: only removed versions are missing and metrics were only added; any other change could give
 * a version of the base its place back. */
static bool only_went_on(const struct follower *follower) {
    const struct cairn_plan_base *base = follower->base;
    uint32_t best_count = follower->query->policy->best_count;
    uint32_t at = 0;
    for (size_t i = 0; i < base->followed_count; i++) {
        const struct cairn_plan_followed *was = &base->followed[i];
        const struct cairn_plan_item *is = NULL;
        while (at < follower->shown_count) {
            is = &follower->query->items[follower->shown[at]];
            if (compare_order(was, is) <= 0) break;
            at++;
        }
        if (at == follower->shown_count || compare_order(was, is)) {
            if (was->goes) continue;
            return false;
        }
        for (uint32_t k = 0; k < best_count; k++)
            if (isfinite(was->metrics[k]) && was->metrics[k] != is->metrics[k]) return false;
    }
    return true;
}

static bool in_time(const struct follower *follower) {
    const struct cairn_plan_base *base = follower->base;
    int64_t now_ms = follower->query->now_ms;
    if (follower->shown_count > base->saves_max) return false;
    if (follower->newest_ms > base->newest_ms_max || now_ms >= base->now_ms_end) return false;
    if (!base->timed || !base->shown) return true;
    if (base->latest_ms > now_ms) return false;
    for (uint32_t i = 0; i < follower->shown_count; i++)
        if (follower->dates[i] < base->latest_ms || follower->dates[i] > now_ms) return false;
    return true;
}

static bool is_better(const struct cairn_policy_best *rule, double one, double other) {
    return rule->largest ? one > other : one < other;
}

/* Counts newer versions that are better; an equal metric counts (retention.h#6). */
static uint64_t better_than(const struct follower *follower, uint32_t which, double metric) {
    const struct cairn_policy_best *rule = &follower->query->policy->best[which];
    uint64_t better = 0;
    for (uint32_t i = 0; i < follower->shown_count; i++) {
        double other = follower->query->items[follower->shown[i]].metrics[which];
        better += isfinite(other) && !is_better(rule, metric, other);
    }
    return better;
}

static bool waits_on(const struct follower *follower, const struct cairn_plan_waiting *waiting) {
    const struct cairn_policy *policy = follower->query->policy;
    int64_t ms = waiting->committed_ms;
    if (waiting->saves_left >= (int64_t)follower->shown_count) return true;
    if (!waiting->shown) return false;
    for (uint32_t k = 0; k < BUCKETS; k++) {
        uint64_t place = waiting->places[k];
        if (!place || (place == 1 && follower->joined[k])) continue;
        if (place + follower->moved[k] <= policy->numbers[CAIRN_KEEP_HOURLY + k]) return true;
    }
    bool old = ms < follower->newest_ms &&
               (uint64_t)follower->newest_ms - (uint64_t)ms > policy->within_ms;
    if (policy->within_ms && !old) return true;
    uint64_t grace_ms = cairn_policy_unmeasured_grace_ms(policy);
    int64_t now_ms = follower->query->now_ms;
    bool waited = now_ms > ms && (uint64_t)now_ms - (uint64_t)ms >= grace_ms;
    for (uint32_t i = 0; i < policy->best_count; i++) {
        if (!isfinite(waiting->metrics[i])) {
            if (grace_ms && !waited) return true;
        } else if (waiting->better_left[i] >= 0 &&
                   (uint64_t)waiting->better_left[i] >=
                       better_than(follower, i, waiting->metrics[i])) {
            return true;
        }
    }
    return false;
}

/* True: a reason from the query's own plan also holds together with the base. */
static bool holds(const struct follower *follower, const struct cairn_plan_reason *reason) {
    const struct cairn_plan_base *base = follower->base;
    if (reason->why == CAIRN_KEEP_FIRST) return reason->place + base->shown <= reason->of;
    if (reason->why != CAIRN_KEEP_BEST) return true;
    const struct cairn_policy_best *rule = &follower->query->policy->best[reason->which];
    double metric = follower->query->items[reason->item].metrics[reason->which];
    uint64_t better = 0;
    while (better < base->best_count[reason->which] &&
           is_better(rule, base->best[reason->which][better], metric))
        better++;
    return reason->place + better <= reason->of;
}

static enum cairn_code follow(struct follower *follower, bool *ret_goes, struct cairn_error *err) {
    struct cairn_plan_base *base = follower->base;
    const struct cairn_plan_query *query = follower->query;
    for (uint32_t k = 0; k < BUCKETS; k++) {
        enum cairn_keep why = (enum cairn_keep)(CAIRN_KEEP_HOURLY + k);
        int64_t before = 0;
        for (uint32_t i = 0; i < follower->shown_count; i++) {
            int64_t bucket = bucket_of(why, follower->dates[i]);
            int64_t latest = bucket_of(why, follower->base->latest_ms);
            if (!i) follower->joined[k] = bucket == latest;
            follower->moved[k] += !i ? !follower->joined[k] : bucket != before;
            before = bucket;
        }
    }
    for (size_t i = 0; i < base->waiting_count; i++) {
        struct cairn_plan_waiting *waiting = &base->waiting[i];
        waiting->goes = !waiting->over && !waits_on(follower, waiting);
        waiting->handed = waiting->handed || waiting->goes;
    }
    CAIRN_TRY(cairn_plan_retention(query, &follower->plan, err));
    for (size_t i = 0; i < query->count; i++) {
        ret_goes[i] = true;
        for (uint32_t k = follower->plan.first[i]; k < follower->plan.first[i + 1]; k++)
            if (holds(follower, &follower->plan.reasons[k])) ret_goes[i] = false;
    }
    base->followed_count = 0;
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(base->followed, 0, follower->shown_count,
                                   base->followed_capacity, CAIRN_PLAN_SAVES_MAX,
                                   "versions after a retention plan", err));
    for (uint32_t i = 0; i < follower->shown_count; i++) {
        const struct cairn_plan_item *item = &follower->query->items[follower->shown[i]];
        struct cairn_plan_followed *followed = &base->followed[base->followed_count++];
        *followed = (struct cairn_plan_followed){
            cairn_plan_line(item),        item->step, item->attempt, item->n,
            ret_goes[follower->shown[i]], {0}};
        memcpy(followed->metrics, item->metrics, sizeof(item->metrics));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_plan_base_next(struct cairn_plan_base *base,
                                     const struct cairn_plan_query *query, bool *ret_goes,
                                     bool *ret_made, struct cairn_error *err) {
    CAIRN_AUTO_HEAP uint32_t *shown = calloc(query->count + 1, sizeof(*shown));
    CAIRN_AUTO_HEAP int64_t *dates = calloc(query->count + 1, sizeof(*dates));
    if (!shown || !dates) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a retention plan");
    struct follower follower = {
        .base = base, .query = query, .shown = shown, .dates = dates, .newest_ms = base->newest_ms};
    for (size_t i = 0; i < query->count; i++) {
        if (!is_shown(&query->items[i])) continue;
        follower.newest_ms = query->items[i].committed_ms;
        dates[follower.shown_count] = follower.newest_ms;
        shown[follower.shown_count++] = (uint32_t)i;
    }
    qsort(dates, follower.shown_count, sizeof(*dates), by_date);
    *ret_made = in_time(&follower) && only_went_on(&follower);
    if (!*ret_made) return CAIRN_OK;
    enum cairn_code code = follow(&follower, ret_goes, err);
    cairn_plan_retention_release(&follower.plan);
    return code;
}

/* ---- copies in one store ---- */

static int newest_item_first(const void *a, const void *b) {
    const struct cairn_plan_item *x = *(const struct cairn_plan_item *const *)a;
    const struct cairn_plan_item *y = *(const struct cairn_plan_item *const *)b;
    return cairn_plan_order(y, x);
}

enum cairn_code cairn_plan_copies(const struct cairn_policy_copies *rules,
                                  const struct cairn_plan_item *items, size_t count, bool *ret,
                                  struct cairn_error *err) {
    if (count > CAIRN_PLAN_ITEMS_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%zu versions, at most %d", count,
                          CAIRN_PLAN_ITEMS_MAX);
    CAIRN_AUTO_HEAP const struct cairn_plan_item **order = calloc(count + 1, sizeof(*order));
    if (!order) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to plan copies");
    size_t counted = 0;
    for (size_t i = 0; i < count; i++) {
        bool counts = is_shown(&items[i]);
        if (counts) order[counted++] = &items[i];
        ret[i] = counts && rules->every_steps && items[i].step % rules->every_steps == 0;
    }
    if (counted) qsort(order, counted, sizeof(*order), newest_item_first);
    for (size_t i = 0; i < counted && i < rules->last; i++) ret[order[i] - items] = true;
    return CAIRN_OK;
}
