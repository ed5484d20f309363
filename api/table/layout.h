/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout: the tables of all ranks of a version in one document, with an index by name.
 *
 * Why:     a restore looks a tensor up by name, whichever ranks hold pieces of it.
 * Promise: 1   open checks every row before any is used, as api/table/table.h#1; getters cannot
 *              fail.
 *          2   the same tables give the same bytes.
 * Limits:  CAIRN_LAYOUT_BYTES_MAX, 1,048,576 tables.
 * Threads: immutable after open.
 * Next:    docs/format.md, "Layout"; plan/cover.h, plan/reads.h.
 */
#pragma once

#include "api/table/table.h"

struct cairn_layout {
    struct cairn_view bytes;
    uint32_t table_count, name_count;
    struct cairn_table *tables; /* owned; table_count, sorted by rank */
    const uint8_t *names, *refs;
};
/* tables: opened, sorted by rank; none for a rank without tensors. */
enum cairn_code cairn_layout_build(const struct cairn_table *tables, size_t count,
                                   struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_layout_open(struct cairn_view bytes, struct cairn_layout *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_layout_release(struct cairn_layout *layout);
/* Reads the directory of a layout that may not open, such as one of a newer release. False: no
 * table of that index, or it ends beyond the bytes. */
bool cairn_layout_directory_at(struct cairn_view bytes, uint32_t index, uint32_t *ret_rank,
                               struct cairn_view *ret_table);
/* The version, the last byte of the magic; 0: not a layout. */
char cairn_layout_version(struct cairn_view bytes);
#define CAIRN_LAYOUT_VERSION '1'
/* Names are sorted by bytes; each lists its (table, tensor) pairs. */
void cairn_layout_name_at(const struct cairn_layout *layout, uint32_t index,
                          struct cairn_view *ret_name, uint32_t *ret_ref_first,
                          uint32_t *ret_ref_count);
bool cairn_layout_find(const struct cairn_layout *layout, struct cairn_view name,
                       uint32_t *ret_index);
/* Is the shard in its rank's table, with tensors in it? Otherwise it is opaque bytes. */
bool cairn_layout_describes(const struct cairn_layout *layout, uint32_t rank,
                            struct cairn_view shard);
/* Does it hold tensors in a file kept unchanged, rather than one that libcairn wrote? */
bool cairn_layout_keeps_file(const struct cairn_layout *layout, uint32_t rank,
                             struct cairn_view shard);
/* The table of that pair; *ret: what it lists. */
const struct cairn_table *cairn_layout_tensor_at(const struct cairn_layout *layout, uint32_t ref,
                                                 struct cairn_tensor *ret);
