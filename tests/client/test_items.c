/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* Items by name, streams, several regions of one piece, and what a version says of all that. */
#include <cairn/inspect.h>
#include <cairn/items.h>
#include <stdlib.h>

#include "tests/client/team.h"

static bool text_is(struct cairn_text text, const char *wanted) {
    return text.bytes == strlen(wanted) && !memcmp(text.data, wanted, text.bytes);
}

/* An item of one rank, read whole, is these bytes. */
static void expect_item(struct cairn_team *team, const char *name, uint32_t rank,
                        const void *wanted, size_t bytes) {
    struct cairn_error err = {0};
    CAIRN_AUTO_HEAP uint8_t *found = malloc(bytes + 1);
    REQUIRE(found != NULL);
    const struct cairn_read read = {.size = sizeof read,
                                    .tensor = name,
                                    .local_rank_of = rank,
                                    .into = found,
                                    .into_bytes = bytes};
    REQUIRE_OK(cairn_restore_read(team->restore, &read, 1, 0, &err));
    EXPECT(!memcmp(found, wanted, bytes));
}

TEST(items_have_any_name_and_each_rank_its_own_bytes) {
    TEAM(2);
    static const char *const names[] = {"../a/ b\n", "opt/state", "opt", "\xc3\xa9\\\"'"};
    static const char *const contents[2][4] = {{"0", "one", "", "three"},
                                               {"10", "11111", "x", "y"}};
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (size_t i = 0; i < 4; i++) {
            const struct cairn_item item = {.size = sizeof item,
                                            .name = names[i],
                                            .source = contents[rank][i],
                                            .bytes = strlen(contents[rank][i])};
            REQUIRE_OK(cairn_save_item(team.saves[rank], &item, &err));
        }
        const struct cairn_item same = {.size = sizeof same,
                                        .name = "same",
                                        .kind = CAIRN_REPLICATED,
                                        .source = "equal",
                                        .bytes = 5};
        REQUIRE_OK(cairn_save_item(team.saves[rank], &same, &err));
    }
    REQUIRE_OK(team_finish(&team, &err));
    REQUIRE_OK(team_restore(&team, NULL, &err));
    for (uint32_t rank = 0; rank < 2; rank++)
        for (size_t i = 0; i < 4; i++)
            expect_item(&team, names[i], rank, contents[rank][i], strlen(contents[rank][i]));
    expect_item(&team, "same", 0, "equal", 5);
    /* They are listed, and each rank's size can be read. */
    struct cairn_tensor_view view;
    struct cairn_holder holder;
    uint64_t cursor = 0, at = 0;
    size_t seen = 0;
    while (cairn_restore_next(team.restore, &cursor, &view, &err) == CAIRN_OK) {
        EXPECT_EQ_TEXT(view.dtype, "ITEM");
        EXPECT_EQ_U64(view.holder_count, 2);
        seen += !text_is(view.name, "same");
    }
    EXPECT_EQ_U64(seen, 4);
    for (uint32_t rank = 0; rank < 2; rank++) {
        REQUIRE_OK(cairn_restore_holder_next(team.restore, "opt/state", &at, &holder, &err));
        EXPECT_EQ_U64(holder.rank, rank);
        EXPECT_EQ_U64(holder.bytes, strlen(contents[rank][1]));
    }
    EXPECT_CODE(cairn_restore_holder_next(team.restore, "opt/state", &at, &holder, NULL),
                CAIRN_NOT_FOUND);
}

/* What a trainer gives as an item, by either call, is told apart from a tensor of bytes. */
TEST(an_item_is_told_apart_from_a_tensor_of_bytes_and_read_as_bytes) {
    TEAM(1);
    const uint64_t shape[2] = {5, 1};
    uint8_t found[5];
    struct cairn_tensor_piece piece = {.size = sizeof piece,
                                       .name = "tensor",
                                       .dtype = "U8",
                                       .dimension_count = 1,
                                       .shape = shape,
                                       .kind = CAIRN_LOCAL,
                                       .source = "12345",
                                       .source_bytes = 5};
    const struct cairn_item item = {
        .size = sizeof item, .name = "item", .source = "abcde", .bytes = 5};
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    REQUIRE_OK(cairn_save_tensor(team.saves[0], &piece, &err));
    REQUIRE_OK(cairn_save_item(team.saves[0], &item, &err));
    piece.name = "item.too";
    piece.dtype = "ITEM";
    REQUIRE_OK(cairn_save_tensor(team.saves[0], &piece, &err));
    piece.dimension_count = 2;
    EXPECT_CODE(cairn_save_tensor(team.saves[0], &piece, &err), CAIRN_INVALID);
    EXPECT(strstr(err.message, "an item has one dimension, not 2") != NULL);
    REQUIRE_OK(team_finish(&team, &err));
    REQUIRE_OK(team_restore(&team, NULL, &err));
    static const char *const wanted[3][2] = {
        {"item", "ITEM"}, {"item.too", "ITEM"}, {"tensor", "U8"}};
    struct cairn_tensor_view view;
    struct cairn_tensor_info info;
    uint64_t cursor = 0;
    for (size_t i = 0; i < 3; i++) {
        REQUIRE_OK(cairn_restore_next(team.restore, &cursor, &view, &err));
        EXPECT(text_is(view.name, wanted[i][0]));
        EXPECT_EQ_TEXT(view.dtype, wanted[i][1]);
        REQUIRE_OK(cairn_restore_tensor_find(team.restore, wanted[i][0], &info, &err));
        EXPECT_EQ_TEXT(info.dtype, wanted[i][1]);
    }
    struct cairn_read read = {.size = sizeof read,
                              .tensor = "item",
                              .into_dtype = "U8",
                              .into = found,
                              .into_bytes = sizeof found};
    REQUIRE_OK(cairn_restore_read(team.restore, &read, 1, 0, &err));
    EXPECT(!memcmp(found, "abcde", sizeof found));
    read.into_dtype = "F32";
    EXPECT_CODE(cairn_restore_read(team.restore, &read, 1, 0, &err), CAIRN_UNSUPPORTED);
    EXPECT(strstr(err.message, "ITEM is not converted to F32") != NULL);
}

TEST(a_stream_is_what_was_written_to_it_when_it_was_closed) {
    TEAM(1);
    enum { WORDS = 40000 };
    static uint32_t words[WORDS];
    struct cairn_stream *stream = NULL, *dropped = NULL, *empty = NULL;
    for (uint32_t i = 0; i < WORDS; i++) words[i] = i * 2654435761u;
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    REQUIRE_OK(cairn_save_stream(team.saves[0], "pickle", CAIRN_LOCAL, &stream, &err));
    REQUIRE_OK(cairn_save_stream(team.saves[0], "dropped", 0, &dropped, &err));
    REQUIRE_OK(cairn_save_stream(team.saves[0], "empty", CAIRN_REPLICATED, &empty, &err));
    for (uint32_t i = 0; i < WORDS; i += 100) {
        REQUIRE_OK(cairn_stream_write(stream, &words[i], 400, &err));
        REQUIRE_OK(cairn_stream_write(dropped, &words[i], 40, &err));
    }
    REQUIRE_OK(cairn_stream_close(stream, &err));
    REQUIRE_OK(cairn_stream_close(empty, &err));
    EXPECT_CODE(cairn_stream_write(stream, words, 4, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_stream_close(stream, &err), CAIRN_INVALID);
    cairn_stream_free(stream);
    cairn_stream_free(empty);
    REQUIRE_OK(cairn_save_stage(team.saves[0], &err));
    EXPECT_CODE(cairn_stream_write(dropped, words, 4, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_stream_close(dropped, &err), CAIRN_INVALID);
    cairn_stream_free(dropped);
    REQUIRE_OK(team_commit(&team, &err));
    REQUIRE_OK(team_restore(&team, NULL, &err));
    expect_item(&team, "pickle", 0, words, sizeof words);
    expect_item(&team, "empty", 0, "", 0);
    struct cairn_tensor_info info;
    EXPECT_CODE(cairn_restore_tensor_find(team.restore, "dropped", &info, &err), CAIRN_NOT_FOUND);
}

TEST(streams_hold_no_more_than_one_save_may_have) {
    TEAM(1);
    static uint8_t block[CAIRN_MIB];
    struct cairn_stream *first = NULL, *second = NULL;
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    REQUIRE_OK(cairn_save_stream(team.saves[0], "a", CAIRN_LOCAL, &first, &err));
    REQUIRE_OK(cairn_save_stream(team.saves[0], "b", CAIRN_LOCAL, &second, &err));
    for (int i = 0; i < 3; i++) REQUIRE_OK(cairn_stream_write(first, block, sizeof block, &err));
    REQUIRE_OK(cairn_stream_write(second, block, sizeof block, &err));
    EXPECT_CODE(cairn_stream_write(second, block, 1, &err), CAIRN_TOO_LARGE);
    cairn_stream_free(first); /* gives its bytes back */
    REQUIRE_OK(cairn_stream_write(second, block, 1, &err));
    REQUIRE_OK(cairn_stream_close(second, &err));
    cairn_stream_free(second);
    REQUIRE_OK(team_finish(&team, &err));
}

/* ---- regions ---- */

#define ROWS 40
#define COLUMNS 30

static float whole[ROWS][COLUMNS], packed[ROWS * COLUMNS];

/* Rank 0 holds two boxes and one without elements, rank 1 the flat rows between, rank 2 nothing. */
static enum cairn_code add_regions(struct cairn_save *save, uint32_t rank,
                                   struct cairn_error *err) {
    static const uint64_t shape[2] = {ROWS, COLUMNS};
    static const uint64_t box_start[6] = {0, 0, 30, 0, 5, 5}, box_count[6] = {10, 30, 10, 30, 0, 3};
    static const uint64_t flat_start[2] = {300, 700}, flat_count[2] = {400, 200}, none[1] = {0};
    struct cairn_tensor_piece piece = {.size = sizeof piece,
                                       .name = "w",
                                       .dtype = "F32",
                                       .dimension_count = 2,
                                       .shape = shape,
                                       .kind = CAIRN_SHARDED,
                                       .form = rank ? CAIRN_FLAT : CAIRN_BOX,
                                       .start = rank ? flat_start : box_start,
                                       .count = rank ? flat_count : box_count,
                                       .source = packed,
                                       .source_bytes = 600 * sizeof(float),
                                       .region_count = rank ? 2 : 3};
    if (rank == 2) {
        piece.region_count = 0;
        piece.start = piece.count = none;
        piece.source = NULL;
        piece.source_bytes = 0;
    }
    if (rank == 0) memcpy(packed, whole, 300 * sizeof(float));
    if (rank == 0) memcpy(packed + 300, whole[30], 300 * sizeof(float));
    if (rank == 1) memcpy(packed, whole[10], 600 * sizeof(float));
    return cairn_save_tensor(save, &piece, err);
}

TEST(several_regions_of_a_tensor_are_one_piece_and_one_may_be_empty) {
    TEAM(3);
    static float found[ROWS][COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) whole[i / COLUMNS][i % COLUMNS] = (float)i;
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    for (uint32_t rank = 0; rank < 3; rank++) {
        REQUIRE_OK(add_regions(team.saves[rank], rank, &err));
        REQUIRE_OK(cairn_save_stage(team.saves[rank], &err));
    }
    REQUIRE_OK(team_commit(&team, &err));
    REQUIRE_OK(team_restore(&team, NULL, &err));
    const uint64_t zero = 0;
    const struct cairn_read reads[2] = {
        {.size = sizeof reads[0], .tensor = "w", .into = found, .into_bytes = sizeof found},
        {.size = sizeof reads[0],
         .tensor = "w",
         .form = CAIRN_FLAT,
         .start = &zero,
         .count = &zero}};
    REQUIRE_OK(cairn_restore_read(team.restore, reads, 2, 0, &err));
    EXPECT(!memcmp(found, whole, sizeof whole));
    /* Where its pieces lie: what is read from there is what they are said to be. */
    struct cairn_stored_piece at;
    uint64_t cursor = 0, pieces = 0, elements = 0;
    uint32_t last_rank = 0;
    while (cairn_restore_piece_next(team.restore, "w", &cursor, &at, &err) == CAIRN_OK) {
        static float part[ROWS * COLUMNS];
        char shard[600];
        snprintf(shard, sizeof shard, "%.*s", (int)at.shard.bytes, at.shard.data);
        const struct cairn_read read = {.size = sizeof read,
                                        .shard = shard,
                                        .offset = at.offset,
                                        .bytes = at.bytes,
                                        .into = part,
                                        .into_bytes = at.bytes};
        REQUIRE_OK(cairn_restore_read(team.restore, &read, 1, 0, &err));
        uint64_t first = at.form == CAIRN_FLAT ? at.start[0] : at.start[0] * COLUMNS + at.start[1];
        EXPECT(!memcmp(part, (float *)whole + first, at.bytes));
        EXPECT(at.rank >= last_rank);
        last_rank = at.rank;
        elements += at.bytes / sizeof(float);
        pieces++;
    }
    EXPECT_EQ_U64(pieces, 4);
    EXPECT_EQ_U64(elements, ROWS * COLUMNS);
    EXPECT_CODE(cairn_restore_piece_next(team.restore, "v", &cursor, &at, &err), CAIRN_NOT_FOUND);
    EXPECT(strstr(err.message, "no tensor v") != NULL);
}

TEST(regions_that_do_not_fit_their_source_are_refused_and_none_of_them_is_kept) {
    TEAM(1);
    static const uint64_t shape[1] = {8}, start[2] = {0, 4}, count[2] = {4, 4}, strides = 1;
    static float source[8];
    struct cairn_tensor_piece piece = {.size = sizeof piece,
                                       .name = "w",
                                       .dtype = "F32",
                                       .dimension_count = 1,
                                       .shape = shape,
                                       .kind = CAIRN_SHARDED,
                                       .form = CAIRN_FLAT,
                                       .start = start,
                                       .count = count,
                                       .source = source,
                                       .source_bytes = 28,
                                       .region_count = 2};
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    EXPECT_CODE(cairn_save_tensor(team.saves[0], &piece, &err), CAIRN_INVALID);
    piece.source_bytes = 36;
    EXPECT_CODE(cairn_save_tensor(team.saves[0], &piece, &err), CAIRN_INVALID);
    piece.source_bytes = 32;
    piece.kind = CAIRN_REPLICATED;
    EXPECT_CODE(cairn_save_tensor(team.saves[0], &piece, &err), CAIRN_INVALID);
    piece.kind = CAIRN_SHARDED;
    piece.source_stride = (const int64_t *)&strides;
    EXPECT_CODE(cairn_save_tensor(team.saves[0], &piece, &err), CAIRN_INVALID);
    piece.source_stride = NULL;
    REQUIRE_OK(cairn_save_tensor(team.saves[0], &piece, &err));
    REQUIRE_OK(team_finish(&team, &err));
}

/* ---- names ---- */

TEST(a_cursor_shows_names_as_the_restore_knows_them) {
    TEAM(1);
    const uint64_t shape = 1;
    struct cairn_tensor_piece piece = {.size = sizeof piece,
                                       .name = "model.w",
                                       .dtype = "U8",
                                       .dimension_count = 1,
                                       .shape = &shape,
                                       .kind = CAIRN_LOCAL,
                                       .source = "x",
                                       .source_bytes = 1};
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    REQUIRE_OK(cairn_save_tensor(team.saves[0], &piece, &err));
    piece.kind = CAIRN_ALIAS;
    piece.alias_of = "model.w";
    piece.name = "model.tied";
    piece.source = NULL;
    piece.source_bytes = 0;
    REQUIRE_OK(cairn_save_tensor(team.saves[0], &piece, &err));
    REQUIRE_OK(team_finish(&team, &err));
    const struct cairn_rename rename = {
        .size = sizeof rename, .stored = "model.", .known = "", .whole = 0};
    const struct cairn_restore_options options = {
        .size = sizeof options, .ref = "latest", .renames = &rename, .rename_count = 1};
    REQUIRE_OK(cairn_restore_open(team.sessions[0], &options, &team.restore, NULL, &err));
    struct cairn_tensor_view view;
    struct cairn_holder holder;
    uint64_t cursor = 0, at = 0;
    REQUIRE_OK(cairn_restore_next(team.restore, &cursor, &view, &err));
    EXPECT(text_is(view.name, "tied"));
    EXPECT(text_is(view.alias_of, "w"));
    REQUIRE_OK(cairn_restore_next(team.restore, &cursor, &view, &err));
    EXPECT(text_is(view.name, "w"));
    EXPECT_EQ_U64(view.alias_of.bytes, 0);
    EXPECT_EQ_U64(view.bytes, 1);
    EXPECT_CODE(cairn_restore_next(team.restore, &cursor, &view, &err), CAIRN_NOT_FOUND);
    REQUIRE_OK(cairn_restore_holder_next(team.restore, "tied", &at, &holder, &err));
    EXPECT_EQ_U64(holder.piece_count, 1); /* of what it is an alias of */
}
