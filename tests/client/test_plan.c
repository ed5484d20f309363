/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* A save of the layout of the one before is arranged and told by a name; every other one as the
 * first was. */
#include "tests/client/rank.h"

#define PIECES 5
#define KINDS 9 /* of changes to a layout */

struct content {
    float values[6][8];
    char raw[64];
};

/* How the pieces differ: bit k is change k. */
static enum cairn_code describe(struct cairn_save *save, const struct content *content,
                                unsigned changes, struct cairn_error *err) {
    const uint64_t shape[2] = {changes & 1 ? 6 : 4, 8}, start[2] = {changes & 2 ? 1 : 0, 0},
                   count[2] = {changes & 4 ? 2 : 1, 8};
    struct cairn_tensor_piece box =
        SIZED(cairn_tensor_piece, .name = changes & 8 ? "b" : "box",
              .dtype = changes & 16 ? "I32" : "F32", .dimension_count = 2, .shape = shape,
              .kind = CAIRN_SHARDED, .form = CAIRN_BOX, .start = start, .count = count,
              .source = content->values[0], .source_bytes = count[0] * 32);
    const struct cairn_tensor_piece same =
        SIZED(cairn_tensor_piece, .name = "same", .dtype = "F32", .dimension_count = 1,
              .shape = shape + 1, .kind = changes & 32 ? CAIRN_LOCAL : CAIRN_REPLICATED,
              .form = CAIRN_WHOLE, .source = content->values[3], .source_bytes = 32);
    const struct cairn_tensor_piece tied =
        SIZED(cairn_tensor_piece, .name = "tied", .dtype = "F32", .dimension_count = 1,
              .shape = shape + 1, .kind = CAIRN_ALIAS, .alias_of = changes & 64 ? "same" : "flat");
    bool raw_first = changes & 128;
    if (raw_first) CAIRN_TRY(cairn_save_raw(save, "a.bin", content->raw, 7, err));
    CAIRN_TRY(rank_add(save, "flat", content->values[4], 8, err));
    CAIRN_TRY(cairn_save_tensor(save, &box, err));
    CAIRN_TRY(cairn_save_tensor(save, &same, err));
    CAIRN_TRY(cairn_save_tensor(save, &tied, err));
    return cairn_save_raw(save, "rng.bin", content->raw, changes & 256 ? 33 : 20, err);
}

struct seen { /* what one save told and left in the slab */
    struct cairn_buf table, bytes;
    char named[65];
};
static void cairn_seen_release(struct seen *seen) {
    cairn_buf_release(&seen->table);
    cairn_buf_release(&seen->bytes);
}

static enum cairn_code save_as(struct cairn_rank *rank, uint64_t step, unsigned changes,
                               const struct content *content, struct seen *ret,
                               struct cairn_error *err) {
    struct cairn_save *save = NULL;
    struct cairn_fake_message stage, seal;
    size_t seals = cairn_fake_uploader_count(rank->fake, "seal");
    cairn_seen_release(ret);
    *ret = (struct seen){0};
    CAIRN_TRY(cairn_save_begin(rank->session, step, NULL, &save, err));
    enum cairn_code code = describe(save, content, changes, err);
    if (!code) code = cairn_save_stage(save, err);
    if (!code) code = cairn_test_reach(save, CAIRN_STAGED, err);
    cairn_save_free(save);
    if (code) return code;
    size_t last = cairn_fake_uploader_count(rank->fake, "seal");
    if (last == seals || !cairn_fake_uploader_at(rank->fake, "seal", last - 1, &seal) ||
        !cairn_fake_uploader_at(rank->fake, "stage",
                                cairn_fake_uploader_count(rank->fake, "stage") - 1, &stage))
        return cairn_fail(err, CAIRN_BROKEN, "no seal was seen");
    const json_t *shards = json_object_get(stage.message, "shards");
    json_int_t number = json_integer_value(json_object_get(seal.message, "save"));
    const char *named = json_string_value(json_object_get(seal.message, "table"));
    uint32_t index = (uint32_t)json_integer_value(json_object_get(stage.message, "slab"));
    const uint8_t *slab = cairn_fake_uploader_slab(rank->fake, index);
    snprintf(ret->named, sizeof ret->named, "%s", named ? named : "");
    if (seal.blob.size)
        CAIRN_TRY(cairn_buf_append(&ret->table, seal.blob.data, seal.blob.size, err));
    for (size_t i = 0; i < json_array_size(shards); i++) {
        const json_t *shard = json_array_get(shards, i);
        size_t offset = (size_t)json_integer_value(json_object_get(shard, "offset"));
        size_t bytes = (size_t)json_integer_value(json_object_get(shard, "bytes"));
        CAIRN_TRY(cairn_buf_append_text(&ret->bytes,
                                        json_string_value(json_object_get(shard, "name")), err));
        CAIRN_TRY(cairn_buf_append(&ret->bytes, slab + offset, bytes, err));
    }
    cairn_fake_uploader_event(
        rank->fake, json_pack("{s:s, s:i, s:I}", "t", "free", "slab", (int)index, "owner", number));
    return CAIRN_OK;
}

static void fill(struct content *content, uint64_t *random) {
    for (size_t i = 0; i < sizeof *content; i++)
        ((char *)content)[i] = (char)cairn_test_random(random);
}

static bool same(const struct cairn_buf *a, const struct cairn_buf *b) {
    return a->size == b->size && (!a->size || !memcmp(a->data, b->data, a->size));
}

/* The name that the fake uploader gives a table. */
static void name_of(const struct cairn_buf *table, char ret[65]) {
    snprintf(ret, 65, "crc-%08x", cairn_crc32c(0, table->data, table->size));
}

/* A session that has saved nothing is the oracle: whatever was saved before, the table and every
 * byte in the slab are those of a first save. */
TEST(a_save_is_the_same_whatever_layouts_its_session_has_saved_before, err) {
    CAIRN_AUTO(rank) rank = {0};
    __attribute__((cleanup(cairn_seen_release))) struct seen ours = {0}, first = {0}, last = {0};
    uint64_t random = cairn_test_seed();
    unsigned changes = 0, named = 0;
    REQUIRE_OK(rank_open(&rank, 1, &err));
    cairn_fake_uploader_names_tables(rank.fake);
    for (uint64_t step = 1; step <= 40; step++) {
        CAIRN_AUTO(rank) fresh = {0};
        struct content content;
        char name[65];
        fill(&content, &random);
        if (cairn_test_random(&random) % 3) changes ^= 1u << cairn_test_random(&random) % KINDS;
        REQUIRE_OK(rank_open(&fresh, 1, &err));
        REQUIRE_OK(save_as(&fresh, step, changes, &content, &first, &err));
        REQUIRE_OK(save_as(&rank, step, changes, &content, &ours, &err));
        EXPECT(first.table.size > 0);
        EXPECT(same(&ours.bytes, &first.bytes));
        bool unchanged = step > 1 && same(&last.table, &first.table);
        if (ours.named[0]) {
            name_of(&first.table, name);
            EXPECT_EQ_TEXT(ours.named, name);
            EXPECT(unchanged);
            EXPECT_EQ_U64(ours.table.size, 0);
            named++;
        } else {
            EXPECT(same(&ours.table, &first.table));
        }
        cairn_seen_release(&last);
        last = first;
        first = (struct seen){0};
    }
    EXPECT(named > 0);
    EXPECT(named < 40);
}

TEST(an_unchanged_layout_is_named_and_its_new_bytes_are_staged, err) {
    CAIRN_AUTO(rank) rank = {0};
    __attribute__((cleanup(cairn_seen_release))) struct seen one = {0}, two = {0};
    struct content content;
    uint64_t random = 7;
    char name[65];
    REQUIRE_OK(rank_open(&rank, 2, &err));
    cairn_fake_uploader_names_tables(rank.fake);
    fill(&content, &random);
    REQUIRE_OK(save_as(&rank, 1, 0, &content, &one, &err));
    EXPECT_EQ_TEXT(one.named, "");
    name_of(&one.table, name);
    struct content other;
    fill(&other, &random);
    REQUIRE_OK(save_as(&rank, 2, 0, &other, &two, &err));
    EXPECT_EQ_TEXT(two.named, name);
    EXPECT_ALL_U64(two.table.size, 0, two.bytes.size, one.bytes.size);
    EXPECT(memmem(two.bytes.data, two.bytes.size, other.values[4], 32) != NULL);
    EXPECT(memmem(two.bytes.data, two.bytes.size, content.values[4], 32) == NULL);
}

TEST(a_table_that_the_uploader_has_not_is_sent, err) {
    CAIRN_AUTO(rank) rank = {0};
    __attribute__((cleanup(cairn_seen_release))) struct seen one = {0}, two = {0};
    struct content content;
    uint64_t random = 8;
    fill(&content, &random);
    REQUIRE_OK(rank_open(&rank, 1, &err));
    /* One that names no tables, as older ones. */
    REQUIRE_OK(save_as(&rank, 1, 0, &content, &one, &err));
    REQUIRE_OK(save_as(&rank, 2, 0, &content, &two, &err));
    EXPECT(same(&one.table, &two.table));
    cairn_fake_uploader_names_tables(rank.fake);
    REQUIRE_OK(save_as(&rank, 3, 0, &content, &two, &err));
    EXPECT(same(&one.table, &two.table));
    /* One that has forgotten it. */
    cairn_fake_uploader_script(rank.fake, "seal", "not-found");
    size_t seals = cairn_fake_uploader_count(rank.fake, "seal");
    REQUIRE_OK(save_as(&rank, 4, 0, &content, &two, &err));
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "seal"), seals + 2);
    EXPECT(same(&one.table, &two.table));
    EXPECT_EQ_TEXT(two.named, "");
    REQUIRE_OK(save_as(&rank, 5, 0, &content, &two, &err));
    EXPECT(two.named[0] != '\0');
}

TEST(the_next_uploader_is_sent_the_table_again, err) {
    CAIRN_AUTO(rank) rank = {0};
    __attribute__((cleanup(cairn_seen_release))) struct seen one = {0}, two = {0};
    struct content content;
    uint64_t random = 9;
    fill(&content, &random);
    REQUIRE_OK(rank_open(&rank, 2, &err));
    cairn_fake_uploader_names_tables(rank.fake);
    REQUIRE_OK(save_as(&rank, 1, 0, &content, &one, &err));
    REQUIRE_OK(cairn_fake_uploader_again(rank.fake, &err));
    enum cairn_code code = save_as(&rank, 2, 0, &content, &two, &err);
    if (code == CAIRN_UPLOADER_GONE) /* until it has found the next one */
        AWAIT((code = save_as(&rank, 3, 0, &content, &two, &err)) != CAIRN_UPLOADER_GONE);
    REQUIRE_OK(code);
    EXPECT(same(&one.table, &two.table));
    EXPECT_EQ_TEXT(two.named, "");
}
