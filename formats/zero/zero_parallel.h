/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_parallel: joins the slices of tensor parallel ranks into whole tensors.
 *
 * Why:     each rank writes a ZeRO checkpoint of its own slices, under the same names. Only the
 *          accompanying lists of patterns (universal_checkpoint_info) distinguish rows, columns and
 *          copies; a wrong guess is a wrong model without an error.
 * Promise: 1   each tensor of rank 0 is joined from the slices of all ranks by its rule; one that a
 *              rank lacks, or has in another form, is CAIRN_INVALID, by name.
 *          2   tensors that all ranks hold whole are compared byte by byte; a difference is
 *              refused, since an average would equal none of them.
 *          3   without patterns, and where the user gives a rule, the user's rule or that of
 *              Megatron's names applies. A tensor with neither is taken only if all ranks have the
 *              same bytes and not one single value, which a cut bias of zeros has too. All else is
 *              CAIRN_UNSUPPORTED, with its name and the flag for a rule.
 *          4   rows beyond the vocabulary are padding and not in the assembly.
 *          5   a name gets the rule that DeepSpeed's converter to universal checkpoints follows; a
 *              rule unknown here is CAIRN_UNSUPPORTED, with its name.
 *          6   a pattern is matched from the first byte of the name on, as Python's re.match does.
 *              What POSIX expressions lack (groups with `?`, lazy repeats) is CAIRN_UNSUPPORTED.
 *          7   a user's rules are GLOB=RULE, separated by commas; RULE is a dimension, 0:ROWS (the
 *              tensor has the first ROWS rows, the rest is padding), halves or replicated. The
 *              first rule that matches a name applies. Another RULE, and a rule that matches no
 *              name, are CAIRN_INVALID, quoted.
 *          8   of Megatron's names only those cut in one way by all releases have a rule; a
 *              condition on model or version is in `need`.
 * Limits:  4,096 patterns of 1,024 bytes; 256 rules of 1,024 bytes; as formats/assembly/assembly.h.
 * Threads: one owner.
 * Next:    formats/zero/zero.c.
 */
#pragma once

#include "common/error.h"
#include "formats/zero/inside.h"

/* A user's rules: how ranks cut parameters where the checkpoint does not say. */
struct cairn_zero_told_rule;
struct cairn_zero_told {
    struct cairn_zero_told_rule *rules;
    size_t count, capacity;
};
/* text: NULL means no rules. */
enum cairn_code cairn_zero_told_parse(const char *text, struct cairn_zero_told *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_zero_told_release(struct cairn_zero_told *told);
/* Call after the last name: CAIRN_INVALID if a rule matched none. */
enum cairn_code cairn_zero_told_check(const struct cairn_zero_told *told,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* The checkpoint of one rank; its assembly's tensors have no boxes. */
struct cairn_zero_part {
    struct cairn_zero *zero;
    struct cairn_assembly assembly;
};
enum cairn_code cairn_zero_parallel_join(const struct cairn_zero_part *parts, size_t count,
                                         struct cairn_zero_told *told,
                                         struct cairn_assembly *assembly,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* True if the tensors of two assemblies hold the same bytes. */
enum cairn_code cairn_zero_same(const struct cairn_assembly *a,
                                const struct cairn_assembly_tensor *of_a,
                                const struct cairn_assembly *b,
                                const struct cairn_assembly_tensor *of_b, bool *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
