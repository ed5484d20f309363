/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_assembly: one torch file as an assembly of its tensors and other values.
 *
 * Why:     export and import need tensors by name, with their ranges. Step, learning rate and
 *          random state belong to a checkpoint too: DCP stores them, other formats must name them.
 * Promise: 1   tensors with the same elements of the same storage are one tensor and its aliases.
 *          2   strided, conjugated and negated tensors are read as their actual values
 *              (assembly.h#8); any other metadata of a tensor is CAIRN_UNSUPPORTED.
 *          3   each item of a walk over items (torch_tree.h#3) is one object, by its path, or left
 *              out by its path with the reason.
 *          4   an object's archive is what torch.save writes of the value: torch.load returns an
 *              equal value; shared parts are duplicated. Unwanted archives take no memory.
 *          5   a rank's piece of a tensor (formats/torch/torch_ranks.h) is left out with advice,
 *              unless `ranks` says that the assembly has handled each.
 * Limits:  as formats/torch/torch_tree.h; pickles of 128 MiB and archives of 256 MiB a file, all
 *          values together; the first object of a name counts, further ones are left out.
 * Threads: one owner.
 * Next:    formats/assembly/assembly.h, formats/torch/torch_write.h; cli/convert/inside.h.
 */
#pragma once

#include "formats/assembly/assembly.h"
#include "formats/torch/torch_tree.h"

/* Adds the file's tensors whose names begin with prefix, without it; _check comes last. */
enum cairn_code cairn_torch_assemble(const struct cairn_torch *file, const char *prefix,
                                     struct cairn_assembly *assembly,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- values other than tensors, as objects of an assembly ---- */

struct cairn_torch_plain {
    const struct cairn_torch *file; /* borrowed for the call */
    bool archives;
    const char *const *taken; /* paths already taken, NULL-terminated */
    bool tensors_too;         /* only `taken` tensors are in the assembly; others are left out */
    const char *prefix;       /* of all names; NULL: none */
    bool ranks;               /* the assembly has handled the file's pieces of tensors */
};
/* Call after cairn_assembly_check: leaves out names of tensors. */
enum cairn_code cairn_torch_plain_add(const struct cairn_torch_plain *plain,
                                      struct cairn_assembly *assembly,
                                      struct cairn_error *err) CAIRN_MUST_USE;
