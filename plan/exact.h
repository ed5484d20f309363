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
 * Limits:  boxes must lie in the region and be non-empty; at most 2^31. Parts without a straight
 *          cut are compared pairwise until the effort is spent; then plan/fingerprint.h decides.
 * Threads: stateless.
 * Next:    plan/cover.c, plan/fingerprint.h.
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
/* CAIRN_NO_MEMORY, or CAIRN_CANCELLED after *stop. */
enum cairn_code cairn_plan_exact_within(struct cairn_plan_effort *effort,
                                        const struct cairn_plan_box *region, unsigned dimensions,
                                        const struct cairn_plan_box *boxes, uint32_t count,
                                        struct cairn_plan_proof *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* The same, with its own budget. */
enum cairn_code cairn_plan_exact(const struct cairn_plan_box *region, unsigned dimensions,
                                 const struct cairn_plan_box *boxes, uint32_t count,
                                 struct cairn_plan_proof *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
