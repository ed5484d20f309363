/* SPDX-License-Identifier: Apache-2.0 */
/* A broken promise inside libcairn, as it is shipped: this program links the archive, so that the
 * library's own answer to one is what runs here. It comes last, since nothing mends the library. */
#include "common/lock.h"
#include "tests/client/rank.h"

#define CALLS 24

struct waiting {
    struct cairn_save *save;
    _Atomic int thread; /* of gettid */
};

static void *wait_long(void *argument) {
    struct cairn_error err = {0};
    struct waiting *waiting = argument;
    waiting->thread = gettid();
    return (void *)(intptr_t)cairn_save_wait(waiting->save, CAIRN_COMMITTED, HANG_MS, &err);
}

TEST(a_session_that_is_closed_during_calls_of_other_threads_ends_those_calls_first) /* K06 */
{
    struct cairn_error err = {0};
    CAIRN_AUTO(rank) rank = {0};
    static struct waiting waiting[CALLS];
    pthread_t threads[CALLS];
    REQUIRE_OK(rank_uploader(&rank, 2, &err));
    struct cairn_open_options options = rank_options(&rank);
    options.bytes = 0;
    REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err));
    for (uint64_t i = 0; i < CALLS; i++) {
        REQUIRE_OK(cairn_save_begin(rank.session, i, NULL, &waiting[i].save, &err));
        REQUIRE_OK(cairn_save_stage(waiting[i].save, &err));
    }
    for (size_t i = 0; i < CALLS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, wait_long, &waiting[i]) == 0);
    for (size_t i = 0; i < CALLS; i++)
        REQUIRE_AWAIT(waiting[i].thread && cairn_test_thread_sleeps(waiting[i].thread));
    EXPECT_CODE(cairn_close(rank.session, &err), CAIRN_OK);
    rank.session = NULL;
    for (size_t i = 0; i < CALLS; i++) {
        void *code = NULL;
        pthread_join(threads[i], &code);
        EXPECT_EQ_U64((uint64_t)(intptr_t)code, CAIRN_UPLOADER_GONE);
        cairn_save_free(waiting[i].save);
    }
}

TEST(a_broken_promise_ends_no_trainer_and_every_later_call_says_where_it_was, err) {
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_save *save = NULL, *next = NULL;
    struct cairn_session *other = NULL;
    struct cairn_lock lock;
    REQUIRE_OK(rank_open(&rank, 2, &err));
    REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
    REQUIRE_OK(cairn_save_raw(save, "state", "0123", 4, &err));
    EXPECT(cairn_promise_place() == NULL);
    cairn_lock_init(&lock, CAIRN_LOCK_log_line);
    cairn_lock_take(&lock);
    cairn_lock_release(&lock); /* while it is held: EBUSY */
    cairn_lock_give(&lock);
    REQUIRE(cairn_promise_place() != NULL);
    EXPECT(strstr(cairn_promise_place(), "lock.c:") != NULL);
    EXPECT_FAILS(cairn_save_stage(save, &err), CAIRN_BROKEN, "lock.c:");
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "seal"), 0);
    EXPECT_CODE(cairn_save_begin(rank.session, 2, NULL, &next, &err), CAIRN_BROKEN);
    struct cairn_open_options options = rank_options(&rank);
    EXPECT_FAILS(cairn_open(&options, &other, NULL, &err), CAIRN_INTERNAL, "lock.c:");
    cairn_save_free(save);
    EXPECT_CODE(cairn_close(rank.session, &err), CAIRN_OK);
    rank.session = NULL;
}
