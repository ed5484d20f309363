/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source: what a stream of bytes is loaded from.
 *
 * Why:     a shard as it is stored, a tensor and a model file that are put together from the
 *          shards of many ranks leave through the same slots, in the same order, with the same
 *          memory.
 * Promise: P3  what load answered has had every block that it lies in compared with its checksum.
 *              What came wrong is read once more over another connection before it counts
 *              (store/range.h); wrong again is CAIRN_CORRUPT naming run, step, shard and range.
 *          1   the same range gives the same bytes, in whatever order and pieces it is loaded.
 *          2   a part of a tensor or of a model file that is planned at once has each block that it
 *              needs read once, in whatever order its elements lie there.
 * Limits:  a tensor's load, and a model file's, takes 8 MiB beside the caller's memory, and 5 MiB
 *          for its plan. It reads at most 1 GiB; a slice that needs more for one chunk is
 *          CAIRN_TOO_LARGE.
 * Threads: load on any, several at once; free by one, after them.
 * Next:    server/reads/stream.h, plan/reads.h, formats/convert.h.
 */
#pragma once

#include "plan/reads.h"
#include "server/reads/cache.h"
#include "server/reads/model_files.h"

struct cairn_srv_source {
    struct cairn_version_id version; /* "": its bytes are in memory */
    uint64_t size_bytes;
    uint64_t grain_bytes; /* loads begin at a multiple, and end there or at the end */
    uint64_t head_bytes;  /* no first load of several should be longer; multiples of a grain */
    uint64_t chunk_bytes; /* no other load should be longer; at least a grain */
    enum cairn_code (*load)(struct cairn_srv_source *source, struct cairn_store_worker *worker,
                            uint64_t from, uint64_t bytes, void *into, struct cairn_error *err);
    /* Blocks for a thread that may not wait (store/range.h): open once, for [from, to), then one
     * load after the other. Both NULL where there is nothing such. */
    bool (*open_ready)(struct cairn_srv_source *source, uint64_t from, uint64_t to);
    bool (*load_ready)(struct cairn_srv_source *source, uint64_t from, uint64_t bytes, void *into);
    void (*free)(struct cairn_srv_source *source);
};
void cairn_srv_source_free(struct cairn_srv_source *source); /* NULL is fine */

/* take_manifest is given back with the source, also on failure; shard is in it. */
enum cairn_code cairn_srv_source_shard(struct cairn_srv *server,
                                       struct cairn_srv_held *take_manifest,
                                       const struct cairn_manifest_shard *shard,
                                       const struct cairn_version_place *place,
                                       struct cairn_srv_source **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* Bytes of memory, which are taken. */
enum cairn_code cairn_srv_source_bytes(struct cairn_buf *take, struct cairn_srv_source **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* One tensor or a slice of it. What it borrows is held by what it holds. */
struct cairn_srv_tensor_view {
    struct cairn_view name; /* in the layout; no alias */
    uint32_t local_rank;
    struct cairn_tensor tensor;
    bool flat; /* elements [start[0], start[0] + count[0]) of the flattened tensor; else a box */
    uint64_t start[CAIRN_DIMENSIONS_MAX], count[CAIRN_DIMENSIONS_MAX];
    unsigned dtype; /* to give */
};
/* Both are given back with the source, also on failure. */
enum cairn_code
cairn_srv_source_tensor(struct cairn_srv *server, struct cairn_srv_held *take_manifest,
                        struct cairn_srv_held *take_layout, const struct cairn_version_place *place,
                        const struct cairn_srv_tensor_view *view, struct cairn_srv_source **ret,
                        struct cairn_error *err) CAIRN_MUST_USE;

/* One file of a model. What is taken is given back with the source, also on failure. */
struct cairn_srv_model_read {
    struct cairn_srv *server;
    struct cairn_srv_held *take_manifest, *take_layout;
    const struct cairn_version_place *place;
    struct cairn_srv_model *model; /* its content is taken where the call succeeds */
    size_t file;
};
enum cairn_code cairn_srv_source_model(const struct cairn_srv_model_read *read,
                                       struct cairn_srv_source **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
