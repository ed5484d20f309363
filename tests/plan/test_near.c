/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of tensors that very many ranks hold, whose fragments are not all looked at. */
#include "plan/reads.h"
#include "tests/harness.h"

#define RANKS_MAX 160
#define ROW 6 /* elements of a row of the tensor */

/* Which rank holds which rows; its fragment begins at byte 8 of its shard. */
struct many {
    uint32_t ranks, rows;
    uint32_t begin[RANKS_MAX], end[RANKS_MAX]; /* of each rank; equal: none */
    bool boxes;
    struct cairn_buf tables[RANKS_MAX], layout_bytes;
    struct cairn_layout layout;
    struct cairn_manifest manifest;
};

static void release(struct many *many) {
    for (uint32_t i = 0; i < many->ranks; i++) cairn_buf_release(&many->tables[i]);
    cairn_layout_release(&many->layout);
    cairn_buf_release(&many->layout_bytes);
    cairn_manifest_release(&many->manifest);
}

static void add_rank(struct many *many, uint32_t rank) {
    CAIRN_AUTO_PTR(table_builder) builder = NULL;
    uint64_t rows = many->end[rank] - many->begin[rank];
    uint32_t number = 0;
    struct cairn_table_shard shard = {.name = cairn_view_of(TEXT("rank-%05u.bin", rank)),
                                      .size_bytes = 1 << 20};
    struct cairn_tensor tensor = {.name = CAIRN_VIEW("w"),
                                  .dtype = CAIRN_DTYPE_F32,
                                  .dimension_count = 2,
                                  .shape = {many->rows, ROW},
                                  .kind = CAIRN_TENSOR_SHARDED};
    struct cairn_fragment fragment = {.form = CAIRN_FRAGMENT_FLAT,
                                      .start = {many->begin[rank] * ROW},
                                      .count = {rows * ROW},
                                      .offset_bytes = 8,
                                      .size_bytes = rows * ROW * 4};
    if (many->boxes) {
        fragment.form = CAIRN_FRAGMENT_BOX;
        fragment.start[0] = many->begin[rank];
        fragment.count[0] = rows;
        fragment.count[1] = ROW;
    }
    EXPECT(!cairn_table_builder_new(rank, &builder, NULL));
    EXPECT(!cairn_table_add_shard(builder, &shard, &number, NULL));
    fragment.shard = number;
    EXPECT(!cairn_table_add_tensor(builder, &tensor, &fragment, rows > 0, NULL));
    EXPECT(!cairn_table_finish(builder, &many->tables[rank], NULL));
}

static void finish(struct many *many) {
    struct cairn_table tables[RANKS_MAX];
    many->manifest = (struct cairn_manifest){.world_size = many->ranks};
    many->manifest.shards = calloc(many->ranks, sizeof *many->manifest.shards);
    for (uint32_t i = 0; i < many->ranks; i++) {
        const char *name = TEXT("rank-%05u.bin", i);
        add_rank(many, i);
        EXPECT(!cairn_table_open(cairn_buf_view(&many->tables[i]), &tables[i], NULL));
        many->manifest.shards[i] =
            (struct cairn_manifest_shard){.name = strdup(name), .rank = i, .size_bytes = 1 << 20};
        many->manifest.shard_count++;
    }
    EXPECT(!cairn_layout_build(tables, many->ranks, &many->layout_bytes, NULL));
    EXPECT(!cairn_layout_open(cairn_buf_view(&many->layout_bytes), &many->layout, NULL));
}

enum order { RISING, FALLING, TURNED, MIXED, ORDERS };

/* Rows cut at random, and given to ranks in that order. */
static void make(struct many *many, uint64_t *random, enum order order) {
    *many = (struct many){.ranks = 64 + (uint32_t)(cairn_test_random(random) % 96),
                          .boxes = cairn_test_random(random) % 2};
    uint32_t turn = (uint32_t)(cairn_test_random(random) % many->ranks), place[RANKS_MAX];
    for (uint32_t i = 0; i < many->ranks; i++) {
        place[i] = order == FALLING  ? many->ranks - 1 - i
                   : order == TURNED ? (i + turn) % many->ranks
                                     : i;
        if (order != MIXED) continue;
        uint32_t other = (uint32_t)(cairn_test_random(random) % (i + 1));
        place[i] = place[other];
        place[other] = i;
    }
    for (uint32_t i = 0; i < many->ranks; i++) {
        uint32_t rank = place[i];
        many->begin[rank] = many->rows;
        many->rows += 1 + (uint32_t)(cairn_test_random(random) % 5);
        many->end[rank] = many->rows;
    }
}

/* Every byte of the want once, from where its rank holds it. */
static void check(const struct many *many, const struct cairn_plan_pieces *pieces, uint64_t start,
                  uint64_t count) {
    uint64_t at = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        const struct cairn_plan_piece *piece = &pieces->pieces[i];
        uint64_t place = start * 4 + at, begin = (uint64_t)many->begin[piece->shard] * ROW * 4;
        EXPECT_ALL_U64(piece->at, at, piece->offset, 8 + place - begin);
        EXPECT(place >= begin &&
               place + piece->bytes <= (uint64_t)many->end[piece->shard] * ROW * 4);
        at += piece->bytes;
    }
    EXPECT_EQ_U64(at, count * 4);
}

static enum cairn_code read_flat(const struct many *many, uint64_t start, uint64_t count,
                                 struct cairn_plan_pieces *ret, struct cairn_error *err) {
    struct cairn_plan_want want = {
        .tensor = CAIRN_VIEW("w"), .form = CAIRN_PLAN_FLAT, .start = &start, .count = &count};
    return cairn_plan_reads(&many->manifest, &many->layout, &want, 1, ret, err);
}

TEST(a_slice_of_what_many_ranks_hold_is_found_in_whatever_order_they_hold_it) { /* reads.h#1 */
    uint64_t random = cairn_test_seed();
    for (int i = 0; i < 120; i++) {
        struct many many;
        make(&many, &random, (enum order)(i % ORDERS));
        finish(&many);
        uint64_t all = (uint64_t)many.rows * ROW;
        for (int k = 0; k < 20; k++) {
            struct cairn_plan_pieces pieces = {0};
            uint64_t start = cairn_test_random(&random) % all;
            uint64_t most = k % 4 ? cairn_min_u64(all - start, 40) : all - start;
            uint64_t count = 1 + cairn_test_random(&random) % most;
            EXPECT(!read_flat(&many, start, count, &pieces, NULL));
            check(&many, &pieces, start, count);
            cairn_plan_pieces_release(&pieces);
        }
        release(&many);
    }
}

TEST(a_hole_among_many_ranks_is_not_found_and_never_filled) { /* reads.h#1 */
    uint64_t random = cairn_test_seed();
    for (int i = 0; i < 40; i++) {
        struct many many;
        struct cairn_error err = {0};
        struct cairn_plan_pieces pieces = {0};
        make(&many, &random, (enum order)(i % ORDERS));
        uint32_t lost = (uint32_t)(cairn_test_random(&random) % many.ranks);
        uint64_t hole = (uint64_t)many.begin[lost] * ROW, end = (uint64_t)many.end[lost] * ROW;
        many.end[lost] = many.begin[lost];
        finish(&many);
        EXPECT_CODE(read_flat(&many, hole, 1, &pieces, &err), CAIRN_NOT_FOUND);
        EXPECT_CODE(read_flat(&many, end - 1, 1, &pieces, &err), CAIRN_NOT_FOUND);
        if (hole) EXPECT(!read_flat(&many, hole - 1, 1, &pieces, NULL));
        cairn_plan_pieces_release(&pieces);
        release(&many);
    }
}

TEST(rows_of_what_many_ranks_hold_are_found_as_boxes) { /* reads.h#1 */
    uint64_t random = cairn_test_seed();
    for (int i = 0; i < 40; i++) {
        struct many many;
        struct cairn_plan_pieces pieces = {0};
        make(&many, &random, (enum order)(i % ORDERS));
        finish(&many);
        uint64_t start[] = {cairn_test_random(&random) % many.rows, 0};
        uint64_t count[] = {1 + cairn_test_random(&random) % (many.rows - start[0]), ROW};
        struct cairn_plan_want want = {
            .tensor = CAIRN_VIEW("w"), .form = CAIRN_PLAN_BOX, .start = start, .count = count};
        EXPECT(!cairn_plan_reads(&many.manifest, &many.layout, &want, 1, &pieces, NULL));
        check(&many, &pieces, start[0] * ROW, count[0] * ROW);
        cairn_plan_pieces_release(&pieces);
        release(&many);
    }
}
