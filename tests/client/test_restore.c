/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/*
 * What four ranks saved, read back by others in another split. The save half runs for real: shards,
 * tables and layout are what cairn_save_stage made; only the store in between is the test's memory.
 */
#include "tests/client/model.h"
#include "tests/client/rank.h"

#define RANKS 4
#define ROWS MODEL_ROWS
#define SLOT_BYTES (2 * CAIRN_MIB) /* a quarter of the window that the fake gives */
#define COLUMNS MODEL_COLUMNS

static struct cairn_model model;

static enum cairn_code save_rank(struct cairn_staged_version *version, struct cairn_rank *rank,
                                 uint32_t number, struct cairn_error *err) {
    struct cairn_open_options options = rank_options(rank);
    struct cairn_save *save = NULL;
    options.rank = number;
    CAIRN_TRY(cairn_open(&options, &rank->session, NULL, err));
    enum cairn_code code = cairn_model_save(&model, rank->session, 40, number, RANKS, &save, err);
    if (!code) code = cairn_staged_keep(version, rank->fake, number, err);
    cairn_save_free(save);
    cairn_rank_leave(rank);
    return code;
}

static enum cairn_code open_version(struct cairn_staged_version *version, struct cairn_rank *rank,
                                    struct cairn_restore **ret, struct cairn_error *err) {
    cairn_model_fill(&model, 99);
    CAIRN_TRY(rank_uploader(rank, 1, err));
    for (uint32_t i = 0; i < RANKS; i++) CAIRN_TRY(save_rank(version, rank, i, err));
    version->manifest.format_tag = strdup("v3");
    CAIRN_TRY(cairn_staged_serve(version, rank->fake, RANKS, err));
    const struct cairn_open_options options =
        SIZED(cairn_open_options, .run = "llm/7b", .world_size = 3, .rank = 1, .socket = rank->path,
              .read_only = 1, .timeout_ms = HANG_MS);
    CAIRN_TRY(cairn_open(&options, &rank->session, NULL, err));
    return cairn_restore_open(rank->session, NULL, ret, NULL, err);
}
#define OPEN_VERSION()                                                                             \
    struct cairn_error err = {0};                                                                  \
    CAIRN_AUTO(staged_version) version = {0};                                                      \
    CAIRN_AUTO(rank) rank = {0};                                                                   \
    AUTO_RESTORE *restore = NULL;                                                                  \
    REQUIRE_OK(open_version(&version, &rank, &restore, &err))

TEST(shards_and_tensors_are_listed_by_name) {
    OPEN_VERSION();
    AUTO_RESTORE *other = NULL;
    struct cairn_restore_info info;
    struct cairn_shard_info shard;
    static struct cairn_tensor_info tensor;
    const char *names[] = {"box", "empty", "flat", "own", "same", "tied"};
    const struct cairn_restore_options right = {.size = sizeof right, .format = "v3"},
                                       wrong = {.size = sizeof wrong, .format = "v2"};
    EXPECT_FAILS(cairn_restore_open(rank.session, &wrong, &other, &info, &err), CAIRN_UNSUPPORTED,
                 "\"v3\"");
    REQUIRE_OK(cairn_restore_open(rank.session, &right, &other, &info, &err));
    EXPECT_ALL_U64(info.step * 100 + info.attempt * 10 + info.world_size, 4074, info.shard_count, 8,
                   info.tensor_count, 6);
    EXPECT_EQ_TEXT(info.format, "v3");
    REQUIRE_OK(cairn_restore_shard_at(restore, 1, &shard, &err));
    EXPECT_EQ_TEXT(shard.name, "rank-00000/rng.bin");
    EXPECT_CODE(cairn_restore_shard_at(restore, 8, &shard, &err), CAIRN_NOT_FOUND);
    for (uint32_t i = 0; i < CAIRN_COUNT(names); i++) {
        REQUIRE_OK(cairn_restore_tensor_at(restore, i, &tensor, &err));
        EXPECT_EQ_TEXT(tensor.name, names[i]);
    }
    EXPECT_CODE(cairn_restore_tensor_at(restore, 6, &tensor, &err), CAIRN_NOT_FOUND);
    REQUIRE_OK(cairn_restore_tensor_find(restore, "tied", &tensor, &err));
    EXPECT_ALL_TEXT(tensor.alias_of, "flat", tensor.dtype, "BF16");
    EXPECT_EQ_U64(tensor.shape[0] * 10000 + tensor.shape[1], ROWS * 10000 + COLUMNS);
    EXPECT_CODE(cairn_restore_tensor_find(restore, "none", &tensor, &err), CAIRN_NOT_FOUND);
}

TEST(everything_comes_back_whole_in_slices_and_in_boxes) { /* P3 */
    OPEN_VERSION();
    uint64_t before = 0;
    for (uint32_t reader = 0; reader < 3; reader++) {
        EXPECT_CODE(cairn_model_check(&model, restore, reader, 3, RANKS, &err), CAIRN_OK);
        /* What several wants share is read once: never more than the shards hold. */
        uint64_t read = cairn_fake_uploader_read_bytes(rank.fake);
        EXPECT(read - before <= version.manifest.total_bytes);
        before = read;
    }
}

TEST(reads_larger_than_the_window_go_through_it_in_turns, err) {
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_restore *restore = NULL;
    const size_t size = 21 * CAIRN_MIB + 12345;
    CAIRN_AUTO_HEAP uint8_t *stored = malloc(size), *got = malloc(size), *part = malloc(size);
    CAIRN_AUTO(staged_version) version = {0};
    REQUIRE(stored && got && part);
    for (size_t i = 0; i < size; i++) stored[i] = (uint8_t)(i ^ i >> 8 ^ i >> 16);
    const struct cairn_staged_raw raw[2] = {{"a", {stored, size}}, {"b", {stored, 0}}};
    REQUIRE_OK(rank_open(&rank, 1, &err));
    REQUIRE_OK(cairn_staged_serve_raw(&version, rank.fake, raw, 2, &err));
    REQUIRE_OK(cairn_restore_open(rank.session, NULL, &restore, NULL, &err));
    const struct cairn_read reads[] = {
        SIZED(cairn_read, .shard = "a", .bytes = UINT64_MAX, .into = got, .into_bytes = size),
        SIZED(cairn_read, .shard = "a", .offset = 3000001, .bytes = 9000000, .into = part,
              .into_bytes = 9000000),
        SIZED(cairn_read, .shard = "b", .bytes = UINT64_MAX)};
    memset(got, 0, size);
    REQUIRE_OK(cairn_restore_read(restore, reads, 3, 0, &err));
    EXPECT(memcmp(got, stored, size) == 0);
    EXPECT(memcmp(part, stored + 3000001, 9000000) == 0);
    EXPECT_EQ_U64(cairn_fake_uploader_read_bytes(rank.fake), size);
    cairn_restore_free(restore);
}

/* A part of a block costs a read of all of it, from an object store a request of its own. */
TEST(no_block_is_read_twice_because_a_window_was_full, err) {
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_restore *restore = NULL;
    const size_t size = 21 * CAIRN_MIB + 12345, from = 5000;
    CAIRN_AUTO_HEAP uint8_t *stored = calloc(1, size), *got = malloc(size);
    CAIRN_AUTO(staged_version) version = {0};
    REQUIRE(stored && got);
    const struct cairn_staged_raw raw[2] = {{"a", {stored, size}}, {"b", {stored, size - 1}}};
    REQUIRE_OK(rank_open(&rank, 1, &err));
    REQUIRE_OK(cairn_staged_serve_raw(&version, rank.fake, raw, 2, &err));
    REQUIRE_OK(cairn_restore_open(rank.session, NULL, &restore, NULL, &err));
    for (size_t i = 0; i < CAIRN_COUNT(raw); i++) {
        /* whole, and as neighbours of which the first fills a slot to its last byte */
        for (uint64_t first = 0; first <= SLOT_BYTES; first += SLOT_BYTES) {
            uint64_t rest = raw[i].bytes.size - from - first;
            const struct cairn_read reads[] = {
                SIZED(cairn_read, .shard = raw[i].name, .offset = from + first, .bytes = rest,
                      .into = got + first, .into_bytes = rest),
                SIZED(cairn_read, .shard = raw[i].name, .offset = from, .bytes = first, .into = got,
                      .into_bytes = first)};
            uint64_t before = cairn_fake_uploader_read_blocks(rank.fake);
            EXPECT(cairn_restore_read(restore, reads, first ? 2 : 1, 0, &err) == CAIRN_OK);
            EXPECT_EQ_U64(cairn_fake_uploader_read_blocks(rank.fake) - before, 22);
        }
    }
    cairn_restore_free(restore);
}

#define READ(...) SIZED(cairn_read, __VA_ARGS__)

TEST(reads_that_cannot_be_right_are_refused_before_a_byte_is_asked_for) {
    OPEN_VERSION();
    static uint16_t into[ROWS * COLUMNS];
    const uint64_t past[2] = {ROWS, 1}, one[2] = {1, 1};
    EACH(row, FIELDS(struct cairn_read read; enum cairn_code code),
         {READ(.into = into), CAIRN_INVALID},
         {READ(.tensor = "flat", .shard = "a", .into = into), CAIRN_INVALID},
         {READ(.tensor = "flat", .into = into, .into_bytes = 3), CAIRN_INVALID},
         {READ(.tensor = "flat", .into_bytes = sizeof into), CAIRN_INVALID},
         {READ(.tensor = "flat", .form = CAIRN_FLAT, .into = into, .into_bytes = 2), CAIRN_INVALID},
         {READ(.tensor = "flat", .form = CAIRN_BOX, .into = into, .into_bytes = 2), CAIRN_INVALID},
         {READ(.tensor = "none", .into = into, .into_bytes = 2), CAIRN_NOT_FOUND},
         {READ(.shard = "none", .bytes = 2, .into = into, .into_bytes = 2), CAIRN_NOT_FOUND},
         {READ(.shard = "rank-00000/rng.bin", .offset = 3, .bytes = 2, .into = into,
               .into_bytes = 2),
          CAIRN_RANGE},
         {READ(.tensor = "box", .form = CAIRN_BOX, .start = past, .count = one, .into = into,
               .into_bytes = 4),
          CAIRN_RANGE},
         {READ(.tensor = "own", .local_rank_of = 9, .into = into, .into_bytes = 4),
          CAIRN_NOT_FOUND}) {
        enum cairn_code code = cairn_restore_read(restore, &row->read, 1, 0, &err);
        cairn_test_check(code == row->code, __FILE__, __LINE__, "read %zu: %s: %s", AT(row),
                         cairn_code_info(code)->name, err.message);
    }
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "read"), 0);
}

TEST(a_bad_block_fails_the_read_and_names_run_step_and_version) {
    OPEN_VERSION();
    uint32_t own = 0;
    const struct cairn_read read = {
        .size = sizeof read, .tensor = "own", .into = &own, .into_bytes = 4};
    cairn_fake_uploader_script(rank.fake, "read", "store-corrupt");
    EXPECT_FAILS(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_CORRUPT,
                 "llm/7b step 40 (ckpt_");
    EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_OK);
}

TEST(a_restart_of_the_uploader_between_and_during_reads_is_not_noticed) {
    OPEN_VERSION();
    static uint16_t whole[ROWS * COLUMNS];
    const struct cairn_read read = {
        .size = sizeof read, .tensor = "flat", .into = whole, .into_bytes = sizeof whole};
    REQUIRE_OK(cairn_restore_read(restore, &read, 1, 0, &err));
    REQUIRE_OK(cairn_fake_uploader_again(rank.fake, &err));
    memset(whole, 0, sizeof whole);
    REQUIRE_OK(cairn_restore_read(restore, &read, 1, 0, &err));
    EXPECT(memcmp(whole, model.flat, sizeof whole) == 0);
    cairn_fake_uploader_script(rank.fake, "read", "drop");
    memset(whole, 0, sizeof whole);
    REQUIRE_OK(cairn_restore_read(restore, &read, 1, 0, &err));
    EXPECT(memcmp(whole, model.flat, sizeof whole) == 0);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "window"), 3);
}

static void *come_back(void *argument) {
    cairn_test_pause_ms(1300); /* pause of a stand-in: longer than a save waits for it */
    (void)cairn_fake_uploader_up(argument, NULL);
    return NULL;
}

TEST(opening_and_reading_wait_for_an_uploader_that_restarts) {
    OPEN_VERSION();
    AUTO_RESTORE *again = NULL;
    static uint16_t whole[ROWS * COLUMNS];
    pthread_t thread;
    const struct cairn_read read = {
        .size = sizeof read, .tensor = "flat", .into = whole, .into_bytes = sizeof whole};
    cairn_fake_uploader_down(rank.fake);
    REQUIRE(pthread_create(&thread, NULL, come_back, rank.fake) == 0);
    EXPECT_CODE(cairn_restore_open(rank.session, NULL, &again, NULL, &err), CAIRN_OK);
    pthread_join(thread, NULL);
    cairn_fake_uploader_down(rank.fake);
    REQUIRE(pthread_create(&thread, NULL, come_back, rank.fake) == 0);
    EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_OK);
    pthread_join(thread, NULL);
    EXPECT(memcmp(whole, model.flat, sizeof whole) == 0);
    cairn_fake_uploader_script(rank.fake, "restore", "drop");
    cairn_restore_free(again);
    again = NULL;
    EXPECT_CODE(cairn_restore_open(rank.session, NULL, &again, NULL, &err), CAIRN_OK);
}

TEST(a_read_that_timed_out_keeps_its_slot_until_the_answer_came) {
    OPEN_VERSION();
    uint32_t own = 7;
    const struct cairn_read read = {
        .size = sizeof read, .tensor = "own", .into = &own, .into_bytes = 4};
    cairn_fake_uploader_script(rank.fake, "read", "mute");
    /* One that could not even be sent in its time leaves no doubt. */
    EXPECT(AWAIT(cairn_restore_read(restore, &read, 1, 50, &err) == CAIRN_TIMEOUT &&
                 cairn_fake_uploader_count(rank.fake, "read") == 1));
    EXPECT_FAILS(cairn_restore_read(restore, &read, 1, 50, &err), CAIRN_TIMEOUT, "an earlier read");
    EXPECT_EQ_U64(own, 7);
    /* The end of the connection ends the doubt. */
    REQUIRE_OK(cairn_fake_uploader_again(rank.fake, &err));
    EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_OK);
    EXPECT_EQ_U64(own, 0);
}

/* ---- the window ---- */

static bool window_went_back(struct cairn_rank *rank, size_t count) {
    struct cairn_fake_message last;
    return cairn_fake_uploader_saw(rank->fake, "window", count, &last) &&
           json_integer_value(json_object_get(last.message, "bytes")) == 0;
}

TEST(the_window_goes_back_with_the_last_restore_and_the_next_read_gets_another) { /* Q13 */
    OPEN_VERSION();
    AUTO_RESTORE *other = NULL;
    uint32_t own = 7;
    const struct cairn_read read = {
        .size = sizeof read, .tensor = "own", .into = &own, .into_bytes = 4};
    REQUIRE_OK(cairn_restore_read(restore, &read, 1, 0, &err));
    REQUIRE_OK(cairn_restore_open(rank.session, NULL, &other, NULL, &err));
    cairn_restore_free(restore);
    restore = NULL;
    REQUIRE_OK(cairn_restore_read(other, &read, 1, 0, &err));
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "window"), 1);
    cairn_restore_free(other);
    EXPECT(window_went_back(&rank, 2));
    own = 7;
    other = NULL;
    REQUIRE_OK(cairn_restore_open(rank.session, NULL, &other, NULL, &err));
    REQUIRE_OK(cairn_restore_read(other, &read, 1, 0, &err));
    EXPECT_EQ_U64(own, 0);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "window"), 3);
    /* Also where the answer to a read is still to come. */
    cairn_fake_uploader_script(rank.fake, "read", "late");
    EXPECT(AWAIT(cairn_restore_read(other, &read, 1, 50, &err) == CAIRN_TIMEOUT));
    cairn_restore_free(other);
    other = NULL;
    EXPECT(window_went_back(&rank, 4));
    own = 7;
    REQUIRE_OK(cairn_restore_open(rank.session, NULL, &other, NULL, &err));
    REQUIRE_OK(cairn_restore_read(other, &read, 1, 0, &err));
    EXPECT_EQ_U64(own, 0);
}

/* What a rank asks for whose node has so many; 0: it asked for none. */
static uint64_t window_asked(struct cairn_rank *rank, uint32_t ranks_of_node) {
    AUTO_RESTORE *restore = NULL;
    uint32_t own = 7;
    const struct cairn_read read = {
        .size = sizeof read, .tensor = "own", .into = &own, .into_bytes = 4};
    const struct cairn_open_options options =
        SIZED(cairn_open_options, .run = "llm/7b", .world_size = ranks_of_node,
              .local_world_size = ranks_of_node, .socket = rank->path, .read_only = 1,
              .timeout_ms = HANG_MS);
    struct cairn_fake_message asked;
    size_t before = cairn_fake_uploader_count(rank->fake, "window");
    if (cairn_open(&options, &rank->session, NULL, NULL) ||
        cairn_restore_open(rank->session, NULL, &restore, NULL, NULL) ||
        cairn_restore_read(restore, &read, 1, 0, NULL) ||
        !cairn_fake_uploader_saw(rank->fake, "window", before + 1, &asked))
        return 0;
    return (uint64_t)json_integer_value(json_object_get(asked.message, "bytes"));
}

TEST(ranks_of_a_node_divide_the_memory_of_their_windows) {
    OPEN_VERSION();
    cairn_restore_free(restore);
    restore = NULL;
    static const uint32_t ranks[] = {1, 2, 3, 4, 8, 1000};
    static const uint64_t mib[] = {64, 32, 21, 16, 16, 16};
    for (size_t i = 0; i < CAIRN_COUNT(ranks); i++) {
        cairn_rank_leave(&rank);
        EXPECT_EQ_U64(window_asked(&rank, ranks[i]) / CAIRN_MIB, mib[i]);
    }
}

struct late_read {
    struct cairn_restore *restore;
    uint32_t own;
    enum cairn_code code;
};
static void *read_late(void *argument) {
    struct late_read *late = argument;
    const struct cairn_read read = {
        .size = sizeof read, .tensor = "own", .into = &late->own, .into_bytes = 4};
    late->code = cairn_restore_read(late->restore, &read, 1, 0, NULL);
    return NULL;
}

TEST(the_window_goes_back_before_memory_for_saves_is_requested_or_when_its_read_ends) { /* Q13 */
    OPEN_VERSION();
    pthread_t thread;
    cairn_restore_free(restore);
    restore = NULL;
    cairn_rank_leave(&rank);
    RANK_OPENS();
    struct late_read late = {.own = 7};
    REQUIRE_OK(cairn_restore_open(rank.session, NULL, &restore, NULL, &err));
    late.restore = restore;
    (void)read_late(&late);
    REQUIRE(late.code == CAIRN_OK);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "window"), 1);
    REQUIRE_OK(cairn_session_reserve(rank.session, RANK_BYTES, 0, 0, &err));
    EXPECT(window_went_back(&rank, 2));
    cairn_fake_uploader_script(rank.fake, "read", "late");
    late.own = 7;
    REQUIRE(pthread_create(&thread, NULL, read_late, &late) == 0);
    struct cairn_fake_message seen;
    EXPECT(cairn_fake_uploader_saw(rank.fake, "read", 2, &seen));
    REQUIRE_OK(cairn_session_reserve(rank.session, RANK_BYTES, 0, 0, &err));
    pthread_join(thread, NULL);
    EXPECT_CODE(late.code, CAIRN_OK);
    EXPECT_EQ_U64(late.own, 0);
    EXPECT(window_went_back(&rank, 4));
}

TEST(an_uploader_of_an_older_release_keeps_the_window_and_is_asked_for_it_once) {
    OPEN_VERSION();
    uint32_t own = 7;
    const struct cairn_read read = {
        .size = sizeof read, .tensor = "own", .into = &own, .into_bytes = 4};
    cairn_restore_free(restore);
    restore = NULL;
    cairn_rank_leave(&rank);
    cairn_fake_uploader_speaks(rank.fake, 8);
    RANK_OPENS();
    for (int round = 0; round < 2; round++) {
        REQUIRE_OK(cairn_restore_open(rank.session, NULL, &restore, NULL, &err));
        REQUIRE_OK(cairn_restore_read(restore, &read, 1, 0, &err));
        cairn_restore_free(restore);
        restore = NULL;
    }
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "window"), 1);
}

TEST(a_restore_outlives_its_session_but_reads_no_more) {
    OPEN_VERSION();
    static struct cairn_tensor_info tensor;
    uint32_t own = 0;
    const struct cairn_read read = {
        .size = sizeof read, .tensor = "own", .into = &own, .into_bytes = 4};
    cairn_rank_leave(&rank);
    EXPECT_CODE(cairn_restore_tensor_find(restore, "flat", &tensor, &err), CAIRN_OK);
    EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_INVALID);
}
