/* SPDX-License-Identifier: Apache-2.0 */
/* The real clock reads the kernel's; a virtual clock returns its start plus all advances. */
#include "common/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

static struct timespec now_of(clockid_t id) {
    struct timespec now = {0};
    int failed = clock_gettime(id, &now);
    CAIRN_PROMISE(failed == 0, (void)0);
    return now;
}

static uint64_t ms_of(struct timespec time) {
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

uint64_t cairn_mono_ms(void) {
    return ms_of(now_of(CLOCK_MONOTONIC));
}

uint64_t cairn_mono_us(void) {
    struct timespec now = now_of(CLOCK_MONOTONIC);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint64_t real_mono_ms(const struct cairn_clock *clock) {
    (void)clock;
    return cairn_mono_ms();
}

static uint64_t real_boot_ms(const struct cairn_clock *clock) {
    (void)clock;
    return ms_of(now_of(CLOCK_BOOTTIME));
}

static int64_t real_wall_ms(const struct cairn_clock *clock) {
    (void)clock;
    return (int64_t)ms_of(now_of(CLOCK_REALTIME));
}

const struct cairn_clock cairn_clock_real = {real_mono_ms, real_boot_ms, real_wall_ms};

static uint64_t virtual_elapsed_ms(const struct cairn_clock *clock) {
    return atomic_load(&((const struct cairn_clock_virtual *)clock)->elapsed_ms);
}

static int64_t virtual_wall_ms(const struct cairn_clock *clock) {
    const struct cairn_clock_virtual *self = (const struct cairn_clock_virtual *)clock;
    return atomic_load(&self->wall_offset_ms) + (int64_t)atomic_load(&self->elapsed_ms);
}

void cairn_clock_virtual_init(struct cairn_clock_virtual *clock, int64_t wall_ms) {
    clock->clock = (struct cairn_clock){virtual_elapsed_ms, virtual_elapsed_ms, virtual_wall_ms};
    atomic_init(&clock->elapsed_ms, 0);
    atomic_init(&clock->wall_offset_ms, wall_ms);
}

void cairn_clock_virtual_advance(struct cairn_clock_virtual *clock, uint64_t ms) {
    atomic_fetch_add(&clock->elapsed_ms, ms);
}

uint64_t cairn_deadline_in(const struct cairn_clock *clock, uint64_t ms) {
    uint64_t deadline = 0;
    return cairn_add_overflows(clock->mono_ms(clock), ms, &deadline) ? UINT64_MAX : deadline;
}

uint64_t cairn_deadline_left_ms(const struct cairn_clock *clock, uint64_t deadline_ms) {
    if (deadline_ms == UINT64_MAX) return UINT64_MAX;
    uint64_t now = clock->mono_ms(clock);
    return now < deadline_ms ? deadline_ms - now : 0;
}

void cairn_time_text(int64_t wall_ms, bool with_ms, char ret_text[32]) {
    const int64_t day_ms = 86400000;
    int64_t day = wall_ms / day_ms - (wall_ms % day_ms < 0);
    unsigned of_day = (unsigned)((wall_ms % day_ms + day_ms) % day_ms);
    int64_t year = 0;
    unsigned month = 0, month_day = 0;
    /* Proleptic Gregorian date of a day counted from 1970-01-01. Not gmtime_r: it takes the C
     * library's time zone lock, which may be held for ever in a forked child. Years start in March,
     * so that the leap day is the last day of a year. */
    const int64_t era_days = 146097; /* 400 years */
    int64_t from = day + 719468;     /* days since 0000-03-01 */
    int64_t era = (from >= 0 ? from : from - era_days + 1) / era_days;
    unsigned era_day = (unsigned)(from - era * era_days);
    unsigned era_year = (era_day - era_day / 1460 + era_day / 36524 - era_day / 146096) / 365;
    unsigned year_day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
    unsigned from_march = (5 * year_day + 2) / 153;
    month_day = year_day - (153 * from_march + 2) / 5 + 1;
    month = from_march < 10 ? from_march + 3 : from_march - 9;
    year = (int64_t)era_year + era * 400 + (month <= 2);
    char fraction[8] = "", text[64] = "";
    if (with_ms) snprintf(fraction, sizeof(fraction), ".%03u", of_day % 1000);
    snprintf(text, sizeof(text), "%04lld-%02u-%02uT%02u:%02u:%02u%sZ", (long long)year, month,
             month_day, of_day / 3600000, of_day / 60000 % 60, of_day / 1000 % 60, fraction);
    memcpy(ret_text, text, 32); /* the longest text, of INT64_MIN, has 30 characters */
}
