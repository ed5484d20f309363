/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_parallel: the parts of a model that its tensor parallel ranks hold, as whole tensors.
 *
 * Why:     each of them writes a ZeRO checkpoint of its own slices, under the same names.
 * Promise: 1   each tensor of rank 0 is made of the slices of all ranks by formats/zero_rules.h;
 *              one that some rank lacks, or has in another form, is CAIRN_INVALID, by name.
 *          2   what all ranks have whole is compared byte by byte before one of them is taken;
 *              where they differ it is refused, since an average would be none of them.
 *          3   where the checkpoint has no patterns, and where a person tells a rule, it is that of
 *              formats/zero_told.h; what has neither is taken where all ranks have the same bytes
 *              and not one value alone, as a bias of zeros that is cut would be, too. All else is
 *              CAIRN_UNSUPPORTED, with its name and the flag that tells it.
 *          4   rows behind the vocabulary's own are padding and not in the assembly.
 * Limits:  as formats/assembly.h.
 * Threads: one owner.
 * Next:    formats/zero.c.
 */
#pragma once

#include "formats/zero_rules.h"

/* The checkpoint of one rank, its assembly's tensors without boxes. */
struct cairn_zero_part {
    struct cairn_zero *zero;
    struct cairn_assembly assembly;
};
enum cairn_code cairn_zero_parallel_join(const struct cairn_zero_part *parts, size_t count,
                                         struct cairn_zero_told *told,
                                         struct cairn_assembly *assembly,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Do these tensors of two assemblies hold the same bytes? */
enum cairn_code cairn_zero_same(const struct cairn_assembly *a,
                                const struct cairn_assembly_tensor *of_a,
                                const struct cairn_assembly *b,
                                const struct cairn_assembly_tensor *of_b, bool *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
