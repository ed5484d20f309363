/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cover: proves that a layout holds every tensor exactly once.
 *
 * Why:     a checkpoint with a hole or a doubled piece silently restores wrong weights; the server
 *          commits only layouts that pass this proof.
 * Promise: 1   CAIRN_OK means: all ranks' fragments together cover each SHARDED tensor exactly
 *              once; every rank that lists a REPLICATED or LOCAL tensor covers all of it exactly
 *              once; every alias ends at a listed tensor with its dtype and shape; no two fragments
 *              of a "tensors" shard share a byte; no shard is listed by two ranks; ranks agree on
 *              dtype, shape and kind of a name (LOCAL tensors of one name on two ranks are two
 *              tensors).
 *          2   a failure names the tensor, the first missing or doubled region, and the ranks that
 *              hold it.
 *          3   the verdict depends only on the layout, not on the order of its fragments.
 * Limits:  as api/table/table.h; memory O(fragments of the largest tensor). Time O(n log n) in the
 *          number of fragments, for any input (plan/exact.h, exact.h#3).
 * Threads: stateless.
 * Next:    docs/format.md, "Layout"; plan/reads.h.
 */
#pragma once

#include "api/table/layout.h"
#include "api/table/table.h"

/* CAIRN_BEGIN_DIFFERS: ranks disagree about a name. CAIRN_INVALID: any other failure of the proof.
 * CAIRN_CANCELLED: *stop (NULL: never) became true first. An open layout has valid rows. */
enum cairn_code cairn_plan_cover_prove(const struct cairn_layout *layout, const _Atomic bool *stop,
                                       struct cairn_error *err) CAIRN_MUST_USE;
