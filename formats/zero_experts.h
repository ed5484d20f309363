/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_experts: the fp32 masters of experts, and what the optimizer keeps of them, of ZeRO stages 1
 *               and 2.
 *
 * Why:     each rank trains experts of its own and calls them 0, 1, ...; their groups are cut over
 *          those ranks alone that hold the same ones, and the files do not name these.
 * Promise: 1   an expert is named by its number among those of all ranks, as its own file names it.
 *          2   which ranks hold the same experts is what their bytes say: DeepSpeed counts ranks
 *              in one of two orders, and in the right one the masters, rounded, are the values in
 *              the experts' files. Where neither is so it is CAIRN_INVALID.
 *          3   where both are so and it makes a difference, the order is that of the configuration
 *              in the files; where there is none it is CAIRN_INVALID.
 *          4   a master without its expert's file, and the values of an expert that is trained in
 *              a file without a master, are CAIRN_INVALID, by name.
 * Limits:  compared are the first 256 elements of each piece of 4,096 tensors; all elements only
 *          where those leave both orders.
 * Threads: one owner.
 * Next:    formats/zero_open.c.
 */
#pragma once

#include "formats/zero_inside.h"

/* Adds to the assembly, whose inputs are zero's, what is in the groups of experts. `files` has the
 * tensors of all experts' own files; those that are not trained are added as they are there. */
enum cairn_code cairn_zero_experts_add(struct cairn_zero *zero, const struct cairn_assembly *files,
                                       struct cairn_assembly *assembly,
                                       struct cairn_error *err) CAIRN_MUST_USE;
