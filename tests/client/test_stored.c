/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* Pieces whose elements are stored as another type than the trainer has them in. */
#include <math.h>

#include "formats/convert.h"
#include "tests/client/rank.h"

#define ROWS 1100
#define COLUMNS 701 /* more than a block of either type, and no row begins at a round place */
#define ELEMENTS (ROWS * COLUMNS)

static const uint64_t shape[2] = {ROWS, COLUMNS};
static float numbers[ELEMENTS + 1];

/* Every exponent, signs, ties, infinities and NaN among them. */
static void fill(void) {
    uint64_t random = cairn_test_seed();
    static const uint32_t odd[] = {0x3f808000, 0x3f818000, 0x7f800000, 0xff800000, 0x7fc00001,
                                   0x7f800001, 0x477ff000, 0x33000001, 0x00000001, 0x80000000};
    for (size_t i = 0; i < ELEMENTS + 1; i++) {
        uint32_t bits = (uint32_t)cairn_test_random(&random);
        if (i % 7 == 0) bits = odd[i / 7 % CAIRN_COUNT(odd)];
        memcpy(&numbers[i], &bits, sizeof bits);
    }
}

static struct cairn_tensor_piece piece_of(const char *name, const char *stored) {
    return SIZED(cairn_tensor_piece, .name = name, .dtype = stored, .source_dtype = "F32",
                 .dimension_count = 2, .shape = shape, .kind = CAIRN_LOCAL, .source = numbers,
                 .source_bytes = sizeof(float) * ELEMENTS);
}

static unsigned dtype_of(const char *name) {
    unsigned dtype = 0;
    return cairn_dtype_parse(cairn_view_of(name), &dtype) ? dtype : 0;
}

/* Are the staged bytes those of these elements, converted one by one? */
static void expect_stored(struct cairn_rank *rank, const char *name, const char *stored,
                          const float *wanted, size_t count) {
    const uint8_t *staged = cairn_staged_tensor(rank->fake, name, 1);
    size_t width = cairn_dtype_bits(dtype_of(stored)) / 8, wrong = 0;
    REQUIRE(staged != NULL);
    for (size_t i = 0; i < count; i++) {
        uint64_t one = 0;
        cairn_convert(CAIRN_DTYPE_F32, &wanted[i], dtype_of(stored), &one, 1);
        wrong += memcmp(&one, staged + i * width, width) != 0;
    }
    EXPECT_EQ_U64(wrong, 0);
}

TEST(elements_are_stored_as_another_type_from_wherever_they_lie, err) {
    CAIRN_AUTO(rank) rank = {0};
    static const int64_t turned[2] = {1, ROWS}, wide[2] = {COLUMNS, 1};
    static const uint64_t start[2] = {3, 0}, count[2] = {ROWS - 5, 100};
    static const uint64_t three[1] = {3};
    static float lying[ELEMENTS], box[(ROWS - 5) * 100], shifted[ELEMENTS];
    static uint8_t bytes[4 * ELEMENTS + 1];
    fill();
    for (size_t i = 0; i < ELEMENTS; i++) lying[i] = numbers[i % COLUMNS * ROWS + i / COLUMNS];
    for (size_t i = 0; i < CAIRN_COUNT(box); i++) box[i] = numbers[i / 100 * COLUMNS + i % 100];
    memcpy(bytes + 1, numbers, sizeof shifted);
    memcpy(shifted, numbers, sizeof shifted);
    struct cairn_open_options options;
    REQUIRE_OK(rank_uploader(&rank, 1, &err));
    options = rank_options(&rank);
    options.bytes = 32 * CAIRN_MIB;
    REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err));
    BEGUN(save, 1);
    struct cairn_tensor_piece odd =
        SIZED(cairn_tensor_piece, .name = "a", .dtype = "U8", .dimension_count = 1, .shape = three,
              .kind = CAIRN_LOCAL, .source = bytes, .source_bytes = 3);
    EXPECT_CODE(cairn_save_tensor(save, &odd, &err), CAIRN_OK);
    struct cairn_tensor_piece piece = piece_of("plain", "BF16");
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    piece = piece_of("half", "F16");
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    piece = piece_of("wide", "F64");
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    piece = piece_of("turned", "BF16");
    piece.source_stride = turned;
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    piece = piece_of("box", "F16");
    piece.form = CAIRN_BOX, piece.start = start, piece.count = count;
    piece.source_stride = wide, piece.source_bytes = sizeof box;
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    piece = piece_of("unaligned", "BF16");
    piece.source = bytes + 1;
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
    expect_stored(&rank, "plain", "BF16", numbers, ELEMENTS);
    expect_stored(&rank, "half", "F16", numbers, ELEMENTS);
    expect_stored(&rank, "wide", "F64", numbers, ELEMENTS);
    expect_stored(&rank, "turned", "BF16", lying, ELEMENTS);
    expect_stored(&rank, "box", "F16", box, CAIRN_COUNT(box));
    expect_stored(&rank, "unaligned", "BF16", shifted, ELEMENTS);
}

/* Q15: what is told of the blocks and of a replicated tensor is of the bytes that are stored. */
TEST(checksums_are_those_of_the_stored_bytes, err) {
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_save *save = NULL;
    struct cairn_fake_message seal;
    fill();
    REQUIRE_OK(rank_open(&rank, 1, &err));
    REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
    struct cairn_tensor_piece piece = piece_of("w", "BF16");
    piece.kind = CAIRN_REPLICATED;
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
    cairn_save_free(save);
    static uint16_t stored[ELEMENTS];
    cairn_convert(CAIRN_DTYPE_F32, numbers, CAIRN_DTYPE_BF16, stored, ELEMENTS);
    const char *wanted = TEXT("%08x", cairn_crc32c(0, stored, sizeof stored));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "seal", 1, &seal));
    const json_t *one = json_array_get(json_object_get(seal.message, "replicated"), 0);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(one, "crc32c")), wanted);
}

TEST(a_share_of_a_replica_group_is_converted_from_its_own_place, err) {
    uint64_t seen = 0;
    fill();
    for (uint32_t member = 0; member < 2; member++) {
        CAIRN_AUTO(rank) rank = {0};
        AUTO_SAVE *save = NULL;
        struct cairn_split *split = NULL;
        const struct cairn_split_options group =
            SIZED(cairn_split_options, .group = "dp", .by = CAIRN_SPLIT_SLICE, .members = 2,
                  .member = member);
        struct cairn_tensor_piece piece = piece_of("w", "BF16");
        piece.kind = CAIRN_SHARDED;
        REQUIRE_OK(rank_open(&rank, 1, &err));
        REQUIRE_OK(cairn_split_new(&group, &split, &err));
        REQUIRE_OK(cairn_split_add(split, &piece, &err));
        const struct cairn_save_options with = {
            .size = sizeof with, .splits = &split, .split_count = 1};
        REQUIRE_OK(cairn_save_begin(rank.session, 1, &with, &save, &err));
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
        uint64_t bytes = 0;
        EXPECT_CODE(cairn_split_bytes(split, member, &bytes, &err), CAIRN_OK);
        expect_stored(&rank, "w", "BF16", numbers + seen, (size_t)bytes / 2);
        seen += bytes / 2;
        cairn_split_free(split);
    }
    EXPECT_EQ_U64(seen, ELEMENTS);
}

TEST(conversions_that_cannot_be_are_refused) {
    RANK(1);
    BEGUN(save, 1);
    struct cairn_tensor_piece piece = piece_of("w", "I32");
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_INVALID);
    piece = piece_of("w", "BF16");
    piece.source_dtype = "F99";
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_INVALID);
    piece = piece_of("w", "BF16");
    piece.source_bytes = 2 * ELEMENTS; /* of what is stored */
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_INVALID);
    piece = piece_of("w", "BF16");
    piece.source = NULL, piece.in_file = "f";
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_INVALID);
    piece = piece_of("w", "F32"); /* of its own type */
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
}
