/* SPDX-License-Identifier: Apache-2.0 */
/* What goes after each save of random histories, by a base and by a plan over everything: restarts,
 * saves in flight, metrics that come and change, removals by hand, clocks that go back or run
 * ahead. */
#include "plan/retention.h"

#include <math.h>

#include "tests/harness.h"

#define HOUR INT64_C(3600000)
#define DAY (24 * HOUR)
#define MOST 400
#define SAVES_MAX 12

static struct cairn_error err;
static uint64_t state;
static uint64_t below(uint64_t bound) {
    return cairn_test_random(&state) % bound;
}

/* A run and what a server would know of it. */
struct history {
    struct cairn_plan_item items[MOST]; /* those that are there, in the order of Q25 */
    size_t count;
    struct cairn_policy policy;
    uint64_t attempt, step, n;
    int64_t now;
    bool calm; /* most of the time nothing happens but saves */
    struct cairn_plan_base base;
    bool has_base;
    uint64_t base_n;                            /* items up to this n are of the base */
    uint64_t waiting_n[CAIRN_PLAN_WAITING_MAX]; /* by the base's waiting */
    uint64_t fates, removed, by_base, made;
};

static void make_policy(struct cairn_policy *ret) {
    do {
        *ret = (struct cairn_policy){0};
        for (size_t i = 0; i < CAIRN_KEEP_NUMBERS; i++)
            if (!below(3))
                ret->numbers[i] =
                    i == CAIRN_KEEP_EVERY_STEPS ? 100 * (1 + below(6)) : 1 + below(40);
        if (!below(3)) ret->within_ms = 1 + below(3 * DAY);
        ret->best_count = (uint32_t)(below(2) ? 0 : below(3));
        for (uint32_t i = 0; i < ret->best_count; i++) {
            ret->best[i].count = 1 + below(20);
            ret->best[i].largest = below(2);
        }
        ret->labels_count = (uint32_t)(below(2) ? 0 : below(3));
        ret->says_unmeasured_grace = true;
        ret->unmeasured_grace_ms = below(2) ? 0 : below(DAY);
    } while (cairn_policy_empty(ret));
}

static void drop_base(struct history *history) {
    cairn_plan_base_release(&history->base);
    history->has_base = false;
}

/* What a server learns of a version of the base ends the base. */
static void touched(struct history *history, const struct cairn_plan_item *item) {
    if (item->n <= history->base_n) drop_base(history);
}

static void drop_item(struct history *history, size_t index) {
    memmove(&history->items[index], &history->items[index + 1],
            (--history->count - index) * sizeof(*history->items));
}

static void save(struct history *history) {
    history->step += 50;
    struct cairn_plan_item *item = &history->items[history->count++];
    *item = (struct cairn_plan_item){.attempt = history->attempt,
                                     .step = history->step,
                                     .n = ++history->n,
                                     .committed_ms = history->now,
                                     .bytes = below(1000)};
    for (unsigned mark = CAIRN_PLAN_PINNED; mark <= CAIRN_PLAN_RESUMED; mark <<= 1)
        if (!below(40)) item->marks |= mark;
    if (!below(5)) item->marks |= CAIRN_PLAN_IN_FLIGHT;
    item->labels = (uint32_t)(below(12) ? 0 : below(8));
    for (size_t k = 0; k < CAIRN_POLICY_BEST_MAX; k++)
        item->metrics[k] = below(3) ? NAN : (double)below(30);
}

static void pass_time(struct history *history) {
    history->now += below(12) ? (int64_t)below(40) * 60000 : (int64_t)below(3) * DAY;
    if (history->calm) return;
    if (!below(25)) history->now -= (int64_t)below(5) * HOUR;
    if (!below(60)) history->now += 300 * DAY;
    if (!below(60)) history->now -= 300 * DAY;
}

static void restart(struct history *history) {
    drop_base(history);
    history->attempt++;
    uint64_t back = below(6) * 50;
    history->step = history->step > back ? history->step - back : 0;
    for (size_t i = 0; i < history->count; i++)
        if (history->items[i].step > history->step)
            history->items[i].marks |= CAIRN_PLAN_SUPERSEDED;
}

/* Saves in flight end, metrics come; and less often what takes a place from one that counted. */
static void meddle(struct history *history) {
    for (size_t i = 0; i < history->count; i++) {
        struct cairn_plan_item *item = &history->items[i];
        if (item->marks & CAIRN_PLAN_IN_FLIGHT && !below(3)) {
            item->marks &= ~CAIRN_PLAN_IN_FLIGHT;
            item->committed_ms = history->now;
            touched(history, item);
        }
    }
    if (!history->count) return;
    size_t index = history->count - 1 - below(history->count < 5 ? history->count : 5);
    struct cairn_plan_item *item = &history->items[index];
    if (isnan(item->metrics[0])) {
        item->metrics[0] = (double)below(30);
        touched(history, item);
    }
    if (history->calm || below(12)) return;
    index = below(2) ? index : below(history->count);
    item = &history->items[index];
    touched(history, item);
    if (below(2))
        item->metrics[0] = below(4) ? (double)below(30) : NAN;
    else if (below(2))
        item->marks ^= CAIRN_PLAN_SUPERSEDED;
    else
        drop_item(history, index);
}

static struct cairn_plan_query ask(const struct history *history, size_t from, size_t count) {
    return (struct cairn_plan_query){.policy = &history->policy,
                                     .items = history->items + from,
                                     .count = count,
                                     .newest = 1,
                                     .now_ms = history->now};
}

static void make_base(struct history *history) {
    size_t count = history->count;
    for (size_t i = history->count; i-- > 0 && i + 6 > history->count;)
        if (history->items[i].marks & CAIRN_PLAN_IN_FLIGHT) count = i;
    if (!count) return;
    struct cairn_plan_query query = ask(history, 0, count);
    CAIRN_AUTO(plan_retention) plan = {0};
    REQUIRE_OK(cairn_plan_retention(&query, &plan, &err));
    drop_base(history);
    REQUIRE_OK(
        cairn_plan_base_make(&query, &plan, SAVES_MAX, &history->base, &history->has_base, &err));
    history->made += history->has_base;
    history->base_n = history->items[count - 1].n;
    for (size_t i = 0; history->has_base && i < history->base.waiting_count; i++)
        history->waiting_n[i] = history->items[history->base.waiting[i].item].n;
}

/* goes[i] of each version, by the base; false: it cannot say. */
static bool by_base(struct history *history, bool *goes) {
    if (!history->has_base) return false;
    size_t from = 0;
    bool made = false;
    while (from < history->count && history->items[from].n <= history->base_n) from++;
    struct cairn_plan_query query = ask(history, from, history->count - from);
    enum cairn_code code = cairn_plan_base_next(&history->base, &query, goes + from, &made, &err);
    EXPECT_CODE(code, CAIRN_OK);
    if (code || !made) {
        drop_base(history);
        return false;
    }
    size_t at = 0;
    const unsigned held = CAIRN_PLAN_ALIASED | CAIRN_PLAN_LEASED | CAIRN_PLAN_RESUMED;
    for (size_t i = 0; i < history->base.waiting_count; i++) {
        while (at < from && history->items[at].n < history->waiting_n[i]) at++;
        if (at < from && history->items[at].n == history->waiting_n[i])
            goes[at] = history->base.waiting[i].goes && !(history->items[at].marks & held);
    }
    return true;
}

/* One removed: a server sees its event. Now and then one is not, since something held it. */
static void remove_items(struct history *history, const bool *goes) {
    for (size_t i = history->count; i-- > 0;) {
        if (!goes[i] || !below(10)) continue;
        for (size_t k = 0; history->has_base && k < history->base.waiting_count; k++)
            if (history->waiting_n[k] == history->items[i].n) history->base.waiting[k].over = true;
        drop_item(history, i);
        history->removed++;
    }
}

static bool compare(struct history *history) {
    struct cairn_plan_query query = ask(history, 0, history->count);
    CAIRN_AUTO(plan_retention) plan = {0};
    bool goes[MOST] = {false}, wanted[MOST];
    enum cairn_code code = cairn_plan_retention(&query, &plan, &err);
    EXPECT_CODE(code, CAIRN_OK);
    if (code) return false;
    for (size_t i = 0; i < history->count; i++) wanted[i] = cairn_plan_removes(&plan, i);
    bool said = by_base(history, goes);
    if (!said) {
        make_base(history);
        memset(goes, 0, sizeof(goes));
        said = by_base(history, goes);
    }
    history->by_base += said;
    for (size_t i = 0; said && i < history->count; i++, history->fates++)
        if (!cairn_test_check(goes[i] == wanted[i], __FILE__, __LINE__,
                              "step %" PRIu64 " of attempt %" PRIu64 " %s by the base",
                              history->items[i].step, history->items[i].attempt,
                              goes[i] ? "goes" : "stays"))
            return false;
    remove_items(history, wanted);
    return true;
}

static bool play(struct history *history) {
    make_policy(&history->policy);
    history->attempt = 1;
    history->now = INT64_C(1700000000000);
    for (int i = 0; i < 300 && history->count < MOST - 1; i++) {
        pass_time(history);
        if (!below(history->calm ? 200 : 40)) restart(history);
        save(history);
        meddle(history);
        if (!compare(history)) return false;
    }
    drop_base(history);
    return true;
}

/* retention.h#9, retention.h#10 */
TEST(what_goes_by_a_base_is_what_goes_by_a_plan_over_everything) {
    state = cairn_test_seed();
    static struct history history;
    uint64_t fates = 0, removed = 0, by_base = 0, made = 0;
    for (int round = 0; round < 15; round++) {
        memset(&history, 0, sizeof(history));
        history.calm = round % 3 != 0;
        if (!play(&history)) return;
        fates += history.fates;
        removed += history.removed;
        by_base += history.by_base;
        made += history.made;
    }
    EXPECT(fates > 100000 && removed > 1500 && by_base > 2500);
    EXPECT(by_base > made + made / 2); /* bases were used again */
    printf("%" PRIu64 " fates, %" PRIu64 " removed, %" PRIu64 " looks by %" PRIu64 " bases\n",
           fates, removed, by_base, made);
}
