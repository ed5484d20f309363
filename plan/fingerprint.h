/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint: do these boxes fill this region exactly once, in time linear in their number?
 *
 * Why:     pairwise comparison can be made to take hours by chosen boxes. A random weight per
 *          element reduces the question to one sum: the boxes' total weight equals the region's
 *          only if each element is counted once.
 * Promise: 1   an exact cover is always recognised.
 *          2   any other input passes with probability below 2^-110, whatever was chosen
 *              beforehand: the weights come from a key drawn for each call.
 *          3   a finding names one element, and for an overlap two boxes that hold it.
 * Limits:  boxes lie in the region and are non-empty. Time O(boxes * dimensions) for
 *          fingerprint.h#1, and at most 70 times that to locate a finding.
 * Threads: stateless.
 * Next:    plan/exact.h, which calls this when its effort is spent.
 */
#pragma once

#include "plan/exact.h"

/* CAIRN_NO_MEMORY, or CAIRN_CANCELLED when *stop (NULL: never) became true. */
enum cairn_code cairn_plan_fingerprint(const struct cairn_plan_box *region, unsigned dimensions,
                                       const struct cairn_plan_box *boxes, uint32_t count,
                                       const _Atomic bool *stop, struct cairn_plan_proof *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
