/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges and blocks against a picture of every byte, at the scale of an eighth of a block. */
#include "plan/reads.h"

#include "tests/harness.h"

#define UNIT (CAIRN_BLOCK_BYTES / 8) /* what a cell of the picture stands for */
#define CELLS 40

static uint64_t object_cells; /* 1 .. CELLS */

/* Are all cells of [begin, end) in whole blocks of the object? */
static bool is_of_blocks(uint64_t begin, uint64_t end) {
    bool begins = begin % 8 == 0, ends = end % 8 == 0 || end == object_cells;
    return begin == end || (begins && ends);
}

static void check_widen_and_within(uint64_t begin, uint64_t end) {
    struct cairn_plan_range range = {begin * UNIT, end * UNIT};
    struct cairn_plan_range wide = cairn_plan_range_widen(range, object_cells * UNIT);
    struct cairn_plan_range within = cairn_plan_range_within(range, object_cells * UNIT);
    uint64_t least = CELLS + 1, most = 0;
    for (uint64_t a = 0; a <= object_cells; a++)
        for (uint64_t b = a; b <= object_cells; b++) {
            if (!is_of_blocks(a, b)) continue;
            if (a <= begin && b >= end) least = cairn_min_u64(least, b - a);
            if (a >= begin && b <= end) most = cairn_max_u64(most, b - a);
        }
    if (begin == end) least = 0;
    EXPECT(wide.begin % UNIT == 0 && wide.end % UNIT == 0);
    EXPECT(wide.begin <= range.begin && wide.end >= range.end);
    EXPECT(begin == end || is_of_blocks(wide.begin / UNIT, wide.end / UNIT));
    EXPECT_EQ_U64((wide.end - wide.begin) / UNIT, least);
    EXPECT(within.begin >= range.begin && within.end <= range.end);
    EXPECT(is_of_blocks(within.begin / UNIT, within.end / UNIT));
    EXPECT_EQ_U64((within.end - within.begin) / UNIT, most);
}

/* reads.h#5, reads.h#6 */
TEST(widened_and_inner_ranges_are_the_smallest_and_the_largest_of_whole_blocks) {
    for (object_cells = 1; object_cells <= CELLS; object_cells++)
        for (uint64_t begin = 0; begin <= object_cells; begin++)
            for (uint64_t end = begin; end <= object_cells; end++)
                check_widen_and_within(begin, end);
}

/* How often reading each range by whole blocks would read each block. */
static bool read_twice(struct cairn_plan_range a, struct cairn_plan_range b) {
    struct cairn_plan_range wide_a = cairn_plan_range_widen(a, CELLS * UNIT);
    struct cairn_plan_range wide_b = cairn_plan_range_widen(b, CELLS * UNIT);
    return a.begin < a.end && b.begin < b.end && wide_b.begin < wide_a.end;
}

TEST(ranges_join_when_apart_they_would_read_a_block_twice_or_leave_no_gap) { /* reads.h#7 */
    for (uint64_t a = 0; a < CELLS; a++)
        for (uint64_t b = a + 1; b < CELLS; b++)
            for (uint64_t c = a; c < CELLS; c++) {
                struct cairn_plan_range before = {a * UNIT, b * UNIT};
                struct cairn_plan_range next = {c * UNIT, (c + 1) * UNIT};
                bool wanted = read_twice(before, next) || next.begin <= before.end;
                EXPECT(cairn_plan_range_joins(before, next) == wanted);
            }
}

TEST(a_long_range_is_cut_at_borders_and_its_pieces_are_the_whole_of_it) { /* reads.h#8 */
    for (uint64_t begin = 0; begin < CELLS; begin++)
        for (uint64_t end = begin + 1; end <= CELLS; end++)
            for (uint64_t room = CAIRN_BLOCK_BYTES / UNIT; room <= CELLS; room++) {
                uint64_t at = begin * UNIT, last = end * UNIT, pieces = 0;
                while (at < last) {
                    uint64_t cut =
                        cairn_plan_range_cut((struct cairn_plan_range){at, last}, room * UNIT);
                    EXPECT(cut > at && cut <= last && cut - at <= room * UNIT);
                    EXPECT(cut % CAIRN_BLOCK_BYTES == 0 || cut == last);
                    EXPECT(cut == last || room * UNIT < last - at);
                    if (cut <= at) return;
                    at = cut;
                    pieces++;
                }
                EXPECT_EQ_U64(at, last);
                EXPECT(pieces <= (end - begin) + 1);
            }
}

TEST(what_ends_within_a_block_for_want_of_room_does_not_fit) { /* reads.h#8 */
    struct cairn_plan_range long_one = {UNIT, 3 * CAIRN_BLOCK_BYTES};
    EXPECT_EQ_U64(cairn_plan_range_cut(long_one, 0), UNIT);
    EXPECT_EQ_U64(cairn_plan_range_cut(long_one, CAIRN_BLOCK_BYTES - UNIT - 1), UNIT);
    EXPECT_EQ_U64(cairn_plan_range_cut(long_one, CAIRN_BLOCK_BYTES - UNIT), CAIRN_BLOCK_BYTES);
    struct cairn_plan_range short_one = {UNIT, 2 * UNIT};
    EXPECT_EQ_U64(cairn_plan_range_cut(short_one, UNIT), 2 * UNIT);
    EXPECT_EQ_U64(cairn_plan_range_cut(short_one, UNIT - 1), UNIT);
}

TEST(bytes_that_are_no_multiple_of_anything_are_widened_to_the_byte) {
    struct cairn_plan_range odd = {1, CAIRN_BLOCK_BYTES + 1};
    struct cairn_plan_range wide = cairn_plan_range_widen(odd, 2 * CAIRN_BLOCK_BYTES - 7);
    EXPECT_ALL_U64(wide.begin, 0, wide.end, 2 * CAIRN_BLOCK_BYTES - 7);
    struct cairn_plan_range within = cairn_plan_range_within(odd, 2 * CAIRN_BLOCK_BYTES - 7);
    EXPECT_EQ_U64(within.end - within.begin, 0);
    within = cairn_plan_range_within((struct cairn_plan_range){3, 2 * CAIRN_BLOCK_BYTES - 7},
                                     2 * CAIRN_BLOCK_BYTES - 7);
    EXPECT_ALL_U64(within.begin, CAIRN_BLOCK_BYTES, within.end, 2 * CAIRN_BLOCK_BYTES - 7);
    EXPECT(!cairn_plan_range_joins(
        (struct cairn_plan_range){0, CAIRN_BLOCK_BYTES},
        (struct cairn_plan_range){CAIRN_BLOCK_BYTES + 1, CAIRN_BLOCK_BYTES + 2}));
    EXPECT(cairn_plan_range_joins(
               (struct cairn_plan_range){0, CAIRN_BLOCK_BYTES - 1},
               (struct cairn_plan_range){CAIRN_BLOCK_BYTES, CAIRN_BLOCK_BYTES + 2}) == false);
}
