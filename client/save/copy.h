/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy: one shard's bytes into the slab, with block checksums, in one pass.
 *
 * Why:     training stands still during the copy, and one core cannot use the memory's full
 *          bandwidth: a rank with several cores copies with several threads.
 * Promise: 1   each source byte is read once; bytes, block checksums and piece checksums do not
 *              depend on the number of threads.
 *          2   `copied` runs on the caller's thread with growing lengths; everything before such a
 *              length is copied and checksummed. It runs as soon as that is so, also while a source
 *              of a later segment stands still: where several threads copy, the caller's does not.
 *          3   after the call no other thread touches a source or the slab, even on failure. If no
 *              thread can be started, the caller copies alone.
 *          4   a source that is not plain memory is copied into the slab by segments and
 *              checksummed there: `fill` is called once per segment's range of its piece, by the
 *              segment's thread; with one thread, on the caller's, in ascending order.
 *          5   a device copies (and first converts) its sources up to 256 MiB ahead of the threads,
 *              which checksum arrived bytes; `copied` reports them while the device copies the
 *              rest.
 *          6   a shard may be copied in consecutive parts, each with its own number of threads; the
 *              result is the same.
 *          7   with `check` the bytes are written again to the same place and checksummed; nothing
 *              else changes.
 * Limits:  64 threads, and the caller's.
 * Threads: one call at a time per shard; its threads end with the call, and block all signals.
 * Next:    client/save/threads.h chooses the number of threads; client/save/stage.c.
 */
#pragma once

#include "client/save/arrange.h"

#define CAIRN_CLIENT_SEGMENT_BYTES (16 * CAIRN_MIB) /* a thread's unit of work */

struct cairn_client_copy {
    const struct cairn_client_run *runs;
    size_t run_count;
    uint64_t bytes;       /* of the shard: end of its last run */
    uint64_t from, until; /* range to copy, in whole segments; until 0: to the end */
    uint8_t *to;
    uint32_t *blocks;                         /* room for each block's CRC32C */
    const struct cairn_client_device *device; /* for sources in device memory */
    struct cairn_device_job *job; /* from cairn_client_copy_job; NULL: no device sources */
    bool behind;                  /* training goes on meanwhile: learn nothing from the rate */
    bool check;
    uint32_t threads; /* at most CAIRN_CLIENT_COPY_THREADS_MAX */
    enum cairn_code (*copied)(void *owner, uint64_t bytes, struct cairn_error *err);
    /* All device copies are queued; may be NULL. Runs on the caller's thread. */
    void (*queued)(void *owner);
    void *owner;
};
/* The shard's bytes by kind of source. */
struct cairn_client_sources {
    uint64_t plain;  /* memory, copied as it is */
    uint64_t worked; /* memory, gathered or converted */
    uint64_t others; /* from functions, devices or the caller */
};
struct cairn_client_sources cairn_client_copy_sources(const struct cairn_client_copy *copy);
/* Starts a job for the shard's device sources, ordered after the work now queued on the pieces'
 * streams, for all parts of the shard until the plug-in's `end`. *ret NULL: none. */
enum cairn_code cairn_client_copy_job(const struct cairn_client_copy *copy,
                                      struct cairn_device_job **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Ends with an error of `copied`, or CAIRN_SOURCE_GONE for a source that fails. */
enum cairn_code cairn_client_copy(const struct cairn_client_copy *copy,
                                  struct cairn_error *err) CAIRN_MUST_USE;
