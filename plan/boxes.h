/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boxes: regions of a tensor; flat ranges and slice texts converted to boxes.
 *
 * Why:     the cover proof and the read plan compare flat ranges with boxes of one tensor; people
 *          write a region as a Python slice.
 * Promise: 1   a flat range becomes at most 2 * dimensions - 1 boxes that cover exactly it, in
 *              row-major order.
 *          2   a slice has one part per dimension, separated by commas: "a:b", "a:", ":b", ":", "a"
 *              (one element), optionally with step 1 ("a:b:1"); negative numbers count from the
 *              end. Omitted dimensions are whole. The meaning is that of a Python index.
 *          3   where Python would clip or reverse, parsing fails: a position outside the dimension
 *              or an end before its start is CAIRN_RANGE; other text or another step is
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

/* Row-major strides, in elements. */
void cairn_plan_strides(const uint64_t *extent, unsigned dimensions, uint64_t *ret_strides);
/* Splits [start, end) of the flattened tensor, start < end <= elements. Returns the box count. */
unsigned cairn_plan_flat_split(const uint64_t *shape, unsigned dimensions, uint64_t start,
                               uint64_t end, struct cairn_plan_box ret[CAIRN_PLAN_SPLIT_MAX]);
/* The intersection; false: empty. */
bool cairn_plan_box_intersect(const struct cairn_plan_box *a, const struct cairn_plan_box *b,
                              unsigned dimensions, struct cairn_plan_box *ret);
/* "[0:4, 8:16]", truncated if long. */
void cairn_plan_region_text(const struct cairn_plan_box *box, unsigned dimensions,
                            char ret_text[CAIRN_PLAN_REGION_TEXT_BYTES]);

/* Parses "0:4,-2:,:" into start and count per dimension. */
enum cairn_code cairn_plan_slice_parse(const char *text, unsigned dimensions, const uint64_t *shape,
                                       uint64_t *ret_start, uint64_t *ret_count,
                                       struct cairn_error *err) CAIRN_MUST_USE;
