/* SPDX-License-Identifier: Apache-2.0 */
/* reads: random layouts and wants, with real bytes, against an element-wise model. */
#include "plan/reads.h"

#include "plan/cover.h"
#include "tests/harness.h"
#include "tests/plan/stored.h"

#define FRAGMENTS_MAX 32

/* One rank's share of a tensor while it is dealt out. */
struct share {
    struct cairn_fragment fragments[FRAGMENTS_MAX];
    size_t count;
};

static void deal(struct cairn_stored *stored, struct stored_tensor *tensor,
                 const struct cairn_fragment *fragments, size_t count) {
    struct share shares[STORED_RANKS_MAX] = {0};
    for (size_t i = 0; i < count; i++) {
        uint32_t rank = (uint32_t)cairn_stored_below(stored, stored->rank_count);
        struct cairn_fragment fragment = fragments[i];
        cairn_stored_place(stored, tensor, rank, &fragment);
        shares[rank].fragments[shares[rank].count++] = fragment;
    }
    for (uint32_t rank = 0; rank < stored->rank_count; rank++) {
        if (shares[rank].count == 0 && cairn_stored_below(stored, 2)) continue;
        cairn_stored_list(stored, tensor, rank, shares[rank].fragments, shares[rank].count);
    }
}

static size_t flat_cuts(struct cairn_stored *stored, uint64_t start, uint64_t end,
                        struct cairn_fragment *ret, size_t capacity) {
    size_t count = 0;
    while (start < end) {
        uint64_t size = 1 + cairn_stored_below(stored, end - start);
        if (count + 1 == capacity) size = end - start;
        ret[count++] =
            (struct cairn_fragment){.form = CAIRN_FRAGMENT_FLAT, .start = {start}, .count = {size}};
        start += size;
    }
    return count;
}

static size_t box_cuts(struct cairn_stored *stored, const struct cairn_plan_box *region,
                       unsigned dimensions, struct cairn_fragment *ret, uint32_t capacity) {
    struct cairn_plan_box boxes[FRAGMENTS_MAX];
    uint32_t count = cairn_stored_cuts(stored, region, dimensions, boxes, capacity);
    for (uint32_t i = 0; i < count; i++) {
        ret[i] = (struct cairn_fragment){.form = CAIRN_FRAGMENT_BOX};
        for (unsigned d = 0; d < dimensions; d++) {
            ret[i].start[d] = boxes[i].low[d];
            ret[i].count[d] = boxes[i].high[d] - boxes[i].low[d];
        }
    }
    return count;
}

/* Flat, boxes, or the first rows in boxes and the rest flat. */
static void deal_at_random(struct cairn_stored *stored, struct stored_tensor *tensor) {
    struct cairn_fragment fragments[FRAGMENTS_MAX];
    struct cairn_plan_box region = {0};
    unsigned dimensions = tensor->tensor.dimension_count;
    uint64_t way = cairn_stored_below(stored, 3);
    if (tensor->elements == 0) {
        cairn_stored_list(stored, tensor, 0, NULL, 0);
        return;
    }
    if (dimensions == 0 || way == 0) {
        deal(stored, tensor, fragments,
             flat_cuts(stored, 0, tensor->elements, fragments, FRAGMENTS_MAX));
        return;
    }
    memcpy(region.high, tensor->tensor.shape, sizeof region.high);
    size_t count = 0;
    uint64_t rows = tensor->tensor.shape[0];
    if (way == 2) rows = cairn_stored_below(stored, rows + 1);
    region.high[0] = rows;
    if (rows) count = box_cuts(stored, &region, dimensions, fragments, FRAGMENTS_MAX / 2);
    uint64_t from = rows * (tensor->elements / tensor->tensor.shape[0]);
    count += flat_cuts(stored, from, tensor->elements, fragments + count, FRAGMENTS_MAX / 2);
    deal(stored, tensor, fragments, count);
}

static struct stored_tensor *random_tensor(struct cairn_stored *stored, const char *name) {
    static const unsigned dtypes[] = {CAIRN_DTYPE_U8, CAIRN_DTYPE_BF16, CAIRN_DTYPE_F32,
                                      CAIRN_DTYPE_I64, CAIRN_DTYPE_C128};
    uint64_t shape[4];
    unsigned dimensions = (unsigned)cairn_stored_below(stored, 5);
    for (unsigned d = 0; d < dimensions; d++) shape[d] = 1 + cairn_stored_below(stored, 7);
    if (dimensions && cairn_stored_below(stored, 40) == 0) shape[dimensions - 1] = 0;
    return cairn_stored_tensor(stored, name,
                               dtypes[cairn_stored_below(stored, CAIRN_COUNT(dtypes))],
                               CAIRN_TENSOR_SHARDED, dimensions, shape);
}

struct slice {
    uint64_t start[CAIRN_DIMENSIONS_MAX], count[CAIRN_DIMENSIONS_MAX];
};

static void random_want(struct cairn_stored *stored, const struct stored_tensor *tensor,
                        struct slice *slice, struct cairn_plan_want *ret) {
    *ret = (struct cairn_plan_want){.tensor = tensor->tensor.name,
                                    .form = (enum cairn_plan_form)cairn_stored_below(stored, 3),
                                    .start = slice->start,
                                    .count = slice->count};
    if (ret->form == CAIRN_PLAN_FLAT) {
        slice->start[0] = cairn_stored_below(stored, tensor->elements + 1);
        slice->count[0] = cairn_stored_below(stored, tensor->elements - slice->start[0] + 1);
    }
    for (unsigned d = 0; ret->form == CAIRN_PLAN_BOX && d < tensor->tensor.dimension_count; d++) {
        slice->start[d] = cairn_stored_below(stored, tensor->tensor.shape[d] + 1);
        slice->count[d] = cairn_stored_below(stored, tensor->tensor.shape[d] - slice->start[d] + 1);
    }
}

/* The wanted bytes, one element after the other. Returns how many. */
static uint64_t model(const struct stored_tensor *tensor, const struct cairn_plan_want *want,
                      uint8_t *ret) {
    uint64_t elements = tensor->elements;
    if (want->form == CAIRN_PLAN_FLAT) elements = want->count[0];
    if (want->form == CAIRN_PLAN_BOX) {
        elements = 1;
        for (unsigned d = 0; d < tensor->tensor.dimension_count; d++) elements *= want->count[d];
    }
    for (uint64_t i = 0; i < elements; i++) {
        uint64_t index = i;
        if (want->form == CAIRN_PLAN_FLAT) index += want->start[0];
        if (want->form == CAIRN_PLAN_BOX) {
            index = cairn_stored_nth(&tensor->tensor, want->start, want->count, i);
        }
        cairn_stored_copy(tensor, index, ret, i);
    }
    return elements * cairn_dtype_bits(tensor->tensor.dtype) / 8;
}

static void apply(const struct cairn_stored *stored, const struct cairn_plan_pieces *pieces,
                  uint32_t want, uint8_t *ret) {
    for (size_t i = 0; i < pieces->count; i++) {
        const struct cairn_plan_piece *piece = &pieces->pieces[i];
        if (piece->want != want) continue;
        const struct cairn_buf *object = &stored->objects[piece->shard];
        REQUIRE(piece->offset + piece->bytes <= object->size);
        memcpy(ret + piece->at, object->data + piece->offset, piece->bytes);
    }
}

static void check_order(const struct cairn_plan_pieces *pieces) {
    for (size_t i = 1; i < pieces->count; i++) {
        const struct cairn_plan_piece *a = &pieces->pieces[i - 1], *b = &pieces->pieces[i];
        EXPECT(a->want <= b->want);
        if (a->want != b->want) continue;
        EXPECT_EQ_U64(a->at + a->bytes, b->at);
        EXPECT(a->shard != b->shard || a->offset + a->bytes != b->offset); /* else joined */
    }
}

static void check_wants(const struct cairn_stored *stored, struct stored_tensor *const *tensors,
                        const struct cairn_plan_want *wants, uint32_t count) {
    struct cairn_plan_pieces pieces = {0};
    struct cairn_error err = {0};
    uint8_t want[STORED_ELEMENTS_MAX * STORED_WIDTH_MAX];
    uint8_t got[STORED_ELEMENTS_MAX * STORED_WIDTH_MAX];
    REQUIRE_OK(cairn_plan_reads(&stored->manifest, &stored->layout, wants, count, &pieces, &err));
    check_order(&pieces);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = model(tensors[i], &wants[i], want);
        EXPECT_EQ_U64(pieces.want_bytes[i], bytes);
        memset(got, 0xa5, bytes);
        apply(stored, &pieces, i, got);
        EXPECT(memcmp(got, want, bytes) == 0);
    }
    cairn_plan_pieces_release(&pieces);
}

TEST(random_slices_of_random_layouts_give_the_bytes_of_an_element_wise_model) {
    for (uint64_t round = 0; round < 400; round++) {
        CAIRN_AUTO(stored) stored = {0};
        struct stored_tensor *tensors[3], *chosen[16];
        struct cairn_plan_want wants[16];
        struct slice slices[16];
        struct cairn_error err = {0};
        cairn_stored_init(&stored, cairn_test_seed() + round, 4);
        for (uint32_t i = 0; i < 3; i++) {
            tensors[i] = random_tensor(&stored, TEXT("layer.%u", i));
            deal_at_random(&stored, tensors[i]);
        }
        REQUIRE(cairn_stored_finish(&stored));
        REQUIRE_OK(cairn_plan_cover_prove(&stored.layout, NULL, &err));
        for (uint32_t i = 0; i < 16; i++) {
            chosen[i] = tensors[cairn_stored_below(&stored, 3)];
            random_want(&stored, chosen[i], &slices[i], &wants[i]);
        }
        check_wants(&stored, chosen, wants, 16);
    }
}

/* ---- the kinds ---- */

static void whole(struct cairn_stored *stored, struct stored_tensor *tensor, uint32_t rank) {
    struct cairn_fragment fragment = {.form = CAIRN_FRAGMENT_FLAT, .count = {tensor->elements}};
    cairn_stored_place(stored, tensor, rank, &fragment);
    cairn_stored_list(stored, tensor, rank, &fragment, 1);
}

TEST(a_replicated_tensor_is_read_from_one_rank_and_different_ones_from_different_ranks, err) {
    CAIRN_AUTO(stored) stored = {0};
    struct cairn_plan_pieces pieces = {0};
    const uint64_t shape[] = {10};
    cairn_stored_init(&stored, cairn_test_seed(), 4);
    struct cairn_plan_want wants[STORED_TENSORS_MAX] = {0};
    for (uint32_t i = 0; i < STORED_TENSORS_MAX; i++) {
        struct stored_tensor *tensor = cairn_stored_tensor(
            &stored, TEXT("norm.%u", i), CAIRN_DTYPE_F32, CAIRN_TENSOR_REPLICATED, 1, shape);
        for (uint32_t rank = 0; rank < 4; rank++) whole(&stored, tensor, rank);
        wants[i].tensor = tensor->tensor.name;
    }
    REQUIRE(cairn_stored_finish(&stored));
    REQUIRE_OK(cairn_plan_cover_prove(&stored.layout, NULL, &err));
    REQUIRE_OK(cairn_plan_reads(&stored.manifest, &stored.layout, wants, STORED_TENSORS_MAX,
                                &pieces, &err));
    EXPECT_EQ_U64(pieces.count, STORED_TENSORS_MAX);
    uint32_t seen = 0;
    for (size_t i = 0; i < pieces.count; i++) seen |= 1u << pieces.pieces[i].shard;
    EXPECT((seen & (seen - 1)) != 0);
    cairn_plan_pieces_release(&pieces);
}

TEST(a_local_tensor_is_read_from_the_rank_that_is_named, err) {
    CAIRN_AUTO(stored) stored = {0};
    struct cairn_plan_pieces pieces = {0};
    const uint64_t shape[] = {3}, longer[] = {5};
    cairn_stored_init(&stored, cairn_test_seed(), 3);
    whole(&stored,
          cairn_stored_tensor(&stored, "rng", CAIRN_DTYPE_U8, CAIRN_TENSOR_LOCAL, 1, shape), 0);
    whole(&stored,
          cairn_stored_tensor(&stored, "rng", CAIRN_DTYPE_U8, CAIRN_TENSOR_LOCAL, 1, longer), 2);
    REQUIRE(cairn_stored_finish(&stored));
    REQUIRE_OK(cairn_plan_cover_prove(&stored.layout, NULL, &err));
    struct cairn_plan_want want = {.tensor = CAIRN_VIEW("rng"), .local_rank = 2};
    REQUIRE_OK(cairn_plan_reads(&stored.manifest, &stored.layout, &want, 1, &pieces, &err));
    EXPECT_ALL_U64(pieces.want_bytes[0], 5, pieces.pieces[0].shard, 2);
    cairn_plan_pieces_release(&pieces);
    want.local_rank = 1;
    EXPECT_CODE(cairn_plan_reads(&stored.manifest, &stored.layout, &want, 1, &pieces, &err),
                CAIRN_NOT_FOUND);
}

static void list_alias(struct cairn_stored *stored, const char *name, const char *target) {
    struct cairn_error err = {0};
    struct cairn_tensor alias = {
        .name = cairn_view_of(name), .kind = CAIRN_TENSOR_ALIAS, .alias_of = cairn_view_of(target)};
    EXPECT_CODE(cairn_table_add_tensor(stored->builders[0], &alias, NULL, 0, &err), CAIRN_OK);
}

TEST(an_alias_is_followed_and_a_circle_of_them_is_refused, err) {
    CAIRN_AUTO(stored) stored = {0};
    struct cairn_plan_pieces pieces = {0};
    const uint64_t shape[] = {4, 4};
    cairn_stored_init(&stored, cairn_test_seed(), 1);
    whole(&stored,
          cairn_stored_tensor(&stored, "embed", CAIRN_DTYPE_F32, CAIRN_TENSOR_SHARDED, 2, shape),
          0);
    list_alias(&stored, "lm_head", "tied");
    list_alias(&stored, "tied", "embed");
    list_alias(&stored, "chicken", "egg");
    list_alias(&stored, "egg", "chicken");
    list_alias(&stored, "lost", "nowhere");
    REQUIRE(cairn_stored_finish(&stored));
    struct cairn_plan_want want = {.tensor = CAIRN_VIEW("lm_head")};
    REQUIRE_OK(cairn_plan_reads(&stored.manifest, &stored.layout, &want, 1, &pieces, &err));
    EXPECT_EQ_U64(pieces.want_bytes[0], 64);
    cairn_plan_pieces_release(&pieces);
    want.tensor = CAIRN_VIEW("egg");
    EXPECT_CODE(cairn_plan_reads(&stored.manifest, &stored.layout, &want, 1, &pieces, &err),
                CAIRN_INVALID);
    want.tensor = CAIRN_VIEW("lost");
    EXPECT_CODE(cairn_plan_reads(&stored.manifest, &stored.layout, &want, 1, &pieces, &err),
                CAIRN_NOT_FOUND);
}

TEST(what_no_shard_holds_is_refused_by_name_and_place, err) {
    CAIRN_AUTO(stored) stored = {0};
    struct cairn_plan_pieces pieces = {0};
    const uint64_t shape[] = {8};
    cairn_stored_init(&stored, cairn_test_seed(), 1);
    struct stored_tensor *tensor =
        cairn_stored_tensor(&stored, "w", CAIRN_DTYPE_F32, CAIRN_TENSOR_SHARDED, 1, shape);
    struct cairn_fragment fragment = {.form = CAIRN_FRAGMENT_FLAT, .count = {5}};
    cairn_stored_place(&stored, tensor, 0, &fragment);
    cairn_stored_list(&stored, tensor, 0, &fragment, 1);
    REQUIRE(cairn_stored_finish(&stored));
    struct cairn_plan_want want = {.tensor = CAIRN_VIEW("w")};
    EXPECT_CODE(cairn_plan_reads(&stored.manifest, &stored.layout, &want, 1, &pieces, &err),
                CAIRN_NOT_FOUND);
    EXPECT_EQ_TEXT(err.message, "tensor \"w\": bytes 20 to 32 of the slice are held by no shard");
    EXPECT_CODE(cairn_plan_cover_prove(&stored.layout, NULL, &err), CAIRN_INVALID);
    EXPECT_EQ_TEXT(err.message, "tensor \"w\": elements [5:8] held by no rank");
    const uint64_t start[] = {2}, count[] = {3}, far[] = {7};
    want = (struct cairn_plan_want){
        .tensor = CAIRN_VIEW("w"), .form = CAIRN_PLAN_FLAT, .start = start, .count = count};
    EXPECT_CODE(cairn_plan_reads(&stored.manifest, &stored.layout, &want, 1, &pieces, &err),
                CAIRN_OK);
    cairn_plan_pieces_release(&pieces);
    want.count = far;
    EXPECT_CODE(cairn_plan_reads(&stored.manifest, &stored.layout, &want, 1, &pieces, &err),
                CAIRN_RANGE);
}

TEST(ranges_of_shards_need_no_layout, err) {
    struct cairn_plan_pieces pieces = {0};
    STORED(stored, 1, 2);
    REQUIRE(cairn_stored_finish(&stored));
    struct cairn_plan_want wants[] = {
        {.shard = CAIRN_VIEW("rank-00001.bin"), .offset = 100, .bytes = UINT64_MAX},
        {.shard = CAIRN_VIEW("rank-00000.bin"), .offset = 7, .bytes = 9},
        {.shard = CAIRN_VIEW("rank-00000.bin"), .offset = STORED_OBJECT_BYTES, .bytes = 0},
    };
    REQUIRE_OK(cairn_plan_reads(&stored.manifest, NULL, wants, 3, &pieces, &err));
    EXPECT_ALL_U64(pieces.count, 2, pieces.want_bytes[0], STORED_OBJECT_BYTES - 100,
                   pieces.pieces[0].shard, 1, pieces.pieces[1].offset, 7, pieces.want_bytes[2], 0);
    cairn_plan_pieces_release(&pieces);
    wants[1].bytes = UINT64_MAX - 3;
    EXPECT_CODE(cairn_plan_reads(&stored.manifest, NULL, wants, 3, &pieces, &err), CAIRN_RANGE);
    wants[1].shard = CAIRN_VIEW("rank-00009.bin");
    EXPECT_CODE(cairn_plan_reads(&stored.manifest, NULL, wants, 3, &pieces, &err), CAIRN_NOT_FOUND);
    wants[1] = (struct cairn_plan_want){.tensor = CAIRN_VIEW("w")};
    EXPECT_CODE(cairn_plan_reads(&stored.manifest, NULL, wants, 3, &pieces, &err), CAIRN_NOT_FOUND);
}

/* Rows of 8 elements, which are whole bytes of any width: each flat range, and each run of columns
 * in all rows, by each type of elements that a byte holds several of. */
#define NARROW_ROWS 4
#define NARROW_COLUMNS 8

static void check_narrow(const struct cairn_stored *stored, unsigned bits, bool flat, uint64_t from,
                         uint64_t size) {
    struct cairn_error err = {0};
    struct cairn_plan_pieces pieces = {0};
    const uint64_t start[] = {flat ? from : 0, from}, count[] = {flat ? size : NARROW_ROWS, size};
    const struct cairn_plan_want want = {.tensor = CAIRN_VIEW("q"),
                                         .form = flat ? CAIRN_PLAN_FLAT : CAIRN_PLAN_BOX,
                                         .start = start,
                                         .count = count};
    bool whole = from * bits % 8 == 0 && size * bits % 8 == 0;
    enum cairn_code code =
        cairn_plan_reads(&stored->manifest, &stored->layout, &want, 1, &pieces, &err);
    EXPECT_CODE(code, whole ? CAIRN_OK : CAIRN_UNSUPPORTED);
    if (!whole) EXPECT(strstr(err.message, "cut inside a byte") != NULL);
    uint64_t bytes = 0;
    for (size_t i = 0; whole && i < pieces.count; i++) {
        uint64_t row = flat ? 0 : pieces.pieces[i].at / (size * bits / 8);
        EXPECT_EQ_U64(pieces.pieces[i].offset, 24 + (row * NARROW_COLUMNS + from) * bits / 8);
        bytes += pieces.pieces[i].bytes;
    }
    if (whole) EXPECT_EQ_U64(bytes, (flat ? 1 : NARROW_ROWS) * size * bits / 8);
    cairn_plan_pieces_release(&pieces);
}

TEST(elements_narrower_than_a_byte_are_cut_at_byte_borders_only) {
    for (unsigned dtype = 1; cairn_dtype_text(dtype); dtype++) {
        CAIRN_AUTO(stored) stored = {0};
        struct cairn_error err = {0};
        unsigned bits = cairn_dtype_bits(dtype);
        if (bits >= 8) continue;
        cairn_stored_init(&stored, 1, 1);
        struct cairn_tensor tensor = {.name = CAIRN_VIEW("q"),
                                      .dtype = dtype,
                                      .dimension_count = 2,
                                      .shape = {NARROW_ROWS, NARROW_COLUMNS},
                                      .kind = CAIRN_TENSOR_SHARDED};
        struct cairn_fragment fragment = {.form = CAIRN_FRAGMENT_FLAT,
                                          .count = {NARROW_ROWS * NARROW_COLUMNS},
                                          .offset_bytes = 24,
                                          .size_bytes = NARROW_ROWS * bits};
        REQUIRE_OK(cairn_table_add_tensor(stored.builders[0], &tensor, &fragment, 1, &err));
        REQUIRE(cairn_stored_finish(&stored));
        for (uint64_t from = 0; from < NARROW_ROWS * NARROW_COLUMNS; from++)
            for (uint64_t size = 1; from + size <= NARROW_ROWS * NARROW_COLUMNS; size++) {
                check_narrow(&stored, bits, true, from, size);
                if (from + size <= NARROW_COLUMNS) check_narrow(&stored, bits, false, from, size);
            }
    }
}

TEST(a_layout_that_names_a_shard_the_manifest_has_not_is_corrupt, err) {
    CAIRN_AUTO(stored) stored = {0};
    struct cairn_plan_pieces pieces = {0};
    const uint64_t shape[] = {8};
    cairn_stored_init(&stored, 1, 2);
    struct stored_tensor *tensor =
        cairn_stored_tensor(&stored, "w", CAIRN_DTYPE_F32, CAIRN_TENSOR_SHARDED, 1, shape);
    whole(&stored, tensor, 1);
    REQUIRE(cairn_stored_finish(&stored));
    stored.manifest.shards[1].size_bytes--;
    struct cairn_plan_want want = {.tensor = CAIRN_VIEW("w")};
    EXPECT_CODE(cairn_plan_reads(&stored.manifest, &stored.layout, &want, 1, &pieces, &err),
                CAIRN_CORRUPT);
}
