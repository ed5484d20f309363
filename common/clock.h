/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock: time that tests can fake, and deadlines.
 *
 * Why:     waits, back-off and liveness are tested without waiting; no decision about correctness
 *          depends on wall time.
 * Promise: 1   mono and boot never go back; boot also counts while the machine sleeps.
 *          2   a virtual clock stands still until it is advanced.
 *          3   cairn_deadline_left_ms is 0 from the deadline on, never negative.
 * Limits:  milliseconds.
 * Threads: cairn_clock_real is immutable; a virtual clock may be advanced and read by any thread.
 * Next:    server/ticks for catalog time.
 */
#pragma once

#include "common/base.h"

struct cairn_clock {
    uint64_t (*mono_ms)(const struct cairn_clock *clock);
    uint64_t (*boot_ms)(const struct cairn_clock *clock);
    int64_t (*wall_ms)(const struct cairn_clock *clock); /* since 1970; for display, signatures */
};
extern const struct cairn_clock cairn_clock_real;

struct cairn_clock_virtual {
    struct cairn_clock clock; /* first member, so the struct can be used as a struct cairn_clock */
    _Atomic uint64_t elapsed_ms;
    _Atomic int64_t wall_offset_ms;
};
void cairn_clock_virtual_init(struct cairn_clock_virtual *clock, int64_t wall_ms);
void cairn_clock_virtual_advance(struct cairn_clock_virtual *clock, uint64_t ms);

uint64_t cairn_mono_ms(void); /* reads the real clock */
/* 0 if `then` is later: another thread may have stored it after this one read the clock. */
static inline uint64_t cairn_passed_ms(uint64_t now_ms, uint64_t then_ms) {
    return now_ms > then_ms ? now_ms - then_ms : 0;
}
uint64_t cairn_mono_us(void);
/* A point on the mono clock; UINT64_MAX never expires. */
uint64_t cairn_deadline_in(const struct cairn_clock *clock, uint64_t ms);
uint64_t cairn_deadline_left_ms(const struct cairn_clock *clock, uint64_t deadline_ms);
/* "2026-03-02T10:14:07Z"; ret_text holds 32 bytes. with_ms: "...07.123Z". */
void cairn_time_text(int64_t wall_ms, bool with_ms, char ret_text[32]);
