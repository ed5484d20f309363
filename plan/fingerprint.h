/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint: do these boxes fill this region exactly once, in time linear in their number?
 *
 * Why:     whoever compares boxes with each other can be given boxes for which that takes hours. A
 *          random weight for each element turns the question into one sum: the weights of all
 *          boxes together are the region's only if each element was counted once.
 * Promise: 1   what fills the region exactly once is always found to do so.
 *          2   what does not is taken for it with a probability below 2^-110, whatever was chosen
 *              beforehand: the weights come from a key that is drawn for each call.
 *          3   a finding names one element, and of an overlap two boxes that hold it.
 * Limits:  boxes lie in the region and are non-empty. Time O(boxes * dimensions) for
 *          fingerprint.h#1, and at most 70 times that to find a place.
 * Threads: stateless.
 * Next:    plan/exact.h, which asks here when it has compared enough.
 */
#pragma once

#include "plan/exact.h"

/* CAIRN_NO_MEMORY, or CAIRN_CANCELLED when *stop (NULL: never) became true. */
enum cairn_code cairn_plan_fingerprint(const struct cairn_plan_box *region, unsigned dimensions,
                                       const struct cairn_plan_box *boxes, uint32_t count,
                                       const _Atomic bool *stop, struct cairn_plan_proof *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
