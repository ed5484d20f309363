/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exact: do these boxes fill this region exactly once?
 *
 * Why:     the core of the cover proof, separate from names and tables so that it is tested against
 *          brute force and an independent method.
 * Promise: 1   FOUND_NOTHING means each element of the region lies in exactly one box.
 *          2   a hole is a region without any box; an overlap is a region shared by two boxes,
 *              which are reported.
 *          3   the work is bounded for any boxes by the effort plus a few passes over them.
 *          4   a fingerprint recognises every exact cover, in time linear in the boxes.
 *          5   any other input passes it with probability below 2^-110, whatever was chosen
 *              beforehand: the weights come from a key drawn for each call.
 *          6   its finding names one element, and for an overlap two boxes that hold it; locating
 *              it takes at most 70 times as long.
 * Limits:  boxes must lie in the region and be non-empty; at most 2^31. Parts without a straight
 *          cut are compared pairwise until the effort is spent, since chosen boxes can make that
 *          take hours; then the fingerprint decides.
 * Threads: stateless.
 * Next:    plan/cover.c.
 */
#pragma once

#include "plan/boxes.h"

enum cairn_plan_finding {
    CAIRN_PLAN_FOUND_NOTHING,
    CAIRN_PLAN_FOUND_HOLE,
    CAIRN_PLAN_FOUND_OVERLAP,
};
struct cairn_plan_proof {
    enum cairn_plan_finding finding;
    struct cairn_plan_box region;
    uint32_t first, second; /* OVERLAP: the indexes of the boxes */
};
/* Budget for comparing and sorting, shared by several calls. */
struct cairn_plan_effort {
    uint64_t left;
    const _Atomic bool *stop; /* NULL: not stoppable */
};
struct cairn_plan_effort cairn_plan_effort_of(uint64_t boxes);
/* effort NULL: a budget of its own. CAIRN_NO_MEMORY, or CAIRN_CANCELLED after *stop. */
enum cairn_code cairn_plan_exact(struct cairn_plan_effort *effort,
                                 const struct cairn_plan_box *region, unsigned dimensions,
                                 const struct cairn_plan_box *boxes, uint32_t count,
                                 struct cairn_plan_proof *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* The same by a random weight per element: the boxes' total equals the region's only if each
 * element is counted once. stop as in the effort. */
enum cairn_code cairn_plan_fingerprint(const struct cairn_plan_box *region, unsigned dimensions,
                                       const struct cairn_plan_box *boxes, uint32_t count,
                                       const _Atomic bool *stop, struct cairn_plan_proof *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
