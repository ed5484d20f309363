/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cuda: a CUDA runtime without a GPU, for tests of the plug-in.
 *
 * Why:     order between streams, page-locked memory and errors that come late are what goes wrong
 *          with a device; here they are real, and errors come when a test asks for them.
 * Promise: 0   a kernel is what nvcc compiles of it, compiled for the host, and runs in its stream.
 *          4   a thread has a stack of contexts, and a call opens one where a real runtime does: it
 *              was asked on an H200 with CUDA 13, by bench/gpu/run contexts-by-call.
 *          5   a call that ends another thread's capture of a graph does so here, too
 *              (capture-by-call), unless its thread's mode is relaxed.
 *          1   a stream is a thread that carries its work out in order, and later than the call.
 *          2   memory of a device cannot be read by the host: that is SIGSEGV.
 *          3   a copy to host memory that is not registered is done by the call itself, as CUDA
 *              does with pageable memory.
 * Limits:  2 devices, 64 allocations, streams and events each.
 * Threads: any.
 * Next:    tests/client/test_cuda.c.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What tests ask for beside CUDA's own functions; found by dlsym in libcudart.so.13. */
struct fake_cuda_state {
    unsigned streams, events, registered; /* that exist at this moment */
    /* bit by device: a thread without a context was given the primary one, or chose it */
    unsigned contexts;
    unsigned copies, rows_copies, planes_copies, pageable_copies;
    unsigned launches, modules;        /* kernels that were started; modules that exist */
    unsigned summed;                   /* chunks that kernels have summed */
    unsigned gathers, scatters, packs; /* kernels that were started */
    unsigned overlaps;                 /* kernels that ended while a copy ran */
    unsigned made;                     /* streams and events, also those that are gone */
    unsigned memories, pinned;         /* that exist; pinned: by HostAlloc */
    unsigned primaries;                /* times that primary contexts are held */
    uint64_t copied_bytes;             /* of all copies */
    uint64_t ahead_most;               /* most copies that were queued and not done */
};
/* Everything as at the start, but for memory and streams that exist. */
typedef void fake_cuda_reset_fn(void);
typedef void fake_cuda_state_fn(struct fake_cuda_state *ret);
/* The call of that name (without "cuda"; "execute": a copy when its stream comes to it;
 * "kernel": a kernel then) that comes
 * after `after` others of it fails with status; sticky: all later calls, too. */
typedef void fake_cuda_fail_fn(const char *call, unsigned after, int status, int sticky);
/* Queue work in a stream: after `ms`, size bytes from `from` are written to the device's memory. */
typedef void fake_cuda_write_later_fn(void *stream, void *to, const void *from, size_t size,
                                      unsigned ms);
/* All memory together, at most; more is refused. 0: as much as there is. */
typedef void fake_cuda_room_fn(size_t bytes);
/* Each copy takes so long, at least; each kernel. */
typedef void fake_cuda_slow_fn(unsigned us);
typedef void fake_cuda_slow_kernels_fn(unsigned us);
/* As a process that has used no device yet; the calling thread has chosen none. */
typedef void fake_cuda_forget_contexts_fn(void);
/* Devices take no memory that is mapped to be read (attribute 113). */
typedef void fake_cuda_without_read_only_fn(int without);

/* Between the runtime's half of the fake and the driver's. begins takes the lock, ends gives it. */
int fake_cuda_begins(const char *call);
int fake_cuda_ends(int status);
/* The context's own: the same for every call while the thread's device is the same. */
void *fake_cuda_module(void); /* NULL: the thread has none */
void fake_cuda_count_module(int more);
void fake_cuda_count_kernel(unsigned kernel, uint64_t count);
void *fake_cuda_real(const void *at);
/* Queue kernel(a copy of owner). A module of another device than the stream's is refused. */
int fake_cuda_launch(void *module, void *stream, void (*kernel)(void *owner), const void *owner,
                     size_t owner_bytes);
