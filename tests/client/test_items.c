/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* Items by name, streams, several regions of one piece, and what a version says of all that. */

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
    const struct cairn_read read = SIZED(cairn_read, .tensor = name, .local_rank_of = rank,
                                         .into = found, .into_bytes = bytes);
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
            const struct cairn_item item =
                SIZED(cairn_item, .name = names[i], .source = contents[rank][i],
                      .bytes = strlen(contents[rank][i]));
            REQUIRE_OK(cairn_save_item(team.saves[rank], &item, &err));
        }
        const struct cairn_item same = SIZED(cairn_item, .name = "same", .kind = CAIRN_REPLICATED,
                                             .source = "equal", .bytes = 5);
        REQUIRE_OK(cairn_save_item(team.saves[rank], &same, &err));
    }
    REQUIRE_OK(team_finish_and_restore(&team, &err));
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
        EXPECT_ALL_U64(holder.rank, rank, holder.bytes, strlen(contents[rank][1]));
    }
    EXPECT_CODE(cairn_restore_holder_next(team.restore, "opt/state", &at, &holder, NULL),
                CAIRN_NOT_FOUND);
}

/* What a trainer gives as an item, by either call, is told apart from a tensor of bytes. */
TEST(an_item_is_told_apart_from_a_tensor_of_bytes_and_read_as_bytes) {
    TEAM(1);
    const uint64_t shape[2] = {5, 1};
    uint8_t found[5];
    struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "tensor", .dtype = "U8", .dimension_count = 1,
              .shape = shape, .kind = CAIRN_LOCAL, .source = "12345", .source_bytes = 5);
    const struct cairn_item item = {
        .size = sizeof item, .name = "item", .source = "abcde", .bytes = 5};
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    REQUIRE_OK(cairn_save_tensor(team.saves[0], &piece, &err));
    REQUIRE_OK(cairn_save_item(team.saves[0], &item, &err));
    piece.name = "item.too";
    piece.dtype = "ITEM";
    REQUIRE_OK(cairn_save_tensor(team.saves[0], &piece, &err));
    piece.dimension_count = 2;
    EXPECT_FAILS(cairn_save_tensor(team.saves[0], &piece, &err), CAIRN_INVALID,
                 "an item has one dimension, not 2");
    REQUIRE_OK(team_finish_and_restore(&team, &err));
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
    struct cairn_read read = SIZED(cairn_read, .tensor = "item", .into_dtype = "U8", .into = found,
                                   .into_bytes = sizeof found);
    REQUIRE_OK(cairn_restore_read(team.restore, &read, 1, 0, &err));
    EXPECT(!memcmp(found, "abcde", sizeof found));
    read.into_dtype = "F32";
    EXPECT_FAILS(cairn_restore_read(team.restore, &read, 1, 0, &err), CAIRN_UNSUPPORTED,
                 "ITEM is not converted to F32");
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
    REQUIRE_OK(team_commit_and_restore(&team, &err));
    expect_item(&team, "pickle", 0, words, sizeof words);
    expect_item(&team, "empty", 0, "", 0);
    struct cairn_tensor_info info;
    EXPECT_CODE(cairn_restore_tensor_find(team.restore, "dropped", &info, &err), CAIRN_NOT_FOUND);
}

static enum cairn_code items_of(struct cairn_restore *restore,
                                const struct cairn_items_options *options, size_t *ret_count,
                                struct cairn_item_read **list, struct cairn_error *err) {
    cairn_items_free(*list);
    *list = NULL;
    return cairn_restore_items(restore, options, list, ret_count, err);
}

static bool holds(const struct cairn_item_read *item, const char *name, const char *text) {
    return !strcmp(item->name, name) && item->bytes == strlen(text) && (item->data != NULL) &&
           !memcmp(item->data, text, strlen(text));
}

TEST(items_of_any_sizes_are_read_in_one_call) {
    TEAM(2);
    static const char *const own[2] = {"of rank 0", "and of rank 1, which is longer"};
    static const uint8_t byte = 1;
    static const uint64_t shape[2] = {1, 1};
    struct cairn_item_read *list = NULL;
    size_t count = 9;
    REQUIRE_OK(team_begin(&team, 1, NULL, &err));
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct cairn_item item = {
            .size = sizeof item, .name = "loader", .source = own[rank], .bytes = strlen(own[rank])};
        REQUIRE_OK(cairn_save_item(team.saves[rank], &item, &err));
        item = (struct cairn_item){.size = sizeof item,
                                   .name = "args",
                                   .kind = CAIRN_REPLICATED,
                                   .source = "--lr 1",
                                   .bytes = 6};
        REQUIRE_OK(cairn_save_item(team.saves[rank], &item, &err));
        item = (struct cairn_item){.size = sizeof item, .name = rank ? "zero" : "first"};
        REQUIRE_OK(cairn_save_item(team.saves[rank], &item, &err));
        const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                                 .name = "w",
                                                 .dtype = "U8",
                                                 .dimension_count = 2,
                                                 .shape = shape,
                                                 .kind = CAIRN_LOCAL,
                                                 .source = &byte,
                                                 .source_bytes = 1};
        REQUIRE_OK(cairn_save_tensor(team.saves[rank], &piece, &err));
    }
    REQUIRE_OK(team_finish_and_restore(&team, &err));
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct cairn_items_options all = {.size = sizeof all, .local_rank_of = rank};
        REQUIRE_OK(items_of(team.restore, &all, &count, &list, &err));
        REQUIRE(count == 3);
        EXPECT(holds(&list[0], "args", "--lr 1"));
        EXPECT(holds(&list[rank ? 1 : 2], "loader", own[rank]));
        EXPECT(holds(&list[rank ? 2 : 1], rank ? "zero" : "first", ""));
    }
    /* By name, in the order that is asked for. */
    const char *names[3] = {"loader", "nothing", "args"};
    struct cairn_items_options some = {
        .size = sizeof some, .names = names, .name_count = 3, .local_rank_of = 1, .optional = 1};
    REQUIRE_OK(items_of(team.restore, &some, &count, &list, &err));
    REQUIRE(count == 3);
    EXPECT(holds(&list[0], "loader", own[1]) && holds(&list[2], "args", "--lr 1"));
    EXPECT(!strcmp(list[1].name, "nothing") && !list[1].data);
    some.optional = 0;
    EXPECT_CODE(items_of(team.restore, &some, &count, &list, &err), CAIRN_NOT_FOUND);
    names[1] = "first"; /* rank 0's */
    EXPECT_FAILS(items_of(team.restore, &some, &count, &list, &err), CAIRN_NOT_FOUND,
                 "rank 1 has no first");
    names[1] = "w";
    EXPECT_CODE(items_of(team.restore, &some, &count, &list, &err), CAIRN_INVALID);
    names[1] = "args"; /* twice is no error */
    some.bytes_max = strlen(own[1]) + 11;
    EXPECT_CODE(items_of(team.restore, &some, &count, &list, &err), CAIRN_TOO_LARGE);
    some.bytes_max++;
    REQUIRE_OK(items_of(team.restore, &some, &count, &list, &err));
    cairn_items_free(list);
}

/* Four MiB is what the session has. */
TEST(a_stream_beyond_the_sessions_memory_is_a_shard_of_its_own) {
    TEAM(1);
    enum { BLOCKS = 6 };
    static uint8_t block[CAIRN_MIB], all[BLOCKS * CAIRN_MIB];
    struct cairn_stream *small = NULL, *large = NULL, *dropped = NULL;
    struct cairn_save *again = NULL;
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    REQUIRE_OK(cairn_save_stream(team.saves[0], "small", CAIRN_LOCAL, &small, &err));
    REQUIRE_OK(cairn_save_stream(team.saves[0], "large", CAIRN_LOCAL, &large, &err));
    REQUIRE_OK(cairn_save_stream(team.saves[0], "dropped", CAIRN_LOCAL, &dropped, &err));
    REQUIRE_OK(cairn_stream_write(small, "in the slab", 11, &err));
    for (uint32_t i = 0; i < BLOCKS; i++) {
        memset(block, 'a' + (int)i, sizeof block);
        memcpy(all + i * CAIRN_MIB, block, sizeof block);
        REQUIRE_OK(cairn_stream_write(large, block, sizeof block, &err));
        REQUIRE_OK(cairn_stream_write(dropped, block, sizeof block, &err));
    }
    REQUIRE_OK(cairn_stream_close(large, &err));
    EXPECT_CODE(cairn_stream_write(large, block, 1, &err), CAIRN_INVALID);
    REQUIRE_OK(cairn_stream_close(small, &err));
    cairn_stream_free(small);
    cairn_stream_free(large);
    cairn_stream_free(dropped);
    REQUIRE_OK(team_finish(&team, &err));
    EXPECT_CODE(cairn_save_again(team.sessions[0], 6, NULL, team.saves[0], NULL, 0, &again, &err),
                CAIRN_INVALID);
    REQUIRE_OK(team_restore(&team, NULL, &err));
    expect_item(&team, "large", 0, all, sizeof all);
    expect_item(&team, "small", 0, "in the slab", 11);
    struct cairn_tensor_info info;
    EXPECT_CODE(cairn_restore_tensor_find(team.restore, "dropped", &info, &err), CAIRN_NOT_FOUND);
    /* Behind the copy there is no file more; what fits the session still goes. */
    REQUIRE_OK(team_begin(&team, 6, NULL, &err));
    REQUIRE_OK(cairn_save_stream(team.saves[0], "large", CAIRN_LOCAL, &large, &err));
    REQUIRE_OK(cairn_stream_write(large, all, sizeof all, &err));
    REQUIRE_OK(cairn_save_copy(team.saves[0], &err));
    EXPECT_CODE(cairn_stream_close(large, &err), CAIRN_INVALID);
    cairn_stream_free(large);
    REQUIRE_OK(cairn_save_stream(team.saves[0], "small", CAIRN_LOCAL, &small, &err));
    REQUIRE_OK(cairn_stream_write(small, all, 100, &err));
    REQUIRE_OK(cairn_stream_close(small, &err));
    cairn_stream_free(small);
    REQUIRE_OK(cairn_save_seal(team.saves[0], &err));
    REQUIRE_OK(team_commit(&team, &err));
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
    struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "w", .dtype = "F32", .dimension_count = 2, .shape = shape,
              .kind = CAIRN_SHARDED, .form = rank ? CAIRN_FLAT : CAIRN_BOX,
              .start = rank ? flat_start : box_start, .count = rank ? flat_count : box_count,
              .source = packed, .source_bytes = 600 * sizeof(float), .region_count = rank ? 2 : 3);
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
    REQUIRE_OK(team_commit_and_restore(&team, &err));
    const uint64_t zero = 0;
    const struct cairn_read reads[2] = {
        SIZED(cairn_read, .tensor = "w", .into = found, .into_bytes = sizeof found),
        SIZED(cairn_read, .tensor = "w", .form = CAIRN_FLAT, .start = &zero, .count = &zero)};
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
        const struct cairn_read read =
            SIZED(cairn_read, .shard = shard, .offset = at.offset, .bytes = at.bytes, .into = part,
                  .into_bytes = at.bytes);
        REQUIRE_OK(cairn_restore_read(team.restore, &read, 1, 0, &err));
        uint64_t first = at.form == CAIRN_FLAT ? at.start[0] : at.start[0] * COLUMNS + at.start[1];
        EXPECT(!memcmp(part, (float *)whole + first, at.bytes));
        EXPECT(at.rank >= last_rank);
        last_rank = at.rank;
        elements += at.bytes / sizeof(float);
        pieces++;
    }
    EXPECT_ALL_U64(pieces, 4, elements, ROWS * COLUMNS);
    EXPECT_FAILS(cairn_restore_piece_next(team.restore, "v", &cursor, &at, &err), CAIRN_NOT_FOUND,
                 "no tensor v");
}

static enum cairn_code read_all(struct cairn_restore *restore, const struct cairn_read *reads,
                                size_t count, bool behind, struct cairn_error *err) {
    struct cairn_reading *reading = NULL;
    if (!behind) return cairn_restore_read(restore, reads, count, 0, err);
    CAIRN_TRY(cairn_read_begin(restore, reads, count, 0, &reading, err));
    enum cairn_code code = cairn_read_wait(reading, 0, err);
    cairn_read_free(reading);
    return code;
}

static enum cairn_code save_one(struct cairn_team *team, const struct cairn_tensor_piece *piece,
                                struct cairn_error *err) {
    CAIRN_TRY(team_begin(team, 1, NULL, err));
    CAIRN_TRY(cairn_save_tensor(team->saves[0], piece, err));
    CAIRN_TRY(team_finish(team, err));
    return team_restore(team, NULL, err);
}

TEST(several_regions_of_a_tensor_are_read_at_once_one_behind_the_other) {
    TEAM(1);
    static uint32_t numbers[20][30];
    static const uint64_t shape[2] = {20, 30};
    static const uint64_t start[3] = {590, 0, 31}, count[3] = {10, 0, 100};
    static const uint64_t from[4] = {0, 0, 18, 25}, extent[4] = {2, 3, 2, 5};
    uint32_t flat[110] = {0}, boxes[16] = {0};
    uint16_t narrow[110] = {0};
    for (uint32_t i = 0; i < 600; i++) numbers[i / 30][i % 30] = 0x3f800000u + (i << 16);
    const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                             .name = "w",
                                             .dtype = "F32",
                                             .dimension_count = 2,
                                             .shape = shape,
                                             .kind = CAIRN_LOCAL,
                                             .source = numbers,
                                             .source_bytes = sizeof numbers};
    REQUIRE_OK(save_one(&team, &piece, &err));
    struct cairn_read reads[3] = {{.size = sizeof reads[0],
                                   .tensor = "w",
                                   .form = CAIRN_FLAT,
                                   .start = start,
                                   .count = count,
                                   .region_count = 3,
                                   .into = flat,
                                   .into_bytes = sizeof flat}};
    reads[1] = reads[0];
    reads[1].form = CAIRN_BOX;
    reads[1].start = from;
    reads[1].count = extent;
    reads[1].region_count = 2;
    reads[1].into = boxes;
    reads[1].into_bytes = sizeof boxes;
    reads[2] = reads[0];
    reads[2].into_dtype = "BF16";
    reads[2].into = narrow;
    reads[2].into_bytes = sizeof narrow;
    const uint32_t *all = numbers[0];
    for (int behind = 0; behind < 2; behind++) {
        memset(flat, 0, sizeof flat), memset(boxes, 0, sizeof boxes);
        memset(narrow, 0, sizeof narrow);
        REQUIRE_OK(read_all(team.restore, reads, 3, behind, &err));
        for (size_t i = 0; i < 110; i++) {
            uint32_t wanted = i < 10 ? all[590 + i] : all[31 + i - 10];
            if (!EXPECT(flat[i] == wanted && narrow[i] == wanted >> 16)) break;
        }
        EXPECT(!memcmp(boxes, numbers[0], 12) && !memcmp(boxes + 3, numbers[1], 12));
        EXPECT(!memcmp(boxes + 6, &numbers[18][25], 20));
        EXPECT(!memcmp(boxes + 11, &numbers[19][25], 20));
    }
    reads[0].into_bytes -= 4;
    EXPECT_FAILS(cairn_restore_read(team.restore, reads, 1, 0, &err), CAIRN_INVALID,
                 "the regions have more");
    reads[0].into_bytes += 8;
    EXPECT_FAILS(cairn_restore_read(team.restore, reads, 1, 0, &err), CAIRN_INVALID,
                 "the regions have 440");
    reads[0].form = CAIRN_WHOLE;
    EXPECT_CODE(cairn_restore_read(team.restore, reads, 1, 0, &err), CAIRN_INVALID);
    reads[0].form = CAIRN_FLAT;
    reads[0].tensor = "none";
    EXPECT_CODE(cairn_restore_read(team.restore, reads, 1, 0, &err), CAIRN_NOT_FOUND);
    reads[0].optional = 1;
    EXPECT_CODE(cairn_restore_read(team.restore, reads, 1, 0, &err), CAIRN_OK);
}

TEST(regions_that_do_not_fit_their_source_are_refused_and_none_of_them_is_kept) {
    TEAM(1);
    static const uint64_t shape[1] = {8}, start[2] = {0, 4}, count[2] = {4, 4}, strides = 1;
    static float source[8];
    struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "w", .dtype = "F32", .dimension_count = 1, .shape = shape,
              .kind = CAIRN_SHARDED, .form = CAIRN_FLAT, .start = start, .count = count,
              .source = source, .source_bytes = 28, .region_count = 2);
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
    struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "model.w", .dtype = "U8", .dimension_count = 1,
              .shape = &shape, .kind = CAIRN_LOCAL, .source = "x", .source_bytes = 1);
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
    EXPECT_ALL_U64(view.alias_of.bytes, 0, view.bytes, 1);
    EXPECT_CODE(cairn_restore_next(team.restore, &cursor, &view, &err), CAIRN_NOT_FOUND);
    REQUIRE_OK(cairn_restore_holder_next(team.restore, "tied", &at, &holder, &err));
    EXPECT_EQ_U64(holder.piece_count, 1); /* of what it is an alias of */
}
