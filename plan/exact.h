/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exact: do these boxes fill this region exactly once?
 *
 * Why:     the core of the cover proof, kept apart from names and tables so that it can be tested
 *          against brute force and against an independent method.
 * Promise: 1   FOUND_NOTHING means each element of the region lies in exactly one box.
 *          2   a hole is a region without any box; an overlap is a region that two boxes share, and
 *              which two is told.
 *          3   the work is bounded: whatever the boxes are, it is at most the effort and a few
 *              passes over them.
 * Limits:  boxes must lie in the region and be non-empty; 2^31 of them. Where no straight cut
 *          exists, pairs of that part are compared, as long as the effort lasts; then
 *          plan/fingerprint.h decides.
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
    uint32_t first, second; /* OVERLAP: which boxes */
};
/* What may still be spent on comparing and sorting, for as many calls as share it. */
struct cairn_plan_effort {
    uint64_t left;
    const _Atomic bool *stop; /* NULL: nobody stops it */
};
struct cairn_plan_effort cairn_plan_effort_of(uint64_t boxes);
/* CAIRN_NO_MEMORY, or CAIRN_CANCELLED when it was stopped. */
enum cairn_code cairn_plan_exact_within(struct cairn_plan_effort *effort,
                                        const struct cairn_plan_box *region, unsigned dimensions,
                                        const struct cairn_plan_box *boxes, uint32_t count,
                                        struct cairn_plan_proof *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* With an effort of its own. */
enum cairn_code cairn_plan_exact(const struct cairn_plan_box *region, unsigned dimensions,
                                 const struct cairn_plan_box *boxes, uint32_t count,
                                 struct cairn_plan_proof *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
