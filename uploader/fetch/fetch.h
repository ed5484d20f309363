/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch: verified reads of committed shards into a trainer's window.
 *
 * Why:     a restore is bound by the store, so many ranges are read at once; and no byte may reach
 *          a trainer before the checksum of its block was compared.
 * Promise: P3   a read ends with all its bytes verified and in place, or with CAIRN_CORRUPT that
 *               names run, step, shard, byte range, expected and found. What came wrong is read
 *               once more over another connection before it counts (store/range.h).
 *          1    whole blocks are read into the window itself and only counted when all of them
 *               were compared; parts of blocks go through a bounded pool.
 *          2    a block that several ranges touch is read once; so is one that several ranks of
 *               the node want (cells.h), where they are not further apart than restore_cache.
 *          3    with peers, nodes of one attempt divide what they restore: one reads a piece from
 *               the store, the others from it; what comes so is compared like the store's.
 *          4    what a slab of this node still holds of the version (uploader/saves/kept.h) is
 *               copied from there and compared like what the store sends; if it differs the store
 *               is asked.
 * Limits:  65,536 ranges a read; the pool is reserved with the first window.
 * Threads: threads of its own, locked by uploader_fetch; done() is called on one of them.
 * Next:    uploader/fetch/version.h; uploader/trainers/restore.c.
 */
#pragma once

#include "common/memory.h"
#include "uploader/fetch/version.h"

#define CAIRN_UP_RANGES_MAX 65536

/* Memory that the uploader writes and one trainer reads. */
struct cairn_up_window {
    struct cairn_up *up;
    uint32_t users; /* locked by uploader_fetch: the session and its reads under way */
    struct cairn_slab memory;
};
enum cairn_code cairn_up_window_new(struct cairn_up *up, uint64_t bytes,
                                    struct cairn_up_window **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_window_leave(struct cairn_up_window *window);

enum cairn_code cairn_up_fetch_new(struct cairn_up *up, struct cairn_up_fetch **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_fetch_stop(struct cairn_up_fetch *fetch);
void cairn_up_fetch_free(struct cairn_up_fetch *fetch);

struct cairn_up_range {
    uint32_t shard; /* index into the manifest */
    uint64_t offset, bytes, at;
};
struct cairn_up_reading;
/* ranges are checked against the manifest and the window. done is called exactly once, later. */
enum cairn_code cairn_up_fetch_read(struct cairn_up_fetch *fetch, struct cairn_up_version *version,
                                    struct cairn_up_window *window,
                                    const struct cairn_up_range *ranges, size_t count,
                                    void (*done)(void *owner, enum cairn_code code,
                                                 const struct cairn_error *why),
                                    void *owner, struct cairn_error *err) CAIRN_MUST_USE;
