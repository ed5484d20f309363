/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Every public function with handles, options, answers and arrays that are NULL, and with structs
 * of a size that none has. One that crashes ends this program. */

#include "tests/client/team.h"

/* What the calls need besides the argument that is wrong. */
struct things {
    struct cairn_session *session;
    struct cairn_save *save; /* begun, and nothing described */
    struct cairn_split *split;
    struct cairn_restore *restore;
    struct cairn_error err;
};
#define WRONG(call)                                                                                \
    do {                                                                                           \
        struct cairn_error err = {0};                                                              \
        EXPECT_CODE((call), CAIRN_INVALID);                                                        \
        EXPECT(err.message[0]);                                                                    \
    } while (0)

/* Calls `call` with `it`, an options struct, of each size that cannot be one. */
#define SIZES(it, call)                                                                            \
    do {                                                                                           \
                                                                                                   \
        EACH_OF(size_t, number, 0, 1, sizeof(size_t) - 1, 4 * CAIRN_KIB + 1, SIZE_MAX) {           \
            (it).size = number;                                                                    \
            WRONG(call);                                                                           \
        }                                                                                          \
        (it).size = sizeof(it);                                                                    \
    } while (0)

/* Calls one function, or some that belong together. */
#define MISUSE(name)                                                                               \
    static void misuse_##name(struct things *);                                                    \
    __attribute__((constructor)) static void add_##name(void) {                                    \
        misuses[misuse_count++] = misuse_##name;                                                   \
    }                                                                                              \
    static void misuse_##name(CAIRN_UNUSED struct things *things)
static void (*misuses[100])(struct things *);
static size_t misuse_count;

/* ---- sessions ---- */

MISUSE(open) {
    struct cairn_session *made = NULL;
    struct cairn_open_options options = {.run = "llm/7b"};
    SIZES(options, cairn_open(&options, &made, NULL, &err));
    WRONG(cairn_open(NULL, &made, NULL, &err));
    WRONG(cairn_open(&options, NULL, NULL, &err));
    WRONG(cairn_open(NULL, NULL, NULL, &err));
    EXPECT(cairn_open(NULL, NULL, NULL, NULL) == CAIRN_INVALID);
    EXPECT(!made);
}

MISUSE(close) {
    EXPECT(cairn_close(NULL, &things->err) == CAIRN_OK);
}

MISUSE(session_reserve) {
    WRONG(cairn_session_reserve(NULL, 1, 0, 0, &err));
    WRONG(cairn_session_reserve_begin(NULL, 1, 0, &err));
    WRONG(cairn_session_reserve_begin(things->session, 0, 0, &err));
    WRONG(cairn_session_reserve(things->session, 0, 0, 0, &err));
}

MISUSE(session_renew) {
    struct cairn_open_options options = {.job = "job-1"};
    SIZES(options, cairn_session_renew(things->session, &options, NULL, &err));
    WRONG(cairn_session_renew(NULL, &options, NULL, &err));
    WRONG(cairn_session_renew(NULL, NULL, NULL, &err));
}

MISUSE(session_problem) {
    WRONG(cairn_session_problem(NULL, &err));
    EXPECT(cairn_session_problem(things->session, NULL) == CAIRN_OK);
}

MISUSE(session_warning) {
    WRONG(cairn_session_warning(NULL, &err));
    EXPECT(cairn_session_warning(things->session, NULL) == CAIRN_OK);
}

MISUSE(warmup) {
    struct cairn_warmup_options options = {0};
    SIZES(options, cairn_warmup(things->session, &options, &err));
    WRONG(cairn_warmup(NULL, &options, &err));
    WRONG(cairn_warmup(NULL, NULL, &err));
}

MISUSE(session_weights) {
    uint32_t rank = 0, weight = 0;
    WRONG(cairn_session_weights(NULL, &rank, 1, &weight, &err));
    WRONG(cairn_session_weights(things->session, NULL, 1, &weight, &err));
    WRONG(cairn_session_weights(things->session, &rank, 1, NULL, &err));
    EXPECT(cairn_session_weights(things->session, NULL, 0, NULL, NULL) == CAIRN_OK);
}

MISUSE(list) {
    struct cairn_checkpoint *list = NULL;
    size_t count = 0;
    WRONG(cairn_list(NULL, &list, &count, &err));
    WRONG(cairn_list(things->session, NULL, &count, &err));
    WRONG(cairn_list(things->session, &list, NULL, &err));
    cairn_list_free(NULL);
}

MISUSE(runs) {
    struct cairn_run *list = NULL;
    size_t count = 0;
    WRONG(cairn_runs(NULL, &list, &count, &err));
    WRONG(cairn_runs(things->session, NULL, &count, &err));
    WRONG(cairn_runs(things->session, &list, NULL, &err));
    cairn_runs_free(NULL);
}

MISUSE(find) {
    struct cairn_version_info *list = NULL;
    size_t count = 0;
    const struct cairn_find_options unsized = {.limit = 1};
    WRONG(cairn_find(NULL, NULL, &list, &count, &err));
    WRONG(cairn_find(things->session, NULL, NULL, &count, &err));
    WRONG(cairn_find(things->session, NULL, &list, NULL, &err));
    WRONG(cairn_find(things->session, &unsized, &list, &count, &err));
    cairn_find_free(NULL);
}

MISUSE(annotate) {
    const struct cairn_annotate_options unsized = {.pin = CAIRN_PIN_YES};
    WRONG(cairn_annotate(NULL, "latest", NULL, &err));
    WRONG(cairn_annotate(things->session, "", NULL, &err));
    WRONG(cairn_annotate(things->session, "latest", &unsized, &err));
}

MISUSE(alias_set) {
    WRONG(cairn_alias_set(NULL, "prod", "latest", 0, &err));
    WRONG(cairn_alias_set(things->session, NULL, "latest", 0, &err));
    WRONG(cairn_alias_set(things->session, "prod", "", 0, &err));
}

MISUSE(remove) {
    WRONG(cairn_remove(NULL, "ckpt_x", 0, &err));
    WRONG(cairn_remove(things->session, NULL, 0, &err));
}

MISUSE(last_chance_watch) {
    struct cairn_last_chance_options options = {0};
    SIZES(options, cairn_last_chance_watch(&options, &err));
    options.signal_count = 1;
    WRONG(cairn_last_chance_watch(&options, &err));
    EXPECT(cairn_last_chance(NULL) == 0);
}

/* ---- splits ---- */

MISUSE(split_by_of) {
    enum cairn_split_by by = CAIRN_SPLIT_TENSOR;
    struct cairn_parallel_write config = {.tensor_slice = 1};
    SIZES(config, cairn_split_by_of(&config, &by, &err));
    WRONG(cairn_split_by_of(&config, NULL, &err));
    EXPECT_EQ_U64(by, CAIRN_SPLIT_TENSOR);
    EXPECT(cairn_split_by_of(NULL, &by, NULL) == CAIRN_OK);
    EXPECT_EQ_U64(by, CAIRN_SPLIT_FIRST);
}

MISUSE(split_new) {
    struct cairn_split *made = NULL;
    struct cairn_split_options options = {.group = "dp", .members = 1};
    SIZES(options, cairn_split_new(&options, &made, &err));
    WRONG(cairn_split_new(NULL, &made, &err));
    WRONG(cairn_split_new(&options, NULL, &err));
    options.group = NULL;
    WRONG(cairn_split_new(&options, &made, &err));
    EXPECT(!made);
    cairn_split_free(NULL);
}

MISUSE(split_add) {
    struct cairn_tensor_piece piece = {.name = "w", .dtype = "U8", .kind = CAIRN_REPLICATED};
    SIZES(piece, cairn_split_add(things->split, &piece, &err));
    WRONG(cairn_split_add(NULL, &piece, &err));
    WRONG(cairn_split_add(things->split, NULL, &err));
    WRONG(cairn_split_add(things->split, &(struct cairn_tensor_piece){.size = sizeof piece}, &err));
    piece.dimension_count = 1; /* without a shape */
    WRONG(cairn_split_add(things->split, &piece, &err));
}

MISUSE(split_bytes) {
    uint64_t bytes = 0;
    WRONG(cairn_split_bytes(NULL, 0, &bytes, &err));
    WRONG(cairn_split_bytes(things->split, 0, NULL, &err));
}

MISUSE(split_share_at) {
    struct cairn_split_share share;
    WRONG(cairn_split_share_at(NULL, 0, 0, &share, &err));
    WRONG(cairn_split_share_at(things->split, 0, 0, NULL, &err));
}

/* ---- saves ---- */

MISUSE(save_begin) {
    struct cairn_save *made = NULL;
    struct cairn_split *none = NULL;
    struct cairn_save_options options = {0};
    SIZES(options, cairn_save_begin(things->session, 9, &options, &made, &err));
    WRONG(cairn_save_begin(NULL, 9, NULL, &made, &err));
    WRONG(cairn_save_begin(things->session, 9, NULL, NULL, &err));
    options.split_count = 1;
    WRONG(cairn_save_begin(things->session, 9, &options, &made, &err));
    options.splits = &none;
    WRONG(cairn_save_begin(things->session, 9, &options, &made, &err));
    EXPECT(!made);
}

MISUSE(save_tensor) {
    struct cairn_tensor_piece piece = {.name = "w", .dtype = "U8", .kind = CAIRN_LOCAL};
    SIZES(piece, cairn_save_tensor(things->save, &piece, &err));
    WRONG(cairn_save_tensor(NULL, &piece, &err));
    WRONG(cairn_save_tensor(things->save, NULL, &err));
    WRONG(cairn_save_tensor(things->save, &piece, &err)); /* one byte, and no source */
    piece.form = CAIRN_BOX;
    piece.dimension_count = 1;
    WRONG(cairn_save_tensor(things->save, &piece, &err));
    piece.shape = &(const uint64_t){1};
    WRONG(cairn_save_tensor(things->save, &piece, &err)); /* neither start nor count */
    piece.form = CAIRN_FLAT;
    WRONG(cairn_save_tensor(things->save, &piece, &err));
    piece.region_count = 2;
    WRONG(cairn_save_tensor(things->save, &piece, &err));
    piece.kind = CAIRN_ALIAS;
    WRONG(cairn_save_tensor(things->save, &piece, &err)); /* of nothing */
    WRONG(
        cairn_save_tensor(things->save, &(struct cairn_tensor_piece){.size = sizeof piece}, &err));
}

MISUSE(save_item) {
    struct cairn_item item = {.name = "state"};
    SIZES(item, cairn_save_item(things->save, &item, &err));
    WRONG(cairn_save_item(NULL, &item, &err));
    WRONG(cairn_save_item(things->save, NULL, &err));
    item.bytes = 5; /* of no source */
    WRONG(cairn_save_item(things->save, &item, &err));
    WRONG(cairn_save_item(things->save, &(struct cairn_item){.size = sizeof item}, &err));
}

MISUSE(save_stream) {
    struct cairn_stream *made = NULL;
    WRONG(cairn_save_stream(NULL, "x", 0, &made, &err));
    WRONG(cairn_save_stream(things->save, NULL, 0, &made, &err));
    WRONG(cairn_save_stream(things->save, "x", 0, NULL, &err));
    WRONG(cairn_stream_write(NULL, "x", 1, &err));
    WRONG(cairn_stream_close(NULL, &err));
    cairn_stream_free(NULL);
    EXPECT(cairn_save_stream(things->save, "x", 0, &made, NULL) == CAIRN_OK);
    WRONG(cairn_stream_write(made, NULL, 1, &err));
    cairn_stream_free(made);
}

MISUSE(save_raw) {
    WRONG(cairn_save_raw(NULL, "x", "x", 1, &err));
    WRONG(cairn_save_raw(things->save, NULL, "x", 1, &err));
    WRONG(cairn_save_raw(things->save, "x", NULL, 1, &err));
    WRONG(cairn_save_file(NULL, "x", 0, 1, &err));
    WRONG(cairn_save_file(things->save, NULL, 0, 1, &err));
}

MISUSE(save_slot_at) {
    struct cairn_save_slot slot;
    WRONG(cairn_save_slot_at(NULL, 0, &slot, &err));
    WRONG(cairn_save_slot_at(things->save, 0, NULL, &err));
    WRONG(cairn_save_written(NULL, 0, &err));
}

MISUSE(save_stage) {
    WRONG(cairn_save_set_meta(NULL, NULL, NULL, &err));
    WRONG(cairn_save_stage(NULL, &err));
    WRONG(cairn_save_stage_begin(NULL, &err));
    WRONG(cairn_save_fence(NULL, 0, &err));
    WRONG(cairn_save_fence_stream(NULL, NULL, &err));
    WRONG(cairn_save_copy(NULL, &err));
    WRONG(cairn_save_seal(NULL, &err));
    WRONG(cairn_save_wait(NULL, CAIRN_COMMITTED, 0, &err));
    WRONG(cairn_save_poll(NULL, CAIRN_COMMITTED, &err));
    EXPECT(cairn_save_fd(NULL) == -1);
    WRONG(cairn_save_fail(NULL, NULL, &err));
    WRONG(cairn_save_cancel(NULL, NULL, &err));
    cairn_save_free(NULL);
}

MISUSE(pieces_new) {
    struct cairn_pieces *made = NULL;
    struct cairn_save *save = NULL;
    uint64_t bytes = 0;
    const uint64_t shape = 1;
    struct cairn_pieces_options options = {0};
    struct cairn_tensor_piece piece = {.name = "w",
                                       .dtype = "U8",
                                       .dimension_count = 1,
                                       .shape = &shape,
                                       .kind = CAIRN_LOCAL,
                                       .source = "x",
                                       .source_bytes = 1};
    SIZES(piece, cairn_pieces_new(things->session, &piece, 1, NULL, NULL, &made, &err));
    SIZES(options, cairn_pieces_new(things->session, &piece, 1, &options, NULL, &made, &err));
    WRONG(cairn_pieces_new(NULL, &piece, 1, NULL, NULL, &made, &err));
    WRONG(cairn_pieces_new(things->session, NULL, 1, NULL, NULL, &made, &err));
    WRONG(cairn_pieces_new(things->session, &piece, 0, NULL, NULL, &made, &err));
    WRONG(cairn_pieces_new(things->session, &piece, 1, NULL, NULL, NULL, &err));
    WRONG(cairn_pieces_bytes(NULL, 0, &bytes, &err));
    WRONG(cairn_save_pieces(things->save, NULL, NULL, 0, &err));
    WRONG(cairn_save_pieces(NULL, NULL, NULL, 0, &err));
    SIZES(piece, cairn_save_tensors(things->save, &piece, 1, NULL, &err));
    WRONG(cairn_save_tensors(NULL, &piece, 1, NULL, &err));
    WRONG(cairn_save_tensors(things->save, NULL, 1, NULL, &err));
    WRONG(cairn_save_again(things->session, 9, NULL, NULL, NULL, 0, &save, &err));
    WRONG(cairn_save_again(NULL, 9, NULL, things->save, NULL, 0, &save, &err));
    WRONG(cairn_save_again(things->session, 9, NULL, things->save, NULL, 0, &save, &err));
    WRONG(cairn_save_again(things->session, 9, NULL, things->save, NULL, 0, NULL, &err));
    EXPECT(!cairn_pieces_new(things->session, &piece, 1, NULL, NULL, &made, &things->err));
    WRONG(cairn_pieces_bytes(made, 0, NULL, &err));
    WRONG(cairn_save_pieces(things->save, made, NULL, 1, &err));
    WRONG(cairn_restore_pieces(NULL, made, NULL, 0, 0, 0, &err));
    WRONG(cairn_restore_pieces(things->restore, made, NULL, 1, 0, 0, &err));
    WRONG(cairn_restore_pieces(things->restore, NULL, NULL, 0, 0, 0, &err));
    cairn_pieces_free(made);
    cairn_pieces_free(NULL);
    EXPECT(!save);
}

MISUSE(save_status) {
    struct cairn_save_status status = {.step = 7};
    enum cairn_code code = CAIRN_OK;
    EXPECT(cairn_save_over(NULL, NULL) && cairn_save_over(NULL, &code));
    EXPECT_EQ_U64(code, CAIRN_INVALID);
    EXPECT(!cairn_save_over(things->save, NULL));
    cairn_save_status(things->save, NULL);
    cairn_save_status(NULL, NULL);
    cairn_save_status(NULL, &status);
    EXPECT_EQ_U64(status.step, 0);
}

/* ---- restores ---- */

MISUSE(restore_open) {
    struct cairn_restore *made = NULL;
    struct cairn_restore_options options = {.ref = "latest"};
    struct cairn_rename rename = {.stored = "a", .known = "b"};
    SIZES(options, cairn_restore_open(things->session, &options, &made, NULL, &err));
    WRONG(cairn_restore_open(NULL, &options, &made, NULL, &err));
    WRONG(cairn_restore_open(things->session, &options, NULL, NULL, &err));
    options.rename_count = 1;
    WRONG(cairn_restore_open(things->session, &options, &made, NULL, &err));
    options.renames = &rename;
    SIZES(rename, cairn_restore_open(things->session, &options, &made, NULL, &err));
    rename.stored = NULL;
    WRONG(cairn_restore_open(things->session, &options, &made, NULL, &err));
    EXPECT(!made);
    cairn_restore_free(NULL);
}

MISUSE(restore_meta) {
    EXPECT_EQ_TEXT(cairn_restore_labels(NULL), "{}");
    EXPECT_EQ_TEXT(cairn_restore_meta(NULL), "{}");
}

MISUSE(restore_tensor_at) {
    static struct cairn_shard_info shard;
    static struct cairn_tensor_info tensor;
    WRONG(cairn_restore_shard_at(NULL, 0, &shard, &err));
    WRONG(cairn_restore_shard_at(things->restore, 0, NULL, &err));
    WRONG(cairn_restore_tensor_at(NULL, 0, &tensor, &err));
    WRONG(cairn_restore_tensor_at(things->restore, 0, NULL, &err));
    WRONG(cairn_restore_tensor_find(NULL, "w", &tensor, &err));
    WRONG(cairn_restore_tensor_find(things->restore, NULL, &tensor, &err));
    WRONG(cairn_restore_tensor_find(things->restore, "w", NULL, &err));
}

MISUSE(restore_match) {
    struct cairn_match_options options = {.allow_surplus = 1};
    const char *const none[] = {NULL};
    SIZES(options, cairn_restore_match(things->restore, &options, &err));
    WRONG(cairn_restore_match(NULL, &options, &err));
    options.name_count = 1;
    WRONG(cairn_restore_match(things->restore, &options, &err));
    options.names = none;
    WRONG(cairn_restore_match(things->restore, &options, &err));
}

MISUSE(restore_read) {
    uint8_t byte = 0;
    struct cairn_read read = {.tensor = "w", .into = &byte, .into_bytes = 1};
    SIZES(read, cairn_restore_read(things->restore, &read, 1, 0, &err));
    WRONG(cairn_restore_read(NULL, &read, 1, 0, &err));
    WRONG(cairn_restore_read(things->restore, NULL, 1, 0, &err));
    read.into = NULL;
    WRONG(cairn_restore_read(things->restore, &read, 1, 0, &err));
    read.into = &byte;
    read.form = CAIRN_BOX; /* without start and count */
    WRONG(cairn_restore_read(things->restore, &read, 1, 0, &err));
    read = (struct cairn_read){.size = sizeof read}; /* of nothing */
    WRONG(cairn_restore_read(things->restore, &read, 1, 0, &err));
}

MISUSE(read_begin) {
    uint8_t byte = 0;
    struct cairn_reading *made = NULL;
    struct cairn_read read = {.tensor = "w", .into = &byte, .into_bytes = 1};
    SIZES(read, cairn_read_begin(things->restore, &read, 1, 0, &made, &err));
    WRONG(cairn_read_begin(NULL, &read, 1, 0, &made, &err));
    WRONG(cairn_read_begin(things->restore, NULL, 1, 0, &made, &err));
    WRONG(cairn_read_begin(things->restore, &read, 1, 0, NULL, &err));
    EXPECT(!made);
}

MISUSE(read_poll) {
    enum cairn_code code = CAIRN_OK;
    EXPECT(cairn_read_poll(NULL, NULL));
    EXPECT(cairn_read_poll(NULL, &code));
    EXPECT_EQ_U64(code, CAIRN_INVALID);
    WRONG(cairn_read_wait(NULL, 0, &err));
    cairn_read_cancel(NULL);
    EXPECT(cairn_read_fd(NULL) == -1);
    cairn_read_free(NULL);
}

MISUSE(restore_next) {
    uint64_t cursor = 0;
    struct cairn_tensor_view tensor;
    struct cairn_holder holder;
    struct cairn_stored_piece piece;
    struct cairn_restore *restore = things->restore;
    WRONG(cairn_restore_next(NULL, &cursor, &tensor, &err));
    WRONG(cairn_restore_next(restore, NULL, &tensor, &err));
    WRONG(cairn_restore_next(restore, &cursor, NULL, &err));
    WRONG(cairn_restore_holder_next(NULL, "w", &cursor, &holder, &err));
    WRONG(cairn_restore_holder_next(restore, NULL, &cursor, &holder, &err));
    WRONG(cairn_restore_holder_next(restore, "w", NULL, &holder, &err));
    WRONG(cairn_restore_holder_next(restore, "w", &cursor, NULL, &err));
    WRONG(cairn_restore_piece_next(NULL, "w", &cursor, &piece, &err));
    WRONG(cairn_restore_piece_next(restore, NULL, &cursor, &piece, &err));
    WRONG(cairn_restore_piece_next(restore, "w", NULL, &piece, &err));
    WRONG(cairn_restore_piece_next(restore, "w", &cursor, NULL, &err));
}

MISUSE(error_about) {
    struct cairn_error_about about;
    struct cairn_error err = {0};
    EXPECT_EQ_U64(cairn_error_about(NULL, &about), 0);
    EXPECT_EQ_TEXT(about.run, "");
    EXPECT_EQ_U64(cairn_error_about(&err, &about), 0);
    EXPECT(!about.has_step && !about.has_rank);
    EXPECT_EQ_U64(cairn_error_about(&err, NULL), 0);
}

MISUSE(restore_items) {
    struct cairn_item_read *list = NULL;
    size_t count = 0;
    const struct cairn_items_options no_size = {0};
    const struct cairn_items_options no_names = {.size = sizeof no_names, .name_count = 1};
    EXPECT_ALL_U64(
        cairn_restore_items(NULL, NULL, &list, &count, NULL), CAIRN_INVALID,
        cairn_restore_items(things->restore, NULL, NULL, &count, NULL), CAIRN_INVALID,
        cairn_restore_items(things->restore, NULL, &list, NULL, NULL), CAIRN_INVALID,
        cairn_restore_items(things->restore, &no_size, &list, &count, NULL), CAIRN_INVALID,
        cairn_restore_items(things->restore, &no_names, &list, &count, NULL), CAIRN_INVALID);
    cairn_items_free(NULL);
}

MISUSE(code_from_slug) {
    EXPECT_EQ_U64(cairn_code_from_slug(NULL), CAIRN_INTERNAL);
}

/* ---- all of them ---- */

TEST(every_function_that_the_library_shows_is_called_wrongly_here, err) {
    static const char without_pointers[] =
        " cairn_version( cairn_code_info( cairn_code_at( cairn_last_chance_unwatch( ";
    CAIRN_AUTO(buf) map = {0}, own = {0};
    size_t count = 0;
    REQUIRE_OK(cairn_file_load(cairn_test_file("tests/client/test_misuse.c"), &own, &err));
    REQUIRE_OK(cairn_file_load(cairn_test_file("client/libcairn.map"), &map, &err));
    char *left = strstr(map.data, "global:");
    REQUIRE(left != NULL);
    for (char *line = strtok_r(left, ";\n \t", &left); line; line = strtok_r(NULL, ";\n \t", &left))
        if (!strncmp(line, "cairn_", 6)) {
            count++;
            const char *call = TEXT("%s(", line);
            if (!strstr(own.data, call) && !strstr(without_pointers, call))
                EXPECT_EQ_TEXT(line, "a function that is called above");
        }
    EXPECT(count > 60);
}

static enum cairn_code save_one(struct cairn_team *team, struct cairn_error *err) {
    const struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "w", .dtype = "U8", .dimension_count = 1,
              .shape = &(const uint64_t){1}, .kind = CAIRN_LOCAL, .source = "x", .source_bytes = 1);
    CAIRN_TRY(team_begin(team, 5, NULL, err));
    CAIRN_TRY(cairn_save_tensor(team->saves[0], &piece, err));
    CAIRN_TRY(team_finish(team, err));
    return team_restore(team, NULL, err);
}

TEST(what_is_null_or_of_no_size_is_refused_and_nothing_crashes) {
    TEAM(1);
    struct things things = {.session = team.sessions[0]};
    const struct cairn_split_options options = {
        .size = sizeof options, .group = "dp", .members = 1};
    REQUIRE_OK(save_one(&team, &err));
    REQUIRE_OK(team_begin(&team, 6, NULL, &err));
    REQUIRE_OK(cairn_split_new(&options, &things.split, &err));
    things.save = team.saves[0];
    things.restore = team.restore;
    for (size_t i = 0; i < misuse_count; i++) misuses[i](&things);
    cairn_split_free(things.split);
}
