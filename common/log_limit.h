/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_limit: at most one log line a minute for each cause, with a count of those left out.
 *
 * Why:     a caller that is turned away and comes again at once, or a store that is away, would
 *          fill the disk with one line.
 * Promise: 1   the first line of a cause is allowed; those within CAIRN_LOG_LIMIT_MS after it are
 *              counted instead.
 *          2   the next line that is allowed gets that count; none is missing from it.
 * Limits:  CAIRN_LOG_LIMIT_CAUSES causes are told apart; all others are one cause.
 * Threads: one owner, or the lock of its owner.
 * Next:    common/log.h.
 */
#pragma once

#include "common/base.h"

#define CAIRN_LOG_LIMIT_MS 60000
#define CAIRN_LOG_LIMIT_CAUSES 8

struct cairn_log_limit { /* zeroed: no line was written */
    struct {
        uint64_t cause; /* a hash; 0: free */
        uint64_t said_ms;
        uint64_t unsaid;
    } causes[CAIRN_LOG_LIMIT_CAUSES + 1];
};
/* now_ms on the mono clock. True: write the line, with *ret_unsaid, how many were left out. */
bool cairn_log_limit_allows(struct cairn_log_limit *limit, const char *cause, uint64_t now_ms,
                            uint64_t *ret_unsaid);
