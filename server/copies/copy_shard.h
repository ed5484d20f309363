/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_shard: one shard of a version into another store, each block compared on its way.
 *
 * Why:     a copy is made to be restored from when the original is damaged, so damage must not get
 *          into it; and a process that dies in the middle of a terabyte must not begin anew.
 * Promise: P3   every block is compared with checksums.bin after it was read; what is sent bears
 *               its checksum, which the store compares or this process sums.
 *          1    the object appears whole or not at all (store/multipart.h), with a token that
 *               stands for version, store and shard: a later try knows it, and sends it no more.
 *          2    an object that is there and is another one is never replaced: CAIRN_CONFLICT;
 *               unless it was found damaged (replaces), and then at once by a whole one.
 *          3    where both stores are one S3 the store copies parts itself, while the source has
 *               the ETag that it had first; a part is believed where the store states the CRC32C
 *               of what it copied and that is the one of checksums.bin. Any other goes through
 *               here.
 * Limits:  one part in memory: CAIRN_SRV_COPY_PART_BYTES, more beyond 10,000 such parts.
 * Threads: one owner.
 * Next:    server/copies/promote.c, store/multipart.h.
 */
#pragma once

#include "server/reads/tier_reads.h"

#define CAIRN_SRV_COPY_PART_BYTES (16 * CAIRN_MIB)

struct cairn_srv_shard_copy {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;   /* of the main store */
    const struct cairn_srv_where *where; /* to read from */
    const struct cairn_srv_tier *to;
    struct cairn_store_worker *target;
    const struct cairn_committed *version; /* with manifest and checksums */
    struct cairn_store_tags *tags;
    bool replaces; /* what is under the key is known to be damaged: jobs/repair.h */
    /* After each part, with how many bytes were copied; false: end here, by CAIRN_CANCELLED. */
    bool (*goes_on)(void *owner, uint64_t bytes);
    void *owner;
    uint64_t within_bytes; /* set: of all shards, that the store has copied itself */
    /* the copy's own; cairn_srv_shard_copy_release */
    uint8_t *buffer;
    size_t buffer_bytes;
};
enum cairn_code cairn_srv_shard_copy(struct cairn_srv_shard_copy *copy, size_t shard,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_shard_copy_release(struct cairn_srv_shard_copy *copy);
/* For what a write into a store of copies has failed with: where there is no room left, the store
 * and what is to be done stand before the end of the cause. Any other code is left as it is. */
enum cairn_code cairn_srv_copy_say_full(enum cairn_code code, const char *store, const char *to_do,
                                        struct cairn_error *err);
/* Uploads below the version's prefix that nobody goes on with: the caller is alone with the version
 * (copying_now.h). */
enum cairn_code cairn_srv_copy_end_uploads(const struct cairn_srv_tier *tier,
                                           struct cairn_store_worker *worker,
                                           const struct cairn_version_place *place,
                                           struct cairn_error *err) CAIRN_MUST_USE;
