/* SPDX-License-Identifier: Apache-2.0 */
#include "api/documents/manifest.h"

#include "api/documents/records.h"
#include "tests/api/mutate.h"

#define ID "ckpt_01234567-89ab-8def-8123-456789abcdef"

static void add_shard(struct cairn_manifest *manifest, const char *name, uint64_t size) {
    manifest->shards[manifest->shard_count++] = (struct cairn_manifest_shard){
        .name = strdup(name), .rank = 1, .size_bytes = size, .crc32c = size ? 0x0badcafe : 0};
}

/* Shards in the wrong order; one of them empty. */
static void fill(struct cairn_manifest *ret) {
    *ret = (struct cairn_manifest){
        .origin = {{"llm", "7b"}, 3, "00112233445566778899aabbccddeeff", 1200, 1},
        .id = {ID},
        .world_size = 2,
        .format_tag = strdup("fsdp-2"),
        .meta_json = strdup("{\"b\":[1,2.5],\"a\":{\"\xc3\xa4\":\"x\\\"\\n\"}}"),
        .labels_json = strdup("{\"team\":\"nlp\"}"),
        .has_layout = true,
        .layout_digest = {0xab},
        .layout_writer = {ID},
        .checksums_sha256 = {0xcd},
        .shards = calloc(4, sizeof *ret->shards),
    };
    add_shard(ret, "z \"quoted\" \xc3\xa4", 3 * CAIRN_MIB + 1);
    add_shard(ret, "empty", 0);
    add_shard(ret, "a/b", CAIRN_MIB);
    ret->shards[0].part_bytes = 2 * CAIRN_MIB;
}

static void encode(struct cairn_buf *ret) {
    CAIRN_AUTO(manifest) manifest = {0};
    struct cairn_error err = {0};
    fill(&manifest);
    EXPECT_CODE(cairn_manifest_encode(&manifest, ret, &err), CAIRN_OK);
}

TEST(a_manifest_comes_back_as_it_was_written, err) {
    CAIRN_AUTO(buf) text = {0}, again = {0};
    encode(&text);
    WITH_OK(manifest, back, cairn_manifest_decode(cairn_buf_view(&text), &back, &err));
    EXPECT_ALL_TEXT(back.id.text, ID, back.origin.name.project, "llm");
    EXPECT_EQ_U64(back.origin.step, 1200);
    EXPECT_ALL_TEXT(back.format_tag, "fsdp-2", back.labels_json, "{\"team\":\"nlp\"}",
                    back.meta_json, "{\"a\":{\"\xc3\xa4\":\"x\\\"\\n\"},\"b\":[1,2.5]}");
    EXPECT(back.has_layout && back.layout_digest[0] == 0xab);
    EXPECT_ALL_U64(back.checksums_sha256[0], 0xcd, back.shard_count, 3);
    EXPECT_ALL_TEXT(back.shards[0].name, "a/b", back.shards[2].name, "z \"quoted\" \xc3\xa4");
    EXPECT_ALL_U64(back.shards[2].first_block, 1, back.shards[2].crc32c, 0x0badcafe,
                   back.shards[2].part_bytes, 2 * CAIRN_MIB, back.total_bytes, 4 * CAIRN_MIB + 1,
                   back.block_count, 5);
    REQUIRE_OK(cairn_manifest_encode(&back, &again, &err));
    EXPECT_EQ_TEXT(again.data, text.data);
}

TEST(a_manifest_is_canonical_json, err) {
    CAIRN_AUTO(buf) text = {0}, canonical = {0};
    CAIRN_AUTO_JSON json_t *json = NULL;
    encode(&text);
    REQUIRE_OK(cairn_json_parse(cairn_buf_view(&text), (struct cairn_json_limits){0}, &json, &err));
    REQUIRE_OK(cairn_json_dump(json, &canonical, &err));
    EXPECT_EQ_TEXT(text.data, canonical.data);
}

/* A name of letters, quotes and two-byte characters; `i` makes it the only one. */
static char *odd_name(uint64_t *random, unsigned i) {
    static const char *const pieces[] = {"a", "\"", "\xc3\xa4", " ", "/b", "\"\"", "'", "{", ","};
    CAIRN_AUTO(buf) name = {0};
    struct cairn_error err = {0};
    EXPECT_CODE(cairn_buf_printf(&name, &err, "n%u", i), CAIRN_OK);
    for (uint64_t left = cairn_test_random(random) % 8; left; left--) {
        const char *piece = pieces[cairn_test_random(random) % CAIRN_COUNT(pieces)];
        EXPECT_CODE(cairn_buf_append_text(&name, piece, &err), CAIRN_OK);
    }
    EXPECT_CODE(cairn_buf_append_text(&name, "\"", &err), CAIRN_OK);
    return CAIRN_TAKE(name.data);
}

TEST(shards_with_any_names_and_numbers_are_canonical_json_too) {
    uint64_t random = cairn_test_seed();
    for (unsigned round = 0; round < 200; round++) {
        CAIRN_AUTO(manifest) manifest = {0}, back = {0};
        CAIRN_AUTO(buf) text = {0}, canonical = {0};
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_error err = {0};
        fill(&manifest);
        for (size_t i = 0; i < manifest.shard_count; i++) {
            struct cairn_manifest_shard *shard = &manifest.shards[i];
            free(shard->name);
            shard->name = odd_name(&random, (unsigned)i);
            shard->size_bytes = cairn_test_random(&random) >> (4 + cairn_test_random(&random) % 60);
            shard->crc32c = shard->size_bytes ? (uint32_t)cairn_test_random(&random) : 0;
            shard->part_bytes = cairn_test_random(&random) >> (2 + cairn_test_random(&random) % 62);
            shard->rank = (uint32_t)(cairn_test_random(&random) % 2);
        }
        REQUIRE_OK(cairn_manifest_encode(&manifest, &text, &err));
        REQUIRE_OK(
            cairn_json_parse(cairn_buf_view(&text), (struct cairn_json_limits){0}, &json, &err));
        REQUIRE_OK(cairn_json_dump(json, &canonical, &err));
        EXPECT_EQ_TEXT(text.data, canonical.data);
        REQUIRE_OK(cairn_manifest_decode(cairn_buf_view(&text), &back, &err));
        for (size_t i = 0; i < back.shard_count; i++) {
            const struct cairn_manifest_shard *one = &back.shards[i], *other = &manifest.shards[i];
            EXPECT_EQ_TEXT(one->name, other->name);
            EXPECT_ALL_U64(one->size_bytes, other->size_bytes, one->crc32c, other->crc32c,
                           one->part_bytes, other->part_bytes, one->rank, other->rank);
        }
    }
}

TEST(shards_are_found_by_name, err) {
    CAIRN_AUTO(buf) text = {0};
    encode(&text);
    WITH_OK(manifest, back, cairn_manifest_decode(cairn_buf_view(&text), &back, &err));
    EXPECT(cairn_manifest_find(&back, CAIRN_VIEW("empty")) == &back.shards[1]);
    EXPECT(cairn_manifest_find(&back, CAIRN_VIEW("empt")) == NULL);
    EXPECT(cairn_manifest_find(&back, CAIRN_VIEW("zz")) == NULL);
}

static enum cairn_code encode_with(void (*change)(struct cairn_manifest *)) {
    CAIRN_AUTO(manifest) manifest = {0};
    CAIRN_AUTO(buf) text = {0};
    fill(&manifest);
    change(&manifest);
    enum cairn_code code = cairn_manifest_encode(&manifest, &text, NULL);
    EXPECT(code == CAIRN_OK || text.size == 0);
    return code;
}
static void set(char **text, const char *value) {
    free(*text);
    *text = strdup(value);
}
static void same_name(struct cairn_manifest *m) {
    set(&m->shards[0].name, "empty");
}
static void bad_name(struct cairn_manifest *m) {
    set(&m->shards[0].name, "../x");
}
static void bad_rank(struct cairn_manifest *m) {
    m->shards[0].rank = 2;
}
static void bad_n(struct cairn_manifest *m) {
    m->origin.n = 0;
}
static void bad_label(struct cairn_manifest *m) {
    set(&m->labels_json, "{\"a\":1}");
}
static void bad_meta(struct cairn_manifest *m) {
    set(&m->meta_json, "[1]");
}
static void no_meta(struct cairn_manifest *m) {
    set(&m->meta_json, "");
}
static void deep_meta(struct cairn_manifest *m) {
    set(&m->meta_json, "{\"a\":[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]}");
}
static void deepest_meta(struct cairn_manifest *m) {
    set(&m->meta_json, "{\"a\":[[[[[[[[[[[[[[1]]]]]]]]]]]]]]}");
}

TEST(a_manifest_that_could_not_be_read_back_is_not_written, err) {
    EXPECT_ALL_U64(encode_with(same_name), CAIRN_INVALID, encode_with(bad_name), CAIRN_INVALID,
                   encode_with(bad_rank), CAIRN_INVALID, encode_with(bad_n), CAIRN_INVALID,
                   encode_with(bad_label), CAIRN_INVALID, encode_with(bad_meta), CAIRN_INVALID,
                   encode_with(deep_meta), CAIRN_INVALID, encode_with(no_meta), CAIRN_OK);
    CAIRN_AUTO(manifest) manifest = {0}, back = {0};
    fill(&manifest);
    deepest_meta(&manifest);
    WITH_OK(buf, text, cairn_manifest_encode(&manifest, &text, &err));
    REQUIRE_OK(cairn_manifest_decode(cairn_buf_view(&text), &back, &err));
}

/* Replace the first `from` by `to` in good text, and decode. */
static enum cairn_code decode_edited(const char *from, const char *to, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0}, edited = {0};
    CAIRN_AUTO(manifest) back = {0};
    encode(&text);
    const char *at = strstr(text.data, from);
    if (!EXPECT(at != NULL)) return CAIRN_INTERNAL;
    enum cairn_code code = cairn_buf_printf(&edited, err, "%.*s%s%s", (int)(at - text.data),
                                            text.data, to, at + strlen(from));
    if (code == CAIRN_OK) code = cairn_manifest_decode(cairn_buf_view(&edited), &back, err);
    return code;
}

TEST(contradictions_in_a_manifest_are_found) {
    static const char *const edits[][2] = {
        {"\"size\":1048576", "\"size\":1048577"},
        {"\"first_block\":1,", "\"first_block\":2,"},
        {"\"blocks\":5", "\"blocks\":6"},
        {"\"bytes\":4194305", "\"bytes\":4194304"},
        {"\"name\":\"a/b\"", "\"name\":\"a/..\""},
        {"\"name\":\"a/b\"", "\"name\":\"zz\""},
        {"\"rank\":1", "\"rank\":2"},
        {"\"rank\":1", "\"rank\":-1"},
        {"\"rank\":1", "\"rank\":\"1\""},
        {"\"rank\":1", "\"rank\":1.0"},
        {"\"crc32c\":\"0b", "\"crc32c\":\"0B"},
        {"\"crc32c\":\"0b", "\"crc32c\":\"b"},
        {"[[0,1048576]]", "[[1,1048576]]"},
        {"[[0,1048576]]", "[[0,1048575]]"},
        {"\"nonce\":\"00", "\"nonce\":\"0"},
        {"\"version\":\"ckpt_0", "\"version\":\"ckpt_"},
        {"\"world_size\":2", "\"world_size\":0"},
        {"\"run\":\"7b\"", "\"run\":\"..\""},
        {"\"labels\":{\"team\":\"nlp\"}", "\"labels\":{\"team\":1}"},
        {"\"n\":1,", "\"n\":1,\"n\":1,"},
        {"\"meta\":{", "\"mega\":{"}};
    for (size_t i = 0; i < CAIRN_COUNT(edits); i++) {
        struct cairn_error err = {0};
        if (!EXPECT(decode_edited(edits[i][0], edits[i][1], &err) == CAIRN_CORRUPT)) {
            printf("  %s: %s\n", edits[i][1], err.message);
        }
        EXPECT_EQ_U64(err.code, CAIRN_CORRUPT);
    }
}

TEST(later_versions_are_refused_by_number_and_later_fields_are_not, err) { /* P15 */
    EXPECT_CODE(decode_edited("\"cairn_manifest\":1", "\"cairn_manifest\":999", &err),
                CAIRN_UNSUPPORTED);
    EXPECT(strstr(err.message, "written by a newer release") && strstr(err.message, "999"));
    EXPECT_FAILS(
        decode_edited("\"cairn_manifest\":1", "\"cairn_manifest\":2,\"needs\":\"0.9.1\"", &err),
        CAIRN_UNSUPPORTED, "needs release 0.9.1");
    EXPECT_CODE(decode_edited("\"cairn_manifest\":1", "\"cairn_manifest\":0", &err), CAIRN_CORRUPT);
    EXPECT_CODE(decode_edited("\"checksum\":\"crc32c\"", "\"checksum\":\"xxh3\"", &err),
                CAIRN_UNSUPPORTED);
    EXPECT_CODE(decode_edited("[[0,1048576]]", "[[0,1048576,\"ckpt_x\"]]", &err),
                CAIRN_UNSUPPORTED);
    EXPECT_CODE(decode_edited("\"n\":1,", "\"n\":1,\"new\":{\"x\":[1]},", &err), CAIRN_OK);
    EXPECT_CODE(decode_edited("\"cairn_manifest\":1", "\"cairn_committed\":1", &err),
                CAIRN_CORRUPT);
}

TEST(block_checksums_combine_to_the_checksum_of_the_whole) {
    size_t size = 2 * CAIRN_MIB + 777;
    uint8_t *bytes = malloc(size);
    uint64_t random = cairn_test_seed();
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)cairn_test_random(&random);
    uint32_t blocks[3];
    for (size_t i = 0; i < 3; i++) {
        size_t at = i * CAIRN_MIB;
        blocks[i] = cairn_crc32c(0, bytes + at, cairn_min_u64(CAIRN_MIB, size - at));
    }
    EXPECT_ALL_U64(cairn_blocks_combine(blocks, size), cairn_crc32c(0, bytes, size),
                   cairn_blocks_combine(blocks, CAIRN_MIB), blocks[0],
                   cairn_blocks_combine(NULL, 0), 0, cairn_block_count(0), 0, cairn_block_count(1),
                   1, cairn_block_count(CAIRN_MIB), 1, cairn_block_count(CAIRN_MIB + 1), 2);
    free(bytes);
}

/* ---- the small documents ---- */

TEST(a_commit_record_comes_back, err) {
    struct cairn_record record = {.id = {ID},
                                  .manifest_sha256 = {1, 2, 3},
                                  .attempt = 3,
                                  .step = 1200,
                                  .n = 1,
                                  .line = 2,
                                  .committed_at = "2026-03-02T10:14:07Z"};
    struct cairn_record back = {0};
    WITH_OK(buf, text, cairn_record_encode(&record, &text, &err));
    REQUIRE_OK(cairn_record_decode(cairn_buf_view(&text), &back, &err));
    EXPECT(!memcmp(back.manifest_sha256, record.manifest_sha256, 32));
    EXPECT_EQ_TEXT(back.id.text, ID);
    EXPECT_ALL_U64(back.step, 1200, back.line, 2);
    EXPECT_EQ_TEXT(back.committed_at, "2026-03-02T10:14:07Z");
}

TEST(a_commit_record_without_a_line_is_the_one_of_older_releases_and_a_later_line_is_refused, err) {
    CAIRN_AUTO(buf) text = {0}, later = {0};
    struct cairn_record record = {
        .id = {ID}, .attempt = 3, .step = 1200, .n = 1, .committed_at = "t"};
    struct cairn_record back = {0};
    REQUIRE_OK(cairn_record_encode(&record, &text, &err));
    EXPECT(!strstr(text.data, "line"));
    REQUIRE_OK(cairn_record_decode(cairn_buf_view(&text), &back, &err));
    EXPECT_EQ_U64(back.line, 0);
    record.line = 4;
    REQUIRE_OK(cairn_record_encode(&record, &later, &err));
    EXPECT_CODE(cairn_record_decode(cairn_buf_view(&later), &back, &err), CAIRN_CORRUPT);
}

TEST(an_attempt_record_comes_back_with_and_without_a_resume) {
    struct cairn_version_id superseded[2] = {{ID}, {ID}};
    for (int resume = 0; resume < 2; resume++) {
        struct cairn_error err = {0};
        struct cairn_attempt_record record = {.name = {"llm", "7b"},
                                              .attempt = 3,
                                              .nonce = "00112233445566778899aabbccddeeff",
                                              .job = "slurm-17.0",
                                              .world_size = 16384,
                                              .joins = !resume,
                                              .has_resume = resume,
                                              .resume_version = {ID},
                                              .superseded = superseded,
                                              .superseded_count = resume ? 2 : 0};
        WITH_OK(buf, text, cairn_attempt_record_encode(&record, &text, &err));
        WITH_OK(attempt_record, back,
                cairn_attempt_record_decode(cairn_buf_view(&text), &back, &err));
        EXPECT_ALL_U64(back.has_resume, (uint64_t)resume, back.joins, !resume);
        EXPECT_EQ_U64(strstr(text.data, "joins") != NULL, !resume);
        EXPECT_EQ_U64(back.superseded_count, record.superseded_count);
        EXPECT_EQ_TEXT(back.job, "slurm-17.0");
        EXPECT_EQ_U64(back.world_size, 16384);
        if (resume) EXPECT_EQ_TEXT(back.superseded[1].text, ID);
    }
}

TEST(a_store_record_comes_back_and_another_format_is_refused, err) {
    struct cairn_store_record record = {"01234567-89ab-4def-8123-456789abcdef", "me@here", 1, 9,
                                        ""};
    struct cairn_store_record back = {0};
    WITH_OK(buf, text, cairn_store_record_encode(&record, &text, &err));
    REQUIRE_OK(cairn_store_record_decode(cairn_buf_view(&text), &back, &err));
    EXPECT_EQ_TEXT(back.uuid, record.uuid);
    EXPECT_ALL_U64(back.generation, 9, back.format, 1);
    EXPECT_CODE(cairn_store_record_decode(CAIRN_VIEW("{\"cairn_store\":2}"), &back, &err),
                CAIRN_UNSUPPORTED);
    EXPECT_CODE(cairn_store_record_decode(CAIRN_VIEW("{}"), &back, &err), CAIRN_CORRUPT);
    EXPECT_CODE(cairn_store_record_decode(CAIRN_VIEW(""), &back, &err), CAIRN_CORRUPT);
}

/* ---- damage ---- */

static void judge_manifest(struct cairn_view input, void *context) {
    CAIRN_AUTO(manifest) manifest = {0};
    CAIRN_AUTO(buf) text = {0};
    uint32_t *good = context;
    if (cairn_manifest_decode(input, &manifest, NULL) != CAIRN_OK) return;
    (*good)++;
    EXPECT(cairn_manifest_encode(&manifest, &text, NULL) == CAIRN_OK);
}

static void judge_records(struct cairn_view input, void *context) {
    CAIRN_AUTO(attempt_record) attempt = {0};
    struct cairn_record record;
    struct cairn_store_record store;
    uint32_t *good = context;
    if (cairn_record_decode(input, &record, NULL) == CAIRN_OK) (*good)++;
    if (cairn_store_record_decode(input, &store, NULL) == CAIRN_OK) (*good)++;
    if (cairn_attempt_record_decode(input, &attempt, NULL) == CAIRN_OK) (*good)++;
}

TEST(damaged_documents_are_refused_or_safe_to_read) {
    CAIRN_AUTO(buf) text = {0};
    uint32_t good = 0;
    encode(&text);
    cairn_mutate_cut(cairn_buf_view(&text), judge_manifest, &good);
    EXPECT_EQ_U64(good, 0);
    cairn_mutate_many(cairn_buf_view(&text), 10000, judge_manifest, &good);
    EXPECT(good > 0);
    struct cairn_view record =
        CAIRN_VIEW("{\"attempt\":3,\"cairn_attempt\":1,\"job\":\"j\",\"nonce\":"
                   "\"00112233445566778899aabbccddeeff\",\"project\":\"p\",\"resume_version\":\"" ID
                   "\",\"run\":\"r\",\"superseded\":[\"" ID "\"],\"world_size\":2}");
    good = 0;
    cairn_mutate_cut(record, judge_records, &good);
    cairn_mutate_many(record, 10000, judge_records, &good);
    EXPECT(good > 0);
}
