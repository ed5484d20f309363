/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* thread: wakes are not lost, and a stop waits for the end. */
#include "common/thread.h"

#include <stdatomic.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/harness.h"

struct counted {
    struct cairn_thread thread;
    _Atomic int rounds;
    _Atomic bool ended;
    uint64_t every_ms; /* 0: only when it is woken */
    unsigned work_us;
};

static void count(struct cairn_thread *thread, void *owner) {
    struct counted *counted = owner;
    while (cairn_thread_wait(thread, counted->every_ms ? cairn_mono_ms() + counted->every_ms
                                                       : UINT64_MAX)) {
        usleep(counted->work_us);
        counted->rounds++;
    }
    usleep(50000);
    counted->ended = true;
}

static bool reaches(struct counted *counted, int rounds) {
    for (int i = 0; i < 200 && counted->rounds < rounds; i++) usleep(10000);
    return counted->rounds >= rounds;
}

TEST(a_thread_works_when_it_is_woken_and_its_stop_waits_for_its_end) /* thread.h#2 */
{
    struct counted counted = {.thread = {.name = "test", .run = count}};
    struct cairn_error err = {0};
    counted.thread.owner = &counted;
    cairn_thread_stop(&counted.thread); /* was never started */
    REQUIRE(!cairn_thread_start(&counted.thread, &err));
    usleep(50000);
    EXPECT(counted.rounds == 0);
    cairn_thread_wake(&counted.thread);
    EXPECT(reaches(&counted, 1));
    cairn_thread_stop(&counted.thread);
    EXPECT(counted.ended);
    cairn_thread_stop(&counted.thread);
}

TEST(a_wake_that_comes_while_the_thread_works_is_not_lost) /* thread.h#1 */
{
    struct counted counted = {.thread = {.name = "test", .run = count}, .work_us = 100000};
    struct cairn_error err = {0};
    counted.thread.owner = &counted;
    REQUIRE(!cairn_thread_start(&counted.thread, &err));
    cairn_thread_wake(&counted.thread);
    usleep(50000); /* it works */
    cairn_thread_wake(&counted.thread);
    EXPECT(reaches(&counted, 2));
    cairn_thread_stop(&counted.thread);
}

TEST(a_thread_comes_back_by_time_alone) {
    struct counted counted = {.thread = {.name = "test", .run = count}, .every_ms = 10};
    struct cairn_error err = {0};
    counted.thread.owner = &counted;
    REQUIRE(!cairn_thread_start(&counted.thread, &err));
    EXPECT(reaches(&counted, 3));
    cairn_thread_stop(&counted.thread);
}
