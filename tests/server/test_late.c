/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as server/save and server/http, other requests" */
/* Requests that wait: what ends by a timer though it had come is a finding, and nothing else is. */
#include "common/process.h"
#include "server/http/waiters.h"
#include "tests/harness.h"

struct parked {
    struct srv_waiter waiter;
    atomic_int woken;
};

static void wake(struct srv_waiter *waiter) {
    atomic_store(&((struct parked *)waiter)->woken, 1);
}

static void count(void *owner) {
    atomic_fetch_add((atomic_int *)owner, 1);
}

static void wait_for(atomic_int *value) {
    (void)AWAIT(atomic_load(value) > 0);
}

/* Parks until its timer ends the wait; its request finds then what it waited for. */
static void come_late(struct srv_waiters *waiters, uint64_t key, struct parked *parked) {
    *parked = (struct parked){.waiter = {.key = key,
                                         .seen = srv_waiters_look(waiters),
                                         .wake_ms = cairn_mono_ms() + 1,
                                         .wake = wake}};
    srv_waiters_park(waiters, &parked->waiter);
    wait_for(&parked->woken);
    EXPECT(parked->waiter.timed_out);
}

TEST(a_wait_that_its_timer_ended_though_nobody_rang_is_counted_once, err) {
    struct srv_waiters *waiters = NULL;
    struct parked parked;
    atomic_int found = 0;
    REQUIRE_OK(srv_waiters_new(&waiters, &err));
    srv_waiters_on_late(waiters, count, &found);
    come_late(waiters, 7, &parked);
    srv_waiters_late(waiters, &parked.waiter);
    wait_for(&found);
    come_late(waiters, 8, &parked); /* in vain: nothing is said of it */
    come_late(waiters, 9, &parked); /* counted behind it */
    srv_waiters_late(waiters, &parked.waiter);
    REQUIRE_AWAIT(atomic_load(&found) >= 2);
    EXPECT_EQ_U64(atomic_load(&found), 2);
    srv_waiters_free(waiters);
}

TEST(a_ring_that_was_under_way_while_the_timer_ended_the_wait_is_no_finding, err) {
    struct srv_waiters *waiters = NULL;
    struct parked before, after, none;
    atomic_int found = 0;
    REQUIRE_OK(srv_waiters_new(&waiters, &err));
    srv_waiters_on_late(waiters, count, &found);
    come_late(waiters, 7, &before);
    srv_waiters_wake_key(waiters, 7);
    srv_waiters_late(waiters, &before.waiter);
    come_late(waiters, 8, &after);
    srv_waiters_late(waiters, &after.waiter);
    srv_waiters_wake_key(waiters, 8);
    come_late(waiters, 9, &none);
    srv_waiters_late(waiters, &none.waiter);
    wait_for(&found); /* of the last: the time of those before it is over, too */
    EXPECT_EQ_U64(atomic_load(&found), 1);
    srv_waiters_free(waiters);
}
