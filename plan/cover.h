/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cover: the proof that a layout holds every tensor exactly once.
 *
 * Why:     a checkpoint with a hole or a doubled piece restores to wrong weights without a sound;
 *          the server commits only what this proof passes.
 * Promise: 1   CAIRN_OK means: every SHARDED tensor is covered exactly once by the fragments of all
 *              ranks together; every rank that lists a REPLICATED or LOCAL tensor covers the whole
 *              of it exactly once by itself; every alias ends at a tensor that is listed and has
 *              its dtype and shape; no two fragments of a shard of kind "tensors" share a byte; no
 *              shard is listed by two ranks; ranks agree about dtype, shape and kind of a name
 *              (LOCAL tensors of one name on two ranks are two tensors).
 *          2   a failure names the tensor, the first region that is missing or doubled, and the
 *              ranks that hold it.
 *          3   the verdict depends on the layout alone, not on the order of its fragments.
 * Limits:  what api/table/table.h takes; memory O(fragments of the largest tensor). Time
 *          O(n log n) in all fragments, whatever they are (plan/exact.h, exact.h#3).
 * Threads: stateless.
 * Next:    docs/format.md, "Layout"; plan/reads.h.
 */
#pragma once

#include "api/table/layout.h"
#include "api/table/table.h"

/* CAIRN_BEGIN_DIFFERS: ranks disagree about a name. CAIRN_INVALID: any other hole in the proof.
 * CAIRN_CANCELLED: *stop became true before it was over. The layout was opened, so its rows are
 * sound. */
enum cairn_code cairn_plan_cover_prove_until(const struct cairn_layout *layout,
                                             const _Atomic bool *stop,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* The same, without a way to stop it. */
enum cairn_code cairn_plan_cover_prove(const struct cairn_layout *layout,
                                       struct cairn_error *err) CAIRN_MUST_USE;
