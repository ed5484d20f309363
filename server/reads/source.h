/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source: the bytes that a stream loads, made of verified blocks and of pieces of such blocks.
 *
 * Why:     a stored shard, and a tensor or model file put together from the shards of many ranks,
 *          are sent by the same slots and memory, and report a damaged block alike.
 * Promise: P3  every block behind the bytes that load returns was compared with its checksum. A
 *              wrong block is read once more over another connection (store/range.h); wrong again
 *              is CAIRN_CORRUPT naming run, step, shard and range.
 *          1   the same range gives the same bytes, in any order and division of loads.
 *          2   a part of a tensor or model file, planned at once, reads each of its blocks once.
 * Limits:  a load of a tensor or model file takes 8 MiB beside the caller's memory, and 5 MiB for
 *          its plan. It reads at most 1 GiB; a slice that needs more per chunk is CAIRN_TOO_LARGE.
 * Threads: load on any, several at once; free by one, after them.
 * Next:    server/reads/tensors.c and server/reads/hf.c make sources of pieces;
 *          server/reads/stream.h, plan/reads.h, formats/convert.h.
 */
#pragma once

#include "plan/reads.h"
#include "server/reads/tier_reads.h"

struct srv_source {
    struct cairn_version_id version; /* "": the bytes are in memory */
    uint64_t size_bytes;
    uint64_t grain_bytes; /* a load begins at a multiple, and ends at one or at the end */
    uint64_t head_bytes;  /* longest first load of several; a multiple of the grain */
    uint64_t chunk_bytes; /* longest other load; at least a grain */
    enum cairn_code (*load)(struct srv_source *source, struct cairn_store_worker *worker,
                            uint64_t from, uint64_t bytes, void *into, struct cairn_error *err);
    /* Blocks for a thread that must not wait (store/range.h): open_ready once for [from, to), then
     * one load_ready at a time. Both NULL: not supported. */
    bool (*open_ready)(struct srv_source *source, uint64_t from, uint64_t to);
    bool (*load_ready)(struct srv_source *source, uint64_t from, uint64_t bytes, void *into);
    void (*free)(struct srv_source *source);
};
void srv_source_free(struct srv_source *source); /* NULL is fine */

/* take_manifest, which contains shard, is given back with the source, also on failure. */
enum cairn_code srv_source_shard(struct srv *server, struct srv_held *take_manifest,
                                 const struct cairn_manifest_shard *shard,
                                 const struct cairn_version_place *place, struct srv_source **ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;

/* A source over memory, which is taken. */
enum cairn_code srv_source_bytes(struct cairn_buf *take, struct srv_source **ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;

/* ---- blocks ---- */

struct srv_blocks {
    const struct srv_held *manifest;
    const struct cairn_manifest_shard *shard; /* in manifest */
    const struct cairn_version_place *place;
    struct srv_reading *reading;
    size_t object; /* its index in the reading */
};
/* offset and offset + bytes are block boundaries, or the shard's end. */
enum cairn_code srv_blocks_read(const struct srv_blocks *blocks, struct cairn_store_worker *worker,
                                uint64_t offset, uint64_t bytes, void *into,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* ---- pieces from the shards of all ranks ---- */

/* First member of the structs of such sources. */
struct srv_pieces_source {
    struct srv_source source; /* first */
    struct srv *server;
    struct srv_held *manifest, *layout; /* held by the source */
    struct cairn_version_place place;
    struct srv_reading *reading; /* objects by shard index */
};
/* bytes: size of the struct around it. The manifest and the layout, which is of the version at
 * `place`, are given back with the source, also on failure. NULL: no memory. */
struct srv_pieces_source *srv_pieces_source_new(size_t bytes, struct srv *server,
                                                struct srv_held *take_manifest,
                                                struct srv_held *take_layout,
                                                const struct cairn_version_place *place,
                                                struct cairn_error *err);
void srv_pieces_source_free(struct srv_pieces_source *source);

struct srv_pieces_load {
    struct srv_pieces_source *source;
    struct cairn_store_worker *worker;
    uint8_t *blocks, *elements; /* SRV_STREAM_CHUNK_BYTES each; elements may be NULL */
    uint64_t read_bytes;        /* so far */
};
/* elements: take that buffer, too. srv_pieces_load_end() is due after a failure as well. */
enum cairn_code srv_pieces_load_begin(struct srv_pieces_load *load, bool elements,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void srv_pieces_load_end(struct srv_pieces_load *load);
/* Sorts the pieces by shard and reads them; a piece's `at` counts from `into`. */
enum cairn_code srv_pieces_read(struct srv_pieces_load *load, struct cairn_plan_pieces *pieces,
                                uint8_t *into, struct cairn_error *err) CAIRN_MUST_USE;
