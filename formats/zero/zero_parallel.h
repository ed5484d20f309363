/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_parallel: the parts of a model that its tensor parallel ranks hold, as whole tensors.
 *
 * Why:     each of them writes a ZeRO checkpoint of its own slices, under the same names. Only the
 *          lists of patterns that go with them (universal_checkpoint_info) tell rows from columns
 *          and from copies; without these a wrong guess is a model that is wrong without an error.
 * Promise: 1   each tensor of rank 0 is made of the slices of all ranks by its rule; one that some
 *              rank lacks, or has in another form, is CAIRN_INVALID, by name.
 *          2   what all ranks have whole is compared byte by byte before one of them is taken;
 *              where they differ it is refused, since an average would be none of them.
 *          3   where the checkpoint has no patterns, and where a person tells a rule, it is that of
 *              the person or of Megatron's names; what has neither is taken where all ranks have
 *              the same bytes and not one value alone, as a bias of zeros that is cut would be,
 *              too. All else is CAIRN_UNSUPPORTED, with its name and the flag that tells it.
 *          4   rows behind the vocabulary's own are padding and not in the assembly.
 *          5   a name gets the rule that DeepSpeed's converter to universal checkpoints follows;
 *              a rule that this reader does not follow is CAIRN_UNSUPPORTED, with its name.
 *          6   a pattern is matched from the first byte of the name on, as Python's re.match does.
 *              What POSIX expressions lack (groups with `?`, lazy repeats) is CAIRN_UNSUPPORTED.
 *          7   a person's rules are GLOB=RULE, one behind the other with commas; RULE is a
 *              dimension, 0:ROWS (only the first ROWS rows are the tensor, the rest is padding),
 *              halves or replicated. The first rule that is like a name is its. What is none of
 *              these, and a rule that is like no name, is CAIRN_INVALID, in its own words.
 *          8   of Megatron's names only those have a rule that it has cut in one way ever since; of
 *              one whose cut depends on the model or the version, the condition is in `need`.
 * Limits:  4,096 patterns of 1,024 bytes; 256 rules of 1,024 bytes; as
 *          formats/assembly/assembly.h.
 * Threads: one owner.
 * Next:    formats/zero/zero.c.
 */
#pragma once

#include "common/error.h"
#include "formats/zero/inside.h"

/* Rules of a person: how ranks cut parameters where the checkpoint does not say it. */
struct cairn_zero_told_rule;
struct cairn_zero_told {
    struct cairn_zero_told_rule *rules;
    size_t count, capacity;
};
/* text: NULL is no rule. */
enum cairn_code cairn_zero_told_parse(const char *text, struct cairn_zero_told *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_zero_told_release(struct cairn_zero_told *told);
/* After the last name: was each rule like one? */
enum cairn_code cairn_zero_told_check(const struct cairn_zero_told *told,
                                      struct cairn_error *err) CAIRN_MUST_USE;

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
