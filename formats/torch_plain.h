/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_plain: what a torch file holds beside tensors, as objects of an assembly.
 *
 * Why:     a step, a learning rate, a random state are part of a checkpoint; who writes it in a
 *          form that has no place for them has to name them, and DCP has one.
 * Promise: 1   each item of a walk over items (formats/torch_tree.h#3) is one object, by its path,
 *              or left out by its path with why.
 *          2   an archive of one is what torch.save writes of the same value: torch.load gives it
 *              back, equal in value; what two places share is there twice.
 *          3   where archives are not wanted, nothing is written and no memory is needed for them.
 *          4   a rank's piece of a tensor (formats/torch_sharded.h) is left out with what to do,
 *              unless `ranks` says that the assembly has taken or left out each by itself.
 * Limits:  pickles of 128 MiB and archives of 256 MiB a file, all values together; the first
 *          object of a name counts, further ones are left out.
 * Threads: one owner.
 * Next:    formats/pickle_write.h, formats/torch_write.h; cli/convert/inside.h.
 */
#pragma once

#include "formats/assembly.h"
#include "formats/torch.h"

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
