/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boxes: regions of a tensor, and flat ranges and texts turned into them.
 *
 * Why:     the cover proof and the read plan both compare flat ranges with boxes of one tensor;
 *          somebody who reads a tensor by hand writes its region as in Python.
 * Promise: 1   a flat range becomes at most 2 * dimensions - 1 boxes that cover exactly it, in
 *              row-major order.
 *          2   a slice is, per dimension, commas between: "a:b", "a:", ":b", ":", "a" (one
 *              element), also with a step of 1 behind ("a:b:1"); negative numbers count from the
 *              end. Dimensions that are not named are whole. What is parsed is what the text means
 *              as a Python index.
 *          3   what Python would cut short or turn round is refused: a place outside of the
 *              dimension, or an end before its start, is CAIRN_RANGE; another text or step is
 *              CAIRN_INVALID.
 * Limits:  1 to 8 dimensions; tensors of at most 2^60 elements (api/table/table.h), so that no
 *          product of extents and no end overflows.
 * Threads: stateless.
 * Next:    plan/cover.c, plan/reads.c; server/reads/tensors.c; tests/plan/test_slices.c.
 */
#pragma once

#include "api/table/table.h"

#define CAIRN_PLAN_SPLIT_MAX (2 * CAIRN_DIMENSIONS_MAX - 1)
#define CAIRN_PLAN_REGION_TEXT_BYTES 128

struct cairn_plan_box {
    uint64_t low[CAIRN_DIMENSIONS_MAX], high[CAIRN_DIMENSIONS_MAX]; /* [low, high) */
};

/* How many elements lie between neighbours of each dimension, row-major. */
void cairn_plan_strides(const uint64_t *extent, unsigned dimensions, uint64_t *ret_strides);
/* [start, end) of the flattened tensor, start < end <= elements. Returns how many boxes. */
unsigned cairn_plan_flat_split(const uint64_t *shape, unsigned dimensions, uint64_t start,
                               uint64_t end, struct cairn_plan_box ret[CAIRN_PLAN_SPLIT_MAX]);
/* What both have; false: no element is in both. */
bool cairn_plan_box_intersect(const struct cairn_plan_box *a, const struct cairn_plan_box *b,
                              unsigned dimensions, struct cairn_plan_box *ret);
/* "[0:4, 8:16]", cut at its end when it is long. */
void cairn_plan_region_text(const struct cairn_plan_box *box, unsigned dimensions,
                            char ret_text[CAIRN_PLAN_REGION_TEXT_BYTES]);

/* "0:4,-2:,:" as a box: start and count of each dimension. */
enum cairn_code cairn_plan_slice_parse(const char *text, unsigned dimensions, const uint64_t *shape,
                                       uint64_t *ret_start, uint64_t *ret_count,
                                       struct cairn_error *err) CAIRN_MUST_USE;
