/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source_inside: verified blocks, and pieces out of them, which all sources are made of.
 *
 * Why:     a shard's source, a tensor's and a model file's read blocks in the same way, and say the
 *          same of one that is damaged.
 * Promise: P3, as source.h.
 *          1   of pieces that are read together each block that they need is read once.
 * Limits:  a load reads 1 GiB of blocks; more is CAIRN_TOO_LARGE.
 * Threads: a reader belongs to one load.
 * Next:    server/reads/source.c, server/reads/source_pieces.c,
 *          server/reads/source_tensor.c, server/reads/source_model.c.
 */
#pragma once

#include "server/reads/source.h"
#include "server/reads/tier_reads.h"

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

struct cairn_srv_piece_reader {
    const struct cairn_srv_held *manifest;
    const struct cairn_version_place *place;
    struct cairn_srv_reading *reading; /* by the numbers of shards */
    struct cairn_store_worker *worker;
    uint8_t *blocks;     /* CAIRN_SRV_STREAM_CHUNK_BYTES */
    uint64_t read_bytes; /* so far */
};
/* Puts them in the order of the shards; `at` counts from the first byte of into. */
enum cairn_code cairn_srv_pieces_read(struct cairn_srv_piece_reader *reader,
                                      struct cairn_plan_pieces *pieces, uint8_t *into,
                                      struct cairn_error *err) CAIRN_MUST_USE;
