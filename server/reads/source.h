/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source: what a stream of bytes is loaded from; verified blocks, and pieces out of them, which all
 *         sources are made of.
 *
 * Why:     a shard as it is stored, a tensor and a model file that are put together from the
 *          shards of many ranks leave through the same slots, in the same order, with the same
 *          memory, and say the same of a block that is damaged.
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
 * Next:    server/reads/tensors.c and server/reads/hf.c for the sources out of pieces;
 *          server/reads/stream.h, plan/reads.h, formats/convert.h.
 */
#pragma once

#include "plan/reads.h"
#include "server/reads/tier_reads.h"

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

/* ---- blocks ---- */

struct cairn_srv_blocks {
    const struct cairn_srv_held *manifest;
    const struct cairn_manifest_shard *shard; /* in it */
    const struct cairn_version_place *place;
    struct cairn_srv_reading *reading;
    size_t object; /* its number in the reading */
};
/* offset is a border of blocks, offset + bytes one, too, or the shard's end. */
enum cairn_code cairn_srv_blocks_read(const struct cairn_srv_blocks *blocks,
                                      struct cairn_store_worker *worker, uint64_t offset,
                                      uint64_t bytes, void *into,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- pieces out of the shards of all ranks ---- */

/* The first member of a source that is put together of them. */
struct cairn_srv_pieces_source {
    struct cairn_srv_source source; /* first */
    struct cairn_srv *server;
    struct cairn_srv_held *manifest, *layout; /* held by the source */
    struct cairn_version_place place;
    struct cairn_srv_reading *reading; /* by the numbers of shards */
};
/* Both are given back with the source, also on failure; take_layout's version is at `place`. NULL:
 * no memory. bytes: of the struct that it is the first member of. */
struct cairn_srv_pieces_source *cairn_srv_pieces_source_new(size_t bytes, struct cairn_srv *server,
                                                            struct cairn_srv_held *take_manifest,
                                                            struct cairn_srv_held *take_layout,
                                                            const struct cairn_version_place *place,
                                                            struct cairn_error *err);
void cairn_srv_pieces_source_free(struct cairn_srv_pieces_source *source);

struct cairn_srv_pieces_load {
    struct cairn_srv_pieces_source *source;
    struct cairn_store_worker *worker;
    uint8_t *blocks, *elements; /* CAIRN_SRV_STREAM_CHUNK_BYTES each; elements may be NULL */
    uint64_t read_bytes;        /* so far */
};
/* elements: with that buffer, too. It is ended also after a failure. */
enum cairn_code cairn_srv_pieces_load_begin(struct cairn_srv_pieces_load *load, bool elements,
                                            struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_pieces_load_end(struct cairn_srv_pieces_load *load);
/* Puts them in the order of the shards; `at` counts from the first byte of into. */
enum cairn_code cairn_srv_pieces_read(struct cairn_srv_pieces_load *load,
                                      struct cairn_plan_pieces *pieces, uint8_t *into,
                                      struct cairn_error *err) CAIRN_MUST_USE;
