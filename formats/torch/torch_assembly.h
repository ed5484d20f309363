/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_assembly: one torch file as an assembly: its tensors, and what it holds beside them.
 *
 * Why:     a file that is exported or imported is tensors by name, with their ranges. A step, a
 *          learning rate, a random state are part of a checkpoint, too; who writes it in a form
 *          that has no place for them has to name them, and DCP has one.
 * Promise: 1   tensors that are the same elements of the same storage are one and its aliases.
 *          2   what is strided, conjugated or negated is read as what it stands for
 *              (assembly.h#8); metadata of a tensor that says anything else is CAIRN_UNSUPPORTED.
 *          3   each item of a walk over items (torch_tree.h#3) is one object, by its path, or left
 *              out by its path with why.
 *          4   an archive of one is what torch.save writes of the same value: torch.load gives it
 *              back, equal in value; what two places share is there twice. Where archives are not
 *              wanted, nothing is written and no memory is needed for them.
 *          5   a rank's piece of a tensor (formats/torch/torch_ranks.h) is left out with what to
 *              do, unless `ranks` says that the assembly has taken or left out each by itself.
 * Limits:  as formats/torch/torch_tree.h; pickles of 128 MiB and archives of 256 MiB a file, all
 *          values together; the first object of a name counts, further ones are left out.
 * Threads: one owner.
 * Next:    formats/assembly/assembly.h, formats/torch/torch_write.h; cli/convert/inside.h.
 */
#pragma once

#include "formats/assembly/assembly.h"
#include "formats/torch/torch_tree.h"

/* Its tensors are added; cairn_assembly_check comes after the last file.
 * prefix: of the names that are wanted, "" for all; it is not part of what they are called. */
enum cairn_code cairn_torch_assemble(const struct cairn_torch *file, const char *prefix,
                                     struct cairn_assembly *assembly,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- what a torch file holds beside tensors, as objects of an assembly ---- */

struct cairn_torch_plain {
    const struct cairn_torch *file; /* borrowed for the call */
    bool archives;
    const char *const *taken; /* paths whose values are taken already, NULL behind the last */
    bool tensors_too;         /* no tensor is taken but those; what others there are is left out */
    const char *prefix;       /* of all names; NULL: none */
    bool ranks; /* the assembly has looked at the pieces of tensors that are in the file */
};
/* After cairn_assembly_check: a name that a tensor has is left out. */
enum cairn_code cairn_torch_plain_add(const struct cairn_torch_plain *plain,
                                      struct cairn_assembly *assembly,
                                      struct cairn_error *err) CAIRN_MUST_USE;
