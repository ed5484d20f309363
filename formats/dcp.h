/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp: the tensors of a checkpoint of PyTorch's distributed checkpointing (DCP).
 *
 * Why:     its ranks write each piece of a tensor as a file of torch.save of its own into
 *          `__R_N.distcp`; which piece is where stands in a pickle, `.metadata`.
 * Promise: 1   every tensor of the metadata is in the assembly under its flat name, with its
 *              boxes; holes, overlaps and boxes of another shape or element type
 *              are CAIRN_INVALID, with the name.
 *          2   the pickle is read by the closed machine of formats/torch.h; nothing of it is run.
 *              Files are those of the folder alone.
 *          3   plain values (steps, options) are no tensors, but objects of the assembly; which of
 *              them hold tensors is known. Names that share one place are aliases.
 *          4   what was written through a transformation (compression) is CAIRN_UNSUPPORTED.
 * Limits:  as formats/assembly.h.
 * Threads: one owner.
 * Next:    formats/assembly.h; cli/convert/inside.h; formats/dcp_write.h writes one.
 */
#pragma once

#include "formats/zero.h"

#define CAIRN_DCP_METADATA ".metadata"

/* Is it a DCP checkpoint's? By the names of its files alone. */
bool cairn_dcp_is(const struct cairn_zero_folder *folder);
/* Adds to the assembly, whose inputs are the folder's. */
enum cairn_code cairn_dcp_assemble(const struct cairn_zero_folder *folder,
                                   struct cairn_assembly *assembly,
                                   struct cairn_error *err) CAIRN_MUST_USE;
