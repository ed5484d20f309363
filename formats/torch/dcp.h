/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp: reads and writes checkpoints of PyTorch's distributed checkpointing (DCP).
 *
 * Why:     its ranks write each piece of a tensor as a torch.save file of its own into
 *          `__R_N.distcp`; a pickle, `.metadata`, says where each piece lies, and
 *          torch.distributed.checkpoint.load finds tensors by it.
 * Promise: 1   every tensor of the metadata is in the assembly under its flat name, with its boxes;
 *              holes, overlaps and a wrong shape or element type are CAIRN_INVALID, by name.
 *          2   formats/torch/torch.h reads the pickle by its closed list; none of its code runs.
 *              Only files of the folder are opened.
 *          3   plain values (steps, options) become objects of the assembly; which of them hold
 *              tensors is known. Names of one place are aliases.
 *          4   data written through a transformation (compression) is CAIRN_UNSUPPORTED.
 *          5   each written item is in state_dict_metadata, planner_data and storage_data under its
 *              name; a tensor is one chunk; aliases share a place. dcp.load and dcp_to_torch_save
 *              read it. The same items give the same bytes.
 *          6   element types that torch lacks are CAIRN_UNSUPPORTED, by name.
 * Limits:  as formats/assembly/assembly.h; a written pickle of 256 MiB, some 500,000 tensors.
 * Threads: one owner; writing is stateless.
 * Next:    formats/assembly/assembly.h, formats/torch/torch_write.h; cli/convert/inside.h.
 */
#pragma once

#include "api/table/table.h"
#include "common/buf.h"
#include "formats/zero/zero.h"

#define CAIRN_DCP_METADATA ".metadata"

/* True if the names of the files are those of a DCP checkpoint. */
bool cairn_dcp_is(const struct cairn_zero_folder *folder);
/* Adds to the assembly, with the folder's inputs. */
enum cairn_code cairn_dcp_assemble(const struct cairn_zero_folder *folder,
                                   struct cairn_assembly *assembly,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- writing `.metadata`; its files are consecutive torch.save archives ---- */

struct cairn_dcp_item {
    struct cairn_view name;
    bool object; /* no tensor: ignore the next three fields */
    unsigned dtype, dimension_count;
    const uint64_t *shape;             /* borrowed */
    const char *file;                  /* in the checkpoint's folder; borrowed */
    uint64_t offset_bytes, size_bytes; /* of the item's archive in the file */
};
enum cairn_code cairn_dcp_write(const struct cairn_dcp_item *items, size_t count,
                                struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;
