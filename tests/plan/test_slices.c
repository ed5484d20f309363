/* SPDX-License-Identifier: Apache-2.0 */
/* Slices against a list of the places that an index of Python picks. */
#include "plan/boxes.h"

#include "tests/harness.h"

#define NONE INT64_MAX

static enum cairn_code parse(const char *text, unsigned dimensions, const uint64_t *shape,
                             uint64_t *start, uint64_t *count) {
    struct cairn_error err = {0};
    return cairn_plan_slice_parse(text, dimensions, shape, start, count, &err);
}

static void write_end(int64_t number, char *to, size_t room) {
    if (number == NONE)
        *to = '\0';
    else
        snprintf(to, room, "%lld", (long long)number);
}

/* Every place of the dimension by itself: is it picked? Negative ones count from the end. */
static void check_one(int64_t a, int64_t b, uint64_t extent, bool step) {
    char first[24], last[24];
    uint64_t start = 99, count = 99, size = (uint64_t)extent, picked = 0, lowest = 0;
    int64_t all = (int64_t)extent, from = a == NONE ? 0 : a, to = b == NONE ? all : b;
    write_end(a, first, sizeof first);
    write_end(b, last, sizeof last);
    const char *text = TEXT("%s:%s%s", first, last, step ? ":1" : "");
    if (from < 0) from += all;
    if (to < 0) to += all;
    bool good = from >= 0 && from <= all && to >= 0 && to <= all && from <= to;
    EXPECT_EQ_U64(parse(text, 1, &size, &start, &count), good ? CAIRN_OK : CAIRN_RANGE);
    if (!good) return;
    for (int64_t i = 0; i < all; i++) {
        if (i < from || i >= to) continue;
        if (!picked++) lowest = (uint64_t)i;
    }
    EXPECT_EQ_U64(count, picked);
    if (picked) EXPECT_EQ_U64(start, lowest);
}

TEST(a_slice_picks_the_places_that_python_picks_or_is_refused) { /* boxes.h#2, boxes.h#3 */
    for (uint64_t extent = 0; extent <= 5; extent++)
        for (int64_t a = -7; a <= 8; a++)
            for (int64_t b = -7; b <= 8; b++)
                for (int step = 0; step < 2; step++)
                    check_one(a == 8 ? NONE : a, b == 8 ? NONE : b, extent, step);
}

TEST(one_index_is_one_element) { /* boxes.h#2 */
    for (uint64_t extent = 0; extent <= 4; extent++)
        for (int64_t at = -6; at <= 6; at++) {
            uint64_t start = 99, count = 99;
            int64_t place = at < 0 ? at + (int64_t)extent : at;
            bool good = place >= 0 && place < (int64_t)extent;
            EXPECT_EQ_U64(parse(TEXT("%lld", (long long)at), 1, &extent, &start, &count),
                          good ? CAIRN_OK : CAIRN_RANGE);
            if (!good) continue;
            EXPECT_ALL_U64(start, (uint64_t)place, count, 1);
        }
}

TEST(dimensions_that_are_not_named_are_whole) { /* boxes.h#2 */
    static const uint64_t shape[] = {4, 5, 6};
    uint64_t start[3], count[3];
    EXPECT(parse("", 3, shape, start, count) == CAIRN_OK);
    EXPECT(start[0] == 0 && count[0] == 4 && count[1] == 5 && start[2] == 0 && count[2] == 6);
    EXPECT(parse("1:3,-2:", 3, shape, start, count) == CAIRN_OK);
    EXPECT(start[0] == 1 && count[0] == 2 && start[1] == 3 && count[1] == 2);
    EXPECT(start[2] == 0 && count[2] == 6);
    EXPECT(parse("2,:,5", 3, shape, start, count) == CAIRN_OK);
    EXPECT(start[0] == 2 && count[0] == 1 && count[1] == 5 && start[2] == 5 && count[2] == 1);
    EXPECT(parse("", 0, shape, start, count) == CAIRN_OK);
}

TEST(other_texts_are_refused) { /* boxes.h#3 */
    static const uint64_t shape[] = {4, 5};
    uint64_t start[2], count[2];
    EACH_TEXT(text, "a", "1:2:2", "1:2:-1", "-", "1:-", "1 :2", ",", ",1", "1,,2", "1:2:1:1",
              "0:1,0:1,0:1", "+1", "1:2;", "0x1", "...", "999999999999999999999")
        EXPECT_EQ_U64(parse(text, 2, shape, start, count), CAIRN_INVALID);
    EXPECT(parse("0", 0, shape, start, count) == CAIRN_INVALID);
}
