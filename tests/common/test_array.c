/* SPDX-License-Identifier: Apache-2.0 */

#include "tests/harness.h"

TEST(an_array_grows_and_keeps_what_it_holds_up_to_its_bound_G1_G2, err) {
    uint32_t *items = NULL;
    size_t count = 0, capacity = 0;
    for (; count < 1000; count++) {
        REQUIRE_OK(CAIRN_ARRAY_ROOM(items, count, capacity, 1000, "numbers", &err));
        EXPECT(capacity > count && capacity <= 1000);
        items[count] = (uint32_t)count;
    }
    uint32_t *before = items;
    EXPECT_CODE(CAIRN_ARRAY_ROOM(items, count, capacity, 1000, "numbers", &err), CAIRN_TOO_LARGE);
    EXPECT_EQ_TEXT(err.message, "more than 1000 numbers");
    EXPECT(items == before && capacity == 1000);
    for (size_t i = 0; i < count; i++) EXPECT_EQ_U64(items[i], i);
    free(items);
}

TEST(room_for_several_items_is_made_at_once_and_refused_whole_past_the_bound_G1_G2, err) {
    uint64_t *items = NULL;
    size_t capacity = 0;
    REQUIRE_OK(CAIRN_ARRAY_ROOM_FOR(items, 0, 700, capacity, 1000, "numbers", &err));
    EXPECT_EQ_U64(capacity, 700);
    for (size_t i = 0; i < 700; i++) items[i] = i;
    uint64_t *before = items;
    EXPECT_CODE(CAIRN_ARRAY_ROOM_FOR(items, 700, 301, capacity, 1000, "numbers", &err),
                CAIRN_TOO_LARGE);
    EXPECT_CODE(CAIRN_ARRAY_ROOM_FOR(items, 700, SIZE_MAX, capacity, 1000, "numbers", &err),
                CAIRN_TOO_LARGE);
    EXPECT(items == before && capacity == 700);
    REQUIRE_OK(CAIRN_ARRAY_ROOM_FOR(items, 700, 300, capacity, 1000, "numbers", &err));
    EXPECT_EQ_U64(capacity, 1000);
    for (size_t i = 0; i < 700; i++) EXPECT_EQ_U64(items[i], i);
    REQUIRE_OK(CAIRN_ARRAY_ROOM_FOR(items, 1000, 0, capacity, 1000, "numbers", &err));
    free(items);
}

TEST(an_array_for_which_there_is_no_memory_stays_as_it_is_G1, err) {
    struct wide {
        uint8_t bytes[4096];
    } *items = calloc(1, sizeof *items), *before = items;
    size_t capacity = SIZE_MAX / 4, count = capacity; /* as if it held so many */
    REQUIRE(items != NULL);
    EXPECT_CODE(CAIRN_ARRAY_ROOM(items, count, capacity, SIZE_MAX, "pages", &err), CAIRN_NO_MEMORY);
    EXPECT(items == before && capacity == SIZE_MAX / 4);
    free(items);
}
