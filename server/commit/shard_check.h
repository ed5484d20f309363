/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_check: is every block of one shard right in one store?
 *
 * Why:     a read falls back from store to store, and so never says which copy is damaged; a
 *          repair must know, before it writes and after it.
 * Promise: 1   every block is read from the given store and no other, and compared with
 *              checksums.bin; what is wrong is read once more before it counts (S17).
 *          2   an object that is missing or of another size is CAIRN_CORRUPT, also one of 0 bytes;
 *              what the store does not answer or refuses stays that.
 * Limits:  CAIRN_SRV_CHECK_BYTES of memory, one range under way.
 * Threads: one owner of the worker.
 * Next:    server/copies/verify.c, server/copies/repair.c.
 */
#pragma once

#include "api/documents/committed.h"
#include "server/server.h"
#include "store/range.h"

#define CAIRN_SRV_CHECK_BYTES (8 * CAIRN_MIB)

struct cairn_srv_shard_check {
    const struct cairn_committed *version; /* with manifest and checksums */
    struct cairn_store_worker *worker;     /* of the store that is looked at */
    uint8_t *buffer;                       /* CAIRN_SRV_CHECK_BYTES */
    /* After each range, with how many bytes were read; false: end here, by CAIRN_CANCELLED. */
    bool (*goes_on)(void *owner, uint64_t bytes);
    void *owner;
};
enum cairn_code cairn_srv_shard_check(const struct cairn_srv_shard_check *check, size_t shard,
                                      struct cairn_error *err) CAIRN_MUST_USE;
