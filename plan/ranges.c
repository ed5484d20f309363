/* SPDX-License-Identifier: Apache-2.0 */
/* Down to a border, up to a border, and what lies between. */
#include "plan/ranges.h"

static uint64_t down(uint64_t at) {
    return at - at % CAIRN_BLOCK_BYTES;
}

static uint64_t up(uint64_t at) {
    return cairn_round_up(at, CAIRN_BLOCK_BYTES);
}

struct cairn_plan_range cairn_plan_range_widen(struct cairn_plan_range range,
                                               uint64_t object_bytes) {
    CAIRN_PROMISE(range.begin <= range.end, return range);
    CAIRN_PROMISE(range.end <= object_bytes, return range);
    if (range.begin == range.end) return range;
    return (struct cairn_plan_range){down(range.begin), cairn_min_u64(up(range.end), object_bytes)};
}

struct cairn_plan_range cairn_plan_range_within(struct cairn_plan_range range,
                                                uint64_t object_bytes) {
    CAIRN_PROMISE(range.begin <= range.end, return range);
    CAIRN_PROMISE(range.end <= object_bytes, return range);
    uint64_t begin = up(range.begin);
    uint64_t end = range.end == object_bytes ? range.end : down(range.end);
    if (begin >= end) begin = end = cairn_min_u64(begin, range.end);
    return (struct cairn_plan_range){begin, end};
}

bool cairn_plan_range_joins(struct cairn_plan_range before, struct cairn_plan_range next) {
    CAIRN_PROMISE(before.begin <= next.begin, return false);
    return next.begin < up(before.end) || next.begin <= before.end;
}

uint64_t cairn_plan_range_cut(struct cairn_plan_range range, uint64_t room) {
    if (range.end - range.begin <= room) return range.end;
    return cairn_max_u64(range.begin, down(range.begin + room));
}
