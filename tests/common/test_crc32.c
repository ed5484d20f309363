/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum of zip entries: known values, all lengths, and parts joined in any order. */
#include "tests/harness.h"

static uint32_t next_number(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

TEST(known_values_and_every_length_are_those_of_the_portable_form) {
    static uint8_t bytes[6000];
    uint32_t state = 7;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)next_number(&state);
    EXPECT_ALL_U64(cairn_crc32("123456789", 9), 0xcbf43926, cairn_crc32("", 0), 0);
    for (size_t size = 0; size < 5000; size += size < 1200 ? 1 : 37)
        for (size_t from = 0; from < 3; from++)
            EXPECT(cairn_crc32(bytes + from, size) ==
                   ~cairn_crc32_with_table(UINT32_MAX, bytes + from, size));
}

TEST(remainders_of_parts_add_up_in_any_order) {
    static uint8_t bytes[100000];
    uint32_t state = 9;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)next_number(&state);
    for (int round = 0; round < 50; round++) {
        size_t size = next_number(&state) % sizeof bytes + 1, first = next_number(&state) % size;
        size_t second = first + next_number(&state) % (size - first + 1);
        const size_t borders[] = {0, first, second, size};
        uint32_t sum = 0;
        for (int part = 2; part >= 0; part--)
            sum ^= cairn_crc32_shift(
                cairn_crc32_remainder(bytes + borders[part], borders[part + 1] - borders[part]),
                size - borders[part + 1]);
        EXPECT(cairn_crc32_of_remainder(sum, size) == cairn_crc32(bytes, size));
    }
}
