/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp: a checkpoint of PyTorch's distributed checkpointing (DCP), read and written.
 *
 * Why:     its ranks write each piece of a tensor as a file of torch.save of its own into
 *          `__R_N.distcp`; which piece is where stands in a pickle, `.metadata`, and
 *          torch.distributed.checkpoint.load finds by it which bytes of which file are a tensor.
 * Promise: 1   every tensor of the metadata is in the assembly under its flat name, with its
 *              boxes; holes, overlaps and boxes of another shape or element type
 *              are CAIRN_INVALID, with the name.
 *          2   the pickle is read by the closed machine of formats/torch/torch.h; nothing of it is
 *              run. Files are those of the folder alone.
 *          3   plain values (steps, options) are no tensors, but objects of the assembly; which of
 *              them hold tensors is known. Names that share one place are aliases.
 *          4   what was written through a transformation (compression) is CAIRN_UNSUPPORTED.
 *          5   each written item is in state_dict_metadata, planner_data and storage_data under its
 *              name; a tensor is one chunk, and several items may have one place: names of the same
 *              tensor. dcp.load reads it, and dcp_to_torch_save makes a dict of it by these names.
 *              The same items give the same bytes.
 *          6   element types that torch lacks are CAIRN_UNSUPPORTED, by name.
 * Limits:  as formats/assembly/assembly.h; a written pickle of 256 MiB, some 500,000 tensors.
 * Threads: one owner; writing is stateless.
 * Next:    formats/assembly/assembly.h; formats/torch/torch_write.h for the archives;
 *          cli/convert/inside.h, cli/convert/inside.h.
 */
#pragma once

#include "api/table/table.h"
#include "common/buf.h"
#include "formats/zero/zero.h"

#define CAIRN_DCP_METADATA ".metadata"

/* Is it a DCP checkpoint's? By the names of its files alone. */
bool cairn_dcp_is(const struct cairn_zero_folder *folder);
/* Adds to the assembly, whose inputs are the folder's. */
enum cairn_code cairn_dcp_assemble(const struct cairn_zero_folder *folder,
                                   struct cairn_assembly *assembly,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- writing `.metadata`; its files are archives of torch.save one behind the other ---- */

struct cairn_dcp_item {
    struct cairn_view name;
    bool object; /* no tensor: the three fields that follow say nothing */
    unsigned dtype, dimension_count;
    const uint64_t *shape;             /* borrowed */
    const char *file;                  /* in the checkpoint's folder; borrowed */
    uint64_t offset_bytes, size_bytes; /* of its archive in the file */
};
enum cairn_code cairn_dcp_write(const struct cairn_dcp_item *items, size_t count,
                                struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;
