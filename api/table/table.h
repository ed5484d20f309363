/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table: the canonical binary table of one rank's tensors, and the layout of all ranks.
 *
 * Why:     a million fragments must be found by name in microseconds, compared by 32 bytes, and
 *          sent only when they change; JSON of that size takes seconds and a gigabyte.
 * Promise: Q33a  the same content gives the same bytes, whatever order it was added in.
 *          1   open checks every row before any is used: offsets inside, names sorted and unique,
 *              fragments inside their tensor and shard, no overflow. Getters then cannot fail.
 *          2   a table holds nothing that changes from step to step while the layout stays:
 *              no checksum, no step, no size of a raw shard without fragments.
 *          3   layout digest = SHA-256 over the (rank u32 LE, table digest) pairs sorted by rank.
 * Limits:  1,048,576 fragments and 64 MiB a table; 8 dimensions; 1 GiB a layout.
 * Threads: opened views are immutable after open.
 * Next:    docs/format.md, "Rank table" and "Layout"; plan/cover.h, plan/reads.h.
 */
#pragma once

#include "api/table/dtype.h"
#include "common/buf.h"

#define CAIRN_TABLE_BYTES_MAX (64 * CAIRN_MIB)
#define CAIRN_LAYOUT_BYTES_MAX CAIRN_GIB
#define CAIRN_TENSOR_NAME_BYTES_MAX 1024

enum cairn_tensor_kind {                           /* stored numbers */
                         CAIRN_TENSOR_SHARDED = 1, /* all ranks' fragments cover it exactly once */
                         CAIRN_TENSOR_REPLICATED = 2, /* each rank that lists it holds the whole;
                                                         contents must be equal */
                         CAIRN_TENSOR_ALIAS = 3,      /* another name of alias_of; no fragments */
                         CAIRN_TENSOR_LOCAL = 4, /* this rank's own; the same name on another rank
                                                    is another tensor */
};
enum cairn_fragment_form { CAIRN_FRAGMENT_FLAT = 1, CAIRN_FRAGMENT_BOX = 2 };

/* A piece of a tensor in a shard. FLAT: start[0], count[0] in elements of the flattened tensor.
 * BOX: one start and count per dimension. Row-major in the shard, no padding. */
struct cairn_fragment {
    enum cairn_fragment_form form;
    uint64_t start[CAIRN_DIMENSIONS_MAX];
    uint64_t count[CAIRN_DIMENSIONS_MAX];
    uint32_t shard;        /* index into the table's shards */
    uint64_t offset_bytes; /* in the shard's object */
    uint64_t size_bytes;
};
struct cairn_tensor {
    struct cairn_view name;
    unsigned dtype;
    unsigned dimension_count;
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    enum cairn_tensor_kind kind;
    struct cairn_view alias_of; /* ALIAS only */
    uint32_t fragment_first, fragment_count;
};
struct cairn_table_shard {
    struct cairn_view name;
    uint64_t size_bytes;
    bool tensors; /* a safetensors file; false: raw bytes that fragments refer to */
};
/* ---- building (one owner) ---- */
struct cairn_table_builder;
enum cairn_code cairn_table_builder_new(uint32_t rank, struct cairn_table_builder **ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
void cairn_table_builder_free(struct cairn_table_builder *builder);
CAIRN_DEFINE_AUTO_PTR(table_builder);
/* Copies the name. *ret_shard is the value for cairn_fragment.shard; finish renumbers shards. */
enum cairn_code cairn_table_add_shard(struct cairn_table_builder *builder,
                                      const struct cairn_table_shard *shard, uint32_t *ret_shard,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_table_add_tensor(struct cairn_table_builder *builder,
                                       const struct cairn_tensor *tensor,
                                       const struct cairn_fragment *fragments, size_t count,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_table_finish(struct cairn_table_builder *builder, struct cairn_buf *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- reading ---- */
struct cairn_table {
    struct cairn_view bytes; /* borrowed; must outlive the struct */
    uint32_t rank, shard_count, tensor_count, fragment_count;
    const uint8_t *shards, *tensors, *fragments, *pool, *strings;
};
enum cairn_code cairn_table_open(struct cairn_view bytes, struct cairn_table *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
void cairn_table_shard_at(const struct cairn_table *table, uint32_t index,
                          struct cairn_table_shard *ret);
void cairn_table_tensor_at(const struct cairn_table *table, uint32_t index,
                           struct cairn_tensor *ret);
void cairn_table_fragment_at(const struct cairn_table *table, uint32_t index,
                             struct cairn_fragment *ret);
/* Binary search; false if absent. */
bool cairn_table_find(const struct cairn_table *table, struct cairn_view name,
                      uint32_t *ret_tensor);
