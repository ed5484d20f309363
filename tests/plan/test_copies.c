/* SPDX-License-Identifier: Apache-2.0 */
/* cairn_plan_copies (retention.h#12) against a plain model, over random histories. */
#include "plan/retention.h"

#include "tests/harness.h"

#define ITEMS 12

/* How many items that count are newer? */
static size_t newer(const struct cairn_plan_item *items, size_t count, size_t at) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        const struct cairn_plan_item *x = &items[i], *y = &items[at];
        if (x->marks & (CAIRN_PLAN_IN_FLIGHT | CAIRN_PLAN_SUPERSEDED)) continue;
        found += x->attempt != y->attempt ? x->attempt > y->attempt
                 : x->step != y->step     ? x->step > y->step
                                          : x->n > y->n;
    }
    return found;
}

TEST(a_store_is_wanted_to_hold_the_newest_and_each_step_that_the_rule_divides) {
    uint64_t seed = cairn_test_seed();
    for (int round = 0; round < 2000; round++) {
        struct cairn_plan_item items[ITEMS] = {0};
        bool wanted[ITEMS + 1] = {0};
        size_t count = cairn_test_random(&seed) % (ITEMS + 1);
        struct cairn_policy_copies rules = {.store = "slow",
                                            .last = cairn_test_random(&seed) % 5,
                                            .every_steps = cairn_test_random(&seed) % 4};
        for (size_t i = 0; i < count; i++) {
            uint64_t drawn = cairn_test_random(&seed);
            static const unsigned marks[] = {CAIRN_PLAN_IN_FLIGHT, CAIRN_PLAN_SUPERSEDED, 0, 0, 0};
            items[i] = (struct cairn_plan_item){.attempt = 1 + drawn % 3,
                                                .step = drawn / 3 % 7,
                                                .n = i + 1, /* no two are the same */
                                                .marks = marks[drawn / 21 % 5]};
        }
        struct cairn_error err = {0};
        REQUIRE_OK(cairn_plan_copies(&rules, items, count, wanted, &err));
        for (size_t i = 0; i < count; i++) {
            bool counts = !items[i].marks;
            bool every = rules.every_steps && items[i].step % rules.every_steps == 0;
            EXPECT(wanted[i] == (counts && (every || newer(items, count, i) < rules.last)));
        }
        EXPECT(!wanted[count]); /* nothing beyond them is written */
    }
}
