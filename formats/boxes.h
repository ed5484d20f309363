/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boxes: rectangular parts of a tensor, against the order of its elements in memory.
 *
 * Why:     tensor parallelism cuts columns, and FSDP cuts rows of that: a part is one range of its
 *          file and many runs of the tensor. What both have in common is row-major order.
 * Promise: 1   the elements of a box that lie before some element of the tensor are the first ones
 *              of the box, so any range of the tensor is one range of each box.
 *          2   CAIRN_OK of _prove means that each element of the tensor is in exactly one box; else
 *              CAIRN_INVALID with the first element that is in none, or in two.
 *          3   a range of a box is at most 2 * dimensions - 1 boxes.
 * Limits:  8 dimensions; the proof takes 2^28 steps, then CAIRN_TOO_LARGE. Boxes lie in the tensor
 *          and are not empty.
 * Threads: stateless.
 * Next:    formats/assembly.h.
 */
#pragma once

#include "api/table/table.h"

struct cairn_box {
    uint64_t start[CAIRN_DIMENSIONS_MAX], count[CAIRN_DIMENSIONS_MAX];
};
uint64_t cairn_box_elements(const struct cairn_box *box, unsigned dimensions);
/* Is it in the tensor, and not empty? */
bool cairn_box_fits(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape);
/* How many elements of the box lie before this element of the tensor. */
uint64_t cairn_box_before(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape,
                          uint64_t element);
/* Which element of the tensor an element of the box is. */
uint64_t cairn_box_place(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape,
                         uint64_t element);
/* Elements that follow each other in the box and in the tensor: each multiple begins a run. */
uint64_t cairn_box_run(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape);
/* Elements [first, first + elements) of a box as boxes of the tensor, in order; returns how many.
 */
unsigned cairn_box_cut(const struct cairn_box *box, unsigned dimensions, uint64_t first,
                       uint64_t elements, struct cairn_box ret[2 * CAIRN_DIMENSIONS_MAX]);

enum cairn_code cairn_boxes_prove(const struct cairn_box *boxes, size_t count, unsigned dimensions,
                                  const uint64_t *shape, struct cairn_error *err) CAIRN_MUST_USE;
