/* SPDX-License-Identifier: Apache-2.0 */
/*
 * often: says once a minute what would be said again and again.
 *
 * Why:     a caller that is turned away and comes again at once, or a store that is away, would
 *          fill the disk with one line.
 * Promise: 1   the first time of a cause is said; within CAIRN_OFTEN_MS after that it is counted.
 *          2   the next line says how many were not; none is lost from the count.
 * Limits:  CAIRN_OFTEN_CAUSES causes are told apart; all others are one cause.
 * Threads: one owner, or the lock of its owner.
 * Next:    common/log.h.
 */
#pragma once

#include "common/base.h"

#define CAIRN_OFTEN_MS 60000
#define CAIRN_OFTEN_CAUSES 8

struct cairn_often { /* zeroed: nothing was said */
    struct {
        uint64_t cause; /* a hash; 0: free */
        uint64_t said_ms;
        uint64_t unsaid;
    } causes[CAIRN_OFTEN_CAUSES + 1];
};
/* Now, on the mono clock. True: say it, and that it was left unsaid so often. */
bool cairn_often_says(struct cairn_often *often, const char *cause, uint64_t now_ms,
                      uint64_t *ret_unsaid);
