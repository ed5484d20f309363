/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
#include "common/lock.h"

#include "tests/harness.h"

struct pair {
    struct cairn_lock outer, inner;
    struct cairn_condition condition;
};

static void pair_init(struct pair *pair) {
    cairn_lock_init(&pair->outer, CAIRN_LOCK_upload_queue);
    cairn_lock_init(&pair->inner, CAIRN_LOCK_memory_budget);
    cairn_condition_init(&pair->condition);
}

static void pair_release(struct pair *pair) {
    cairn_condition_release(&pair->condition);
    cairn_lock_release(&pair->inner);
    cairn_lock_release(&pair->outer);
}

TEST(locks_are_taken_in_the_listed_order_and_given_in_any) {
    struct pair pair;
    pair_init(&pair);
    for (int i = 0; i < 3; i++) {
        CAIRN_HOLD(&pair.outer);
        CAIRN_HOLD(&pair.inner);
    }
    cairn_lock_take(&pair.outer);
    cairn_lock_take(&pair.inner);
    cairn_lock_give(&pair.outer);
    cairn_lock_give(&pair.inner);
    cairn_lock_take(&pair.outer);
    EXPECT(pthread_mutex_trylock(&pair.outer.mutex) == EBUSY);
    cairn_lock_give(&pair.outer);
    pair_release(&pair);
}

#ifdef CAIRN_DEBUG_LOCKS
static void take_inverted(void *argument) {
    struct pair *pair = argument;
    CAIRN_HOLD(&pair->inner);
    CAIRN_HOLD(&pair->outer);
}

static void take_twice(void *argument) {
    struct pair *pair = argument;
    cairn_lock_take(&pair->outer);
    cairn_lock_take(&pair->outer);
}

static void give_what_is_not_held(void *argument) {
    cairn_lock_give(&((struct pair *)argument)->outer);
}

static void wait_with_an_inner_lock(void *argument) {
    struct pair *pair = argument;
    CAIRN_HOLD(&pair->outer);
    CAIRN_HOLD(&pair->inner);
    cairn_condition_wait(&pair->condition, &pair->outer, 0);
}

static void take_what_was_released(void *argument) {
    struct pair *pair = argument;
    cairn_lock_release(&pair->inner);
    cairn_lock_take(&pair->inner);
}

static void take_zeroed_memory(void *argument) {
    struct pair *pair = argument;
    memset(&pair->inner, 0, sizeof(pair->inner));
    cairn_lock_take(&pair->inner);
}

static void expect_abort(void (*function)(void *), const char *words) {
    struct pair pair;
    char text[512];
    pair_init(&pair);
    int status = cairn_test_in_child(function, &pair, text, sizeof(text));
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    EXPECT(strstr(text, words) != NULL);
    pair_release(&pair);
}

CASE(an_inverted_order_aborts_and_names_both_locks,
     expect_abort(take_inverted,
                  "taking upload_queue while this thread holds: memory_budget\n")); /* lock.h#1 */
CASE(taking_a_lock_twice_aborts_instead_of_hanging,
     expect_abort(take_twice,
                  "taking upload_queue while this thread holds: upload_queue\n")); /* lock.h#1 */

TEST(taking_a_lock_before_its_init_or_after_its_release_aborts) { /* lock.h#2 */
    expect_abort(take_zeroed_memory, "taking a lock that is not there while this thread holds:\n");
    expect_abort(take_what_was_released, "taking a lock that is not there while");
}

CASE(giving_a_lock_that_is_not_held_aborts,
     expect_abort(give_what_is_not_held, "giving upload_queue while this thread holds:\n"));
CASE(waiting_while_an_inner_lock_is_held_aborts,
     expect_abort(wait_with_an_inner_lock, "waiting with upload_queue while this thread holds:"));
#else
TEST(an_inverted_order_aborts_and_names_both_locks) {
    SKIP("lock order is checked in builds with CAIRN_DEBUG_LOCKS");
}
#endif

TEST(a_wait_ends_at_its_deadline_and_says_so) { /* lock.h#3 */
    struct pair pair;
    pair_init(&pair);
    {
        CAIRN_HOLD(&pair.outer);
        EXPECT(!cairn_condition_wait(&pair.condition, &pair.outer, 0));
        uint64_t deadline = cairn_deadline_in(&cairn_clock_real, 30);
        while (cairn_condition_wait(&pair.condition, &pair.outer, deadline)) {
        }
        EXPECT(cairn_mono_ms() >= deadline);
    }
    pair_release(&pair);
}

struct counter {
    struct cairn_lock lock;
    struct cairn_condition changed;
    struct {
        unsigned count;
    } locked;
};

static void *count_to_thousand(void *argument) {
    struct counter *counter = argument;
    for (unsigned i = 0; i < 1000; i++) {
        CAIRN_HOLD(&counter->lock);
        counter->locked.count++;
        cairn_condition_signal(&counter->changed);
    }
    return NULL;
}

TEST(threads_that_hold_the_lock_never_meet_and_waiters_are_woken) {
    struct counter counter = {0};
    pthread_t threads[4];
    cairn_lock_init(&counter.lock, CAIRN_LOCK_test_support);
    cairn_condition_init(&counter.changed);
    for (size_t i = 0; i < 4; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, count_to_thousand, &counter) == 0);
    }
    bool in_time = true;
    unsigned count = 0;
    {
        CAIRN_HOLD(&counter.lock);
        uint64_t deadline = cairn_deadline_in(&cairn_clock_real, 20000);
        while (counter.locked.count < 4000 && in_time) {
            in_time = cairn_condition_wait(&counter.changed, &counter.lock, deadline);
        }
        count = counter.locked.count;
    }
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    EXPECT(in_time);
    EXPECT_EQ_U64(count, 4000);
    cairn_condition_release(&counter.changed);
    cairn_lock_release(&counter.lock);
}

static void *signal_soon(void *argument) {
    struct counter *counter = argument;
    CAIRN_HOLD(&counter->lock);
    counter->locked.count = 1;
    cairn_condition_broadcast(&counter->changed);
    return NULL;
}

TEST(an_endless_wait_ends_with_the_signal) {
    struct counter counter = {0};
    pthread_t thread;
    cairn_lock_init(&counter.lock, CAIRN_LOCK_test_support);
    cairn_condition_init(&counter.changed);
    cairn_lock_take(&counter.lock);
    bool started = pthread_create(&thread, NULL, signal_soon, &counter) == 0;
    while (started && counter.locked.count == 0) {
        EXPECT(cairn_condition_wait(&counter.changed, &counter.lock, UINT64_MAX));
    }
    cairn_lock_give(&counter.lock);
    REQUIRE(started);
    pthread_join(thread, NULL);
    cairn_condition_release(&counter.changed);
    cairn_lock_release(&counter.lock);
}
