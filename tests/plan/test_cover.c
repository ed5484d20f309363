/* SPDX-License-Identifier: Apache-2.0 */
/* cover: what the proof says about whole layouts, in the words a user reads. */
#include "plan/cover.h"

#include "tests/harness.h"
#include "tests/plan/stored.h"

static void list(struct cairn_stored *stored, uint32_t rank, const char *name,
                 enum cairn_tensor_kind kind, uint64_t rows, uint64_t columns,
                 const struct cairn_fragment *fragments, size_t count) {
    struct cairn_error err = {0};
    struct cairn_tensor tensor = {.name = cairn_view_of(name),
                                  .dtype = CAIRN_DTYPE_U8,
                                  .dimension_count = 2,
                                  .shape = {rows, columns},
                                  .kind = kind};
    EXPECT_CODE(cairn_table_add_tensor(stored->builders[rank], &tensor, fragments, count, &err),
                CAIRN_OK);
}

static struct cairn_fragment flat(uint64_t start, uint64_t count, uint64_t offset) {
    return (struct cairn_fragment){.form = CAIRN_FRAGMENT_FLAT,
                                   .start = {start},
                                   .count = {count},
                                   .offset_bytes = offset,
                                   .size_bytes = count};
}

static struct cairn_fragment box(uint64_t row, uint64_t rows, uint64_t column, uint64_t columns,
                                 uint64_t offset) {
    return (struct cairn_fragment){.form = CAIRN_FRAGMENT_BOX,
                                   .start = {row, column},
                                   .count = {rows, columns},
                                   .offset_bytes = offset,
                                   .size_bytes = rows * columns};
}

static enum cairn_code prove(struct cairn_stored *stored, struct cairn_error *err) {
    if (!cairn_stored_finish(stored)) return CAIRN_INTERNAL;
    return cairn_plan_cover_prove(&stored->layout, NULL, err);
}

TEST(a_tensor_in_boxes_and_flat_ranges_of_three_ranks_is_covered, err) {
    STORED(stored, 1, 3);
    struct cairn_fragment a[] = {box(0, 2, 0, 3, 0)}, b[] = {box(0, 2, 3, 3, 0), flat(12, 5, 100)},
                          c[] = {flat(17, 7, 9)};
    list(&stored, 0, "w", CAIRN_TENSOR_SHARDED, 4, 6, a, 1);
    list(&stored, 1, "w", CAIRN_TENSOR_SHARDED, 4, 6, b, 2);
    list(&stored, 2, "w", CAIRN_TENSOR_SHARDED, 4, 6, c, 1);
    EXPECT_CODE(prove(&stored, &err), CAIRN_OK);
}

TEST(an_overlap_names_tensor_region_and_both_ranks, err) {
    STORED(stored, 1, 2);
    struct cairn_fragment a[] = {box(0, 4, 0, 4, 0)}, b[] = {box(0, 4, 3, 3, 0)};
    list(&stored, 0, "model.w", CAIRN_TENSOR_SHARDED, 4, 6, a, 1);
    list(&stored, 1, "model.w", CAIRN_TENSOR_SHARDED, 4, 6, b, 1);
    EXPECT_CODE(prove(&stored, &err), CAIRN_INVALID);
    EXPECT_EQ_TEXT(err.message,
                   "tensor \"model.w\": region [0:4, 3:4] held twice, by rank 0 and rank 1");
}

TEST(a_hole_names_tensor_and_region, err) {
    STORED(stored, 1, 2);
    struct cairn_fragment a[] = {box(0, 4, 0, 3, 0)}, b[] = {box(1, 3, 3, 3, 0)};
    list(&stored, 0, "model.w", CAIRN_TENSOR_SHARDED, 4, 6, a, 1);
    list(&stored, 1, "model.w", CAIRN_TENSOR_SHARDED, 4, 6, b, 1);
    EXPECT_CODE(prove(&stored, &err), CAIRN_INVALID);
    EXPECT_EQ_TEXT(err.message, "tensor \"model.w\": region [0:1, 3:6] held by no rank");
}

TEST(a_tensor_that_no_rank_holds_at_all_is_a_hole, err) {
    STORED(stored, 1, 1);
    list(&stored, 0, "w", CAIRN_TENSOR_SHARDED, 2, 3, NULL, 0);
    EXPECT_CODE(prove(&stored, &err), CAIRN_INVALID);
    EXPECT_EQ_TEXT(err.message, "tensor \"w\": elements [0:6] held by no rank");
}

TEST(each_rank_that_lists_a_replicated_tensor_must_hold_the_whole, err) {
    STORED(stored, 1, 2);
    struct cairn_fragment a[] = {flat(0, 6, 0)}, b[] = {flat(0, 4, 0)};
    list(&stored, 0, "norm", CAIRN_TENSOR_REPLICATED, 2, 3, a, 1);
    list(&stored, 1, "norm", CAIRN_TENSOR_REPLICATED, 2, 3, b, 1);
    EXPECT_CODE(prove(&stored, &err), CAIRN_INVALID);
    EXPECT_EQ_TEXT(err.message, "tensor \"norm\": elements [4:6] missing in rank 1, which must "
                                "hold the whole");
}

TEST(ranks_that_disagree_about_a_shape_are_named, err) {
    STORED(stored, 1, 2);
    struct cairn_fragment a[] = {flat(0, 6, 0)};
    list(&stored, 0, "w", CAIRN_TENSOR_REPLICATED, 2, 3, a, 1);
    list(&stored, 1, "w", CAIRN_TENSOR_REPLICATED, 3, 2, a, 1);
    EXPECT_CODE(prove(&stored, &err), CAIRN_BEGIN_DIFFERS);
    EXPECT_EQ_TEXT(err.message, "tensor \"w\": rank 0 and rank 1 disagree about its shape");
}

TEST(a_name_that_is_local_here_and_sharded_there_is_refused, err) {
    STORED(stored, 1, 2);
    struct cairn_fragment a[] = {flat(0, 6, 0)};
    list(&stored, 0, "w", CAIRN_TENSOR_LOCAL, 2, 3, a, 1);
    list(&stored, 1, "w", CAIRN_TENSOR_SHARDED, 2, 3, a, 1);
    EXPECT_CODE(prove(&stored, &err), CAIRN_BEGIN_DIFFERS);
}

static void alias(struct cairn_stored *stored, uint32_t rank, const char *name, const char *target,
                  uint64_t rows) {
    struct cairn_error err = {0};
    struct cairn_tensor tensor = {
        .name = cairn_view_of(name), .kind = CAIRN_TENSOR_ALIAS, .alias_of = cairn_view_of(target)};
    if (rows) {
        tensor.dtype = CAIRN_DTYPE_U8;
        tensor.dimension_count = 2;
        tensor.shape[0] = rows;
        tensor.shape[1] = 3;
    }
    EXPECT_CODE(cairn_table_add_tensor(stored->builders[rank], &tensor, NULL, 0, &err), CAIRN_OK);
}

TEST(an_alias_must_end_at_a_tensor_of_its_type_and_shape) {
    EACH(row, FIELDS(const char *target; uint64_t rows; enum cairn_code code), {"w", 2, CAIRN_OK},
         {"w", 0, CAIRN_OK}, {"w", 4, CAIRN_INVALID}, {"nowhere", 0, CAIRN_INVALID},
         {"again", 0, CAIRN_INVALID}) {
        CAIRN_AUTO(stored) stored = {0};
        struct cairn_error err = {0};
        cairn_stored_init(&stored, 1, 1);
        struct cairn_fragment a[] = {flat(0, 6, 0)};
        list(&stored, 0, "w", CAIRN_TENSOR_SHARDED, 2, 3, a, 1);
        alias(&stored, 0, "tied", row->target, row->rows);
        alias(&stored, 0, "again", "tied", 0);
        EXPECT_CODE(prove(&stored, &err), row->code);
    }
}

TEST(an_alias_of_a_local_tensor_needs_one_on_its_own_rank, err) {
    STORED(stored, 1, 2);
    struct cairn_fragment a[] = {flat(0, 6, 0)};
    list(&stored, 0, "rng", CAIRN_TENSOR_LOCAL, 2, 3, a, 1);
    alias(&stored, 1, "seed", "rng", 0);
    EXPECT_CODE(prove(&stored, &err), CAIRN_INVALID);
    EXPECT_EQ_TEXT(err.message, "tensor \"seed\": its target is local, and rank 1 has none");
}

/* Two tensors in a file of its own per rank. */
static enum cairn_code prove_file(const char *file_of_rank_1, bool tensors, uint64_t second_offset,
                                  struct cairn_error *ret_err) {
    struct cairn_error err = {0};
    STORED(stored, 1, 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct cairn_table_shard shard = {
            .name = cairn_view_of(rank ? file_of_rank_1 : "a.safetensors"),
            .size_bytes = 100,
            .tensors = tensors};
        uint32_t number;
        EXPECT_CODE(cairn_table_add_shard(stored.builders[rank], &shard, &number, &err), CAIRN_OK);
        struct cairn_fragment one = flat(0, 6, 8), two = flat(0, 6, second_offset);
        one.shard = two.shard = number;
        list(&stored, rank, "one", CAIRN_TENSOR_LOCAL, 2, 3, &one, 1);
        list(&stored, rank, "two", CAIRN_TENSOR_LOCAL, 2, 3, &two, 1);
    }
    enum cairn_code code = prove(&stored, &err);
    *ret_err = err;
    return code;
}

TEST(two_tensors_may_share_bytes_of_a_raw_file_but_not_of_a_shard_of_tensors, err) {
    EXPECT_CODE(prove_file("b.safetensors", true, 14, &err), CAIRN_OK);
    EXPECT_CODE(prove_file("b.pt", false, 13, &err), CAIRN_OK);
    EXPECT_CODE(prove_file("b.safetensors", true, 13, &err), CAIRN_INVALID);
    EXPECT_EQ_TEXT(err.message, "shard \"a.safetensors\" of rank 0: tensors \"one\" and \"two\" "
                                "share byte 13");
}

TEST(one_shard_in_two_tables_is_refused, err) {
    EXPECT_CODE(prove_file("a.safetensors", true, 14, &err), CAIRN_INVALID);
    EXPECT_EQ_TEXT(err.message, "shard \"a.safetensors\" is listed by rank 0 and rank 1");
}

/* Of the processor: a busy machine takes no longer. */
static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

enum { PIECES = 512, RANKS = 8 };

/* Every second tensor in boxes of columns. */
static void list_many(struct cairn_stored *stored, uint32_t tensors) {
    for (uint32_t t = 0; t < tensors; t++) {
        const char *name = TEXT("layers.%u.weight", t);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            struct cairn_fragment mine[PIECES / RANKS];
            for (uint32_t i = 0; i < PIECES / RANKS; i++) {
                uint64_t piece = (uint64_t)i * RANKS + rank, offset = ((uint64_t)t * 64 + i) * 8;
                mine[i] = t % 2 ? flat(piece * 4, 4, offset) : box(0, 4, piece, 1, offset);
            }
            list(stored, rank, name, CAIRN_TENSOR_SHARDED, 4, PIECES, mine, PIECES / RANKS);
        }
    }
}

/* 512 x 512 fragments. */
TEST(a_layout_of_a_quarter_million_fragments_is_built_opened_and_proven_quickly, err) {
    enum { TENSORS = 512 };
    STORED(stored, 1, RANKS);
    list_many(&stored, TENSORS);
    double start = seconds();
    REQUIRE(cairn_stored_finish(&stored));
    REQUIRE_OK(cairn_plan_cover_prove(&stored.layout, NULL, &err));
    EXPECT(seconds() - start < 5.0); /* about 0.2 s; sanitizers allowed for */
}

/* What a SIGTERM does to a proof that runs on a thread of commits. */
struct proof {
    const struct cairn_layout *layout;
    _Atomic bool stop, over;
    uint32_t rounds;
    enum cairn_code code;
};

static void *prove_until_stopped(void *argument) {
    struct proof *proof = argument;
    do {
        proof->code = cairn_plan_cover_prove(proof->layout, &proof->stop, NULL);
        proof->rounds++;
    } while (proof->code == CAIRN_OK && !proof->stop);
    proof->over = true;
    return NULL;
}

TEST(a_proof_that_is_stopped_in_its_middle_ends_at_once_as_cancelled) { /* server/README.md, B3c */
    enum { TENSORS = 64, ROUNDS = 5 };
    STORED(stored, 1, RANKS);
    list_many(&stored, TENSORS);
    REQUIRE(cairn_stored_finish(&stored));
    uint32_t cancelled = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct proof proof = {.layout = &stored.layout};
        pthread_t thread;
        REQUIRE(!pthread_create(&thread, NULL, prove_until_stopped, &proof));
        cairn_test_pause_ms(7 * (round + 1)); /* pause of chaos: a moment of the proof */
        proof.stop = true;
        double asked = seconds();
        pthread_join(thread, NULL);
        EXPECT(seconds() - asked < 2.0);
        EXPECT(proof.code == CAIRN_OK || proof.code == CAIRN_CANCELLED);
        cancelled += proof.code == CAIRN_CANCELLED;
    }
    EXPECT(cancelled > 0);
}

TEST(a_proof_looks_for_a_stop_also_where_no_tensor_is_hard, err) { /* server/README.md, B3c */
    _Atomic bool stop = true;
    const struct cairn_fragment whole = flat(0, 16, 0);
    STORED(stored, 1, 1);
    list(&stored, 0, "w", CAIRN_TENSOR_SHARDED, 4, 4, &whole, 1);
    REQUIRE(cairn_stored_finish(&stored));
    EXPECT_CODE(cairn_plan_cover_prove(&stored.layout, &stop, &err), CAIRN_CANCELLED);
    stop = false;
    EXPECT_CODE(cairn_plan_cover_prove(&stored.layout, &stop, &err), CAIRN_OK);
}
