/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices: "0:4,-2:,:" as a box of a tensor.
 *
 * Why:     whoever reads a tensor by hand writes its region as in Python; what is read must be what
 *          Python would give, or an error.
 * Promise: 1   per dimension, commas between: "a:b", "a:", ":b", ":", "a" (one element), also with
 *              a step of 1 behind ("a:b:1"); negative numbers count from the end. Dimensions that
 *              are not named are whole. What is parsed is what the text means as a Python index.
 *          2   what Python would cut short or turn round is refused: a place outside of the
 *              dimension, or an end before its start, is CAIRN_RANGE; another text or step is
 *              CAIRN_INVALID.
 * Limits:  dimensions of at most 2^60 elements (api/table/table.h).
 * Threads: stateless.
 * Next:    server/reads/tensor_reads.c; tests/plan/test_slices.c.
 */
#pragma once

#include "api/table/table.h"

enum cairn_code cairn_plan_slice_parse(const char *text, unsigned dimensions, const uint64_t *shape,
                                       uint64_t *ret_start, uint64_t *ret_count,
                                       struct cairn_error *err) CAIRN_MUST_USE;
