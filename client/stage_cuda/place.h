/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place: a context of the process in which some of its memory lies, and what is kept there.
 *
 * Why:     most calls of the runtime open the context of device 0 in a thread that has none, which
 *          takes hundreds of megabytes of another rank's device. So every call is made in the
 *          context of the memory it is about, and the thread's own is current again afterwards.
 * Promise: 1   no call opens a context: an H200 with CUDA 13 was asked which calls do
 *              (docs/bench.md), and those are made between `enter` and `leave` alone.
 *          2   between them the thread's mode of capture is relaxed, so that no call ends the
 *              capture of a graph by another thread.
 *          3   events, streams, memory of the device and kernels are kept for later jobs, since to
 *              make and to free them takes its time, until `release`, or until a job has failed.
 * Limits:  64 contexts; memory of a pool has none of its own and goes by its device's primary one.
 * Threads: a place is any thread's, what it keeps is guarded by the lock; enter and leave are of
 *          one thread.
 * Next:    lane.h, kernels.h.
 */
#pragma once

#include "client/stage_cuda/driver.h"
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

/* CAIRN_INVALID: the pointer is not memory of a device. */
enum cairn_code cairn_cuda_is_memory(const struct cairn_cuda *cuda, const void *memory,
                                     int *ret_device, struct cairn_error *err) CAIRN_MUST_USE;
/* The place that has this memory; as long as cuda. */
enum cairn_code cairn_cuda_place_of(struct cairn_cuda *cuda, const void *memory,
                                    struct cairn_cuda_place **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* A place for what is of no device in particular: the thread's own context, else that of the device
 * that it chose, else one that is known. NULL: the process has no context. */
enum cairn_code cairn_cuda_place_any(struct cairn_cuda *cuda, struct cairn_cuda_place **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* The place's context is the thread's; errors end the call before that. */
enum cairn_code cairn_cuda_enter(const struct cairn_cuda *cuda,
                                 const struct cairn_cuda_place *place, int *ret_mode,
                                 struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cuda_leave(const struct cairn_cuda *cuda, int mode);

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
