/* SPDX-License-Identifier: Apache-2.0 */

#include "tests/harness.h"

/* A bit at a time: slow, and so plain that it can be believed. */
static uint32_t reference(uint32_t crc, const uint8_t *data, size_t size) {
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
    }
    return ~crc;
}

static void fill(uint8_t *data, size_t size, uint64_t *state) {
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word = cairn_test_random(state);
        memcpy(data + i, &word, 8);
    }
}

static const char *const names[] = {"avx512", "avx2",  "sse4.2",  "pclmul",  "pclmul-2", "pclmul-3",
                                    "armv8",  "pmull", "pmull-2", "pmull-3", "table"};

/* All that this CPU has, one after the other; the best one at the end. */
#define EACH_LOOP(name)                                                                            \
    for (size_t name##_at = 0; name##_at <= CAIRN_COUNT(names); name##_at++)                       \
        if (cairn_crc32c_choose(name##_at < CAIRN_COUNT(names) ? names[name##_at] : NULL))

static void check_known_answers(void) {
    uint8_t bytes[32] = {0};
    EXPECT_ALL_U64(cairn_crc32c(0, "123456789", 9), 0xe3069283u, cairn_crc32c(0, bytes, 32),
                   0x8a9136aau, cairn_crc32c_with_table(0, "123456789", 9), 0xe3069283u,
                   cairn_crc32c_with_table(0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, 32); /* RFC 3720, B.4 */
    EXPECT_EQ_U64(cairn_crc32c(0, bytes, 32), 0x62a8ab43u);
    for (uint8_t i = 0; i < 32; i++) bytes[i] = i;
    EXPECT_ALL_U64(cairn_crc32c(0, bytes, 32), 0x46dd794eu, cairn_crc32c(0, NULL, 0), 0,
                   cairn_crc32c(0x1234, NULL, 0), 0x1234);
}

TEST(known_answers) { /* crc.h#1 */
    EACH_LOOP(name) check_known_answers();
}

static void check_agreement(void) {
    static uint8_t data[70000];
    uint64_t state = cairn_test_seed();
    fill(data, sizeof(data), &state);
    for (size_t size = 0; size < 1600; size++) {
        const uint8_t *at = data + size % 9;
        uint32_t start = (uint32_t)cairn_test_random(&state);
        uint32_t wanted = reference(start, at, size);
        EXPECT_EQ_U64(cairn_crc32c(start, at, size), wanted);
        EXPECT_EQ_U64(cairn_crc32c_with_table(start, at, size), wanted);
    }
    for (unsigned i = 0; i < 500; i++) {
        size_t from = cairn_test_random(&state) % 64;
        size_t size = cairn_test_random(&state) % (sizeof(data) - from);
        EXPECT_EQ_U64(cairn_crc32c(0, data + from, size),
                      cairn_crc32c_with_table(0, data + from, size));
    }
}

TEST(the_implementations_agree_at_every_size_and_alignment) {
    EACH_LOOP(name) check_agreement();
}

TEST(feeding_pieces_equals_feeding_the_whole) {
    static uint8_t data[40000];
    uint64_t state = cairn_test_seed();
    fill(data, sizeof(data), &state);
    uint32_t whole = cairn_crc32c(0, data, sizeof(data));
    for (unsigned i = 0; i < 100; i++) {
        uint32_t crc = 0;
        for (size_t done = 0; done < sizeof(data);) {
            size_t piece = 1 + cairn_test_random(&state) % 20000;
            if (piece > sizeof(data) - done) piece = sizeof(data) - done;
            crc = cairn_crc32c(crc, data + done, piece);
            done += piece;
        }
        EXPECT_EQ_U64(crc, whole);
    }
}

TEST(combining_equals_the_checksum_of_the_whole_at_20000_random_splits) { /* crc.h#2 */
    static uint8_t data[65536];
    uint64_t state = cairn_test_seed();
    fill(data, sizeof(data), &state);
    for (unsigned i = 0; i < 20000; i++) {
        size_t size = cairn_test_random(&state) % (i % 100 ? 2000 : sizeof(data));
        size_t split = size ? cairn_test_random(&state) % (size + 1) : 0;
        uint32_t a = cairn_crc32c(0, data, split);
        uint32_t b = cairn_crc32c(0, data + split, size - split);
        EXPECT_EQ_U64(cairn_crc32c_combine(a, b, size - split), cairn_crc32c(0, data, size));
    }
}

TEST(combining_is_exact_for_lengths_that_no_memory_holds) { /* crc.h#2 */
    uint64_t state = cairn_test_seed();
    EACH_OF(unsigned, number, 35, 40, 48, 60, 61, 62) {
        for (unsigned repeat = 0; repeat < 200; repeat++) {
            uint64_t mask = (UINT64_C(1) << number) - 1;
            uint32_t a = (uint32_t)cairn_test_random(&state);
            uint32_t b = (uint32_t)cairn_test_random(&state);
            uint32_t c = (uint32_t)cairn_test_random(&state);
            uint64_t size_b = cairn_test_random(&state) & mask;
            uint64_t size_c = cairn_test_random(&state) & mask;
            if (size_c > (UINT64_C(1) << 62) - 1 - size_b) continue;
            /* (a b) c and a (b c) are the same bytes. */
            uint32_t left = cairn_crc32c_combine(cairn_crc32c_combine(a, b, size_b), c, size_c);
            uint32_t right =
                cairn_crc32c_combine(a, cairn_crc32c_combine(b, c, size_c), size_b + size_c);
            EXPECT_EQ_U64(left, right);
        }
    }
}

TEST(doubled_zeros_meet_the_checksum_of_zeros_that_were_fed) {
    CAIRN_AUTO_HEAP uint8_t *zeros = calloc(1, CAIRN_MIB);
    REQUIRE(zeros != NULL);
    uint32_t crc = cairn_crc32c(0, zeros, 1);
    for (uint64_t size = 1; size < CAIRN_MIB; size *= 2) {
        EXPECT_EQ_U64(crc, cairn_crc32c(0, zeros, size));
        crc = cairn_crc32c_combine(crc, crc, size);
    }
    EXPECT_EQ_U64(crc, cairn_crc32c_with_table(0, zeros, CAIRN_MIB));
}

static void check_copies(uint32_t (*copy)(uint32_t crc, void *to, const void *from, size_t size)) {
    uint64_t state = cairn_test_seed();
    CAIRN_AUTO_HEAP uint8_t *from = malloc(700096);
    CAIRN_AUTO_HEAP uint8_t *to = malloc(700096);
    REQUIRE(from && to);
    fill(from, 700096, &state);
    EACH_OF(size_t, number, 0, 1, 7, 4095, 4096, 4097, 5000, 262143, 262144, 262145, 274496,
            700001) {
        memset(to, 0xee, 700096);
        uint32_t start = (uint32_t)cairn_test_random(&state);
        size_t at = 1 + cairn_test_random(&state) % 70, source_at = cairn_test_random(&state) % 9;
        EXPECT_EQ_U64(copy(start, to + at, from + source_at, number),
                      cairn_crc32c_with_table(start, from + source_at, number));
        EXPECT(!memcmp(to + at, from + source_at, number));
        EXPECT(to[at - 1] == 0xee && to[at + number] == 0xee);
    }
}

TEST(copying_moves_the_bytes_and_returns_their_checksum) { /* crc.h#3 */
    EACH_LOOP(name) check_copies(cairn_crc32c_copy);
    EACH_LOOP(name) check_copies(cairn_crc32c_copy_part);
}

static bool is_known(const char *name) {
    for (size_t i = 0; i < CAIRN_COUNT(names); i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

TEST(an_implementation_can_be_chosen_by_name_and_one_that_this_CPU_lacks_changes_nothing) {
    const char *before = cairn_crc32c_implementation();
    EXPECT(!cairn_crc32c_choose("none"));
    EXPECT_EQ_TEXT(cairn_crc32c_implementation(), before);
    EXPECT(cairn_crc32c_choose("table"));
    EXPECT_EQ_TEXT(cairn_crc32c_implementation(), "table");
    EXPECT_EQ_TEXT(cairn_crc32c_copier(), "table");
    EXPECT(cairn_crc32c_choose(NULL));
    EXPECT(is_known(cairn_crc32c_implementation()));
}

TEST(the_fastest_wins_only_where_it_is_a_tenth_faster_than_the_first_that_was_measured) {
    EXPECT_EQ_U64(cairn_crc32c_fastest((const uint64_t[]){100, 91, 95, 200}, 4), 0);
    EXPECT_EQ_U64(cairn_crc32c_fastest((const uint64_t[]){100, 95, 89, 200}, 4), 2);
    EXPECT_EQ_U64(cairn_crc32c_fastest((const uint64_t[]){0, 0, 100, 95}, 4), 2);
    EXPECT_EQ_U64(cairn_crc32c_fastest((const uint64_t[]){0, 100, 0, 50}, 4), 3);
    EXPECT_EQ_U64(cairn_crc32c_fastest((const uint64_t[]){0, 0, 0, 7}, 4), 3);
}

/* The table is several times slower than whatever else a CPU has, so no load makes it win. */
TEST(measuring_leaves_the_table_to_CPUs_that_have_nothing_else_and_a_large_call_measures) {
    bool more = false;
    for (size_t i = 0; i + 1 < CAIRN_COUNT(names); i++) more |= cairn_crc32c_choose(names[i]);
    CAIRN_AUTO_HEAP uint8_t *bytes = calloc(1, CAIRN_MIB);
    REQUIRE(bytes != NULL);
    EXPECT(cairn_crc32c_choose(NULL));
    uint32_t crc = cairn_crc32c(0, bytes, CAIRN_MIB);
    EXPECT_EQ_U64(crc, cairn_crc32c_with_table(0, bytes, CAIRN_MIB));
    cairn_crc32c_measure(); /* was done by the call: changes nothing */
    EXPECT(is_known(cairn_crc32c_implementation()) && is_known(cairn_crc32c_copier()));
    EXPECT_EQ_U64(more, strcmp(cairn_crc32c_implementation(), "table") != 0);
    EXPECT_EQ_U64(more, strcmp(cairn_crc32c_copier(), "table") != 0);
}
