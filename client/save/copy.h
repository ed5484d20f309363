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
 * Limits:  4 threads, the caller's among them, unless the session says how many: then 64.
 * Threads: one call at a time for a shard; its threads live as long as the call, and block all
 *          signals.
 * Next:    client/save/stage.c.
 */
#pragma once

#include "client/save/arrange.h"

struct cairn_client_copy {
    const struct cairn_client_run *runs;
    size_t run_count;
    uint64_t bytes; /* of the shard: where its last run ends */
    uint8_t *to;
    uint32_t *blocks;                         /* room for the CRC32C of each block */
    const struct cairn_client_device *device; /* of sources that are on one */
    uint32_t threads;                         /* at most CAIRN_CLIENT_COPY_THREADS_MAX */
    enum cairn_code (*copied)(void *owner, uint64_t bytes, struct cairn_error *err);
    void *owner;
};
/* How many are worth it: half of the rank's share of the cores, one for each 32 MiB; never 0. */
uint32_t cairn_client_copy_threads(uint32_t cores, uint32_t ranks, uint64_t bytes);
/* An error of `copied` ends it, and one of a source: CAIRN_SOURCE_GONE. */
enum cairn_code cairn_client_copy(const struct cairn_client_copy *copy,
                                  struct cairn_error *err) CAIRN_MUST_USE;
