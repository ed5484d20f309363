/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_told: how tensor parallel ranks cut parameters where the checkpoint does not say it: what a
 *            person tells, and what Megatron's names tell.
 *
 * Why:     without universal_checkpoint_info the files hold slices under one name, and a wrong
 *          guess is a model that is wrong without an error.
 * Promise: 1   rules are GLOB=RULE, one behind the other with commas; RULE is a dimension, 0:ROWS
 *              (only the first ROWS rows are the tensor, the rest is padding), halves or
 *              replicated. The first rule that is like a name is its. What is none of these, and a
 *              rule that is like no name, is CAIRN_INVALID, in its own words.
 *          2   of Megatron's names only those have a rule that it has cut in one way ever since; of
 *              one whose cut depends on the model or the version, the condition is in `need`.
 * Limits:  256 rules of 1,024 bytes.
 * Threads: one owner.
 * Next:    formats/zero_parallel.c.
 */
#pragma once

#include "common/error.h"

enum cairn_zero_rule {
    CAIRN_ZERO_UNKNOWN,
    CAIRN_ZERO_CAT,     /* the slices follow each other in a dimension */
    CAIRN_ZERO_HALVES,  /* two tensors, one above the other, each cut in dimension 0 */
    CAIRN_ZERO_SAME,    /* each rank has all of it */
    CAIRN_ZERO_AVERAGE, /* the same, where the ranks may have drifted apart */
};
struct cairn_zero_cut {
    enum cairn_zero_rule rule;
    unsigned dimension; /* of CAIRN_ZERO_CAT */
    uint64_t rows; /* of the whole tensor, where there are fewer than the slices have; else 0 */
};
struct cairn_zero_told_rule;
struct cairn_zero_told {
    struct cairn_zero_told_rule *rules;
    size_t count, capacity;
};
/* text: NULL is no rule. */
enum cairn_code cairn_zero_told_parse(const char *text, struct cairn_zero_told *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_zero_told_release(struct cairn_zero_told *told);
bool cairn_zero_told_find(struct cairn_zero_told *told, const char *name,
                          struct cairn_zero_cut *ret);
/* After the last name: was each rule like one? */
enum cairn_code cairn_zero_told_check(const struct cairn_zero_told *told,
                                      struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_zero_need {
    CAIRN_ZERO_NEEDS_NOTHING,
    CAIRN_ZERO_NEEDS_VERSION, /* checkpoint_version of 2 or more: before, rows were mixed */
    CAIRN_ZERO_NEEDS_MATE,    /* as many rows as its dense_4h_to_h has columns: it has no gate */
};
/* By a name of Megatron's; false: it has none. */
bool cairn_zero_megatron_find(const char *name, struct cairn_zero_cut *ret,
                              enum cairn_zero_need *ret_need);
