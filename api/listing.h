/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listing: shards and tensors of a version, as the API lists them.
 *
 * Why:     the server lists them, and the command from a store alone; one form for both.
 * Promise: 1   NULL only where memory is short: an alias that names no element type has a null
 *              `dtype`.
 * Limits:  none of its own.
 * Threads: stateless.
 * Next:    api/openapi.yaml (Shard, Tensor); server/reads/tensors.c, cli/bucket/stored.c.
 */
#pragma once

#include "api/layout.h"
#include "api/table.h"
#include "common/json.h"

/* The tensor of this name; fragments are counted over all ranks that list it. */
json_t *cairn_listing_tensor(const struct cairn_layout *layout, uint32_t index);
/* What lies in a shard of a committed version: "tensors", or "opaque" where only its name and its
 * bytes are known. layout: NULL where the version has none. */
const char *cairn_listing_content(const struct cairn_layout *layout, uint32_t rank,
                                  const char *shard);
/* crc32c, content: NULL while they are not known. */
json_t *cairn_listing_shard(const char *name, uint64_t rank, uint64_t size_bytes,
                            const uint32_t *crc32c, const char *state, const char *content);
