/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late: finds waits that end by their timer while work is due that nobody rang for.
 *
 * Why:     a thread that looks by itself now and then hides a wake that was forgotten: all is done
 *          in the end, up to a timer's length later, and no test fails.
 * Promise: 1   a wait counts once, if its timer ended it, work was found then, and no ring came
 *              from the look before that wait until CAIRN_LATE_MS after its end. So a ring that is
 *              under way while the timer ends is no finding.
 * Limits:  one candidate at a time for each waiting thread; another ring within that time hides it,
 *          so a finding is a fault, and none is no proof.
 * Threads: the bell is any thread's; a struct cairn_late is its waiting thread's own.
 * Next:    uploader/up.h; uploader/send/send.c.
 */
#pragma once

#include <stdatomic.h>

#include "common/base.h"

#define CAIRN_LATE_MS 1000

struct cairn_late_bell {
    atomic_uint_fast64_t rings;
};
struct cairn_late {
    uint64_t heard;    /* rings, as of the look before the wait */
    uint64_t seen;     /* as of this look */
    uint64_t since_ms; /* of a candidate; 0: there is none */
    bool timed_out;    /* the caller sets it: the wait before this look was ended by its timer */
};

static inline void cairn_late_ring(struct cairn_late_bell *bell) {
    atomic_fetch_add(&bell->rings, 1);
}

/* Before each look for work. True: a wait counts. */
static inline bool cairn_late_before(struct cairn_late *late, const struct cairn_late_bell *bell,
                                     uint64_t now_ms) {
    late->seen = atomic_load(&bell->rings);
    if (!late->since_ms) return false;
    bool counts = late->seen == late->heard && now_ms >= late->since_ms + CAIRN_LATE_MS;
    if (counts || late->seen != late->heard) late->since_ms = 0;
    return counts;
}

/* After the look, which found some or none. */
static inline void cairn_late_after(struct cairn_late *late, const struct cairn_late_bell *bell,
                                    bool worked, uint64_t now_ms) {
    bool rang = atomic_load(&bell->rings) != late->heard;
    if (worked && late->timed_out && !rang && !late->since_ms) late->since_ms = now_ms;
    late->timed_out = false;
    if (!late->since_ms) late->heard = late->seen;
}

/* A line of the log for one that counts. */
void cairn_late_tell(const char *wait);
