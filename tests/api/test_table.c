/* SPDX-License-Identifier: Apache-2.0 */
#include "api/table/table.h"

#include "tests/api/mutate.h"

static struct cairn_fragment flat(uint64_t start, uint64_t count, uint64_t width, uint32_t shard,
                                  uint64_t offset) {
    return (struct cairn_fragment){.form = CAIRN_FRAGMENT_FLAT,
                                   .start = {start},
                                   .count = {count},
                                   .shard = shard,
                                   .offset_bytes = offset,
                                   .size_bytes = count * width};
}

static struct cairn_table_builder *new_builder(void) {
    struct cairn_table_builder *builder = NULL;
    struct cairn_error err = {0};
    EXPECT_CODE(cairn_table_builder_new(3, &builder, &err), CAIRN_OK);
    return builder;
}

static enum cairn_code add_shard(struct cairn_table_builder *builder, const char *name,
                                 bool tensors, uint64_t size, uint32_t *ret) {
    struct cairn_table_shard shard = {cairn_view_of(name), size, tensors};
    return cairn_table_add_shard(builder, &shard, ret, NULL);
}

/* Three tensors, two shards, in one of two orders; one raw shard that nothing lies in. */
static void fill(struct cairn_table_builder *builder, bool reversed) {
    struct cairn_error err = {0};
    uint32_t file = 0, raw = 0, unused = 0;
    if (reversed) {
        add_shard(builder, "rank-00003/unused", false, 77, &unused);
        add_shard(builder, "rank-00003/a.pt", false, 4096, &raw);
        add_shard(builder, "rank-00003.safetensors", true, 8192, &file);
    } else {
        add_shard(builder, "rank-00003.safetensors", true, 8192, &file);
        add_shard(builder, "rank-00003/a.pt", false, 4096, &raw);
    }
    struct cairn_tensor weight = {.name = CAIRN_VIEW("layers.0.weight"),
                                  .dtype = CAIRN_DTYPE_BF16,
                                  .dimension_count = 2,
                                  .shape = {64, 32},
                                  .kind = CAIRN_TENSOR_SHARDED};
    struct cairn_fragment pieces[] = {
        {CAIRN_FRAGMENT_BOX, {0, 16}, {64, 16}, file, 4096, 2048},
        flat(5, 3, 2, raw, 100),
        flat(0, 0, 2, raw, 50), /* holds nothing */
    };
    if (reversed) {
        struct cairn_fragment first = pieces[0];
        pieces[0] = pieces[2];
        pieces[2] = first;
    }
    struct cairn_tensor scalar = {
        .name = CAIRN_VIEW("step"), .dtype = CAIRN_DTYPE_I64, .kind = CAIRN_TENSOR_REPLICATED};
    struct cairn_fragment one = flat(0, 1, 8, file, 8000);
    struct cairn_tensor alias = {.name = CAIRN_VIEW("lm_head"),
                                 .kind = CAIRN_TENSOR_ALIAS,
                                 .alias_of = CAIRN_VIEW("layers.0.weight")};
    if (reversed) {
        EXPECT_CODE(cairn_table_add_tensor(builder, &alias, NULL, 0, &err), CAIRN_OK);
        EXPECT_CODE(cairn_table_add_tensor(builder, &scalar, &one, 1, &err), CAIRN_OK);
    }
    EXPECT_CODE(cairn_table_add_tensor(builder, &weight, pieces, 3, &err), CAIRN_OK);
    if (!reversed) {
        EXPECT_CODE(cairn_table_add_tensor(builder, &scalar, &one, 1, &err), CAIRN_OK);
        EXPECT_CODE(cairn_table_add_tensor(builder, &alias, NULL, 0, &err), CAIRN_OK);
    }
}

static void build(bool reversed, struct cairn_buf *ret) {
    struct cairn_error err = {0};
    CAIRN_AUTO_PTR(table_builder) builder = new_builder();
    fill(builder, reversed);
    EXPECT_CODE(cairn_table_finish(builder, ret, &err), CAIRN_OK);
}

TEST(what_went_into_a_table_comes_out_sorted, err) {
    CAIRN_AUTO(buf) bytes = {0};
    struct cairn_table table;
    struct cairn_tensor tensor;
    struct cairn_fragment fragment;
    struct cairn_table_shard shard;
    build(true, &bytes);
    REQUIRE_OK(cairn_table_open(cairn_buf_view(&bytes), &table, &err));
    EXPECT_EQ_U64(table.rank, 3);
    EXPECT_EQ_U64(table.shard_count, 2); /* the unused raw one is left out (table.h#2) */
    EXPECT_ALL_U64(table.tensor_count, 3, table.fragment_count, 3);
    uint32_t index = 99;
    REQUIRE(cairn_table_find(&table, CAIRN_VIEW("lm_head"), &index));
    EXPECT_EQ_U64(index, 1);
    cairn_table_tensor_at(&table, 1, &tensor);
    EXPECT_EQ_U64(tensor.kind, CAIRN_TENSOR_ALIAS);
    EXPECT(tensor.alias_of.size == 15 && !memcmp(tensor.alias_of.data, "layers.0.weight", 15));
    cairn_table_tensor_at(&table, 0, &tensor);
    EXPECT_ALL_U64(tensor.fragment_count, 2, tensor.shape[1], 32);
    EXPECT(tensor.alias_of.data == NULL);
    cairn_table_fragment_at(&table, tensor.fragment_first, &fragment);
    EXPECT_ALL_U64(fragment.form, CAIRN_FRAGMENT_BOX, fragment.start[1], 16, fragment.count[0], 64);
    cairn_table_shard_at(&table, fragment.shard, &shard);
    EXPECT(shard.tensors);
    EXPECT(shard.name.size == 22 && !memcmp(shard.name.data, "rank-00003.safetensors", 22));
    EXPECT(!cairn_table_find(&table, CAIRN_VIEW("lm_hea"), &index));
    EXPECT(!cairn_table_find(&table, CAIRN_VIEW("z"), &index));
}

TEST(the_order_of_arrival_does_not_change_a_byte) {
    CAIRN_AUTO(buf) one = {0}, two = {0};
    uint8_t digest_one[32], digest_two[32];
    build(false, &one);
    build(true, &two);
    cairn_table_digest(cairn_buf_view(&one), digest_one);
    cairn_table_digest(cairn_buf_view(&two), digest_two);
    EXPECT(one.size == two.size && !memcmp(one.data, two.data, one.size));
    EXPECT(!memcmp(digest_one, digest_two, 32));
}

TEST(an_empty_table_is_a_table, err) {
    CAIRN_AUTO_PTR(table_builder) builder = new_builder();
    struct cairn_table table;
    uint32_t index;
    WITH_OK(buf, bytes, cairn_table_finish(builder, &bytes, &err));
    EXPECT_EQ_U64(bytes.size, 40);
    REQUIRE_OK(cairn_table_open(cairn_buf_view(&bytes), &table, &err));
    EXPECT(!cairn_table_find(&table, CAIRN_VIEW("x"), &index));
}

/* ---- what the builder refuses ---- */

static enum cairn_code add(struct cairn_table_builder *builder, const struct cairn_tensor *tensor,
                           const struct cairn_fragment *fragment, struct cairn_error *err) {
    return cairn_table_add_tensor(builder, tensor, fragment, fragment ? 1 : 0, err);
}

TEST(m05_fragments_outside_their_tensor_or_shard_are_refused, err) {
    CAIRN_AUTO_PTR(table_builder) builder = new_builder();
    uint32_t shard = 0;
    EXPECT(add_shard(builder, "s", false, 100, &shard) == CAIRN_OK);
    const struct cairn_tensor tensor = {.name = CAIRN_VIEW("w"),
                                        .dtype = CAIRN_DTYPE_F32,
                                        .dimension_count = 2,
                                        .shape = {4, 8},
                                        .kind = CAIRN_TENSOR_SHARDED};
    const struct cairn_fragment bad[] = {
        flat(30, 3, 4, 0, 0),
        flat(UINT64_MAX, 2, 4, 0, 0),
        flat(0, UINT64_MAX / 4 + 2, 4, 0, 0), /* its bytes wrap to 4 */
        flat(0, 8, 4, 0, 69),
        flat(0, 8, 4, 0, UINT64_MAX - 15),
        flat(0, 8, 4, 1, 0),
        flat(0, 8, 5, 0, 0),
        {CAIRN_FRAGMENT_BOX, {0, 1}, {4, 8}, 0, 0, 128},
        {CAIRN_FRAGMENT_BOX, {5, 0}, {0, 8}, 0, 0, 0},
        {CAIRN_FRAGMENT_BOX, {UINT64_MAX, 0}, {2, 1}, 0, 0, 8},
        {(enum cairn_fragment_form)3, {0}, {1}, 0, 0, 4},
    };
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++) {
        if (!EXPECT(add(builder, &tensor, &bad[i], &err) == CAIRN_INVALID)) printf("  %zu\n", i);
    }
    EXPECT(strstr(err.message, "tensor \"w\": fragment 0: ") == err.message);
    struct cairn_fragment good = flat(0, 8, 4, 0, 68);
    EXPECT_CODE(add(builder, &tensor, &good, &err), CAIRN_OK);
}

TEST(m05_impossible_tensors_are_refused, err) {
    CAIRN_AUTO_PTR(table_builder) builder = new_builder();
    char long_name[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    memset(long_name, 'n', sizeof long_name);
    const uint64_t huge = UINT64_C(1) << 32;
    const struct cairn_tensor bad[] = {
        {.name = {"", 0}, .dtype = CAIRN_DTYPE_F32, .kind = CAIRN_TENSOR_LOCAL},
        {.name = {long_name, sizeof long_name},
         .dtype = CAIRN_DTYPE_F32,
         .kind = CAIRN_TENSOR_LOCAL},
        {.name = CAIRN_VIEW("\xff"), .dtype = CAIRN_DTYPE_F32, .kind = CAIRN_TENSOR_LOCAL},
        {.name = CAIRN_VIEW("a\0b"), .dtype = CAIRN_DTYPE_F32, .kind = CAIRN_TENSOR_LOCAL},
        {.name = CAIRN_VIEW("a"), .dtype = 0, .kind = CAIRN_TENSOR_LOCAL},
        {.name = CAIRN_VIEW("a"), .dtype = 99, .kind = CAIRN_TENSOR_LOCAL},
        {.name = CAIRN_VIEW("a"), .dtype = CAIRN_DTYPE_U8, .kind = (enum cairn_tensor_kind)0},
        {.name = CAIRN_VIEW("a"),
         .dtype = CAIRN_DTYPE_U8,
         .dimension_count = 9,
         .kind = CAIRN_TENSOR_LOCAL},
        {.name = CAIRN_VIEW("a"),
         .dtype = CAIRN_DTYPE_U8,
         .dimension_count = 2,
         .shape = {huge, huge},
         .kind = CAIRN_TENSOR_LOCAL}, /* the product wraps to 0 */
        {.name = CAIRN_VIEW("a"),
         .dtype = CAIRN_DTYPE_U8,
         .dimension_count = 3,
         .shape = {huge, huge, 0},
         .kind = CAIRN_TENSOR_LOCAL},
        {.name = CAIRN_VIEW("a"),
         .dtype = CAIRN_DTYPE_F4,
         .dimension_count = 1,
         .shape = {3},
         .kind = CAIRN_TENSOR_LOCAL},
        {.name = CAIRN_VIEW("a"), .dtype = CAIRN_DTYPE_ITEM, .kind = CAIRN_TENSOR_LOCAL},
        {.name = CAIRN_VIEW("a"),
         .dtype = CAIRN_DTYPE_ITEM,
         .dimension_count = 2,
         .shape = {1, 0},
         .kind = CAIRN_TENSOR_LOCAL},
        {.name = CAIRN_VIEW("a"),
         .dtype = CAIRN_DTYPE_U8,
         .kind = CAIRN_TENSOR_LOCAL,
         .alias_of = CAIRN_VIEW("b")},
        {.name = CAIRN_VIEW("a"), .kind = CAIRN_TENSOR_ALIAS},
        {.name = CAIRN_VIEW("a"), .kind = CAIRN_TENSOR_ALIAS, .alias_of = CAIRN_VIEW("a")},
    };
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++) {
        if (!EXPECT(add(builder, &bad[i], NULL, &err) == CAIRN_INVALID)) printf("  %zu\n", i);
    }
}

TEST(names_that_come_twice_are_refused_at_the_end, err) {
    CAIRN_AUTO(buf) bytes = {0};
    struct cairn_tensor tensor = {
        .name = CAIRN_VIEW("w"), .dtype = CAIRN_DTYPE_F32, .kind = CAIRN_TENSOR_LOCAL};
    for (int round = 0; round < 3; round++) {
        CAIRN_AUTO_PTR(table_builder) builder = new_builder();
        uint32_t shard;
        EXPECT(add_shard(builder, "s", true, 100, &shard) == CAIRN_OK);
        if (round == 0) EXPECT(add_shard(builder, "s", true, 100, &shard) == CAIRN_OK);
        struct cairn_fragment twice[] = {flat(0, 1, 4, 0, 8), flat(0, 1, 4, 0, 8)};
        size_t count = round == 2 ? 2 : 1;
        EXPECT_CODE(cairn_table_add_tensor(builder, &tensor, twice, count, &err), CAIRN_OK);
        if (round == 1) EXPECT_CODE(add(builder, &tensor, NULL, &err), CAIRN_OK);
        EXPECT_CODE(cairn_table_finish(builder, &bytes, &err), CAIRN_INVALID);
        EXPECT_EQ_U64(bytes.size, 0);
    }
}

TEST(a_refused_tensor_leaves_nothing_behind, err) {
    CAIRN_AUTO_PTR(table_builder) builder = new_builder();
    struct cairn_table table;
    uint32_t shard = 0;
    EXPECT(add_shard(builder, "raw", false, 100, &shard) == CAIRN_OK);
    struct cairn_tensor tensor = {.name = CAIRN_VIEW("w"),
                                  .dtype = CAIRN_DTYPE_F32,
                                  .dimension_count = 1,
                                  .shape = {9},
                                  .kind = CAIRN_TENSOR_SHARDED};
    struct cairn_fragment mixed[] = {flat(0, 1, 4, 0, 8), flat(9, 1, 4, 0, 8)};
    EXPECT_CODE(cairn_table_add_tensor(builder, &tensor, mixed, 2, &err), CAIRN_INVALID);
    WITH_OK(buf, bytes, cairn_table_finish(builder, &bytes, &err));
    REQUIRE_OK(cairn_table_open(cairn_buf_view(&bytes), &table, &err));
    EXPECT_EQ_U64(table.tensor_count + table.shard_count + table.fragment_count, 0);
}

/* ---- damage ---- */

/* After open succeeded, every getter must work for every row. */
static void read_all(const struct cairn_table *table) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        struct cairn_tensor tensor;
        uint32_t found = 0;
        cairn_table_tensor_at(table, i, &tensor);
        EXPECT(cairn_table_find(table, tensor.name, &found) && found == i);
        for (size_t k = 0; k < tensor.alias_of.size; k++) {
            sum += ((const uint8_t *)tensor.alias_of.data)[k];
        }
        for (uint32_t k = 0; k < tensor.fragment_count; k++) {
            struct cairn_fragment fragment;
            struct cairn_table_shard shard;
            cairn_table_fragment_at(table, tensor.fragment_first + k, &fragment);
            cairn_table_shard_at(table, fragment.shard, &shard);
            EXPECT(fragment.offset_bytes + fragment.size_bytes <= shard.size_bytes);
            for (size_t b = 0; b < shard.name.size; b++) {
                sum += ((const uint8_t *)shard.name.data)[b];
            }
        }
    }
    EXPECT(sum < UINT64_MAX);
}

static void judge_table(struct cairn_view input, void *context) {
    struct cairn_table table;
    struct cairn_error err = {0};
    uint32_t *good = context;
    enum cairn_code code = cairn_table_open(input, &table, &err);
    if (code != CAIRN_OK) {
        EXPECT_EQ_U64(err.code, code);
        EXPECT(code == CAIRN_TABLE_INVALID || code == CAIRN_UNSUPPORTED);
        return;
    }
    (*good)++;
    read_all(&table);
}

TEST(a_damaged_table_is_refused_or_safe_to_read) {
    CAIRN_AUTO(buf) bytes = {0};
    uint32_t good = 0;
    build(false, &bytes);
    cairn_mutate_cut(cairn_buf_view(&bytes), judge_table, &good);
    EXPECT_EQ_U64(good, 0);
    cairn_mutate_many(cairn_buf_view(&bytes), 10000, judge_table, &good);
    EXPECT(good > 0); /* a changed rank or offset may still be a table */
}

TEST(m06_a_table_of_a_later_version_is_refused_by_its_number, err) {
    CAIRN_AUTO(buf) bytes = {0};
    struct cairn_table table;
    build(false, &bytes);
    bytes.data[7] = '2';
    EXPECT_CODE(cairn_table_open(cairn_buf_view(&bytes), &table, &err), CAIRN_UNSUPPORTED);
    EXPECT(strstr(err.message, "written by a newer release") && strstr(err.message, "version 2"));
    bytes.data[7] = '0';
    EXPECT_CODE(cairn_table_open(cairn_buf_view(&bytes), &table, &err), CAIRN_TABLE_INVALID);
}

/* By docs/format.md these lists grow without another version of the table. */
TEST(what_only_a_newer_release_can_have_put_into_a_table_is_unsupported_and_named, err) {
    CAIRN_AUTO(buf) bytes = {0};
    struct cairn_table table;
    build(false, &bytes);
    const size_t shard = 40, tensor = shard + 2 * 16, fragment = tensor + 3 * 24;
    EACH(row, FIELDS(size_t at; uint8_t value; const char *named),
         {36, 4, "flags 0x4 of a rank table"}, {shard + 4, 3, "kind 3 of shards"},
         {tensor + 8, 9, "kind 9 of tensors"}, {tensor + 9, 200, "element type 200"},
         {tensor + 10, 12, "12 dimensions"}, {tensor + 11, 1, "flags 0x1 of tensors"},
         {fragment + 8, 3, "form 3 of fragments"}) {
        uint8_t *byte = (uint8_t *)bytes.data + row->at, before = *byte;
        *byte = row->value;
        EXPECT_FAILS(cairn_table_open(cairn_buf_view(&bytes), &table, &err), CAIRN_UNSUPPORTED,
                     "written by a newer release, needs one that knows ");
        EXPECT(strstr(err.message, row->named) != NULL);
        *byte = before;
    }
    REQUIRE_OK(cairn_table_open(cairn_buf_view(&bytes), &table, &err));
}
