/* SPDX-License-Identifier: Apache-2.0 */
#include "common/often.h"

#include <stdio.h>

#include "tests/harness.h"

TEST(a_cause_is_said_once_a_minute_with_the_number_of_times_between) /* often.h#1, often.h#2 */
{
    struct cairn_often often = {0};
    uint64_t unsaid = 77;
    EXPECT(cairn_often_says(&often, "one", 5, &unsaid));
    EXPECT_EQ_U64(unsaid, 0);
    for (int i = 0; i < 100; i++)
        EXPECT(!cairn_often_says(&often, "one", 5 + (uint64_t)i, &unsaid));
    EXPECT(cairn_often_says(&often, "two", 50, &unsaid));
    EXPECT(!cairn_often_says(&often, "one", 5 + CAIRN_OFTEN_MS - 1, &unsaid));
    EXPECT(cairn_often_says(&often, "one", 5 + CAIRN_OFTEN_MS, &unsaid));
    EXPECT_EQ_U64(unsaid, 101);
    EXPECT(cairn_often_says(&often, "one", 5 + 2 * CAIRN_OFTEN_MS, &unsaid));
    EXPECT_EQ_U64(unsaid, 0);
}

TEST(more_causes_than_are_told_apart_are_counted_together) {
    struct cairn_often often = {0};
    uint64_t unsaid = 0;
    unsigned said = 0;
    for (int i = 0; i < 1000; i++) {
        char cause[24];
        snprintf(cause, sizeof cause, "cause %d", i);
        said += cairn_often_says(&often, cause, 1000, &unsaid);
    }
    EXPECT_EQ_U64(said, CAIRN_OFTEN_CAUSES + 1);
    EXPECT(cairn_often_says(&often, "another", 1000 + CAIRN_OFTEN_MS, &unsaid));
    for (int i = 0; i < CAIRN_OFTEN_CAUSES; i++) /* places that are free again */
        (void)cairn_often_says(&often, i % 2 ? "a" : "b", 1000 + CAIRN_OFTEN_MS, &unsaid);
    EXPECT(!cairn_often_says(&often, "another", 1001 + CAIRN_OFTEN_MS, &unsaid));
}
