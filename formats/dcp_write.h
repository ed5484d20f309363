/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_write: the `.metadata` of a checkpoint of PyTorch's distributed checkpointing (DCP).
 *
 * Why:     torch.distributed.checkpoint.load finds by this pickle which bytes of which file are a
 *          tensor; the files themselves are archives of torch.save one behind the other.
 * Promise: 1   each item is in state_dict_metadata, planner_data and storage_data under its name; a
 *              tensor is one chunk. dcp.load reads it, and dcp_to_torch_save makes a dict of it by
 *              these names.
 *          2   several items may have one place: names of the same tensor.
 *          3   the same items give the same bytes.
 *          4   element types that torch lacks are CAIRN_UNSUPPORTED, by name.
 * Limits:  a pickle of 256 MiB, some 500,000 tensors.
 * Threads: stateless.
 * Next:    formats/torch_write.h for the archives; formats/dcp.h reads it; cli/export.h.
 */
#pragma once

#include "api/table/table.h"
#include "common/buf.h"

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
