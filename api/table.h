/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table: the canonical binary table of one rank's tensors, and the layout of all ranks.
 *
 * Why:     a million fragments must be found by name in microseconds, compared by 32 bytes, and
 *          sent only when they change; JSON of that size takes seconds and a gigabyte.
 * Promise: Q33a  the same content gives the same bytes, whatever order it was added in.
 *          1   open checks every row before any is used: offsets inside, names sorted and unique,
 *              fragments inside their tensor and shard, no overflow. After open, getters cannot
 *              fail.
 *          2   a table holds nothing that changes from step to step while the layout stays:
 *              no checksum, no step, no size of a raw shard without fragments.
 *          3   layout digest = SHA-256 over the (rank u32 LE, table digest) pairs sorted by rank.
 * Limits:  1,048,576 fragments and 64 MiB a table; 8 dimensions; 1 GiB a layout.
 * Threads: opened views are immutable after open.
 * Next:    docs/format.md, "Rank table" and "Layout"; plan/cover.h, plan/reads.h.
 */
#pragma once

#include "common/buf.h"

#define CAIRN_DIMENSIONS_MAX 8
#define CAIRN_TABLE_BYTES_MAX (64 * CAIRN_MIB)
#define CAIRN_LAYOUT_BYTES_MAX CAIRN_GIB
#define CAIRN_TENSOR_NAME_BYTES_MAX 1024

/* Element types, safetensors' names; width in bits. Numbers are stored: never change one. */
/* clang-format off */
#define CAIRN_DTYPES(X)                                                                            \
    X(BOOL, 1, 8) X(U8, 2, 8) X(I8, 3, 8) X(F8_E5M2, 4, 8) X(F8_E4M3, 5, 8) X(F8_E8M0, 6, 8)       \
    X(I16, 7, 16) X(U16, 8, 16) X(F16, 9, 16) X(BF16, 10, 16) X(I32, 11, 32) X(U32, 12, 32)        \
    X(F32, 13, 32) X(F64, 14, 64) X(I64, 15, 64) X(U64, 16, 64) X(C64, 17, 64)                     \
    X(F4, 18, 4) X(F6_E2M3, 19, 6) X(F6_E3M2, 20, 6) X(F8_E4M3FNUZ, 21, 8) X(F8_E5M2FNUZ, 22, 8)
/* clang-format on */
enum cairn_table_dtype {
    CAIRN_DTYPE_NONE = 0,
#define CAIRN_DTYPE_ENUM(name, number, bits) CAIRN_DTYPE_##name = number,
    CAIRN_DTYPES(CAIRN_DTYPE_ENUM)
#undef CAIRN_DTYPE_ENUM
};
const char *cairn_dtype_text(unsigned dtype); /* "BF16"; NULL if unknown */
bool cairn_dtype_parse(struct cairn_view text, unsigned *ret);
unsigned cairn_dtype_bits(unsigned dtype); /* 0 if unknown */

enum cairn_tensor_kind {                           /* stored numbers */
                         CAIRN_TENSOR_SHARDED = 1, /* all ranks' fragments cover it exactly once */
                         CAIRN_TENSOR_REPLICATED = 2, /* each rank that lists it holds the whole;
                                                         contents must be equal */
                         CAIRN_TENSOR_ALIAS = 3,      /* another name of alias_of; no fragments */
                         CAIRN_TENSOR_LOCAL = 4, /* this rank's own; the same name on another rank
                                                    is another tensor */
};
enum cairn_fragment_form { CAIRN_FRAGMENT_FLAT = 1, CAIRN_FRAGMENT_BOX = 2 };

/* A piece of a tensor that a shard holds. FLAT: start[0], count[0] in elements of the flattened
 * tensor. BOX: one start and count per dimension. Row-major in the shard, no padding. */
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
    bool tensors; /* a safetensors file; false: raw bytes that fragments point into */
};
/* product(shape) and its bytes; false on overflow or when sub-byte elements do not fill bytes. */
bool cairn_tensor_size(unsigned dtype, unsigned dimension_count, const uint64_t *shape,
                       uint64_t *ret_elements, uint64_t *ret_bytes);

/* ---- building (one owner) ---- */
struct cairn_table_builder;
enum cairn_code cairn_table_builder_new(uint32_t rank, struct cairn_table_builder **ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
void cairn_table_builder_free(struct cairn_table_builder *builder);
CAIRN_DEFINE_AUTO_PTR(table_builder);
/* Names are copied. *ret_shard is what cairn_fragment.shard refers to here; finish renumbers. */
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
    struct cairn_view bytes; /* borrowed, must outlive the struct */
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
/* Binary search; false when absent. */
bool cairn_table_find(const struct cairn_table *table, struct cairn_view name,
                      uint32_t *ret_tensor);
void cairn_table_digest(struct cairn_view bytes,
                        uint8_t ret_digest[32]); /* SHA-256; not in libcairn.so */

/* ---- layout: all rank tables and a merged index by name ---- */
struct cairn_layout {
    struct cairn_view bytes;
    uint32_t table_count, name_count;
    struct cairn_table *tables; /* owned, table_count, sorted by rank */
    const uint8_t *names, *refs;
};
void cairn_layout_digest(const uint32_t *ranks, const uint8_t (*digests)[32], size_t count,
                         uint8_t ret_digest[32]); /* ranks ascending */
/* tables sorted by rank, each opened; no table for a rank that has no tensors. */
enum cairn_code cairn_layout_build(const struct cairn_table *tables, size_t count,
                                   struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_layout_open(struct cairn_view bytes, struct cairn_layout *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_layout_release(struct cairn_layout *layout);
/* Names are sorted by bytes; each has the (table, tensor) pairs that list it. */
void cairn_layout_name_at(const struct cairn_layout *layout, uint32_t index,
                          struct cairn_view *ret_name, uint32_t *ret_ref_first,
                          uint32_t *ret_ref_count);
bool cairn_layout_find(const struct cairn_layout *layout, struct cairn_view name,
                       uint32_t *ret_index);
/* Is that shard of that rank in its table: do tensors lie in it? Else it is bytes alone. */
bool cairn_layout_describes(const struct cairn_layout *layout, uint32_t rank,
                            struct cairn_view shard);
void cairn_layout_ref_at(const struct cairn_layout *layout, uint32_t ref, uint32_t *ret_table,
                         uint32_t *ret_tensor);
