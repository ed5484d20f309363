/* SPDX-License-Identifier: Apache-2.0 */
/* Retry decisions on a virtual clock. */
#include "store/retry.h"
#include "tests/harness.h"

struct bench {
    struct cairn_clock_virtual clock;
    struct cairn_retry retry;
};
static void bench_init(struct bench *b, uint32_t concurrency) {
    cairn_clock_virtual_init(&b->clock, 0);
    cairn_clock_virtual_advance(&b->clock, 1000000);
    struct cairn_retry_options options = {
        .clock = &b->clock.clock, .seed = cairn_test_seed(), .concurrency_max = concurrency};
    cairn_retry_init(&b->retry, &options);
}
/* Waits until the ticket may be sent; returns the time that took. */
static uint64_t send_one(struct bench *b, struct cairn_retry_ticket *ticket) {
    uint64_t wait = 0, waited = 0;
    while (cairn_retry_admit(&b->retry, ticket, &wait) == CAIRN_RETRY_WAIT) {
        EXPECT(wait > 0);
        cairn_clock_virtual_advance(&b->clock, wait);
        waited += wait;
        if (!EXPECT(waited < 1000000)) break;
    }
    return waited;
}
static enum cairn_retry_decision result(struct bench *b, struct cairn_retry_ticket *ticket,
                                        enum cairn_retry_outcome outcome) {
    return cairn_retry_result(&b->retry, ticket, outcome, 0);
}
static enum cairn_retry_decision tried(struct bench *b, struct cairn_retry_ticket *ticket,
                                       enum cairn_retry_outcome outcome) {
    send_one(b, ticket);
    return result(b, ticket, outcome);
}
static void one_good(struct bench *b) {
    struct cairn_retry_ticket ticket = {0};
    EXPECT(tried(b, &ticket, CAIRN_RETRY_GOOD) == CAIRN_RETRY_DONE);
}
static void fail_until_paused(struct bench *b, struct cairn_retry_ticket *ticket) {
    while (!cairn_retry_paused(&b->retry))
        EXPECT(tried(b, ticket, CAIRN_RETRY_FAILURE) == CAIRN_RETRY_AGAIN);
}
#define BENCH(concurrency)                                                                         \
    struct bench b;                                                                                \
    bench_init(&b, concurrency)

TEST(at_a_healthy_endpoint_a_request_is_tried_five_times) { /* retry.h#1, P11 */
    BENCH(8);
    struct cairn_retry_ticket bad = {0};
    enum cairn_retry_decision decision = CAIRN_RETRY_AGAIN;
    while (decision == CAIRN_RETRY_AGAIN && bad.tries_sent < 20) {
        decision = tried(&b, &bad, CAIRN_RETRY_FAILURE);
        one_good(&b);
    }
    EXPECT(decision == CAIRN_RETRY_GIVE_UP);
    EXPECT_EQ_U64(bad.tries_sent, 5);
}

/* retry.h#1, S08 */
TEST(a_request_that_is_put_off_again_and_again_is_not_given_up_after_five_tries) {
    BENCH(8);
    struct cairn_retry_ticket put_off = {0};
    uint64_t waited = 0;
    enum cairn_retry_decision decision = CAIRN_RETRY_AGAIN;
    while (decision == CAIRN_RETRY_AGAIN && put_off.tries_sent < 50) {
        waited += send_one(&b, &put_off);
        decision = result(&b, &put_off, CAIRN_RETRY_SLOW_DOWN);
        for (int i = 0; i < 20; i++) one_good(&b);
    }
    EXPECT(decision == CAIRN_RETRY_GIVE_UP);
    EXPECT_EQ_U64(put_off.tries_sent, 20);
    EXPECT(waited > 20000); /* it does not hurry either */
}

TEST(a_name_server_that_is_away_fails_nothing_while_kept_connections_go_on) { /* retry.h#1, S28 */
    BENCH(8);
    struct cairn_retry_ticket nameless = {0};
    for (int i = 0; i < 12; i++) {
        EXPECT(tried(&b, &nameless, CAIRN_RETRY_UNREACHED) == CAIRN_RETRY_AGAIN);
        one_good(&b);
        EXPECT_EQ_U64(cairn_retry_concurrency(&b.retry), 8); /* that is no crowd */
    }
    EXPECT(tried(&b, &nameless, CAIRN_RETRY_GOOD) == CAIRN_RETRY_DONE);
}

TEST(a_quarter_of_slow_downs_over_ten_thousand_requests_fails_none) { /* retry.h#1 */
    BENCH(64);
    uint32_t chance = 1;
    for (int i = 0; i < 10000; i++) {
        struct cairn_retry_ticket ticket = {0};
        enum cairn_retry_decision decision = CAIRN_RETRY_AGAIN;
        while (decision == CAIRN_RETRY_AGAIN) {
            send_one(&b, &ticket);
            chance = chance * 1664525u + 1013904223u;
            bool slow = (chance >> 16) % 4 == 0;
            decision = result(&b, &ticket, slow ? CAIRN_RETRY_SLOW_DOWN : CAIRN_RETRY_GOOD);
            if (slow) one_good(&b); /* it works for others */
        }
        if (!EXPECT(decision == CAIRN_RETRY_DONE)) break;
        cairn_clock_virtual_advance(&b.clock, 5);
    }
}

TEST(extra_requests_stay_within_a_tenth_and_one_a_second) { /* retry.h#1 */
    BENCH(64);
    uint64_t first = 0, extra = 0, start = b.clock.elapsed_ms;
    uint64_t seed = cairn_test_seed();
    for (int i = 0; i < 5000; i++) {
        struct cairn_retry_ticket ticket = {0};
        enum cairn_retry_decision decision;
        do {
            send_one(&b, &ticket);
            bool fails = cairn_test_random(&seed) % 100 < 30;
            decision = result(&b, &ticket, fails ? CAIRN_RETRY_FAILURE : CAIRN_RETRY_GOOD);
        } while (decision == CAIRN_RETRY_AGAIN);
        first++;
        extra += ticket.tries_sent - 1;
    }
    uint64_t seconds = (b.clock.elapsed_ms - start) / 1000 + 1;
    EXPECT(extra > 500);
    EXPECT(extra <= first / 10 + seconds + 30);
}

TEST(an_outage_of_a_minute_fails_nothing_and_is_probed_gently) { /* retry.h#2 */
    BENCH(16);
    one_good(&b);
    struct cairn_retry_ticket tickets[40] = {0};
    uint64_t start = b.clock.elapsed_ms, sent_paused = 0, done = 0, healed_at = 0;
    bool finished[40] = {false};
    while (done < 40 && b.clock.elapsed_ms - start < 200000) {
        bool down = b.clock.elapsed_ms - start < 60000;
        if (!down && !healed_at) healed_at = b.clock.elapsed_ms;
        for (int i = 0; i < 40; i++) {
            uint64_t wait;
            if (finished[i] ||
                cairn_retry_admit(&b.retry, &tickets[i], &wait) == CAIRN_RETRY_WAIT) {
                continue;
            }
            sent_paused += cairn_retry_paused(&b.retry);
            enum cairn_retry_decision decision =
                result(&b, &tickets[i], down ? CAIRN_RETRY_FAILURE : CAIRN_RETRY_GOOD);
            EXPECT(decision != CAIRN_RETRY_GIVE_UP);
            finished[i] = decision == CAIRN_RETRY_DONE;
            done += finished[i];
        }
        cairn_clock_virtual_advance(&b.clock, 10);
    }
    EXPECT_EQ_U64(done, 40);
    EXPECT(sent_paused >= 12 && sent_paused <= 58); /* one per 1 to 5 s, for 58 s */
    EXPECT(b.clock.elapsed_ms - healed_at <= 30000);
}

TEST(what_failed_before_the_pause_does_not_count) { /* retry.h#2 */
    BENCH(16);
    struct cairn_retry_ticket ticket = {0};
    fail_until_paused(&b, &ticket);
    EXPECT_ALL_U64(ticket.tries_counted, 0, cairn_retry_concurrency(&b.retry), 1);
}

TEST(what_still_ends_well_when_an_outage_begins_makes_no_other_give_up) { /* retry.h#2 */
    for (uint64_t seed = 0; seed < 50; seed++) {
        BENCH(16);
        b.retry.random += seed;
        struct cairn_retry_ticket ticket = {0}, other = {0};
        send_one(&b, &other);
        EXPECT(tried(&b, &ticket, CAIRN_RETRY_FAILURE) == CAIRN_RETRY_AGAIN);
        EXPECT(result(&b, &other, CAIRN_RETRY_GOOD) == CAIRN_RETRY_DONE);
        fail_until_paused(&b, &ticket);
    }
}

TEST(a_failed_probe_lets_another_request_try) { /* retry.h#2 */
    BENCH(16);
    struct cairn_retry_ticket bad = {0}, good = {0};
    fail_until_paused(&b, &bad);
    send_one(&b, &bad);
    EXPECT(bad.probe);
    uint64_t wait;
    EXPECT(cairn_retry_admit(&b.retry, &good, &wait) == CAIRN_RETRY_WAIT);
    result(&b, &bad, CAIRN_RETRY_FAILURE);
    send_one(&b, &good);
    EXPECT(cairn_retry_admit(&b.retry, &bad, &wait) == CAIRN_RETRY_WAIT);
    EXPECT(result(&b, &good, CAIRN_RETRY_GOOD) == CAIRN_RETRY_DONE);
    EXPECT(!cairn_retry_paused(&b.retry));
}

TEST(a_dropped_probe_makes_room_for_the_next) {
    BENCH(16);
    struct cairn_retry_ticket bad = {0}, next = {0};
    fail_until_paused(&b, &bad);
    send_one(&b, &bad);
    cairn_retry_drop(&b.retry, &bad);
    EXPECT_EQ_U64(send_one(&b, &next), 0);
    cairn_retry_drop(&b.retry, &next);
    EXPECT_EQ_U64(b.retry.under_way, 0);
}

TEST(delays_have_full_jitter_within_their_bounds_and_honour_retry_after) { /* retry.h#3 */
    BENCH(16);
    for (uint32_t tries = 1; tries <= 12; tries++) {
        uint64_t bound = tries <= 7 ? UINT64_C(100) << (tries - 1) : 10000, low = UINT64_MAX,
                 high = 0;
        for (int i = 0; i < 400; i++) {
            uint64_t delay = cairn_retry_delay_ms(&b.retry, tries);
            low = delay < low ? delay : low;
            high = delay > high ? delay : high;
        }
        EXPECT(high <= bound);
        EXPECT(low < bound / 4 && high > bound - bound / 4);
    }
    struct cairn_retry_ticket ticket = {0};
    send_one(&b, &ticket);
    cairn_retry_result(&b.retry, &ticket, CAIRN_RETRY_SLOW_DOWN, 7000);
    EXPECT(send_one(&b, &ticket) >= 7000);
    cairn_retry_result(&b.retry, &ticket, CAIRN_RETRY_GOOD, 0);
}

TEST(a_slow_down_halves_the_requests_under_way_and_they_climb_back_in_30_s) { /* retry.h#4, S08 */
    BENCH(64);
    struct cairn_retry_ticket tickets[64] = {0};
    uint64_t wait;
    for (int i = 0; i < 64; i++) send_one(&b, &tickets[i]);
    struct cairn_retry_ticket more = {0};
    EXPECT(cairn_retry_admit(&b.retry, &more, &wait) == CAIRN_RETRY_WAIT);
    for (int i = 0; i < 64; i++) {
        result(&b, &tickets[i], i < 32 ? CAIRN_RETRY_SLOW_DOWN : CAIRN_RETRY_GOOD);
    }
    EXPECT_EQ_U64(cairn_retry_concurrency(&b.retry), 32); /* one flight is one sign */
    cairn_clock_virtual_advance(&b.clock, 1500);
    tried(&b, &more, CAIRN_RETRY_SLOW_DOWN);
    uint32_t cut = cairn_retry_concurrency(&b.retry), before = cut;
    EXPECT(cut >= 16 && cut <= 18);
    for (int i = 0; i < 30; i++) {
        cairn_clock_virtual_advance(&b.clock, 1000);
        uint32_t now = cairn_retry_concurrency(&b.retry);
        EXPECT(now >= before);
        before = now;
    }
    EXPECT_EQ_U64(before, 64);
}

TEST(one_slow_down_in_twenty_answers_halves_nothing) { /* retry.h#4 */
    BENCH(64);
    for (int i = 0; i < 2000; i++) {
        struct cairn_retry_ticket ticket = {0};
        tried(&b, &ticket, i % 20 == 7 ? CAIRN_RETRY_SLOW_DOWN : CAIRN_RETRY_GOOD);
        cairn_clock_virtual_advance(&b.clock, 10);
    }
    EXPECT_EQ_U64(cairn_retry_concurrency(&b.retry), 64);
}
