/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* Many pieces in one call, and saves of what was described before: real server, real uploader. */

#include "client/save/arrange.h"
#include "tests/client/team.h"

#define PIECES 200
#define ELEMENTS 300

static uint32_t memory[2][PIECES][ELEMENTS];
static char names[PIECES][24];
static struct cairn_tensor_piece pieces[PIECES];
static const void *addresses[2][PIECES];

/* "w-000", ...: every third one in two regions, every fifth one transposed. */
static void describe_all(void) {
    static const uint64_t whole[1] = {ELEMENTS}, square[2] = {20, 15};
    static const uint64_t start[2] = {200, 0}, count[2] = {100, 200};
    static const int64_t stride[2] = {1, 20};
    for (size_t i = 0; i < PIECES; i++) {
        snprintf(names[i], sizeof names[i], "w-%03zu", (i * 77) % PIECES); /* not in order */
        pieces[i] = (struct cairn_tensor_piece){.size = sizeof pieces[i],
                                                .name = names[i],
                                                .dtype = "U32",
                                                .dimension_count = 1,
                                                .shape = whole,
                                                .kind = CAIRN_LOCAL,
                                                .source = memory[0][i],
                                                .source_bytes = sizeof memory[0][i]};
        if (i % 3 == 0) {
            pieces[i].form = CAIRN_FLAT;
            pieces[i].start = start;
            pieces[i].count = count;
            pieces[i].region_count = 2;
        } else if (i % 5 == 0) {
            pieces[i].dimension_count = 2;
            pieces[i].shape = square;
            pieces[i].source_stride = stride;
        }
        addresses[0][i] = memory[0][i];
        addresses[1][i] = memory[1][i];
    }
}

static void fill(unsigned half, uint32_t seed) {
    for (size_t i = 0; i < PIECES; i++)
        for (uint32_t k = 0; k < ELEMENTS; k++)
            memory[half][i][k] = seed * 1000003u + (uint32_t)i * 1009u + k;
}

/* Is what was saved last what `fill(half, seed)` made, read by the known into other memory? */
static bool is_saved(struct cairn_team *team, const struct cairn_pieces *known, uint32_t seed,
                     struct cairn_error *err) {
    static uint32_t found[PIECES][ELEMENTS];
    void *into[PIECES];
    for (size_t i = 0; i < PIECES; i++) into[i] = found[i];
    memset(found, 0, sizeof found);
    if (team_restore(team, NULL, err)) return false;
    if (cairn_restore_pieces(team->restore, known, into, PIECES, 0, 0, err)) return false;
    for (size_t i = 0; i < PIECES; i++)
        for (uint32_t k = 0; k < ELEMENTS; k++)
            if (found[i][k] != seed * 1000003u + (uint32_t)i * 1009u + k) return false;
    return true;
}

static struct cairn_pieces *new_known(struct cairn_team *team, struct cairn_error *err) {
    struct cairn_pieces *made = NULL;
    describe_all();
    enum cairn_code code =
        cairn_pieces_new(team->sessions[0], pieces, PIECES, NULL, NULL, &made, err);
    return code ? NULL : made;
}

TEST(an_array_of_pieces_is_saved_as_each_of_them_would_be) {
    TEAM(1);
    struct cairn_pieces *known = new_known(&team, &err);
    REQUIRE(known);
    fill(0, 1);
    REQUIRE_OK(team_begin(&team, 1, NULL, &err));
    REQUIRE_OK(cairn_save_tensors(team.saves[0], pieces, PIECES, NULL, &err));
    REQUIRE_OK(team_finish(&team, &err));
    EXPECT(is_saved(&team, known, 1, &err));
    cairn_pieces_free(known);
}

TEST(of_an_array_with_a_piece_that_is_refused_nothing_is_part_of_the_save) {
    TEAM(1);
    size_t bad = 0;
    struct cairn_pieces *known = new_known(&team, &err);
    REQUIRE(known);
    fill(0, 2);
    REQUIRE_OK(team_begin(&team, 1, NULL, &err));
    pieces[150].dtype = "U31";
    EXPECT_CODE(cairn_save_tensors(team.saves[0], pieces, PIECES, &bad, &err), CAIRN_INVALID);
    EXPECT_EQ_U64(bad, 150);
    EXPECT(strstr(err.message, "piece 150: tensor w-") != NULL);
    describe_all();
    REQUIRE_OK(cairn_save_tensors(team.saves[0], pieces, PIECES, &bad, &err));
    REQUIRE_OK(team_finish(&team, &err));
    EXPECT(is_saved(&team, known, 2, &err));
    cairn_pieces_free(known);
}

TEST(known_pieces_are_saved_from_the_addresses_of_each_save_and_read_into_others) {
    TEAM(1);
    struct cairn_pieces *known = new_known(&team, &err);
    REQUIRE(known);
    memset(pieces, 0xA5, sizeof pieces); /* what was passed is not needed any more */
    memset(names, 'x', sizeof names);
    for (uint64_t step = 1; step <= 6; step++) {
        unsigned half = step % 2;
        fill(half, (uint32_t)step);
        REQUIRE_OK(team_begin(&team, step, NULL, &err));
        REQUIRE_OK(cairn_save_pieces(team.saves[0], known, half ? addresses[1] : NULL,
                                     half ? PIECES : 0, &err));
        if (step == 6) cairn_pieces_free(known); /* the save keeps it */
        if (step == 6) known = NULL;
        REQUIRE_OK(team_finish(&team, &err));
        if (known) EXPECT(is_saved(&team, known, (uint32_t)step, &err));
    }
    known = new_known(&team, &err);
    EXPECT(is_saved(&team, known, 6, &err));
    cairn_pieces_free(known);
}

TEST(what_comes_before_known_pieces_and_beside_them_is_saved_with_them) {
    TEAM(1);
    static const char note[] = "beside";
    struct cairn_pieces *known = new_known(&team, &err);
    struct cairn_tensor_info info;
    REQUIRE(known);
    const struct cairn_item item = {
        .size = sizeof item, .name = "a note", .source = note, .bytes = sizeof note};
    for (uint64_t step = 1; step <= 4; step++) {
        fill(1, (uint32_t)step);
        REQUIRE_OK(team_begin(&team, step, NULL, &err));
        if (step % 2) REQUIRE_OK(cairn_save_item(team.saves[0], &item, &err));
        REQUIRE_OK(cairn_save_pieces(team.saves[0], known, addresses[1], PIECES, &err));
        if (!(step % 2)) REQUIRE_OK(cairn_save_item(team.saves[0], &item, &err));
        EXPECT_CODE(cairn_save_pieces(team.saves[0], known, addresses[1], PIECES - 1, &err),
                    CAIRN_INVALID);
        REQUIRE_OK(team_finish(&team, &err));
        EXPECT(is_saved(&team, known, (uint32_t)step, &err));
        REQUIRE_OK(cairn_restore_tensor_find(team.restore, "a note", &info, &err));
        EXPECT_EQ_U64(info.bytes, sizeof note);
    }
    cairn_pieces_free(known);
}

TEST(known_pieces_say_how_many_bytes_a_session_needs_for_them) {
    TEAM(1);
    uint64_t bytes = 0, more = 0;
    struct cairn_pieces *known = new_known(&team, &err);
    struct cairn_save_status status;
    REQUIRE(known);
    REQUIRE_OK(cairn_pieces_bytes(known, 0, &bytes, &err));
    REQUIRE_OK(cairn_pieces_bytes(known, 1000, &more, &err));
    EXPECT_EQ_U64(more, bytes + 1000);
    EXPECT_CODE(cairn_pieces_bytes(known, UINT64_MAX, &more, &err), CAIRN_TOO_LARGE);
    fill(0, 1);
    REQUIRE_OK(team_begin(&team, 1, NULL, &err));
    REQUIRE_OK(cairn_save_pieces(team.saves[0], known, NULL, 0, &err));
    REQUIRE_OK(team_finish(&team, &err));
    cairn_save_status(team.saves[0], &status);
    EXPECT_EQ_U64(bytes, status.total_bytes);
    cairn_pieces_free(known);
}

TEST(pieces_that_do_not_fit_together_are_refused_before_they_are_known) {
    TEAM(1);
    size_t bad = 0;
    struct cairn_pieces *made = NULL;
    describe_all();
    snprintf(names[1], sizeof names[1], "%s", names[2]);
    pieces[1].dtype = "F32";
    EXPECT_CODE(cairn_pieces_new(team.sessions[0], pieces, PIECES, NULL, &bad, &made, &err),
                CAIRN_INVALID);
    EXPECT_EQ_U64(bad, PIECES);
    EXPECT(!made && strstr(err.message, "disagree") != NULL);
}

/* ---- again ---- */

TEST(a_save_again_consists_of_what_the_one_before_consisted_of) {
    TEAM(1);
    static char raws[2][5000];
    const void *sources[PIECES + 1];
    struct cairn_pieces *known = new_known(&team, &err);
    struct cairn_save *save = NULL;
    REQUIRE(known);
    fill(0, 1);
    memset(raws[0], 1, sizeof raws[0]);
    REQUIRE_OK(team_begin(&team, 1, NULL, &err));
    EXPECT_CODE(cairn_save_again(team.sessions[0], 2, NULL, team.saves[0], NULL, 0, &save, &err),
                CAIRN_INVALID); /* it is not staged */
    REQUIRE_OK(cairn_save_tensors(team.saves[0], pieces, PIECES, NULL, &err));
    REQUIRE_OK(cairn_save_raw(team.saves[0], "rng.bin", raws[0], sizeof raws[0], &err));
    REQUIRE_OK(team_finish(&team, &err));
    memcpy(sources, addresses[1], sizeof addresses[1]);
    sources[PIECES] = raws[1];
    for (uint64_t step = 2; step <= 7; step++) {
        bool same = step % 3 == 0;        /* the addresses of the one before ... */
        unsigned half = step < 2 ? 0 : 1; /* ... which are the second half from here on */
        fill(half, (uint32_t)step);
        memset(raws[half], (int)step, sizeof raws[half]);
        EXPECT_CODE(
            cairn_save_again(team.sessions[0], step, NULL, team.saves[0], sources, 7, &save, &err),
            CAIRN_INVALID);
        REQUIRE_OK(cairn_save_again(team.sessions[0], step, NULL, team.saves[0],
                                    same ? NULL : sources, same ? 0 : PIECES + 1, &save, &err));
        cairn_save_free(team.saves[0]);
        team.saves[0] = save;
        REQUIRE_OK(step % 2 ? cairn_save_stage_begin(save, &err) : cairn_save_stage(save, &err));
        REQUIRE_OK(cairn_save_fence(save, 0, &err));
        fill(0, 99);
        REQUIRE_OK(team_commit(&team, &err));
        EXPECT(is_saved(&team, known, (uint32_t)step, &err));
        char found[sizeof raws[1]] = "";
        const struct cairn_read raw =
            SIZED(cairn_read, .shard = "rank-00000/rng.bin", .bytes = UINT64_MAX, .into = found,
                  .into_bytes = sizeof found);
        EXPECT_CODE(cairn_restore_read(team.restore, &raw, 1, 0, &err), CAIRN_OK);
        EXPECT_EQ_U64((unsigned char)found[4999], step);
    }
    cairn_pieces_free(known);
}

TEST(a_save_with_a_stream_or_of_known_pieces_and_more_is_not_repeated) {
    TEAM(1);
    struct cairn_pieces *known = new_known(&team, &err);
    struct cairn_save *save = NULL;
    struct cairn_stream *stream = NULL;
    REQUIRE(known);
    for (uint64_t step = 1; step <= 2; step++) {
        REQUIRE_OK(team_begin(&team, step, NULL, &err));
        if (step == 1) REQUIRE_OK(cairn_save_pieces(team.saves[0], known, NULL, 0, &err));
        REQUIRE_OK(cairn_save_stream(team.saves[0], "s", CAIRN_LOCAL, &stream, &err));
        REQUIRE_OK(cairn_stream_write(stream, "bytes", 5, &err));
        REQUIRE_OK(cairn_stream_close(stream, &err));
        cairn_stream_free(stream);
        REQUIRE_OK(team_finish(&team, &err));
        enum cairn_code code =
            cairn_save_again(team.sessions[0], 9, NULL, team.saves[0], NULL, 0, &save, &err);
        EXPECT_FAILS(code, CAIRN_INVALID, "is not known");
    }
    cairn_pieces_free(known);
}

/* ---- replica groups ---- */

TEST(known_pieces_of_a_split_are_saved_in_shares_and_read_whole) {
    TEAM(2);
    struct cairn_split *splits[2] = {NULL};
    struct cairn_pieces *knowns[2] = {NULL};
    static uint32_t whole[ELEMENTS], found[ELEMENTS];
    static const uint64_t shape = ELEMENTS;
    AUTO_SAVE *save = NULL;
    const void *sources[1] = {whole};
    void *into[1] = {found};
    const struct cairn_tensor_piece piece = SIZED(
        cairn_tensor_piece, .name = "w", .dtype = "U32", .dimension_count = 1, .shape = &shape,
        .kind = CAIRN_REPLICATED, .source = sources, /* any address until a save */
        .source_bytes = sizeof whole);
    for (uint32_t k = 0; k < ELEMENTS; k++) whole[k] = k * 31;
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct cairn_split_options group =
            SIZED(cairn_split_options, .group = "dp", .member = rank, .members = 2,
                  .by = CAIRN_SPLIT_TENSOR);
        REQUIRE_OK(cairn_split_new(&group, &splits[rank], &err));
        REQUIRE_OK(cairn_split_add(splits[rank], &piece, &err));
        const struct cairn_pieces_options options = {
            .size = sizeof options, .splits = &splits[rank], .split_count = 1};
        REQUIRE_OK(
            cairn_pieces_new(team.sessions[rank], &piece, 1, &options, NULL, &knowns[rank], &err));
    }
    for (uint64_t step = 1; step <= 3; step++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            const struct cairn_save_options options = {
                .size = sizeof options, .splits = &splits[rank], .split_count = 1};
            cairn_save_free(team.saves[rank]);
            REQUIRE_OK(
                cairn_save_begin(team.sessions[rank], step, &options, &team.saves[rank], &err));
            REQUIRE_OK(cairn_save_pieces(team.saves[rank], knowns[rank], sources, 1, &err));
            EXPECT_CODE(cairn_save_pieces(team.saves[rank], knowns[rank], sources, 1, &err),
                        CAIRN_INVALID); /* it is described twice */
        }
        REQUIRE_OK(team_finish_and_restore(&team, &err));
        memset(found, 0, sizeof found);
        EXPECT_CODE(cairn_restore_pieces(team.restore, knowns[0], into, 1, 0, 0, &err), CAIRN_OK);
        EXPECT(!memcmp(found, whole, sizeof whole));
    }
    REQUIRE_OK(cairn_save_begin(team.sessions[0], 9, NULL, &save, &err));
    EXPECT_FAILS(cairn_save_pieces(save, knowns[0], sources, 1, &err), CAIRN_INVALID,
                 "other splits");
    for (uint32_t rank = 0; rank < 2; rank++) {
        cairn_pieces_free(knowns[rank]);
        cairn_split_free(splits[rank]);
    }
}

TEST(a_call_that_is_refused_leaves_the_shares_of_a_replica_group_as_they_were) {
    TEAM(1);
    static uint32_t whole[ELEMENTS], found[ELEMENTS];
    static const uint64_t shape = ELEMENTS;
    const void *sources[1] = {whole}, *none[1] = {NULL};
    void *into[1] = {found};
    struct cairn_split *split = NULL;
    struct cairn_pieces *known = NULL;
    size_t bad = 0;
    const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                             .name = "w",
                                             .dtype = "U32",
                                             .dimension_count = 1,
                                             .shape = &shape,
                                             .kind = CAIRN_REPLICATED,
                                             .source = whole,
                                             .source_bytes = sizeof whole};
    const struct cairn_split_options group = {
        .size = sizeof group, .group = "dp", .members = 1, .by = CAIRN_SPLIT_TENSOR};
    for (uint32_t k = 0; k < ELEMENTS; k++) whole[k] = k * 37 + 1;
    REQUIRE_OK(cairn_split_new(&group, &split, &err));
    REQUIRE_OK(cairn_split_add(split, &piece, &err));
    const struct cairn_pieces_options pieces_options = {
        .size = sizeof pieces_options, .splits = &split, .split_count = 1};
    REQUIRE_OK(cairn_pieces_new(team.sessions[0], &piece, 1, &pieces_options, NULL, &known, &err));
    const struct cairn_save_options options = {
        .size = sizeof options, .splits = &split, .split_count = 1};
    /* The array names w, too, as another kind; w was described before and stays so. */
    struct cairn_tensor_piece array[2] = {piece, piece};
    array[0].kind = CAIRN_LOCAL;
    array[1].dtype = "U31";
    REQUIRE_OK(team_begin(&team, 1, &options, &err));
    REQUIRE_OK(cairn_save_tensor(team.saves[0], &piece, &err));
    EXPECT_CODE(cairn_save_tensors(team.saves[0], array, 2, &bad, &err), CAIRN_INVALID);
    EXPECT_EQ_U64(bad, 1);
    EXPECT_FAILS(cairn_save_tensor(team.saves[0], &piece, &err), CAIRN_INVALID, "described twice");
    REQUIRE_OK(team_finish(&team, &err));
    /* What is not described by a refused array may be described afterwards. */
    array[0].kind = CAIRN_REPLICATED;
    REQUIRE_OK(team_begin(&team, 2, &options, &err));
    EXPECT_CODE(cairn_save_tensors(team.saves[0], array, 2, &bad, &err), CAIRN_INVALID);
    EXPECT_FAILS(cairn_save_stage(team.saves[0], &err), CAIRN_INVALID, "was not described");
    /* A save whose known pieces were refused keeps the groups with which it began. */
    REQUIRE_OK(team_begin(&team, 3, &options, &err));
    EXPECT_CODE(cairn_save_pieces(team.saves[0], known, none, 1, &err), CAIRN_INVALID);
    REQUIRE_OK(cairn_save_pieces(team.saves[0], known, sources, 1, &err));
    REQUIRE_OK(team_finish(&team, &err));
    REQUIRE_OK(team_restore(&team, "3", &err));
    EXPECT_CODE(cairn_restore_pieces(team.restore, known, into, 1, 0, 0, &err), CAIRN_OK);
    EXPECT(!memcmp(found, whole, sizeof whole));
    cairn_pieces_free(known);
    cairn_split_free(split);
}

/* ---- arrays of pieces ---- */

TEST(an_array_of_pieces_serves_a_later_save_that_it_is_large_enough_for) {
    enum { LARGE = 20000 }; /* more than huge pages begin at */
    size_t capacity = 0, other_capacity = 0;
    cairn_client_array_forget();
    struct cairn_client_piece *array = cairn_client_array_take(LARGE, &capacity);
    REQUIRE(array && capacity >= LARGE);
    memset(array, 0xff, capacity * sizeof *array);
    cairn_client_array_give(array, capacity);
    struct cairn_client_piece *larger = cairn_client_array_take(capacity + 1, &other_capacity);
    REQUIRE(larger && larger != array && other_capacity > capacity);
    EXPECT(cairn_client_array_take(LARGE / 2, &other_capacity) == array);
    EXPECT_EQ_U64(other_capacity, capacity);
    cairn_client_array_give(array, capacity);
    cairn_client_array_give(larger, capacity + 1);
    cairn_client_array_give(NULL, 0);
    cairn_client_array_forget();
}
