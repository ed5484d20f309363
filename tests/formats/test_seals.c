/* SPDX-License-Identifier: Apache-2.0 */
/* A checksum is compared when its last byte was noted, whatever the order, and not before. */
#include "formats/assembly/pieces.h"
#include "tests/harness.h"

#define SIZE 5000
#define FIRST 100

struct world {
    uint8_t bytes[FIRST + SIZE + 100];
    struct cairn_seals seals;
    struct cairn_input input;
};

static void make(struct world *world, uint32_t wrong) {
    *world = (struct world){.input.name = "model.pt"};
    for (size_t i = 0; i < sizeof world->bytes; i++) world->bytes[i] = (uint8_t)(i * i + i / 7);
    const struct cairn_seal seal = {.input = 3,
                                    .crc32 = cairn_crc32(world->bytes + FIRST, SIZE) ^ wrong,
                                    .offset_bytes = FIRST,
                                    .size_bytes = SIZE};
    for (int again = 0; again < 2; again++) /* as tensors that share a storage do */
        EXPECT(cairn_seals_add(&world->seals, &seal, CAIRN_VIEW("a/data/7"), NULL) == CAIRN_OK);
    cairn_seals_sort(&world->seals);
    EXPECT_EQ_U64(world->seals.count, 1);
}

static enum cairn_code note(struct world *world, uint64_t begin, uint64_t end,
                            struct cairn_error *err) {
    return cairn_seals_note(&world->seals, 3, &world->input, begin, world->bytes + begin,
                            (size_t)(end - begin), err);
}

TEST(bytes_that_are_noted_in_any_order_and_more_than_once_are_compared_once_all_were) {
    for (uint32_t wrong = 0; wrong < 2; wrong++) {
        for (unsigned seed = 0; seed < 20; seed++) {
            struct cairn_error err = {0};
            struct world world;
            uint32_t state = seed;
            enum cairn_code code = CAIRN_OK;
            make(&world, wrong);
            for (int i = 0; i < 400 && code == CAIRN_OK; i++) { /* not the last byte */
                state = state * 1664525u + 1013904223u;
                uint64_t begin = (state >> 8) % (FIRST + SIZE - 1);
                uint64_t end = begin + (state >> 16) % 300;
                if (end >= FIRST + SIZE) end = FIRST + SIZE - 1;
                if (begin < end) code = note(&world, begin, end, &err);
            }
            EXPECT_CODE(code, CAIRN_OK);
            code = note(&world, 0, FIRST + SIZE, &err);
            EXPECT_CODE(code, wrong ? CAIRN_CORRUPT : CAIRN_OK);
            if (wrong) EXPECT(strstr(err.message, "model.pt") && strstr(err.message, "a/data/7"));
            EXPECT_EQ_U64(world.seals.seals[0].noted_bytes, SIZE);
            EXPECT_EQ_U64(world.seals.seals[0].part_count, 1);
            cairn_seals_release(&world.seals);
        }
    }
}

TEST(a_range_that_is_not_read_whole_or_of_another_file_is_not_compared) {
    struct world world;
    make(&world, 1);
    EXPECT(note(&world, 0, FIRST + SIZE - 1, NULL) == CAIRN_OK);
    EXPECT(cairn_seals_note(&world.seals, 2, &world.input, 0, world.bytes, FIRST + SIZE, NULL) ==
           CAIRN_OK);
    EXPECT(note(&world, FIRST + SIZE, FIRST + SIZE + 50, NULL) == CAIRN_OK);
    EXPECT_EQ_U64(world.seals.seals[0].noted_bytes, SIZE - 1);
    cairn_seals_release(&world.seals);
}

TEST(a_checksum_of_zero_is_that_of_a_writer_who_made_none) {
    struct cairn_seals seals = {0};
    const struct cairn_seal seal = {.size_bytes = 10};
    EXPECT(cairn_seals_add(&seals, &seal, CAIRN_VIEW("a/data/0"), NULL) == CAIRN_OK);
    EXPECT_EQ_U64(seals.count, 0);
    cairn_seals_release(&seals);
}
