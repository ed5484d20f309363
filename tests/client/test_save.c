/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* What a save puts into the slab and says to the uploader. */
#include "api/documents/manifest.h"
#include "formats/safetensors.h"
#include "tests/client/rank.h"

static uint64_t u64_of(const json_t *object, const char *name) {
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

/* Q15: the blocks told for each shard are those of the bytes that lie in the slab. */
static void check_blocks(struct cairn_fake_uploader *fake, const json_t *stage) {
    const json_t *shards = json_object_get(stage, "shards");
    const uint8_t *slab = cairn_fake_uploader_slab(fake, (uint32_t)u64_of(stage, "slab"));
    size_t told = cairn_fake_uploader_count(fake, "staged");
    for (size_t i = 0; i < json_array_size(shards); i++) {
        uint64_t offset = u64_of(json_array_get(shards, i), "offset");
        uint64_t bytes = u64_of(json_array_get(shards, i), "bytes"), seen = 0, at = 0;
        EXPECT_EQ_U64(offset % 4096, 0);
        for (size_t k = 0; k < told; k++) {
            struct cairn_fake_message message;
            if (!cairn_fake_uploader_at(fake, "staged", k, &message)) continue;
            if (u64_of(message.message, "shard") != i) continue;
            for (size_t b = 0; b < message.blob.size / 4; b++, at += CAIRN_BLOCK_BYTES) {
                uint64_t size = cairn_min_u64(CAIRN_BLOCK_BYTES, bytes - at);
                EXPECT_EQ_U64(cairn_load_u32le((const uint8_t *)message.blob.data + 4 * b),
                              cairn_crc32c(0, slab + offset + at, (size_t)size));
            }
            seen = u64_of(message.message, "bytes");
        }
        EXPECT_EQ_U64(seen, bytes);
    }
}

/* One piece of every kind. */
static enum cairn_code add_one_of_each(struct cairn_save *save, const float *big, size_t elements,
                                       const double *doubles, struct cairn_error *err) {
    static const uint64_t shape[2] = {2, 3}, zero[2] = {0, 0}, half[2] = {1, 3};
    const struct cairn_tensor_piece box =
        SIZED(cairn_tensor_piece, .name = "box", .dtype = "F64", .dimension_count = 2,
              .shape = shape, .kind = CAIRN_SHARDED, .form = CAIRN_BOX, .start = zero,
              .count = half, .source = doubles, .source_bytes = 24);
    const struct cairn_tensor_piece scalar =
        SIZED(cairn_tensor_piece, .name = "step", .dtype = "I64", .kind = CAIRN_REPLICATED,
              .source = doubles, .source_bytes = 8);
    const struct cairn_tensor_piece alias =
        SIZED(cairn_tensor_piece, .name = "tied", .dtype = "F64", .dimension_count = 2,
              .shape = shape, .kind = CAIRN_ALIAS, .alias_of = "box");
    const struct cairn_tensor_piece empty =
        SIZED(cairn_tensor_piece, .name = "empty", .dtype = "BF16", .dimension_count = 1,
              .shape = zero, .kind = CAIRN_LOCAL);
    CAIRN_TRY(rank_add(save, "layers.0.w", big, elements, err));
    CAIRN_TRY(cairn_save_tensor(save, &box, err));
    CAIRN_TRY(cairn_save_tensor(save, &scalar, err));
    CAIRN_TRY(cairn_save_tensor(save, &alias, err));
    CAIRN_TRY(cairn_save_tensor(save, &empty, err));
    CAIRN_TRY(cairn_save_raw(save, "rng.bin", "0123456789", 10, err));
    return cairn_save_raw(save, "none.bin", NULL, 0, err);
}

static const char *shard_name(const struct cairn_fake_message *stage, size_t index) {
    const json_t *shards = json_object_get(stage->message, "shards");
    return json_string_value(json_object_get(json_array_get(shards, index), "name"));
}

/* The fragment of layers.0.w in the table, and its bytes in the slab. */
static void check_table(struct cairn_view bytes, const uint8_t *slab, const float *big,
                        size_t elements) {
    struct cairn_error err = {0};
    struct cairn_table table;
    struct cairn_tensor tensor;
    struct cairn_fragment fragment;
    uint32_t index = 0;
    REQUIRE_OK(cairn_table_open(bytes, &table, &err));
    EXPECT_ALL_U64(table.rank, 3, table.tensor_count, 5);
    REQUIRE(cairn_table_find(&table, CAIRN_VIEW("layers.0.w"), &index));
    cairn_table_tensor_at(&table, index, &tensor);
    REQUIRE(tensor.fragment_count == 1);
    cairn_table_fragment_at(&table, tensor.fragment_first, &fragment);
    EXPECT_EQ_U64(fragment.start[0], elements);
    EXPECT(memcmp(slab + fragment.offset_bytes, big, elements * sizeof *big) == 0);
}

TEST(a_save_of_tensors_and_raw_shards_lies_in_the_slab_as_it_was_described, err) {
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_fake_message stage, seal;
    static float big[600000];
    uint64_t state = 1;
    const double doubles[3] = {1, 2, 3};
    for (size_t i = 0; i < CAIRN_COUNT(big); i++)
        big[i] = (float)(cairn_test_random(&state) % 1000);
    REQUIRE_OK(rank_open(&rank, 2, &err));
    struct cairn_save *save = NULL;
    REQUIRE_OK(cairn_save_begin(rank.session, 12, NULL, &save, &err));
    REQUIRE_OK(add_one_of_each(save, big, CAIRN_COUNT(big), doubles, &err));
    REQUIRE_OK(cairn_save_stage(save, &err));
    cairn_save_free(save);
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "stage", 1, &stage));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "seal", 1, &seal));
    const json_t *shards = json_object_get(stage.message, "shards");
    REQUIRE(json_array_size(shards) == 3);
    EXPECT_EQ_TEXT(shard_name(&stage, 0), "rank-00003.safetensors");
    EXPECT_EQ_TEXT(shard_name(&stage, 1), "rank-00003/rng.bin");
    check_blocks(rank.fake, stage.message);

    const uint8_t *slab =
        cairn_fake_uploader_slab(rank.fake, (uint32_t)u64_of(stage.message, "slab"));
    uint64_t bytes = u64_of(json_array_get(shards, 0), "bytes");
    CAIRN_AUTO(safetensors) file = {0};
    REQUIRE_OK(cairn_safetensors_open((struct cairn_view){slab, bytes}, bytes, &file, &err));
    EXPECT_EQ_U64(file.count, 4); /* aliases have no bytes */
    check_table(seal.blob, slab, big, CAIRN_COUNT(big));

    const json_t *replicated = json_object_get(seal.message, "replicated");
    REQUIRE(json_array_size(replicated) == 1);
    const char *crc = TEXT("%08" PRIx32, cairn_crc32c(0, doubles, 8));
    EXPECT_EQ_TEXT(json_string_value(json_object_get(json_array_get(replicated, 0), "crc32c")),
                   crc);
}

TEST(two_pieces_of_one_name_get_names_that_no_tensor_has) {
    RANK(1);
    struct cairn_fake_message stage;
    const float values[4] = {0};
    const uint64_t shape[1] = {8}, starts[3] = {0, 4, 6}, counts[3] = {4, 2, 2};
    BEGUN(save, 1);
    for (size_t i = 3; i-- > 0;) {
        struct cairn_tensor_piece piece =
            SIZED(cairn_tensor_piece, .name = "w", .dtype = "F32", .dimension_count = 1,
                  .shape = shape, .kind = CAIRN_SHARDED, .form = CAIRN_FLAT, .start = &starts[i],
                  .count = &counts[i], .source = values, .source_bytes = 4 * counts[i]);
        REQUIRE_OK(cairn_save_tensor(save, &piece, &err));
    }
    REQUIRE_OK(rank_add(save, "w@2", values, 1, &err));
    REQUIRE_OK(cairn_save_stage(save, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "stage", 1, &stage));
    const uint8_t *slab = cairn_fake_uploader_slab(rank.fake, 0);
    uint64_t bytes = u64_of(json_array_get(json_object_get(stage.message, "shards"), 0), "bytes");
    CAIRN_AUTO(safetensors) file = {0};
    REQUIRE_OK(cairn_safetensors_open((struct cairn_view){slab, bytes}, bytes, &file, &err));
    const char *names[] = {"w", "w@2", "w@3", "w@4"};
    REQUIRE(file.count == 4);
    for (size_t i = 0; i < 4; i++)
        EXPECT_EQ_TEXT((const char *)file.entries[i].name.data, names[i]);
    EXPECT_EQ_U64(file.entries[0].size_bytes, 16); /* the piece that begins the tensor */
}

TEST(large_saves_are_told_while_they_are_copied) {
    RANK_UPLOADER(1);
    struct cairn_fake_message stage;
    RANK_OPENS(options.bytes = 40 * CAIRN_MIB);
    CAIRN_AUTO_HEAP uint8_t *bytes = malloc(40 * CAIRN_MIB - 77);
    REQUIRE(bytes != NULL);
    for (size_t i = 0; i < 40 * CAIRN_MIB - 77; i++) bytes[i] = (uint8_t)(i * 7 + i / 4096);
    BEGUN(save, 1);
    REQUIRE_OK(cairn_save_raw(save, "big", bytes, 40 * CAIRN_MIB - 77, &err));
    REQUIRE_OK(cairn_save_stage(save, &err));
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "staged"), 3);
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "stage", 1, &stage));
    check_blocks(rank.fake, stage.message);
    struct cairn_save_status status;
    cairn_save_status(save, &status);
    EXPECT_ALL_U64(status.total_bytes, 40 * CAIRN_MIB - 77, status.reached, CAIRN_STAGED);
    EXPECT(status.stall_us > 0);
}

TEST(shard_names_none_is_a_folder_of_another) {
    RANK(1);
    BEGUN(save, 5);
    REQUIRE_OK(cairn_save_raw(save, "opt/state", "1", 1, &err));
    EXPECT_CODE(cairn_save_raw(save, "opt", "1", 1, &err), CAIRN_INVALID);
    EXPECT_FAILS(cairn_save_raw(save, "opt/state/deep", "1", 1, &err), CAIRN_INVALID, "opt/state");
    REQUIRE_OK(cairn_save_raw(save, "opt/state-2", "1", 1, &err));
    REQUIRE_OK(cairn_save_stage(save, &err));
}

TEST(a_save_larger_than_the_session_was_opened_for_is_refused_with_the_numbers) {
    RANK(2);
    CAIRN_AUTO_HEAP uint8_t *bytes = calloc(1, 8 * CAIRN_MIB);
    REQUIRE(bytes != NULL);
    BEGUN(save, 5);
    REQUIRE_OK(cairn_save_raw(save, "big", bytes, 8 * CAIRN_MIB, &err));
    EXPECT_FAILS(cairn_save_stage(save, &err), CAIRN_TOO_LARGE, "8388608");
    EXPECT(strstr(err.message, "4194304") != NULL);
    EXPECT(strstr(err.message, "llm/7b step 5 rank 3") != NULL);
    EXPECT(cairn_fake_uploader_saw(rank.fake, "fail", 1, NULL)); /* Q8: it is told */
}

TEST(a_save_of_exactly_the_sessions_bytes_fits) {
    RANK(1);
    CAIRN_AUTO_HEAP float *values = calloc(1, RANK_BYTES);
    REQUIRE(values != NULL);
    BEGUN(save, 5);
    REQUIRE_OK(rank_add(save, "w", values, RANK_BYTES / 4, &err));
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
}

TEST(pieces_that_cannot_be_right_are_refused_by_name) {
    RANK(1);
    const float values[16] = {0};
    const uint64_t shape[2] = {4, 4}, start[2] = {2, 0}, three[2] = {3, 4},
                   wrap[2] = {UINT64_MAX, 1};
    const uint64_t huge[2] = {UINT64_C(1) << 40, UINT64_C(1) << 40};
    BEGUN(save, 1);
    const struct cairn_tensor_piece good =
        SIZED(cairn_tensor_piece, .name = "w", .dtype = "F32", .dimension_count = 2, .shape = shape,
              .kind = CAIRN_SHARDED, .source = values, .source_bytes = 64);
    struct cairn_tensor_piece bad[16];
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++) bad[i] = good;
    bad[0].name = "";
    bad[1].name = "\xff";
    bad[2].dtype = "float";
    bad[3].dimension_count = 9;
    bad[4].shape = huge;
    bad[5].source_bytes = 60;
    bad[6].source = NULL;
    bad[7].kind = (enum cairn_kind)9;
    bad[8].form = CAIRN_BOX; /* without start and count */
    bad[9].form = CAIRN_BOX, bad[9].start = start, bad[9].count = three, bad[9].source_bytes = 48;
    bad[10].form = CAIRN_FLAT, bad[10].start = wrap, bad[10].count = start;
    bad[11].kind = CAIRN_ALIAS, bad[11].alias_of = "v"; /* with bytes */
    bad[12].alias_of = "v";
    bad[13].dtype = NULL;
    bad[14].kind = CAIRN_REPLICATED, bad[14].form = CAIRN_FLAT, bad[14].start = start,
    bad[14].count = start, bad[14].source_bytes = 8;
    bad[15].in_file = "x"; /* and a source */
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++) {
        enum cairn_code code = cairn_save_tensor(save, &bad[i], &err);
        cairn_test_check(code == CAIRN_INVALID, __FILE__, __LINE__, "piece %zu: %s", i,
                         cairn_code_info(code)->name);
    }
    EXPECT_CODE(cairn_save_tensor(save, &good, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_raw(save, "../up", values, 4, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_raw(save, NULL, values, 4, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_file(save, "f", -1, 4, &err), CAIRN_IO);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK); /* what was refused did no harm */
    EXPECT_CODE(cairn_save_tensor(save, &good, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_INVALID);
}

TEST(pieces_of_one_name_must_agree_and_shards_must_differ) {
    RANK(2);
    const float values[4] = {0};
    struct cairn_save *save = NULL;
    REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
    REQUIRE_OK(rank_add(save, "w", values, 4, &err));
    REQUIRE_OK(rank_add(save, "w", values, 2, &err));
    EXPECT_FAILS(cairn_save_stage(save, &err), CAIRN_INVALID, "tensor w");
    cairn_save_free(save);
    REQUIRE_OK(cairn_save_begin(rank.session, 2, NULL, &save, &err));
    REQUIRE_OK(cairn_save_raw(save, "a", values, 4, &err));
    REQUIRE_OK(cairn_save_raw(save, "a", values, 4, &err));
    EXPECT_FAILS(cairn_save_stage(save, &err), CAIRN_INVALID, "rank-00003/a");
    cairn_save_free(save);
}

TEST(a_file_is_handed_over_and_pieces_may_lie_in_it, err) {
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_fake_message file, seal;
    const uint64_t shape[1] = {4};
    const char *path = TEXT("%s/model.pt", cairn_test_folder());
    CAIRN_AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(pwrite(fd, "0123456789abcdefghij", 20, 0) == 20);
    REQUIRE_OK(rank_open(&rank, 1, &err));
    struct cairn_save *save = NULL;
    REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
    EXPECT_CODE(cairn_save_file(save, "tree/model.pt", fd, 21, &err), CAIRN_SOURCE_CHANGED);
    REQUIRE_OK(cairn_save_file(save, "tree/model.pt", fd, 20, &err));
    struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "w", .dtype = "F32", .dimension_count = 1, .shape = shape,
              .kind = CAIRN_LOCAL, .in_file = "tree/model.pt", .file_offset = 4);
    REQUIRE_OK(cairn_save_tensor(save, &piece, &err));
    REQUIRE_OK(cairn_save_stage(save, &err));
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "stage"), 0); /* nothing lies in the slab */
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "file", 1, &file));
    EXPECT_EQ_U64(u64_of(file.message, "bytes"), 20);
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "seal", 1, &seal));
    struct cairn_table table;
    struct cairn_fragment fragment;
    struct cairn_table_shard shard;
    REQUIRE_OK(cairn_table_open(seal.blob, &table, &err));
    REQUIRE(table.fragment_count == 1);
    cairn_table_fragment_at(&table, 0, &fragment);
    cairn_table_shard_at(&table, fragment.shard, &shard);
    EXPECT_EQ_U64(fragment.offset_bytes, 4);
    EXPECT(!shard.tensors);
    cairn_save_free(save);
    piece.file_offset = 5;
    REQUIRE_OK(cairn_save_begin(rank.session, 2, NULL, &save, &err));
    REQUIRE_OK(cairn_save_file(save, "tree/model.pt", fd, 20, &err));
    REQUIRE_OK(cairn_save_tensor(save, &piece, &err));
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_INVALID);
    cairn_save_free(save);
}

TEST(labels_and_meta_are_checked_and_sent_by_rank_0_alone, err) {
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_fake_message begin;
    struct cairn_save *save = NULL;
    struct cairn_save_options options =
        SIZED(cairn_save_options, .labels_json = "{\"team\":\"nlp\"}", .meta_json = "{\"loss\":3}",
              .format = "v2", .on_exists = CAIRN_EXISTS_SUPERSEDE);
    setenv("SLURM_JOB_ID", "4711", 1);
    REQUIRE_OK(rank_open(&rank, 2, &err));
    REQUIRE_OK(cairn_save_begin(rank.session, 1, &options, &save, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "begin", 1, &begin));
    EXPECT(json_is_null(json_object_get(begin.message, "labels")));
    EXPECT_EQ_TEXT(json_string_value(json_object_get(begin.message, "format")), "v2");
    EXPECT_EQ_TEXT(json_string_value(json_object_get(begin.message, "on_exists")), "supersede");
    cairn_save_free(save);
    cairn_rank_leave(&rank);
    struct cairn_open_options open = rank_options(&rank);
    open.rank = 0;
    REQUIRE_OK(cairn_open(&open, &rank.session, NULL, &err));
    REQUIRE_OK(cairn_save_begin(rank.session, 1, &options, &save, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "begin", 2, &begin));
    EXPECT(json_object_get(json_object_get(begin.message, "labels"), "team") != NULL);
    EXPECT_EQ_U64(u64_of(json_object_get(begin.message, "meta"), "loss"), 3);
    const json_t *origin = json_object_get(json_object_get(begin.message, "meta"), "origin");
    EXPECT(json_string_value(json_object_get(origin, "host")) != NULL); /* options.h#7 */
    EXPECT_EQ_TEXT(
        json_string_value(json_object_get(json_object_get(origin, "job"), "slurm_job_id")), "4711");
    EXPECT(json_object_get(json_object_get(origin, "versions"), "cairn") != NULL);
    cairn_save_free(save);
    options.meta_json = "{\"origin\":null}"; /* the caller's stays */
    REQUIRE_OK(cairn_save_begin(rank.session, 5, &options, &save, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "begin", 3, &begin));
    EXPECT(json_is_null(json_object_get(json_object_get(begin.message, "meta"), "origin")));
    cairn_save_free(save);
    EACH_TEXT(text, "[]", "{\"a\":3}", "{", "{\"a\":\"b\",\"a\":\"c\"}") {
        options.labels_json = text;
        EXPECT_CODE(cairn_save_begin(rank.session, 2, &options, &save, &err), CAIRN_INVALID);
    }
    EXPECT(cairn_fake_uploader_saw(rank.fake, "count", 4, NULL)); /* Q8 */
    unsetenv("SLURM_JOB_ID");
}

TEST(meta_is_measured_by_its_canonical_bytes_before_anything_is_sent) { /* V34, Q50 */
    RANK_UPLOADER(1);
    AUTO_SAVE *save = NULL;
    struct cairn_open_options open = rank_options(&rank);
    open.rank = 0; /* the only one whose meta counts */
    REQUIRE_OK(cairn_open(&open, &rank.session, NULL, &err));
    /* 12,000 times 0.1 is 47 KiB as written and more as stored; 70 KiB of spaces are nothing. */
    CAIRN_AUTO(buf) numbers = {0}, spaces = {0};
    REQUIRE_OK(cairn_buf_append_text(&numbers, "{\"a\":[0.1", &err));
    for (int i = 1; i < 12000; i++) REQUIRE_OK(cairn_buf_append_text(&numbers, ",0.1", &err));
    REQUIRE_OK(cairn_buf_append_text(&numbers, "]}", &err));
    for (int i = 0; i < 70000; i++) REQUIRE_OK(cairn_buf_append_text(&spaces, " ", &err));
    REQUIRE_OK(cairn_buf_append_text(&spaces, "{\"a\":1}", &err));
    EXPECT(numbers.size < 64 * CAIRN_KIB); /* so it would have passed by its own length */
    struct cairn_save_options options = {.size = sizeof options, .meta_json = numbers.data};
    EXPECT_CODE(cairn_save_begin(rank.session, 1, &options, &save, &err), CAIRN_TOO_LARGE);
    EXPECT(cairn_fake_uploader_saw(rank.fake, "count", 1, NULL)); /* Q8: and the others hear it */
    options.meta_json = spaces.data;
    REQUIRE_OK(cairn_save_begin(rank.session, 2, &options, &save, &err));
}

/* A refusal reaches the other ranks as it was: by `count` for a begin, by `fail` after it. */
TEST(what_ended_a_save_is_told_with_its_code_status_and_request_id) { /* P9 */
    RANK(2);
    struct cairn_fake_message told;
    struct cairn_save *save = NULL;
    static const char *const messages[][2] = {{"begin", "count"}, {"stage", "fail"}};
    for (uint64_t i = 0; i < CAIRN_COUNT(messages); i++) {
        cairn_fake_uploader_script(rank.fake, messages[i][0], "no-space");
        EXPECT_CODE(rank_save(rank.session, i + 1, &save, &err), CAIRN_NO_SPACE);
        REQUIRE(cairn_fake_uploader_saw(rank.fake, messages[i][1], 1, &told));
        struct cairn_error why = {0};
        cairn_failure_get(told.message, "reason", &why);
        EXPECT_EQ_U64(why.code, CAIRN_NO_SPACE);
        EXPECT_EQ_U64(why.http_status, 507);
        EXPECT_EQ_TEXT(why.request_id, "script-1");
        EXPECT(strstr(why.message, "as the script says") != NULL);
        if (i) cairn_save_free(save);
    }
}

TEST(n_counts_every_begin_of_a_step_also_over_sessions_of_one_process) {
    RANK_UPLOADER(2);
    struct cairn_fake_message begin, count;
    struct cairn_save *save = NULL;
    RANK_OPENS(options.run = "llm/counted");
    REQUIRE_OK(rank_save(rank.session, 900, &save, &err));
    cairn_save_free(save);
    cairn_fake_uploader_script(rank.fake, "begin", "no-space");
    EXPECT_CODE(cairn_save_begin(rank.session, 900, NULL, &save, &err), CAIRN_NO_SPACE);
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "count", 1, &count));
    EXPECT_ALL_U64(u64_of(count.message, "n"), 2, u64_of(count.message, "step"), 900);
    cairn_rank_leave(&rank);
    REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err));
    REQUIRE_OK(cairn_save_begin(rank.session, 900, NULL, &save, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "begin", 3, &begin));
    EXPECT_EQ_U64(u64_of(begin.message, "n"), 3);
    cairn_save_free(save);
}

/* Q43: a word that fits two saves has told neither. */
TEST(each_of_two_saves_of_one_step_is_told_as_the_one_it_is) {
    RANK(2);
    struct cairn_save *saves[2];
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(rank_save(rank.session, 4711, &saves[i], &err));
        cairn_save_free(saves[i]);
    }
    cairn_fake_uploader_event(rank.fake, rank_verdict(2, "aborted", "checkpoint-aborted"));
    (void)AWAIT(cairn_session_problem(rank.session, &err) != CAIRN_OK);
    EXPECT(strstr(err.message, "llm/7b step 4711 rank 3 n 2: the server says so") != NULL);
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "aborted", "checkpoint-aborted"));
    memset(&err, 0, sizeof err);
    (void)AWAIT(cairn_session_problem(rank.session, &err) != CAIRN_OK);
    EXPECT(strstr(err.message, "llm/7b step 4711 rank 3: the server says so") != NULL);
}

/* Durable, so its generation is forgotten; the next uploader must not be told that it is lent. */
TEST(a_slab_is_offered_for_the_save_that_owns_it_and_for_no_other) { /* Q41, V26 */
    RANK(2);
    struct cairn_fake_message offer;
    SAVED(durable, 1);
    cairn_fake_uploader_event(rank.fake, json_pack("{s:s, s:i}", "t", "durable", "save", 1));
    REQUIRE_OK(cairn_save_wait(durable, CAIRN_DURABLE, HANG_MS, &err));
    SAVED(staged, 2);
    REQUIRE_OK(cairn_fake_uploader_again(rank.fake, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "offer", 1, &offer));
    const json_t *saves = json_object_get(offer.message, "saves"), *save;
    const json_t *slabs = json_object_get(offer.message, "slabs");
    REQUIRE(json_array_size(saves) == 2 && json_array_size(slabs) == 2);
    size_t i;
    json_array_foreach(saves, i, save) {
        const json_t *slab = json_object_get(save, "slab");
        if (json_integer_value(json_object_get(save, "step")) == 1) {
            EXPECT(json_is_null(slab));
            continue;
        }
        const json_t *owned = json_array_get(slabs, (size_t)json_integer_value(slab));
        EXPECT_EQ_U64(json_integer_value(json_object_get(owned, "owner")), 2);
        EXPECT_EQ_U64(json_integer_value(json_object_get(
                          json_array_get(slabs, json_integer_value(slab) == 0), "owner")),
                      0);
    }
}

/* How many begins of that step a message tells, of whichever attempt; 0: of none. */
static uint64_t told_count(const struct cairn_fake_message *message, uint64_t step) {
    json_t *counts = json_object_get(message->message, "counts");
    const char *nonce = NULL;
    json_t *pairs = NULL;
    uint64_t told = 0;
    json_object_foreach(counts, nonce, pairs) {
        for (size_t i = 0; i < json_array_size(pairs); i++) {
            const json_t *pair = json_array_get(pairs, i);
            if ((uint64_t)json_integer_value(json_array_get(pair, 0)) == step)
                told = (uint64_t)json_integer_value(json_array_get(pair, 1));
        }
    }
    return told;
}

TEST(an_uploader_is_told_how_far_each_count_has_got_but_for_what_may_still_be_begun) { /* Q12 */
    RANK(2);
    struct cairn_fake_message message;
    struct cairn_save *save = NULL, *begun = NULL, *again = NULL;
    cairn_fake_uploader_script(rank.fake, "begin", "no-space");
    EXPECT_CODE(cairn_save_begin(rank.session, 910, NULL, &save, &err), CAIRN_NO_SPACE);
    REQUIRE_OK(cairn_save_begin(rank.session, 930, NULL, &save, &err));
    cairn_save_free(save); /* given up before it was staged */
    REQUIRE_OK(cairn_save_begin(rank.session, 920, NULL, &begun, &err));
    REQUIRE_OK(cairn_save_begin(rank.session, 910, NULL, &again, &err));
    REQUIRE_OK(cairn_fake_uploader_again(rank.fake, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "offer", 1, &message));
    EXPECT_EQ_U64(told_count(&message, 910), 1); /* the second one lives */
    EXPECT_ALL_U64(told_count(&message, 920), 0, told_count(&message, 930), 1);
    cairn_save_free(begun);
    cairn_save_free(again);
    struct cairn_open_options options = rank_options(&rank);
    cairn_rank_leave(&rank);
    REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "attempt", 2, &message));
    EXPECT_ALL_U64(told_count(&message, 910), 2, told_count(&message, 920), 1,
                   told_count(&message, 930), 1);
}
