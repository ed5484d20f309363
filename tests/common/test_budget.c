/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* budget: the sum never passes the total, also with many threads and with sums that would wrap. */
#include "common/budget.h"
#include "tests/harness.h"

TEST(a_reservation_that_does_not_fit_is_refused_with_the_numbers) /* budget.h#1 budget.h#2, P11 */
{
    struct cairn_error err = {0};
    CAIRN_AUTO(budget) budget = {0};
    cairn_budget_init(&budget, 10 * CAIRN_GIB);
    REQUIRE_OK(cairn_budget_take(&budget, 8 * CAIRN_GIB, "slabs of llm/7b rank 0", &err));
    EXPECT_CODE(cairn_budget_take(&budget, 3 * CAIRN_GIB, "slabs of llm/7b rank 3", &err),
                CAIRN_NO_MEMORY);
    EXPECT(strstr(err.message, "slabs of llm/7b rank 3") != NULL);
    EXPECT(strstr(err.message, "3.0 GiB") && strstr(err.message, "8.0 GiB") &&
           strstr(err.message, "10.0 GiB"));
    EXPECT_EQ_U64(cairn_budget_free_bytes(&budget), 2 * CAIRN_GIB);
    EXPECT_CODE(cairn_budget_take(&budget, 2 * CAIRN_GIB, "the rest", &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_budget_free_bytes(&budget), 0);
    cairn_budget_give(&budget, 8 * CAIRN_GIB);
    EXPECT_EQ_U64(cairn_budget_free_bytes(&budget), 8 * CAIRN_GIB);
    EXPECT_EQ_U64(budget.locked.highest_bytes, 10 * CAIRN_GIB);
}

TEST(a_request_near_the_end_of_the_number_range_does_not_wrap) /* budget.h#1 */
{
    struct cairn_error err = {0};
    CAIRN_AUTO(budget) budget = {0};
    cairn_budget_init(&budget, UINT64_MAX);
    REQUIRE_OK(cairn_budget_take(&budget, CAIRN_GIB, "first", &err));
    EXPECT_CODE(cairn_budget_take(&budget, UINT64_MAX, "second", &err), CAIRN_NO_MEMORY);
    EXPECT_EQ_U64(cairn_budget_free_bytes(&budget), (UINT64_C(1) << 62) - CAIRN_GIB);
}

struct taker {
    struct cairn_budget *budget;
    unsigned refused;
};

static void *take_and_give(void *context) {
    struct taker *taker = context;
    for (int i = 0; i < 5000; i++) {
        if (cairn_budget_take(taker->budget, 3, "thread", NULL) == CAIRN_OK)
            cairn_budget_give(taker->budget, 3);
        else
            taker->refused++;
    }
    return NULL;
}

TEST(threads_that_take_and_give_leave_nothing_behind) /* budget.h#1 */
{
    CAIRN_AUTO(budget) budget = {0};
    cairn_budget_init(&budget, 7); /* room for two of the four */
    pthread_t threads[4];
    struct taker takers[4];
    for (size_t i = 0; i < 4; i++) {
        takers[i] = (struct taker){&budget, 0};
        REQUIRE(pthread_create(&threads[i], NULL, take_and_give, &takers[i]) == 0);
    }
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    EXPECT_EQ_U64(cairn_budget_free_bytes(&budget), 7);
    EXPECT(budget.locked.highest_bytes <= 7);
}
