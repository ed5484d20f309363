/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane: the parts of a job that lie in one place, on their way.
 *
 * Why:     a part is copied from where it lies, or by way of a scratch that a kernel fills while
 *          the scratch before is copied; which of them is faster depends on how it lies.
 * Promise: 1   parts arrive in the order in which they were put, and after `flush` all are queued.
 *          2   of a device's memory a lane needs at most two scratches of 16 MiB, whatever is
 *              converted or gathered; where they are not to be had, less; CAIRN_NO_MEMORY: not even
 *              64 KiB, and what is not converted is then copied without.
 *          3   the device sums what it copies, as long as its sums come in time: a trainer's
 *              kernels may hold up those that sum, and then the host sums.
 * Limits:  rows of 16 KiB and more are not gathered; ranges of up to 64 KiB are packed.
 * Threads: one, within the place; `is_late` any.
 * Next:    stage_cuda.c.
 */
#pragma once

#include <stdatomic.h>

#include "client/stage_cuda/kernels.h"

/* Where the sums of a job go, by chunks from `host` on. */
struct cairn_cuda_summed {
    struct cairn_cuda_sums sums;
    const uint8_t *host;
    uint64_t bytes;
    uint64_t asked;    /* the chunk behind the last one that was asked for; 0: none was */
    _Atomic bool late; /* sums are not there although copies behind them are */
};
struct cairn_cuda_lane {
    struct cairn_cuda *cuda;
    struct cairn_cuda_place *place;
    struct cairn_cuda_streams streams;
    struct cairn_cuda_summed *summed;
    bool has_kernels, queued; /* queued: copies, since the owner has looked */
    bool single;              /* there is no memory for a second scratch */
    unsigned turn;            /* of the scratches */
    uint8_t *packed_host;     /* where the ranges of `packing` go */
    uint64_t packed_bytes;
    struct cairn_kernel_packing packing;
};
enum cairn_code cairn_cuda_lane_init(struct cairn_cuda_lane *lane, struct cairn_cuda *cuda,
                                     struct cairn_cuda_place *place,
                                     struct cairn_cuda_summed *summed,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* What is put from here on comes after this event. */
enum cairn_code cairn_cuda_lane_wait(struct cairn_cuda_lane *lane, void *event,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cuda_lane_put(struct cairn_cuda_lane *lane,
                                    const struct cairn_device_part *part,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* A part that lies in one piece and is small waits for others beside it. False: not this one. */
bool cairn_cuda_lane_joins(const struct cairn_cuda_lane *lane,
                           const struct cairn_device_part *part);
void cairn_cuda_lane_join(struct cairn_cuda_lane *lane, const struct cairn_device_part *part);
enum cairn_code cairn_cuda_lane_flush(struct cairn_cuda_lane *lane,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Waits for all of it; what its streams have is kept unless something has failed. */
void cairn_cuda_lane_release(struct cairn_cuda_lane *lane, bool failed);

/* After the copies behind these sums are there: are the sums not? */
bool cairn_cuda_is_late(struct cairn_cuda_summed *summed, uint64_t asked);
