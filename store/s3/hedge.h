/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hedge: how long a fully sent part may wait for its answer before it is sent again.
 *
 * Why:     S3 answers a part in 0.2 s, and one in a thousand in 5 s; a save of many parts meets
 *          such a one every time and then waits for it alone.
 * Promise: 1   no limit before 10 answers are known; then the 90th percentile of those, 1 s at
 *              least; from then on the running mean of the waiting time plus a margin.
 *          2   the margin starts at 0.7 s, grows by 0.1 s when more than 0.1 % of parts were sent
 *              again, by 1 s when more than 1 % were, and at a limit of 5 s hedging stops: then
 *              the store is slow and not unlucky.
 * Limits:  numbers are those of AWS's own client (aws-c-s3).
 * Threads: the owner's.
 * Next:    store/s3/worker.c.
 */
#pragma once

#include "common/base.h"

#define CAIRN_S3_HEDGE_FIRST 10

struct cairn_s3_hedge {
    uint64_t first_us[CAIRN_S3_HEDGE_FIRST];
    uint32_t answers; /* of the first ones, then it stays */
    uint64_t limit_first_us, mean_us, margin_us;
    uint64_t parts, resent; /* of the present margin */
    bool stopped;
};
/* An answer came this long after the last byte of its part was sent. */
void cairn_s3_hedge_answer(struct cairn_s3_hedge *hedge, uint64_t waited_us);
/* A part was given up and sent again. */
void cairn_s3_hedge_resent(struct cairn_s3_hedge *hedge);
/* UINT64_MAX: wait for ever. */
uint64_t cairn_s3_hedge_limit_us(const struct cairn_s3_hedge *hedge);
