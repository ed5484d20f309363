/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source_inside: verified blocks, which all sources are made of.
 *
 * Why:     a shard's source and a tensor's read blocks in the same way, and say the same of one
 *          that is damaged.
 * Promise: P3, as source.h.
 * Limits:  none of its own.
 * Threads: stateless.
 * Next:    server/handlers/source.c, server/handlers/source_tensor.c.
 */
#pragma once

#include "server/handlers/source.h"
#include "store/range.h"

struct cairn_srv_blocks {
    const struct cairn_srv_held *manifest;
    const struct cairn_manifest_shard *shard; /* in it */
    const struct cairn_version_place *place;
    struct cairn_store_tags *tags;
    size_t object; /* its number in tags */
};
/* offset is a border of blocks, offset + bytes one, too, or the shard's end. */
enum cairn_code cairn_srv_blocks_read(const struct cairn_srv_blocks *blocks,
                                      struct cairn_store_worker *worker, uint64_t offset,
                                      uint64_t bytes, void *into,
                                      struct cairn_error *err) CAIRN_MUST_USE;
