/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */

#include "tests/harness.h"

TEST(real_clocks_never_go_back) { /* clock.h#1 */
    const struct cairn_clock *clock = &cairn_clock_real;
    uint64_t mono = 0, boot = 0, us = 0;
    for (unsigned i = 0; i < 10000; i++) {
        uint64_t mono_now = clock->mono_ms(clock), boot_now = clock->boot_ms(clock);
        uint64_t us_now = cairn_mono_us();
        EXPECT(mono_now >= mono && boot_now >= boot && us_now >= us);
        mono = mono_now;
        boot = boot_now;
        us = us_now;
    }
    EXPECT(boot >= mono);
    EXPECT(us / 1000 - mono < 1000);
    int64_t wall_s = clock->wall_ms(clock) / 1000 - (int64_t)time(NULL);
    EXPECT(wall_s >= -1 && wall_s <= 1);
}

TEST(a_virtual_clock_moves_only_when_it_is_advanced) { /* clock.h#2 */
    struct cairn_clock_virtual virtual_clock;
    cairn_clock_virtual_init(&virtual_clock, 1000000);
    const struct cairn_clock *clock = &virtual_clock.clock;
    uint64_t mono = clock->mono_ms(clock), boot = clock->boot_ms(clock);
    uint64_t real_ms = cairn_mono_ms();
    REQUIRE_AWAIT(cairn_mono_ms() > real_ms);
    EXPECT_EQ_U64(clock->mono_ms(clock), mono);
    EXPECT_EQ_U64(clock->wall_ms(clock), 1000000);
    cairn_clock_virtual_advance(&virtual_clock, 250);
    EXPECT_EQ_U64(clock->mono_ms(clock), mono + 250);
    EXPECT_EQ_U64(clock->boot_ms(clock), boot + 250);
    EXPECT_EQ_U64(clock->wall_ms(clock), 1000250);
}

static void *advance_often(void *clock) {
    for (unsigned i = 0; i < 10000; i++) cairn_clock_virtual_advance(clock, 1);
    return NULL;
}

TEST(a_virtual_clock_is_advanced_and_read_by_many_threads) {
    struct cairn_clock_virtual virtual_clock;
    cairn_clock_virtual_init(&virtual_clock, 0);
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, advance_often, &virtual_clock) == 0);
    }
    uint64_t last = 0;
    bool went_back = false;
    for (unsigned i = 0; i < 10000; i++) {
        uint64_t now = virtual_clock.clock.mono_ms(&virtual_clock.clock);
        went_back |= now < last;
        last = now;
    }
    for (size_t i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    EXPECT(!went_back);
    EXPECT_EQ_U64(virtual_clock.clock.mono_ms(&virtual_clock.clock), 20000);
}

TEST(what_is_left_of_a_deadline_ends_at_zero) { /* clock.h#3 */
    struct cairn_clock_virtual virtual_clock;
    cairn_clock_virtual_init(&virtual_clock, 0);
    const struct cairn_clock *clock = &virtual_clock.clock;
    uint64_t deadline = cairn_deadline_in(clock, 100);
    EXPECT_EQ_U64(cairn_deadline_left_ms(clock, deadline), 100);
    cairn_clock_virtual_advance(&virtual_clock, 99);
    EXPECT_EQ_U64(cairn_deadline_left_ms(clock, deadline), 1);
    cairn_clock_virtual_advance(&virtual_clock, 1);
    EXPECT_EQ_U64(cairn_deadline_left_ms(clock, deadline), 0);
    cairn_clock_virtual_advance(&virtual_clock, 1000);
    EXPECT_EQ_U64(cairn_deadline_left_ms(clock, deadline), 0);
}

TEST(an_endless_deadline_stays_endless) {
    struct cairn_clock_virtual virtual_clock;
    cairn_clock_virtual_init(&virtual_clock, 0);
    cairn_clock_virtual_advance(&virtual_clock, 500);
    const struct cairn_clock *clock = &virtual_clock.clock;
    EXPECT_EQ_U64(cairn_deadline_in(clock, UINT64_MAX), UINT64_MAX);
    EXPECT_EQ_U64(cairn_deadline_in(clock, UINT64_MAX - 100), UINT64_MAX);
    EXPECT_EQ_U64(cairn_deadline_left_ms(clock, UINT64_MAX), UINT64_MAX);
}

TEST(times_are_printed_as_rfc_3339) {
    char text[32];
    cairn_time_text(1772446447123, false, text);
    EXPECT_EQ_TEXT(text, "2026-03-02T10:14:07Z");
    cairn_time_text(1772446447123, true, text);
    EXPECT_EQ_TEXT(text, "2026-03-02T10:14:07.123Z");
    cairn_time_text(0, true, text);
    EXPECT_EQ_TEXT(text, "1970-01-01T00:00:00.000Z");
    cairn_time_text(-1, true, text);
    EXPECT_EQ_TEXT(text, "1969-12-31T23:59:59.999Z");
    cairn_time_text(951782400000, false, text);
    EXPECT_EQ_TEXT(text, "2000-02-29T00:00:00Z");
    cairn_time_text(4107542400000, false, text);
    EXPECT_EQ_TEXT(text, "2100-03-01T00:00:00Z");
}

TEST(the_most_extreme_times_still_fit_their_text) {
    char text[32];
    cairn_time_text(INT64_MAX, true, text);
    EXPECT_EQ_TEXT(text, "292278994-08-17T07:12:55.807Z");
    cairn_time_text(INT64_MIN, true, text);
    EXPECT_EQ_TEXT(text, "-292275055-05-16T16:47:04.192Z");
}

TEST(random_times_are_printed_as_the_c_library_prints_them) {
    uint64_t state = cairn_test_seed();
    for (unsigned i = 0; i < 5000; i++) {
        int64_t seconds = (int64_t)(cairn_test_random(&state) % 20000000000u) - 8000000000;
        time_t time = (time_t)seconds;
        struct tm parts;
        char text[32];
        REQUIRE(gmtime_r(&time, &parts) != NULL);
        const char *wanted = TEXT("%04d-%02d-%02dT%02d:%02d:%02dZ", (parts.tm_year + 1900) % 10000,
                                  (parts.tm_mon + 1) % 100, parts.tm_mday % 100,
                                  parts.tm_hour % 100, parts.tm_min % 100, parts.tm_sec % 100);
        cairn_time_text(seconds * 1000 + 999, false, text);
        EXPECT_EQ_TEXT(text, wanted);
    }
}
