/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Whose turn it is to read the socket: a call's that waits, or the session's thread's. */
#include "client/session/wire.h"
#include "tests/client/rank.h"

#define CALLERS 4
#define CALLS 40

struct caller {
    struct cairn_session *session;
    pthread_t thread;
    unsigned answered;
    enum cairn_code code; /* of the last call */
};

static void *call_often(void *argument) {
    struct caller *caller = argument;
    for (unsigned i = 0; i < CALLS; i++) {
        struct cairn_checkpoint *list = NULL;
        size_t count = 0;
        struct cairn_error err = {0};
        caller->code = cairn_list(caller->session, &list, &count, &err);
        caller->answered += caller->code == CAIRN_OK;
        free(list);
    }
    return NULL;
}

/* wire.h#1, wire.h#2: events come in between, and each call gets its own answer. */
TEST(calls_of_four_threads_over_one_session_are_each_answered_and_no_event_is_missed) {
    RANK(1);
    struct cairn_save_status status = {0};
    struct caller callers[CALLERS] = {0};
    SAVED(save, 1);
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i].session = rank.session;
        REQUIRE(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]) == 0);
    }
    for (uint64_t i = 0; i < 100; i++)
        cairn_fake_uploader_event(
            rank.fake, CAIRN_PACK(released, .save = 1, .shard = 0, .offset = i, .bytes = 1));
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        EXPECT_EQ_U64(callers[i].answered, CALLS);
    }
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_OK);
    cairn_save_status(save, &status);
    EXPECT_EQ_U64(status.sent_bytes, cairn_min_u64(status.total_bytes, 100));
}

/* K32: no call is under way when the event comes, and none is made until it was taken in. */
TEST(what_nobody_waits_for_is_taken_in_after_calls_that_read_themselves) {
    RANK(1);
    struct cairn_save_status status = {0};
    SAVED(save, 1);
    cairn_fake_uploader_event(rank.fake,
                              CAIRN_PACK(released, .save = 1, .shard = 0, .offset = 0, .bytes = 7));
    (void)AWAIT((cairn_save_status(save, &status), status.sent_bytes == 7)); /* asks nobody */
    EXPECT_EQ_U64(status.sent_bytes, 7);
}

static _Atomic bool is_held, may_go;

static void hold(int number) {
    (void)number;
    is_held = true;
    while (!may_go) cairn_test_pause_ms(1); /* step of a poll, in a handler */
}

static void *call_once(void *argument) {
    struct caller *caller = argument;
    struct cairn_checkpoint *list = NULL;
    size_t count = 0;
    struct cairn_error err = {0};
    caller->code = cairn_list(caller->session, &list, &count, &err);
    free(list);
    return NULL;
}

TEST(a_signals_handler_on_the_thread_of_a_long_wait_holds_up_no_other_call, err) { /* K33 */
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_save *save = NULL;
    const struct sigaction action = {.sa_handler = hold};
    REQUIRE(sigaction(SIGUSR2, &action, NULL) == 0);
    REQUIRE_OK(rank_uploader(&rank, 1, &err));
    RANK_OPENS(options.timeout_ms = HANG_MS);
    cairn_fake_uploader_script(rank.fake, "list", "mute");
    struct caller caller = {.session = rank.session};
    REQUIRE(pthread_create(&caller.thread, NULL, call_once, &caller) == 0);
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "list", 1, NULL));
    cairn_test_pause_ms(20 * CAIRN_CLIENT_SELF_MS); /* pause of a stand-in: longer than a turn */
    REQUIRE(pthread_kill(caller.thread, SIGUSR2) == 0);
    EXPECT(AWAIT(is_held));
    const struct cairn_save_options quick = {.size = sizeof quick, .timeout_ms = HANG_MS};
    EXPECT_CODE(cairn_save_begin(rank.session, 1, &quick, &save, &err), CAIRN_OK);
    may_go = true;
    cairn_save_free(save);
    cairn_rank_leave(&rank);
    pthread_join(caller.thread, NULL);
    EXPECT_CODE(caller.code, CAIRN_UPLOADER_GONE);
}

/* K06: also while the call has the turn. */
TEST(a_close_ends_a_call_that_reads_for_itself) {
    for (int i = 0; i < 20; i++) {
        RANK_UPLOADER(1);
        RANK_OPENS(options.timeout_ms = HANG_MS);
        cairn_fake_uploader_script(rank.fake, "list", "mute");
        struct caller caller = {.session = rank.session};
        REQUIRE(pthread_create(&caller.thread, NULL, call_once, &caller) == 0);
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "list", 1, NULL));
        cairn_rank_leave(&rank);
        pthread_join(caller.thread, NULL);
        EXPECT_CODE(caller.code, CAIRN_UPLOADER_GONE);
    }
}

/* Each end comes while a call reads, and the next uploader is met by the session's thread. */
TEST(an_uploader_that_dies_while_a_call_reads_is_met_again) {
    RANK(1);
    for (uint64_t step = 1; step <= 20; step++) {
        AUTO_SAVE *save = NULL;
        cairn_fake_uploader_script(rank.fake, "begin", "drop");
        EXPECT_CODE(cairn_save_begin(rank.session, step, NULL, &save, &err), CAIRN_OK);
    }
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "hello"), 21);
}
