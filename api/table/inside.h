/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: byte offsets in rank tables and layouts, and the checks of a row.
 *
 * Why:     writer and reader are two files; the numbers are stored for ever, and both must refuse
 *          the same rows with the same messages.
 * Promise: 1   all integers are little-endian; rows have a fixed width; sections follow each other
 *              without a gap in the order in which they are listed here.
 *          2   a tensor or fragment that passes its check has a known type and kind, a size without
 *              overflow, and fragments inside their tensor.
 * Limits:  for this room only. The caller checks names.
 * Threads: constants; stateless.
 * Next:    docs/format.md, "Rank table" and "Layout".
 */
#pragma once

#include "api/table/table.h"

/* Rank table: header, shard rows, tensor rows, fragment rows, pool of u64, string ends (u32 offsets
 * from the first string byte), string bytes. */
#define TABLE_MAGIC "cairnRT1"
#define TABLE_AT_RANK 8
#define TABLE_AT_SHARDS 12
#define TABLE_AT_TENSORS 16
#define TABLE_AT_FRAGMENTS 20
#define TABLE_AT_POOL 24
#define TABLE_AT_STRINGS 28
#define TABLE_AT_STRING_BYTES 32
#define TABLE_AT_ZERO 36
#define TABLE_HEADER_BYTES 40

#define SHARD_AT_NAME 0
#define SHARD_AT_KIND 4 /* 1 tensors, 2 raw */
#define SHARD_AT_SIZE 8
#define SHARD_ROW_BYTES 16

#define TENSOR_AT_NAME 0
#define TENSOR_AT_ALIAS 4 /* string, or TABLE_NONE */
#define TENSOR_AT_KIND 8  /* one byte each: kind, dtype, dimensions, zero */
#define TENSOR_AT_DTYPE 9
#define TENSOR_AT_DIMENSIONS 10
#define TENSOR_AT_ZERO 11
#define TENSOR_AT_SHAPE 12 /* pool index */
#define TENSOR_AT_FIRST 16
#define TENSOR_AT_COUNT 20
#define TENSOR_ROW_BYTES 24

#define FRAGMENT_AT_TENSOR 0
#define FRAGMENT_AT_SHARD 4
#define FRAGMENT_AT_FORM 8
#define FRAGMENT_AT_POOL 12 /* starts, then as many counts */
#define FRAGMENT_AT_OFFSET 16
#define FRAGMENT_AT_SIZE 24
#define FRAGMENT_ROW_BYTES 32

#define TABLE_NONE UINT32_MAX
#define TABLE_FRAGMENTS_MAX (UINT32_C(1) << 20)
#define TABLE_ROWS_MAX (UINT32_C(1) << 21) /* of shards and of tensors, each */
#define TABLE_SIZE_MAX (UINT64_C(1) << 62) /* bytes of a shard */
#define SHARD_KIND_TENSORS 1
#define SHARD_KIND_RAW 2

/* Layout: header, table directory, name rows, references, tables (aligned to 8 with zeros). */
#define LAYOUT_MAGIC "cairnLY1"
#define LAYOUT_AT_TABLES 8
#define LAYOUT_AT_NAMES 12
#define LAYOUT_AT_REFS 16
#define LAYOUT_AT_ZERO 20
#define LAYOUT_HEADER_BYTES 24
#define LAYOUT_TABLE_ROW_BYTES 16 /* u64 offset, u64 size */
#define LAYOUT_NAME_ROW_BYTES 8   /* u32 first reference, u32 count */
#define LAYOUT_REF_ROW_BYTES 8    /* u32 table, u32 tensor */
#define LAYOUT_TABLES_MAX (UINT32_C(1) << 20)

/* ---- one row ---- */

/* Checks of one row, for builder and opener: dimension count, dtype and kind, but not names. */
enum cairn_code cairn_tensor_check(const struct cairn_tensor *tensor,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_bytes: size of the fragment's elements. An empty fragment is CAIRN_OK with 0 bytes. */
enum cairn_code cairn_fragment_check(const struct cairn_tensor *tensor,
                                     const struct cairn_fragment *fragment, uint64_t *ret_bytes,
                                     struct cairn_error *err) CAIRN_MUST_USE;
