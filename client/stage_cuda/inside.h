/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: a context of the process in which some of its memory lies, what is kept there, and how
 * the parts of a job that lie in it are copied.
 *
 * Why:     most calls of the runtime open the context of device 0 in a thread that has none, which
 *          takes hundreds of megabytes of another rank's device. So every call is made in the
 *          context of the memory it is about, and the thread's own is current again afterwards. A
 *          part is copied from where it lies, or by way of a scratch that a kernel fills while the
 *          scratch before is copied; which of them is faster depends on how it lies.
 * Promise: 1   no call opens a context: an H200 with CUDA 13 was asked which calls do
 *              (docs/bench.md), and those are made between `enter` and `leave` alone.
 *          2   between them the thread's mode of capture is relaxed, so that no call ends the
 *              capture of a graph by another thread.
 *          3   events, streams, memory of the device and kernels are kept for later jobs, since to
 *              make and to free them takes its time, until `release`, or until a job has failed.
 *          4   of a lane, parts arrive in the order in which they were put, and after `flush` all
 *              are queued. Bytes and sums are those of kernel.h.
 *          5   of a device's memory a lane needs at most two scratches of 16 MiB, whatever is
 *              converted or gathered; where they are not to be had, less; CAIRN_NO_MEMORY: not even
 *              64 KiB, and what is not converted is then copied without.
 *          6   the device sums what it copies, whole chunks alone, as long as its sums come in
 *              time: a trainer's kernels may hold up those that sum, and then the host sums.
 * Limits:  64 contexts; memory of a pool has none of its own and goes by its device's primary one.
 *          Kernels need an image that nvcc has compiled. Rows of 16 KiB and more are not gathered,
 *          ranges of up to 64 KiB are packed; rows less than 2^31 bytes apart are copied together.
 * Threads: a place is any thread's, what it keeps is guarded by the lock; enter and leave are of
 *          one thread, and so is a lane but for `is_late`.
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

struct cairn_cuda_scratch { /* memory of a device; NULL: none */
    uint8_t *memory;
    size_t bytes;
    void *filled, *emptied; /* events; emptied: recorded once the copy out of it was queued */
    bool used;
};
struct cairn_cuda_streams { /* of a lane, kept between jobs */
    void *copies, *kernels;
    struct cairn_cuda_scratch scratches[CAIRN_CUDA_SCRATCHES];
};
struct cairn_cuda_place {
    void *context;
    int device;
    bool retained; /* the primary one, held here */
    /* what is kept, by the lock */
    void *module, *kernels[CAIRN_KERNEL_COUNT];
    struct cairn_kernel_summing summing; /* all but the bytes, once `module` is there */
    void *events[CAIRN_CUDA_EVENTS_KEPT];
    size_t event_count;
    struct cairn_cuda_streams streams[CAIRN_CUDA_LANES_KEPT];
    size_t streams_count, streams_taken;
};
struct cairn_cuda_sums { /* host memory that kernels write to; NULL: none */
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
/* CAIRN_UNSUPPORTED: no runtime, no driver, or one that lacks a function. */
enum cairn_code cairn_cuda_init(struct cairn_cuda *cuda, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cuda_release(struct cairn_cuda *cuda);

/* The place that has this memory; as long as cuda. */
enum cairn_code cairn_cuda_place_of(struct cairn_cuda *cuda, const void *memory,
                                    struct cairn_cuda_place **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* A place for what is of no device in particular: the thread's own context, else that of the device
 * that it chose, else one that is known. NULL: the process has no context. */
enum cairn_code cairn_cuda_place_any(struct cairn_cuda *cuda, struct cairn_cuda_place **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* The place's context is the thread's until the entry is released. */
struct cairn_cuda_entry {
    const struct cairn_cuda *cuda; /* NULL: not entered */
    int mode;                      /* of capture, as it was before */
};
enum cairn_code cairn_cuda_enter(const struct cairn_cuda *cuda,
                                 const struct cairn_cuda_place *place, struct cairn_cuda_entry *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cuda_entry_release(struct cairn_cuda_entry *entry);
/* For the rest of the scope; an error ends the function. */
#define CAIRN_CUDA_WITHIN(cuda, place, err)                                                        \
    CAIRN_AUTO(cuda_entry) entered = {0};                                                          \
    CAIRN_TRY(cairn_cuda_enter((cuda), (place), &entered, (err)))

/* Within the place: one that is kept, or a new one. */
enum cairn_code cairn_cuda_event_take(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                                      void **ret, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cuda_event_give(struct cairn_cuda *cuda, struct cairn_cuda_place *place, void *event);
enum cairn_code cairn_cuda_streams_take(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                                        struct cairn_cuda_streams *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Streams that have come to their ends. failed: they are not kept, nor is anything of the place
 * unless others have streams of it, whose kernels must stay. */
void cairn_cuda_streams_give(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                             const struct cairn_cuda_streams *streams, bool failed);
/* Of all zeros, within any place. at NULL: there is no such memory to be had. */
struct cairn_cuda_sums cairn_cuda_sums_take(struct cairn_cuda *cuda, size_t count);
void cairn_cuda_sums_give(struct cairn_cuda *cuda, const struct cairn_cuda_sums *sums);

/* ---- kernels ---- */

/* CAIRN_UNSUPPORTED: no image, or a device that does not take it. Loads them once for a place. */
enum cairn_code cairn_cuda_kernels_load(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNSUPPORTED: other types than F32, BF16 and F16. */
enum cairn_code cairn_cuda_kernels_convert(unsigned source_dtype, unsigned dtype,
                                           struct cairn_error *err) CAIRN_MUST_USE;

/* ---- lanes ---- */

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
