/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* thread: wakes are not lost, and a stop waits for the end. */
#include "common/process.h"

#include "tests/harness.h"

struct counted {
    struct cairn_thread thread;
    _Atomic int rounds;
    _Atomic bool ended, works, goes_on; /* what it does ends when it is to go on */
    _Atomic int id;
    uint64_t every_ms; /* 0: only when it is woken */
};

static void count(struct cairn_thread *thread, void *owner) {
    struct counted *counted = owner;
    counted->id = gettid();
    while (cairn_thread_wait(thread, counted->every_ms ? cairn_mono_ms() + counted->every_ms
                                                       : UINT64_MAX)) {
        counted->works = true;
        (void)COMES(counted->goes_on);
        counted->rounds++;
    }
    cairn_test_pause_ms(50); /* pause of a stand-in: as long as its end takes */
    counted->ended = true;
}

TEST(a_thread_works_when_it_is_woken_and_its_stop_waits_for_its_end, err) { /* process.h#2 */
    struct counted counted = {.thread = {.name = "test", .run = count}, .goes_on = true};
    counted.thread.owner = &counted;
    cairn_thread_stop(&counted.thread); /* was never started */
    REQUIRE(!cairn_thread_start(&counted.thread, &err));
    REQUIRE_AWAIT(counted.id && cairn_test_thread_sleeps(counted.id));
    EXPECT(counted.rounds == 0);
    cairn_thread_wake(&counted.thread);
    AWAIT(counted.rounds == 1);
    cairn_thread_stop(&counted.thread);
    EXPECT(counted.ended);
    cairn_thread_stop(&counted.thread);
}

TEST(a_wake_that_comes_while_the_thread_works_is_not_lost, err) { /* process.h#1 */
    struct counted counted = {.thread = {.name = "test", .run = count}};
    counted.thread.owner = &counted;
    REQUIRE(!cairn_thread_start(&counted.thread, &err));
    cairn_thread_wake(&counted.thread);
    REQUIRE_AWAIT(counted.works);
    cairn_thread_wake(&counted.thread);
    counted.goes_on = true;
    AWAIT(counted.rounds == 2);
    cairn_thread_stop(&counted.thread);
}

TEST(a_thread_comes_back_by_time_alone, err) {
    struct counted counted = {
        .thread = {.name = "test", .run = count}, .every_ms = 10, .goes_on = true};
    counted.thread.owner = &counted;
    REQUIRE(!cairn_thread_start(&counted.thread, &err));
    AWAIT(counted.rounds >= 3);
    cairn_thread_stop(&counted.thread);
}
