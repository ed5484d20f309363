/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the CUDA contexts in which memory lies, what is cached per context, and how a job's parts
 * are copied.
 *
 * Why:     in a thread without a context most runtime calls open the context of device 0, which
 *          takes hundreds of megabytes of another rank's device. So every call is made in the
 *          context of its memory, and the thread's own context is restored afterwards. A part is
 *          copied directly, or through a scratch that a kernel fills while the previous scratch is
 *          copied; its layout decides which is faster.
 * Promise: 1   no call opens a context: calls that do (measured on an H200 with CUDA 13,
 *              docs/bench.md) are made only between `enter` and `leave`.
 *          2   between them the thread's capture mode is relaxed, so that no call ends another
 *              thread's graph capture.
 *          3   events, streams, device memory and kernels are cached for later jobs, because
 *              creating and freeing them is slow, until `release` or a failed job.
 *          4   a lane's parts arrive in the order of `put`, and `flush` queues all of them. Bytes
 *              and checksums are those of kernel.h.
 *          5   a lane uses at most two scratches of 16 MiB of device memory for any conversion or
 *              gather, less if memory is short; CAIRN_NO_MEMORY: not even 64 KiB, and unconverted
 *              parts are then copied without.
 *          6   the device checksums whole chunks that it copies while its checksums arrive in time:
 *              a trainer's kernels may delay the checksum kernels, and then the host computes them.
 * Limits:  64 contexts; pool memory has no context of its own and uses its device's primary one.
 *          Kernels need an image compiled by nvcc. Rows of 16 KiB and more are not gathered, ranges
 *          of up to 64 KiB are packed; rows less than 2^31 bytes apart are copied together.
 * Threads: any thread may use a place, the lock guards its cache; enter and leave belong to one
 *          thread, and so does a lane except for `is_late`.
 * Next:    lane.c, stage_cuda.c.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "client/device/device.h"
#include "client/stage_cuda/kernel.h"
#include "client/stage_cuda/runtime.h"
#include "common/lock.h"

#define CAIRN_CUDA_PLACES_MAX 64
#define CAIRN_CUDA_EVENTS_KEPT 256
#define CAIRN_CUDA_LANES_KEPT 4
#define CAIRN_CUDA_SUMS_KEPT 4
#define CAIRN_CUDA_SCRATCHES 2 /* one is filled while the other is copied */

struct cairn_cuda_scratch { /* device memory; NULL: none */
    uint8_t *memory;
    size_t bytes;
    void *filled, *emptied; /* events; emptied: recorded after queuing the copy out */
    bool used;
};
struct cairn_cuda_streams { /* of a lane, cached between jobs */
    void *copies, *kernels;
    struct cairn_cuda_scratch scratches[CAIRN_CUDA_SCRATCHES];
};
struct cairn_cuda_place {
    void *context;
    int device;
    bool retained; /* the primary context, retained here */
    /* the cache, guarded by the lock */
    void *module, *kernels[CAIRN_KERNEL_COUNT];
    struct cairn_kernel_summing summing; /* all but the bytes; valid once `module` is set */
    void *events[CAIRN_CUDA_EVENTS_KEPT];
    size_t event_count;
    struct cairn_cuda_streams streams[CAIRN_CUDA_LANES_KEPT];
    size_t streams_count, streams_taken;
};
struct cairn_cuda_sums { /* host memory that kernels write; NULL: none */
    uint64_t *at;
    size_t count;
};
struct cairn_cuda {
    struct cairn_cuda_runtime runtime;
    struct cairn_cuda_driver driver;
    struct cairn_lock lock;
    struct {
        struct cairn_cuda_place *places[CAIRN_CUDA_PLACES_MAX];
        size_t place_count;
        struct cairn_cuda_sums sums[CAIRN_CUDA_SUMS_KEPT];
        size_t sums_count;
    } locked;
};
/* CAIRN_UNSUPPORTED: no runtime or driver, or a missing function. */
enum cairn_code cairn_cuda_init(struct cairn_cuda *cuda, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cuda_release(struct cairn_cuda *cuda);

/* The place of this memory; lives as long as cuda. */
enum cairn_code cairn_cuda_place_of(struct cairn_cuda *cuda, const void *memory,
                                    struct cairn_cuda_place **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* A place for calls without a device: the thread's context, else that of its chosen device, else
 * any known one. NULL: the process has no context. */
enum cairn_code cairn_cuda_place_any(struct cairn_cuda *cuda, struct cairn_cuda_place **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* Makes the place's context the thread's until the entry is released. */
struct cairn_cuda_entry {
    const struct cairn_cuda *cuda; /* NULL: not entered */
    int mode;                      /* capture mode before */
};
enum cairn_code cairn_cuda_enter(const struct cairn_cuda *cuda,
                                 const struct cairn_cuda_place *place, struct cairn_cuda_entry *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cuda_entry_release(struct cairn_cuda_entry *entry);
/* Enters for the rest of the scope; an error returns from the function. */
#define CAIRN_CUDA_WITHIN(cuda, place, err)                                                        \
    CAIRN_AUTO(cuda_entry) entered = {0};                                                          \
    CAIRN_TRY(cairn_cuda_enter((cuda), (place), &entered, (err)))

/* Within the place: takes a cached event, or creates one. */
enum cairn_code cairn_cuda_event_take(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                                      void **ret, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cuda_event_give(struct cairn_cuda *cuda, struct cairn_cuda_place *place, void *event);
enum cairn_code cairn_cuda_streams_take(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                                        struct cairn_cuda_streams *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Returns streams whose work has ended. failed: they are destroyed, and so is the place's whole
 * cache unless other streams are in use, whose kernels must stay. */
void cairn_cuda_streams_give(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                             const struct cairn_cuda_streams *streams, bool failed);
/* Zeroed; within any place. at NULL: no such memory. */
struct cairn_cuda_sums cairn_cuda_sums_take(struct cairn_cuda *cuda, size_t count);
void cairn_cuda_sums_give(struct cairn_cuda *cuda, const struct cairn_cuda_sums *sums);

/* ---- kernels ---- */

/* CAIRN_UNSUPPORTED: no image, or the device rejects it. Loads once per place. */
enum cairn_code cairn_cuda_kernels_load(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNSUPPORTED: types other than F32, BF16 and F16. */
enum cairn_code cairn_cuda_kernels_convert(unsigned source_dtype, unsigned dtype,
                                           struct cairn_error *err) CAIRN_MUST_USE;

/* ---- lanes ---- */

/* Destination of a job's checksums, by chunks from `host` on. */
struct cairn_cuda_summed {
    struct cairn_cuda_sums sums;
    const uint8_t *host;
    uint64_t bytes;
    uint64_t asked;    /* 1 + the last requested chunk; 0: none */
    _Atomic bool late; /* checksums are missing although later copies are done */
};
struct cairn_cuda_lane {
    struct cairn_cuda *cuda;
    struct cairn_cuda_place *place;
    struct cairn_cuda_streams streams;
    struct cairn_cuda_summed *summed;
    bool has_kernels, queued; /* queued: copies, since the owner last checked */
    bool single;              /* no memory for a second scratch */
    unsigned turn;            /* next scratch */
    uint8_t *packed_host;     /* destination of `packing`'s ranges */
    uint64_t packed_bytes;
    struct cairn_kernel_packing packing;
};
enum cairn_code cairn_cuda_lane_init(struct cairn_cuda_lane *lane, struct cairn_cuda *cuda,
                                     struct cairn_cuda_place *place,
                                     struct cairn_cuda_summed *summed,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Orders everything put from now on after this event. */
enum cairn_code cairn_cuda_lane_wait(struct cairn_cuda_lane *lane, void *event,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cuda_lane_put(struct cairn_cuda_lane *lane,
                                    const struct cairn_device_part *part,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Collects a small contiguous part with its neighbours. False: this part cannot join. */
bool cairn_cuda_lane_joins(const struct cairn_cuda_lane *lane,
                           const struct cairn_device_part *part);
void cairn_cuda_lane_join(struct cairn_cuda_lane *lane, const struct cairn_device_part *part);
enum cairn_code cairn_cuda_lane_flush(struct cairn_cuda_lane *lane,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Waits for all its work; caches its streams unless something failed. */
void cairn_cuda_lane_release(struct cairn_cuda_lane *lane, bool failed);

/* Called once the copies after these checksums are done: are the checksums missing? */
bool cairn_cuda_is_late(struct cairn_cuda_summed *summed, uint64_t asked);
