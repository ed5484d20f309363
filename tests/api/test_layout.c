/* SPDX-License-Identifier: Apache-2.0 */
#include "api/documents/names.h"
#include "api/table/layout.h"
#include "api/table/table.h"
#include "tests/api/mutate.h"

#define RANKS 3

/* Tables of three ranks: "shared" on all, "own.<rank>" on one each; rank numbers leave gaps. */
struct ranks {
    struct cairn_buf bytes[RANKS];
    struct cairn_table tables[RANKS];
};

static void cairn_ranks_release(struct ranks *ranks) {
    for (int i = 0; i < RANKS; i++) cairn_buf_release(&ranks->bytes[i]);
}

static void add(struct cairn_table_builder *builder, const char *name, uint64_t start) {
    struct cairn_error err = {0};
    struct cairn_tensor tensor = {.name = cairn_view_of(name),
                                  .dtype = CAIRN_DTYPE_U8,
                                  .dimension_count = 1,
                                  .shape = {RANKS * 10},
                                  .kind = CAIRN_TENSOR_SHARDED};
    struct cairn_fragment fragment = {.form = CAIRN_FRAGMENT_FLAT,
                                      .start = {start},
                                      .count = {10},
                                      .offset_bytes = start,
                                      .size_bytes = 10};
    EXPECT_CODE(cairn_table_add_tensor(builder, &tensor, &fragment, 1, &err), CAIRN_OK);
}

static void make_ranks(struct ranks *ret) {
    struct cairn_error err = {0};
    for (uint32_t i = 0; i < RANKS; i++) {
        struct cairn_table_builder *builder = NULL;
        uint32_t shard;
        EXPECT_CODE(cairn_table_builder_new(i * 5, &builder, &err), CAIRN_OK);
        struct cairn_table_shard row = {cairn_view_of(TEXT("rank-%05u.safetensors", i * 5)), 100,
                                        true};
        EXPECT_CODE(cairn_table_add_shard(builder, &row, &shard, &err), CAIRN_OK);
        add(builder, "shared", i * 10);
        add(builder, TEXT("own.%u", i), 0);
        EXPECT_CODE(cairn_table_finish(builder, &ret->bytes[i], &err), CAIRN_OK);
        EXPECT_CODE(cairn_table_open(cairn_buf_view(&ret->bytes[i]), &ret->tables[i], &err),
                    CAIRN_OK);
        cairn_table_builder_free(builder);
    }
}

TEST(a_layout_finds_all_ranks_that_list_a_name, err) {
    struct ranks ranks = {0};
    CAIRN_AUTO(buf) bytes = {0};
    make_ranks(&ranks);
    EXPECT_CODE(cairn_layout_build(ranks.tables, RANKS, &bytes, &err), CAIRN_OK);
    cairn_ranks_release(&ranks); /* the layout holds their bytes */
    WITH_OK(layout, layout, cairn_layout_open(cairn_buf_view(&bytes), &layout, &err));
    EXPECT_ALL_U64(layout.table_count, RANKS, layout.name_count, 4);
    uint32_t index = 0, first = 0, count = 0;
    struct cairn_view name;
    REQUIRE(cairn_layout_find(&layout, CAIRN_VIEW("shared"), &index));
    EXPECT_EQ_U64(index, 3); /* after own.0, own.1, own.2 */
    cairn_layout_name_at(&layout, index, &name, &first, &count);
    EXPECT(name.size == 6 && !memcmp(name.data, "shared", 6));
    EXPECT_EQ_U64(count, 3);
    for (uint32_t i = 0; i < count; i++) {
        struct cairn_tensor tensor;
        struct cairn_fragment fragment;
        const struct cairn_table *table = cairn_layout_tensor_at(&layout, first + i, &tensor);
        EXPECT_ALL_U64((uint64_t)(table - layout.tables), i, table->rank, i * 5);
        cairn_table_fragment_at(table, tensor.fragment_first, &fragment);
        EXPECT_EQ_U64(fragment.start[0], i * 10);
    }
    EXPECT(!cairn_layout_find(&layout, CAIRN_VIEW("own."), &index));
    EXPECT(!cairn_layout_find(&layout, CAIRN_VIEW("own.3"), &index));
}

TEST(a_shard_is_described_by_the_table_of_its_own_rank_alone, err) {
    struct ranks ranks = {0};
    CAIRN_AUTO(buf) bytes = {0};
    make_ranks(&ranks);
    EXPECT_CODE(cairn_layout_build(ranks.tables, RANKS, &bytes, &err), CAIRN_OK);
    cairn_ranks_release(&ranks);
    WITH_OK(layout, layout, cairn_layout_open(cairn_buf_view(&bytes), &layout, &err));
    for (uint32_t rank = 0; rank < 12; rank++) {
        for (uint32_t other = 0; other < RANKS * 5; other += 5) {
            EXPECT(cairn_layout_describes(&layout, rank,
                                          cairn_view_of(TEXT("rank-%05u.safetensors", other))) ==
                   (rank == other));
        }
        EXPECT(!cairn_layout_describes(&layout, rank, CAIRN_VIEW("rank-00000")));
        EXPECT(!cairn_layout_describes(&layout, rank, CAIRN_VIEW("z")));
    }
}

TEST(ranks_out_of_order_or_twice_make_no_layout, err) {
    struct ranks ranks = {0};
    CAIRN_AUTO(buf) bytes = {0};
    make_ranks(&ranks);
    struct cairn_table swapped[] = {ranks.tables[1], ranks.tables[0]};
    struct cairn_table twice[] = {ranks.tables[1], ranks.tables[1]};
    EXPECT_CODE(cairn_layout_build(swapped, 2, &bytes, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_layout_build(twice, 2, &bytes, &err), CAIRN_INVALID);
    EXPECT_EQ_U64(bytes.size, 0);
    cairn_ranks_release(&ranks);
}

TEST(a_layout_of_no_tables_is_empty, err) {
    uint32_t index;
    WITH_OK(buf, bytes, cairn_layout_build(NULL, 0, &bytes, &err));
    WITH_OK(layout, layout, cairn_layout_open(cairn_buf_view(&bytes), &layout, &err));
    EXPECT(!cairn_layout_find(&layout, CAIRN_VIEW("x"), &index));
}

TEST(the_layout_digest_is_of_ranks_and_table_digests_alone) {
    const uint32_t ranks[] = {0, 5};
    uint8_t digests[2][32] = {{1}, {2}}, digest[32], other[32];
    cairn_layout_digest(ranks, (const uint8_t(*)[32])digests, 2, digest);
    /* python: sha256(pack("<I", 0) + d0 + pack("<I", 5) + d1) */
    static const char wanted[] = "393e06ef8f29b906200068c49739d5a12d88b21119800aaacc154b646f1f1821";
    char text[65];
    for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
    EXPECT_EQ_TEXT(text, wanted);
    digests[1][31] = 1;
    cairn_layout_digest(ranks, (const uint8_t(*)[32])digests, 2, other);
    EXPECT(memcmp(digest, other, 32) != 0);
}

static void judge(struct cairn_view input, void *context) {
    CAIRN_AUTO(layout) layout = {0};
    struct cairn_error err = {0};
    uint32_t *good = context;
    enum cairn_code code = cairn_layout_open(input, &layout, &err);
    if (code != CAIRN_OK) {
        EXPECT_EQ_U64(err.code, code);
        EXPECT(layout.tables == NULL);
        return;
    }
    (*good)++;
    for (uint32_t i = 0; i < layout.name_count; i++) {
        struct cairn_view name;
        uint32_t first, count, found = 0;
        cairn_layout_name_at(&layout, i, &name, &first, &count);
        EXPECT(cairn_layout_find(&layout, name, &found) && found == i);
        for (uint32_t k = 0; k < count; k++) {
            struct cairn_tensor tensor;
            (void)cairn_layout_tensor_at(&layout, first + k, &tensor);
            EXPECT(!cairn_view_compare(tensor.name, name));
        }
    }
}

TEST(a_damaged_layout_is_refused_or_safe_to_read, err) {
    struct ranks ranks = {0};
    CAIRN_AUTO(buf) bytes = {0};
    uint32_t good = 0;
    make_ranks(&ranks);
    EXPECT_CODE(cairn_layout_build(ranks.tables, RANKS, &bytes, &err), CAIRN_OK);
    cairn_ranks_release(&ranks);
    cairn_mutate_cut(cairn_buf_view(&bytes), judge, &good);
    EXPECT_EQ_U64(good, 0);
    cairn_mutate_many(cairn_buf_view(&bytes), 10000, judge, &good);
    EXPECT(good > 0);
}
