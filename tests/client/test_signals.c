/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* ctest: as=signals_behind env=CAIRN_TEST_BEHIND=1 races="full: as client/behind" */
/* The last chance: signals that announce the end, and the save at the step's edge. */
#include "tests/client/rank.h"

static volatile sig_atomic_t handled;

static void count(int number) {
    handled = handled + number;
}

static enum cairn_code watch_usr2(uint32_t grace_ms, struct cairn_error *err) {
    static const int number[1] = {SIGUSR2};
    const struct cairn_last_chance_options options = {
        .size = sizeof options, .signals = number, .signal_count = 1, .grace_ms = grace_ms};
    return cairn_last_chance_watch(&options, err);
}

TEST(a_signal_sets_a_flag_and_the_time_that_is_left_counts_from_the_first, err) {
    uint32_t left_ms = 7, later_ms = 7, last_ms = 7;
    EXPECT_EQ_U64((uint64_t)cairn_last_chance(&left_ms), 0);
    REQUIRE_OK(cairn_last_chance_watch(NULL, &err)); /* SIGTERM and SIGUSR1 */
    EXPECT_ALL_U64((uint64_t)cairn_last_chance(&left_ms), 0, left_ms, 7);
    raise(SIGTERM); /* which would have ended this process */
    EXPECT_EQ_U64((uint64_t)cairn_last_chance(&left_ms), SIGTERM);
    EXPECT(left_ms <= 30000 && left_ms > 0);
    REQUIRE_AWAIT(cairn_last_chance(&later_ms) == SIGTERM && later_ms < left_ms);
    raise(SIGUSR1);
    EXPECT_EQ_U64((uint64_t)cairn_last_chance(&last_ms), SIGTERM);
    EXPECT(last_ms <= later_ms);
    cairn_last_chance_unwatch();
    EXPECT_EQ_U64((uint64_t)cairn_last_chance(NULL), 0);
}

TEST(the_handler_that_was_there_is_called_too_and_is_back_at_the_end, err) {
    struct sigaction own = {.sa_handler = count}, found;
    handled = 0;
    REQUIRE(sigaction(SIGUSR2, &own, NULL) == 0);
    REQUIRE_OK(watch_usr2(1, &err));
    raise(SIGUSR2);
    EXPECT_ALL_U64((uint64_t)handled, SIGUSR2, (uint64_t)cairn_last_chance(NULL), SIGUSR2);
    EXPECT_CODE(watch_usr2(1, &err), CAIRN_INVALID); /* one watch for a process */
    cairn_last_chance_unwatch();
    EXPECT(sigaction(SIGUSR2, NULL, &found) == 0 && found.sa_handler == count);
    signal(SIGUSR2, SIG_DFL);
}

TEST(signals_that_nobody_can_handle_are_refused_and_nothing_is_watched, err) {
    static const int numbers[2] = {SIGUSR2, SIGKILL};
    struct sigaction found;
    const struct cairn_last_chance_options options = {
        .size = sizeof options, .signals = numbers, .signal_count = 2};
    EXPECT_FAILS(cairn_last_chance_watch(&options, &err), CAIRN_INVALID, "signal 9");
    EXPECT(sigaction(SIGUSR2, NULL, &found) == 0 && found.sa_handler == SIG_DFL);
    EXPECT_CODE(watch_usr2(1, &err), CAIRN_OK);
    cairn_last_chance_unwatch();
}

static void expect_no_end(void *argument) {
    (void)argument;
    if (cairn_last_chance(NULL)) abort();
    cairn_last_chance_unwatch(); /* the parent's; nothing happens */
}

TEST(k10_a_forked_child_is_not_told_of_its_parents_end, err) {
    REQUIRE_OK(watch_usr2(1000, &err));
    raise(SIGUSR2);
    int status = cairn_test_in_child(expect_no_end, NULL, NULL, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_EQ_U64((uint64_t)cairn_last_chance(NULL), SIGUSR2);
    cairn_last_chance_unwatch();
}

TEST(k06_a_trainer_that_is_told_to_end_saves_at_its_steps_edge) {
    RANK(2);
    struct cairn_save_status status = {0};
    uint64_t step = 0;
    uint32_t left_ms = 0;
    REQUIRE_OK(watch_usr2(HANG_MS, &err));
    while (!cairn_last_chance(&left_ms) && step < 1000)
        if (++step == 17) raise(SIGUSR2); /* in the middle of a step */
    EXPECT_EQ_U64(step, 17);
    EXPECT(left_ms > 0);
    SAVED(save, step);
    EXPECT_CODE(cairn_save_wait(save, CAIRN_STAGED, left_ms, &err), CAIRN_OK);
    cairn_save_status(save, &status);
    EXPECT_EQ_U64(status.step, 17);
    cairn_last_chance_unwatch();
}
