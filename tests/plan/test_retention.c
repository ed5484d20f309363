/* SPDX-License-Identifier: Apache-2.0 */
/* Retention plans against a plain model over random histories: restarts, superseded versions, gaps
 * in time, clocks that go back, metrics that are missing or equal; and each rule by an example. */
#include "plan/retention.h"

#include <math.h>

#include "tests/harness.h"

#define HOUR INT64_C(3600000)
#define DAY (24 * HOUR)
#define MOST 60

static struct cairn_error err;

/* ---- the model: each rule asked about one version, over all of them ---- */

static bool newer(const struct cairn_plan_item *a, const struct cairn_plan_item *b) {
    uint64_t line_a = a->line ? a->line : a->attempt, line_b = b->line ? b->line : b->attempt;
    if (line_a != line_b) return line_a > line_b;
    if (a->step != b->step) return a->step > b->step;
    if (a->attempt != b->attempt) return a->attempt > b->attempt;
    return a->n > b->n;
}

static bool shown(const struct cairn_plan_item *item) {
    return !(item->marks & (CAIRN_PLAN_IN_FLIGHT | CAIRN_PLAN_SUPERSEDED));
}

/* The libc's calendar, so that the plan's own arithmetic is compared with another. */
static int64_t model_bucket(enum cairn_keep why, int64_t ms) {
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    int64_t day = ms / DAY;
    if (why == CAIRN_KEEP_HOURLY) return day * 24 + tm.tm_hour;
    if (why == CAIRN_KEEP_DAILY) return (tm.tm_year + 1900) * 366 + tm.tm_yday;
    if (why == CAIRN_KEEP_WEEKLY) return day - (tm.tm_wday + 6) % 7; /* its Monday */
    return tm.tm_year * 12 + tm.tm_mon;
}

/* How many others of the shown come before this one in the order of a rule. */
static uint64_t before_by_order(const struct cairn_plan_query *query, size_t of, bool oldest) {
    uint64_t before = 0;
    for (size_t i = 0; i < query->count; i++) {
        if (i == of || !shown(&query->items[i])) continue;
        before += newer(&query->items[i], &query->items[of]) != oldest;
    }
    return before;
}

static uint64_t before_by_metric(const struct cairn_plan_query *query, size_t of, uint32_t which) {
    double mine = query->items[of].metrics[which];
    bool largest = query->policy->best[which].largest;
    uint64_t before = 0;
    for (size_t i = 0; i < query->count; i++) {
        double other = query->items[i].metrics[which];
        if (i == of || !shown(&query->items[i]) || isnan(other)) continue;
        bool better = largest ? other > mine : other < mine;
        before += better || (other == mine && newer(&query->items[i], &query->items[of]));
    }
    return before;
}

/* retention.h#8 */
static bool ahead(const struct cairn_plan_query *query, size_t of) {
    const struct cairn_plan_item *items = query->items;
    if (items[of].committed_ms <= query->now_ms) return false;
    for (size_t i = 0; i < query->count; i++)
        if (shown(&items[i]) && newer(&items[i], &items[of]) &&
            items[i].committed_ms <= query->now_ms)
            return true;
    return false;
}

/* Is it the newest of its bucket, and how many buckets with something in them are newer? */
static bool first_of_bucket(const struct cairn_plan_query *query, size_t of, enum cairn_keep why,
                            uint64_t *ret_buckets) {
    const struct cairn_plan_item *items = query->items;
    int64_t mine = model_bucket(why, items[of].committed_ms);
    int64_t seen[MOST];
    *ret_buckets = 0;
    for (size_t i = 0; i < query->count; i++) {
        if (i == of || !shown(&items[i]) || ahead(query, i)) continue;
        int64_t other = model_bucket(why, items[i].committed_ms);
        if (other == mine &&
            (items[i].committed_ms > items[of].committed_ms ||
             (items[i].committed_ms == items[of].committed_ms && newer(&items[i], &items[of]))))
            return false;
        if (other <= mine) continue;
        uint64_t known = 0;
        while (known < *ret_buckets && seen[known] != other) known++;
        if (known == *ret_buckets) seen[(*ret_buckets)++] = other;
    }
    return true;
}

static bool model_within(const struct cairn_plan_query *query, size_t of) {
    for (size_t i = 0; i < query->count; i++) {
        if (!shown(&query->items[i]) || before_by_order(query, i, false)) continue;
        return query->items[i].committed_ms - query->items[of].committed_ms <=
               (int64_t)query->policy->within_ms;
    }
    return false;
}

static bool model_hold(const struct cairn_plan_query *query, size_t of, enum cairn_keep why) {
    const struct cairn_plan_item *item = &query->items[of];
    bool flying = item->marks & CAIRN_PLAN_IN_FLIGHT;
    switch (why) {
    case CAIRN_KEEP_PINNED:
        return item->marks & CAIRN_PLAN_PINNED;
    case CAIRN_KEEP_LEASED:
        return item->marks & CAIRN_PLAN_LEASED;
    case CAIRN_KEEP_ALIASED:
        return item->marks & CAIRN_PLAN_ALIASED;
    case CAIRN_KEEP_RESUMED:
        return item->marks & CAIRN_PLAN_RESUMED;
    case CAIRN_KEEP_IN_FLIGHT:
        return flying;
    case CAIRN_KEEP_NEWEST:
        return !query->allow_empty && shown(item) &&
               before_by_order(query, of, false) < query->newest;
    case CAIRN_KEEP_SUPERSEDED:
        return !query->allow_empty && !flying && item->marks & CAIRN_PLAN_SUPERSEDED &&
               before_by_order(query, of, false) < query->newest;
    default:
        return !query->allow_empty && !flying && cairn_policy_empty(query->policy);
    }
}

/* Does this rule keep this version? */
static bool model_keeps(const struct cairn_plan_query *query, size_t of, enum cairn_keep why,
                        uint32_t which) {
    const struct cairn_plan_item *item = &query->items[of];
    const struct cairn_policy *policy = query->policy;
    uint64_t number = why < CAIRN_KEEP_NUMBERS ? policy->numbers[why] : 0, buckets = 0;
    if (why >= CAIRN_KEEP_NEWEST) return !which && model_hold(query, of, why);
    if (why == CAIRN_KEEP_LABELS)
        return which < policy->labels_count && item->labels & 1u << which &&
               !(item->marks & CAIRN_PLAN_IN_FLIGHT);
    if (!shown(item)) return false;
    if (why == CAIRN_KEEP_BEST)
        return which < policy->best_count && !isnan(item->metrics[which]) &&
               before_by_metric(query, of, which) < policy->best[which].count;
    if (why == CAIRN_KEEP_UNMEASURED)
        return which < policy->best_count && isnan(item->metrics[which]) &&
               policy->unmeasured_grace_ms &&
               query->now_ms - item->committed_ms < (int64_t)policy->unmeasured_grace_ms;
    if (which) return false;
    if (why == CAIRN_KEEP_WITHIN)
        return policy->within_ms && (ahead(query, of) || model_within(query, of));
    if (!number) return false;
    if (why == CAIRN_KEEP_LAST) return before_by_order(query, of, false) < number;
    if (why == CAIRN_KEEP_FIRST) return before_by_order(query, of, true) < number;
    if (why == CAIRN_KEEP_EVERY_STEPS) return item->step % number == 0;
    if (ahead(query, of)) return true;
    return first_of_bucket(query, of, why, &buckets) && buckets < number;
}

static bool plan_keeps(const struct cairn_plan_retention *plan, size_t of, enum cairn_keep why,
                       uint32_t which) {
    for (uint32_t i = plan->first[of]; i < plan->first[of + 1]; i++)
        if (plan->reasons[i].why == why && plan->reasons[i].which == which) return true;
    return false;
}

/* ---- histories ---- */

static uint64_t state;
static uint64_t below(uint64_t bound) {
    return cairn_test_random(&state) % bound;
}

/* A run that saves every few steps, dies and resumes from something older, stands still for days,
 * and whose clock is set back now and then. */
static size_t make_history(struct cairn_plan_item *items) {
    size_t count = below(MOST + 1);
    uint64_t attempt = 1, step = 0, every = 50 * (1 + below(4));
    int64_t now = INT64_C(1700000000000) + (int64_t)below(400) * DAY;
    for (size_t i = 0; i < count; i++) {
        if (!below(8)) { /* a restart, mostly from an older step */
            attempt++;
            uint64_t back = below(3) * every;
            step = step > back ? step - back : 0;
            for (size_t k = 0; k < i; k++)
                if (items[k].step > step) items[k].marks |= CAIRN_PLAN_SUPERSEDED;
        }
        step += every;
        now += below(10) ? (int64_t)below(40) * 60000 : (int64_t)below(40) * DAY;
        if (!below(25)) now -= (int64_t)below(5) * HOUR;
        items[i] = (struct cairn_plan_item){.attempt = attempt,
                                            .step = step,
                                            .n = 1 + i,
                                            .line = below(6) ? 0 : 1 + below(attempt),
                                            .committed_ms = now,
                                            .bytes = below(1000)};
        for (unsigned mark = CAIRN_PLAN_PINNED; mark <= CAIRN_PLAN_RESUMED; mark <<= 1)
            if (!below(20)) items[i].marks |= mark;
        if (i + 4 > count && !below(3)) items[i].marks |= CAIRN_PLAN_IN_FLIGHT;
        items[i].labels = (uint32_t)(below(6) ? 0 : below(8));
        for (size_t k = 0; k < CAIRN_POLICY_BEST_MAX; k++)
            items[i].metrics[k] = below(3) ? (double)below(10) : NAN;
    }
    return count;
}

static void make_policy(struct cairn_policy *ret) {
    static const uint64_t steps[] = {50, 100, 300, 1000};
    *ret = (struct cairn_policy){0};
    if (!below(6)) return;
    for (size_t i = 0; i < CAIRN_KEEP_NUMBERS; i++)
        if (!below(4))
            ret->numbers[i] = i == CAIRN_KEEP_EVERY_STEPS ? steps[below(4)] : 1 + below(6);
    if (!below(4)) ret->within_ms = 1 + below(3 * DAY);
    ret->best_count = (uint32_t)(below(2) ? 0 : below(3));
    for (uint32_t i = 0; i < ret->best_count; i++) {
        ret->best[i].count = 1 + below(4);
        ret->best[i].largest = below(2);
    }
    ret->labels_count = (uint32_t)(below(2) ? 0 : below(3));
    ret->says_unmeasured_grace = true;
    ret->unmeasured_grace_ms = below(2) ? 0 : below(5 * DAY);
}

static void shuffle(struct cairn_plan_item *items, size_t count) {
    for (size_t i = count; i > 1; i--) {
        size_t k = below(i);
        struct cairn_plan_item item = items[k];
        items[k] = items[i - 1];
        items[i - 1] = item;
    }
}

static bool compare_one(const struct cairn_plan_query *query,
                        const struct cairn_plan_retention *plan) {
    uint64_t removed = 0, bytes = 0;
    for (size_t i = 0; i < query->count; i++) {
        bool kept = false;
        for (int why = 0; why < CAIRN_KEEP_COUNT; why++)
            for (uint32_t which = 0; which < CAIRN_POLICY_BEST_MAX; which++) {
                bool wanted = model_keeps(query, i, (enum cairn_keep)why, which);
                kept = kept || wanted;
                if (!cairn_test_check(plan_keeps(plan, i, (enum cairn_keep)why, which) == wanted,
                                      __FILE__, __LINE__, "%s %u of step %" PRIu64 ": the model %s",
                                      cairn_keep_name((enum cairn_keep)why), which,
                                      query->items[i].step, wanted ? "keeps it" : "does not"))
                    return false;
            }
        EXPECT(cairn_plan_removes(plan, i) == !kept);
        removed += !kept;
        bytes += kept ? 0 : query->items[i].bytes;
    }
    EXPECT_ALL_U64(plan->removed, removed, plan->removed_bytes, bytes,
                   plan->kept + plan->removed + plan->in_flight, query->count);
    return true;
}

TEST(a_plan_is_what_the_model_says_over_random_histories) { /* retention.h#1 to retention.h#7 */
    state = cairn_test_seed();
    uint64_t removed = 0, kept = 0;
    for (int round = 0; round < 1000; round++) {
        struct cairn_plan_item items[MOST];
        struct cairn_policy policy;
        make_policy(&policy);
        struct cairn_plan_query query = {.policy = &policy, .items = items};
        query.count = make_history(items);
        query.newest = 1 + (uint32_t)below(3);
        query.allow_empty = !below(10);
        query.now_ms = query.count ? items[below(query.count)].committed_ms : 0;
        shuffle(items, query.count);
        WITH_OK(plan_retention, plan, cairn_plan_retention(&query, &plan, &err));
        if (!compare_one(&query, &plan)) return;
        removed += plan.removed;
        kept += plan.kept;
    }
    EXPECT(removed > 4000 && kept > 4000); /* both were asked */
}

/* ---- by example ---- */

/* Versions every `every` steps and every `apart_ms`, of one attempt. */
static void plain(struct cairn_plan_item *items, size_t count, uint64_t every, int64_t apart_ms) {
    for (size_t i = 0; i < count; i++) {
        items[i] = (struct cairn_plan_item){.attempt = 1,
                                            .step = every * (i + 1),
                                            .n = 1,
                                            .committed_ms = (int64_t)(i + 1) * apart_ms,
                                            .bytes = 10};
        for (size_t k = 0; k < CAIRN_POLICY_BEST_MAX; k++) items[i].metrics[k] = NAN;
    }
}

/* The kept steps, oldest first. */
static const char *kept_steps(const struct cairn_plan_query *query) {
    static char text[1000];
    CAIRN_AUTO(plan_retention) plan = {0};
    *text = '\0';
    if (cairn_plan_retention(query, &plan, &err)) return err.message;
    for (size_t i = 0; i < query->count; i++) {
        size_t at = strlen(text);
        if (!cairn_plan_removes(&plan, i))
            snprintf(text + at, sizeof(text) - at, "%s%" PRIu64, at ? " " : "",
                     query->items[i].step);
    }
    return text;
}

TEST(a_run_that_stood_still_for_months_loses_nothing_by_rules_of_time) { /* retention.h#5 */
    struct cairn_plan_item items[6];
    plain(items, 6, 100, DAY);
    items[5].committed_ms += 300 * DAY;
    struct cairn_policy policy = {.numbers = {[CAIRN_KEEP_DAILY] = 6}};
    struct cairn_plan_query query = {&policy, items, 6, 1, false, 0};
    EXPECT_EQ_TEXT(kept_steps(&query), "100 200 300 400 500 600");
    policy.numbers[CAIRN_KEEP_DAILY] = 2;
    EXPECT_EQ_TEXT(kept_steps(&query), "500 600");
}

TEST(a_best_rule_adds_to_the_others_and_evicts_no_newest) { /* retention.h#6 */
    struct cairn_plan_item items[5];
    plain(items, 5, 100, HOUR);
    for (size_t i = 0; i < 5; i++) items[i].metrics[0] = (double)i; /* the oldest is the best */
    struct cairn_policy policy = {.numbers = {[CAIRN_KEEP_LAST] = 1},
                                  .best_count = 1,
                                  .best = {{.count = 2, .metric = "loss"}}};
    struct cairn_plan_query query = {&policy, items, 5, 1, false, 0};
    EXPECT_EQ_TEXT(kept_steps(&query), "100 200 500");
    policy.numbers[CAIRN_KEEP_LAST] = 0;
    EXPECT_EQ_TEXT(kept_steps(&query), "100 200 500"); /* retention.h#2: the newest */
}

TEST(an_empty_policy_removes_nothing_and_all_need_a_flag) { /* retention.h#2, retention.h#3 */
    struct cairn_plan_item items[4];
    plain(items, 4, 100, HOUR);
    items[1].marks = CAIRN_PLAN_PINNED;
    struct cairn_policy policy = {0};
    struct cairn_plan_query query = {&policy, items, 4, 1, false, 0};
    EXPECT_EQ_TEXT(kept_steps(&query), "100 200 300 400");
    query.allow_empty = true;
    EXPECT_EQ_TEXT(kept_steps(&query), "200");
}

TEST(a_superseded_version_stays_until_one_that_replaces_it_is_committed) { /* retention.h#2, V7 */
    struct cairn_plan_item items[4];
    plain(items, 4, 100, HOUR);
    items[2].marks = items[3].marks = CAIRN_PLAN_SUPERSEDED;
    struct cairn_policy policy = {.numbers = {[CAIRN_KEEP_LAST] = 1}};
    struct cairn_plan_query query = {&policy, items, 4, 1, false, 0};
    EXPECT_EQ_TEXT(kept_steps(&query),
                   "200 300 400"); /* the second attempt has committed nothing */
    struct cairn_plan_item more[5];
    memcpy(more, items, sizeof(items));
    more[4] = items[1];
    more[4].attempt = 2;
    more[4].step = 250;
    query.items = more;
    query.count = 5;
    EXPECT_EQ_TEXT(kept_steps(&query), "250");
}

TEST(weeks_begin_on_monday_and_months_on_their_first_in_utc) {
    EACH(one, FIELDS(int64_t ms; enum cairn_keep why; const char *kept),
         {INT64_C(1709164800000) /* Thu 2024-02-29 */, CAIRN_KEEP_MONTHLY, "100 200"},
         {INT64_C(1703980800000) /* Sun 2023-12-31 */, CAIRN_KEEP_WEEKLY, "100 200"},
         {INT64_C(1704067200000) /* Mon 2024-01-01 */, CAIRN_KEEP_WEEKLY, "200"},
         {INT64_C(1704067200000) /* Mon 2024-01-01 */, CAIRN_KEEP_MONTHLY, "200"}) {
        struct cairn_plan_item items[2];
        plain(items, 2, 100, HOUR);
        items[0].committed_ms = one->ms + DAY - 1;
        items[1].committed_ms = one->ms + DAY;
        struct cairn_policy policy = {0};
        policy.numbers[one->why] = 2;
        struct cairn_plan_query query = {&policy, items, 2, 1, false, 0};
        EXPECT_EQ_TEXT(kept_steps(&query), one->kept);
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The least processor time of three plans over the first `count` of items. */
static double least_seconds(const struct cairn_policy *policy, const struct cairn_plan_item *items,
                            size_t count, struct cairn_plan_retention *ret) {
    struct cairn_plan_query query = {policy, items, count, 1, false, 0};
    double least = HUGE_VAL;
    for (int round = 0; round < 3; round++) {
        cairn_plan_retention_release(ret);
        double begin = seconds();
        if (cairn_plan_retention(&query, ret, &err)) return HUGE_VAL;
        double took = seconds() - begin;
        if (took < least) least = took;
    }
    return least;
}

/* Sixteen times as many versions take some 20 times as long by n log n, and 256 times by n * n. How
 * long 100,000 take is a figure of bench/run (retention-100k). */
TEST(a_plan_over_100_000_versions_takes_as_long_as_sorting_them) { /* retention.h's limits */
    static struct cairn_plan_item items[100000];
    state = cairn_test_seed();
    plain(items, CAIRN_COUNT(items), 50, 600000);
    for (size_t i = 0; i < CAIRN_COUNT(items); i++)
        items[i].metrics[0] = items[i].metrics[1] = (double)below(1000000);
    shuffle(items, CAIRN_COUNT(items));
    struct cairn_policy policy = {.numbers = {1000, 10, 1000, 100, 100, 100, 100},
                                  .within_ms = 7 * DAY,
                                  .best_count = 2,
                                  .best = {{.count = 10}, {.count = 5, .largest = true}}};
    CAIRN_AUTO(plan_retention) few = {0}, plan = {0};
    double sixteenth = least_seconds(&policy, items, CAIRN_COUNT(items) / 16, &few);
    double whole = least_seconds(&policy, items, CAIRN_COUNT(items), &plan);
    printf("a plan over 6,250 and 100,000 versions: %.4f and %.3f s of a processor\n", sixteenth,
           whole);
    EXPECT(whole < 80 * sixteenth);
    EXPECT(plan.removed > 50000 && plan.kept > 5000);
}
