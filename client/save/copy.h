/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy: the bytes of one shard to their places, with the checksums of its blocks, in one pass.
 *
 * Why:     training stands still while it runs, and one core does not use up the memory's speed: a
 *          rank that has cores for itself copies with several.
 * Promise: 1   each byte of a source is read once; bytes, blocks and the pieces' checksums are the
 *              same whatever the number of threads.
 *          2   `copied` is called on the caller's thread, with lengths that grow; what lies before
 *              one of them is there, with its checksums.
 *          3   after the call no other thread touches a source or the slab, whatever it returns.
 *              Where no thread can be started, the caller's copies alone.
 *          4   a source that is no plain memory is put into the slab by segments, and summed there:
 *              a `fill` is called once for each range of its piece that a segment has, by the
 *              thread that has the segment; with one thread on the caller's, in ascending order.
 *          5   a source on a device is copied by it, and converted before, up to 256 MiB ahead of
 *              the threads, which sum what has arrived; what has is told while the device copies
 *              the rest.
 *          6   a part of a shard is copied as the whole is, so a shard may be copied by parts, one
 *              after the other, each by another number of threads.
 *          7   with `check` the bytes are put once more to where they are, and summed; what else is
 *              known of them stays as it is.
 * Limits:  64 threads, the caller's among them.
 * Threads: one call at a time for a shard; its threads live as long as the call, and block all
 *          signals.
 * Next:    client/save/threads.h says how many threads; client/save/stage.c.
 */
#pragma once

#include "client/save/arrange.h"

#define CAIRN_CLIENT_SEGMENT_BYTES (16 * CAIRN_MIB) /* a thread takes at once */

struct cairn_client_copy {
    const struct cairn_client_run *runs;
    size_t run_count;
    uint64_t bytes;       /* of the shard: where its last run ends */
    uint64_t from, until; /* what of it is copied, in whole segments; until 0: to its end */
    uint8_t *to;
    uint32_t *blocks;                         /* room for the CRC32C of each block */
    const struct cairn_client_device *device; /* of sources that are on one */
    struct cairn_device_job *job; /* cairn_client_copy_job of the shard; NULL: none is needed */
    bool behind;                  /* the trainer goes on meanwhile, and nothing is learned of it */
    bool check;
    uint32_t threads; /* at most CAIRN_CLIENT_COPY_THREADS_MAX */
    enum cairn_code (*copied)(void *owner, uint64_t bytes, struct cairn_error *err);
    /* All copies of the device are queued; NULL is allowed. Called on the caller's thread. */
    void (*queued)(void *owner);
    void *owner;
};
/* The bytes of the shard by where they come from. */
struct cairn_client_sources {
    uint64_t plain;  /* memory as it is stored */
    uint64_t worked; /* memory whose elements are gathered or converted */
    uint64_t others; /* what functions, devices and the caller put there */
};
struct cairn_client_sources cairn_client_copy_sources(const struct cairn_client_copy *copy);
/* The copies of the shard's sources that are on a device, which come after what the pieces' streams
 * have now; for all of its parts, until the plug-in's `end`. *ret NULL: there are none. */
enum cairn_code cairn_client_copy_job(const struct cairn_client_copy *copy,
                                      struct cairn_device_job **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* An error of `copied` ends the copy, and so does a source that fails: CAIRN_SOURCE_GONE. */
enum cairn_code cairn_client_copy(const struct cairn_client_copy *copy,
                                  struct cairn_error *err) CAIRN_MUST_USE;
