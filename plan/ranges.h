/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranges: byte ranges of an object and the blocks that their checksums are of.
 *
 * Why:     a read is verified by whole blocks, so client, uploader and server all widen what is
 *          wanted to blocks, join what shares one, and cut what is too long, at a border of blocks.
 *          One that does it otherwise reads a block twice, or one that nobody can verify.
 * Promise: 1   widen holds the range, lies within the object, and begins and ends at borders of
 *              blocks or at the object's end; no smaller range does.
 *          2   within is the largest range of whole blocks in the range (the object's last, shorter
 *              block is whole); empty where there is none.
 *          3   two ranges join exactly when reading them apart would read a block twice or leave no
 *              gap between them.
 *          4   a cut is at the end where that is within reach, else at the last border of blocks
 *              within room; it is the begin itself, and nothing fits, where there is none.
 *              With room for a block something always fits.
 * Limits:  end >= begin, and no end within a block of UINT64_MAX.
 * Threads: stateless.
 * Next:    client/restore/reads.c, uploader/fetch/fetch.c, server/reads/plans.c,
 *          server/reads/stream.c; tests/plan/test_ranges.c.
 */
#pragma once

#include "common/base.h"

struct cairn_plan_range {
    uint64_t begin, end; /* the byte behind the last */
};
struct cairn_plan_range cairn_plan_range_widen(struct cairn_plan_range range,
                                               uint64_t object_bytes);
struct cairn_plan_range cairn_plan_range_within(struct cairn_plan_range range,
                                                uint64_t object_bytes);
/* Of one object, in the order of their begins; `before` may be several that were joined already. */
bool cairn_plan_range_joins(struct cairn_plan_range before, struct cairn_plan_range next);
/* Where a read from range.begin on must end that may have room bytes. */
uint64_t cairn_plan_range_cut(struct cairn_plan_range range, uint64_t room);
