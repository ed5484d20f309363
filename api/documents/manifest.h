/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest: the stored document that makes a version restorable without a database.
 *
 * Why:     the bucket alone must be enough: record -> manifest -> checksums, layout, bytes.
 * Promise: Q22a  manifest bytes are a pure function of the version's rows: no clock, no host name;
 *              written twice they are equal byte for byte.
 *          P15a  an unknown major version is refused by its number; unknown fields of a known
 *              version are ignored.
 *          1   decode trusts nothing: names, sizes, sums and digests are checked; keys are derived,
 *              never read from a document.
 * Limits:  64 MiB a manifest; 1,048,576 shards.
 * Threads: one owner.
 * Next:    docs/format.md; api/table/table.h for the layout.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/json.h"

#define CAIRN_MANIFEST_BYTES_MAX (64 * CAIRN_MIB)

struct cairn_manifest_shard {
    char *name; /* owned */
    uint32_t rank;
    uint64_t size_bytes;
    uint32_t crc32c;      /* of the whole object */
    uint64_t part_bytes;  /* size of the upload's parts except the last; 0: one piece */
    uint64_t first_block; /* index into checksums.bin, in blocks */
};
struct cairn_manifest {
    struct cairn_version_origin origin; /* with the nonce, so the id can be recomputed */
    struct cairn_version_id id;
    uint32_t world_size;
    char *format_tag;  /* "": none given */
    char *meta_json;   /* canonical JSON object, "{}" if none */
    char *labels_json; /* canonical JSON object of strings */
    bool has_layout;
    uint8_t layout_digest[32];
    struct cairn_version_id layout_writer;
    uint64_t total_bytes;
    uint64_t block_count; /* of all shards; checksums.bin has 4 * block_count bytes */
    uint8_t checksums_sha256[32];
    struct cairn_manifest_shard *shards; /* sorted by name; owned */
    size_t shard_count;
};
void cairn_manifest_release(struct cairn_manifest *manifest);
/* Sorts the shards, fills first_block, total_bytes and block_count, writes canonical JSON. */
enum cairn_code cairn_manifest_encode(struct cairn_manifest *manifest, struct cairn_buf *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_manifest_decode(struct cairn_view text, struct cairn_manifest *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Binary search by name; NULL if absent. */
const struct cairn_manifest_shard *cairn_manifest_find(const struct cairn_manifest *manifest,
                                                       struct cairn_view name);

/* ceil(size / 1 MiB); an empty shard has no block and crc32c 0. */
uint64_t cairn_block_count(uint64_t size_bytes);
/* CRC32C of a shard from the checksums of its blocks. */
uint32_t cairn_blocks_combine(const uint32_t *blocks, uint64_t size_bytes);
