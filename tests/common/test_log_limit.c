/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"

#include "tests/harness.h"

TEST(a_cause_is_logged_once_a_minute_with_the_number_of_times_between) { /* log.h#5, #6 */
    struct cairn_log_limit limit = {0};
    uint64_t unsaid = 77;
    EXPECT(cairn_log_limit_allows(&limit, "one", 5, &unsaid));
    EXPECT_EQ_U64(unsaid, 0);
    for (int i = 0; i < 100; i++)
        EXPECT(!cairn_log_limit_allows(&limit, "one", 5 + (uint64_t)i, &unsaid));
    EXPECT(cairn_log_limit_allows(&limit, "two", 50, &unsaid));
    EXPECT(!cairn_log_limit_allows(&limit, "one", 5 + CAIRN_LOG_LIMIT_MS - 1, &unsaid));
    EXPECT(cairn_log_limit_allows(&limit, "one", 5 + CAIRN_LOG_LIMIT_MS, &unsaid));
    EXPECT_EQ_U64(unsaid, 101);
    EXPECT(cairn_log_limit_allows(&limit, "one", 5 + 2 * CAIRN_LOG_LIMIT_MS, &unsaid));
    EXPECT_EQ_U64(unsaid, 0);
}

TEST(more_causes_than_are_told_apart_are_counted_together) {
    struct cairn_log_limit limit = {0};
    uint64_t unsaid = 0;
    unsigned said = 0;
    for (int i = 0; i < 1000; i++) {
        said += cairn_log_limit_allows(&limit, TEXT("cause %d", i), 1000, &unsaid);
    }
    EXPECT_EQ_U64(said, CAIRN_LOG_LIMIT_CAUSES + 1);
    EXPECT(cairn_log_limit_allows(&limit, "another", 1000 + CAIRN_LOG_LIMIT_MS, &unsaid));
    for (int i = 0; i < CAIRN_LOG_LIMIT_CAUSES; i++) /* places that are free again */
        (void)cairn_log_limit_allows(&limit, i % 2 ? "a" : "b", 1000 + CAIRN_LOG_LIMIT_MS, &unsaid);
    EXPECT(!cairn_log_limit_allows(&limit, "another", 1001 + CAIRN_LOG_LIMIT_MS, &unsaid));
}
