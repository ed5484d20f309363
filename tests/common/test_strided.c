/* SPDX-License-Identifier: Apache-2.0 */
/* strided: random views, against a walk over their indices one by one. */
#include "common/strided.h"

#include "tests/harness.h"

#define PLACES 4096 /* elements of the memory that a view is of */

struct view {
    unsigned dimensions;
    size_t width;
    uint64_t count[4], elements;
    int64_t stride[4], first; /* place of the first element */
};

/* A box of an array, its dimensions in any order, some of them backwards. */
static struct view random_view(uint64_t *state) {
    struct view ret = {.dimensions = (unsigned)(cairn_test_random(state) % 5),
                       .width = (size_t)1 << cairn_test_random(state) % 5,
                       .elements = 1};
    int64_t stride = 1;
    for (unsigned left = ret.dimensions, used = 0; left > 0; left--) {
        unsigned d = (unsigned)(cairn_test_random(state) % ret.dimensions);
        while (used >> d & 1) d = (d + 1) % ret.dimensions;
        used |= 1u << d;
        uint64_t extent = 1 + cairn_test_random(state) % 8;
        ret.count[d] = 1 + cairn_test_random(state) % extent;
        bool back = cairn_test_random(state) % 4 == 0;
        ret.stride[d] = back ? -stride : stride;
        if (back) ret.first += (int64_t)(ret.count[d] - 1) * stride;
        ret.elements *= ret.count[d];
        stride *= (int64_t)extent;
    }
    return ret;
}

static int64_t place(const struct view *view, uint64_t element) {
    int64_t at = view->first;
    for (unsigned d = view->dimensions; d-- > 0; element /= view->count[d])
        at += (int64_t)(element % view->count[d]) * view->stride[d];
    return at;
}

TEST(any_range_of_any_view_is_gathered_and_scattered_as_its_elements_one_by_one) { /* strided.h#1 */
    uint64_t state = cairn_test_seed();
    static uint8_t memory[PLACES * 16], wanted[PLACES * 16], got[PLACES * 16], back[PLACES * 16];
    for (size_t i = 0; i < sizeof memory; i++) memory[i] = (uint8_t)cairn_test_random(&state);
    for (int round = 0; round < 3000; round++) {
        struct view view = random_view(&state);
        struct cairn_strided strided;
        REQUIRE(cairn_strided_make(view.width, view.dimensions, view.count, view.stride, &strided));
        for (uint64_t i = 0; i < view.elements; i++)
            memcpy(wanted + i * view.width, memory + (size_t)place(&view, i) * view.width,
                   view.width);
        uint64_t from = cairn_test_random(&state) % view.elements;
        uint64_t end = from + 1 + cairn_test_random(&state) % (view.elements - from);
        size_t size = (size_t)(end - from) * view.width;
        const uint8_t *first = memory + (size_t)view.first * view.width;
        memset(got, 0, sizeof got);
        cairn_strided_gather(&strided, first, from * view.width, got, size);
        bool same = memcmp(got, wanted + from * view.width, size) == 0 && !got[size];
        memset(back, 0, sizeof back);
        cairn_strided_scatter(&strided, back + (size_t)view.first * view.width, from * view.width,
                              got, size);
        for (uint64_t i = from; i < end; i++)
            same = same && !memcmp(back + (size_t)place(&view, i) * view.width,
                                   wanted + i * view.width, view.width);
        EXPECT(!cairn_strided_may_overlap(&strided));
        if (!cairn_test_check(same, __FILE__, __LINE__, "view %d differs", round)) break;
    }
}

/* More than a tile either way, and not a multiple of one. */
TEST(transposed_planes_larger_than_a_tile_are_moved_as_their_elements_one_by_one) /* strided.h#2 */
{
    static uint8_t memory[131 * 67 * 16], got[131 * 67 * 16], back[131 * 67 * 16];
    uint64_t state = cairn_test_seed();
    for (size_t i = 0; i < sizeof memory; i++) memory[i] = (uint8_t)cairn_test_random(&state);
    const uint64_t count[2] = {131, 67};
    const int64_t stride[2] = {1, 131};
    for (size_t width = 1; width <= 16; width *= 2) {
        struct cairn_strided strided;
        size_t size = 131 * 67 * width;
        bool same = true;
        REQUIRE(cairn_strided_make(width, 2, count, stride, &strided));
        cairn_strided_gather(&strided, memory, 0, got, size);
        for (size_t i = 0; i < 131 * 67; i++)
            same =
                same && !memcmp(got + i * width, memory + (i % 67 * 131 + i / 67) * width, width);
        EXPECT(same);
        cairn_strided_scatter(&strided, back, 0, got, size);
        EXPECT(!memcmp(back, memory, size));
    }
}

TEST(dimensions_that_join_are_one_and_those_of_one_index_none) {
    const uint64_t count[4] = {3, 1, 4, 5};
    const int64_t whole[4] = {20, 999, 5, 1}, apart[4] = {21, 0, 5, 1}, turned[4] = {1, 0, 3, 12};
    struct cairn_strided strided;
    REQUIRE(cairn_strided_make(4, 4, count, whole, &strided));
    EXPECT(cairn_strided_is_contiguous(&strided));
    REQUIRE(cairn_strided_make(4, 4, count, apart, &strided));
    EXPECT(!cairn_strided_is_contiguous(&strided));
    EXPECT(cairn_strided_has_rows(&strided));
    EXPECT_EQ_U64(strided.dimension_count, 2);
    REQUIRE(cairn_strided_make(4, 4, count, turned, &strided));
    EXPECT(!cairn_strided_has_rows(&strided));
}

TEST(places_that_no_memory_has_are_refused) {
    const uint64_t count[2] = {UINT64_C(1) << 40, UINT64_C(1) << 40}, none[2] = {0, 5};
    const int64_t stride[2] = {INT64_C(1) << 40, 1}, least[2] = {INT64_MIN, 1};
    struct cairn_strided strided;
    EXPECT(!cairn_strided_make(4, 2, count, stride, &strided));
    EXPECT(!cairn_strided_make(1, 2, count, least, &strided));
    EXPECT(!cairn_strided_make(3, 0, NULL, NULL, &strided));
    EXPECT(!cairn_strided_make(4, 9, NULL, NULL, &strided));
    REQUIRE(cairn_strided_make(4, 2, none, stride, &strided)); /* of no element all is possible */
    cairn_strided_gather(&strided, NULL, 0, NULL, 0);
}

TEST(places_that_two_indices_share_are_seen) {
    const uint64_t count[2] = {4, 4};
    const int64_t twice[2] = {0, 1}, close[2] = {3, 1}, apart[2] = {4, 1};
    struct cairn_strided strided;
    REQUIRE(cairn_strided_make(4, 2, count, twice, &strided));
    EXPECT(cairn_strided_may_overlap(&strided));
    REQUIRE(cairn_strided_make(4, 2, count, close, &strided));
    EXPECT(cairn_strided_may_overlap(&strided));
    REQUIRE(cairn_strided_make(4, 2, count, apart, &strided));
    EXPECT(!cairn_strided_may_overlap(&strided));
}
