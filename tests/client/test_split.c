/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* Four ranks, two of tensor parallelism by two of data parallelism, save what they hold alike once,
 * with a real server and real uploaders; another number of ranks reads all of it back. */

#include "tests/client/stage.h"
#include "tests/support/world.h"

#define RANKS 4
#define LAYERS 3 /* so that slices end within matrices and vectors */
#define ROWS 96
#define COLUMNS 256
#define NORMS 5000

/* Layer i: a matrix whose halves by columns are held by the two tensor-parallel ranks, and a vector
 * that all four hold. Besides: a scalar and an empty tensor of all, and a tied one. */
static float matrices[LAYERS][ROWS][COLUMNS];
static double norms[LAYERS][NORMS];
static int64_t scalar;

static void fill(uint64_t seed) {
    uint64_t state = seed;
    for (size_t i = 0; i < sizeof matrices / sizeof(float); i++)
        (&matrices[0][0][0])[i] = (float)(cairn_test_random(&state) >> 40);
    for (size_t i = 0; i < sizeof norms / sizeof(double); i++)
        (&norms[0][0])[i] = (double)(cairn_test_random(&state) >> 20);
    scalar = (int64_t)(cairn_test_random(&state) >> 2);
}

struct rank {
    struct cairn_session *session;
    struct cairn_save *save;
    struct cairn_split *splits[2]; /* its matrices; what all ranks hold */
    float halves[LAYERS][ROWS][COLUMNS / 2];
};
static struct rank ranks[RANKS];

static void ranks_release(struct rank **all) {
    for (size_t i = 0; i < RANKS; i++) {
        cairn_save_free((*all)[i].save);
        for (size_t k = 0; k < 2; k++) cairn_split_free((*all)[i].splits[k]);
        (void)cairn_close((*all)[i].session, NULL);
        (*all)[i] = (struct rank){0};
    }
}
#define OPEN_RANKS()                                                                               \
    OPEN_WORLD(.nodes = 2);                                                                        \
    __attribute__((cleanup(ranks_release))) CAIRN_UNUSED struct rank *opened = ranks;              \
    REQUIRE_OK(open_ranks(&world, &err))

static enum cairn_code open_ranks(const struct cairn_world *world, struct cairn_error *err) {
    for (uint32_t i = 0; i < RANKS; i++) {
        const struct cairn_open_options options =
            SIZED(cairn_open_options, .run = "llm/7b", .job = "job-1", .rank = i,
                  .world_size = RANKS, .local_rank = i / 2, .local_world_size = 2,
                  .bytes = 4 * CAIRN_MIB, .socket = world->sockets[i % 2], .timeout_ms = HANG_MS);
        CAIRN_TRY(cairn_open(&options, &ranks[i].session, NULL, err));
    }
    return CAIRN_OK;
}

/* ---- what a rank holds ---- */

static const uint64_t matrix_shape[2] = {ROWS, COLUMNS}, half[2] = {ROWS, COLUMNS / 2};
static const uint64_t norm_shape[1] = {NORMS}, empty_shape[2] = {0, 7};

static const int64_t row_stride[2] = {COLUMNS, 1};

static int fill_norm(void *owner, uint64_t offset, void *to, uint64_t bytes) {
    memcpy(to, (const uint8_t *)owner + offset, bytes);
    return 0;
}

static struct cairn_tensor_piece matrix_of(uint32_t rank, int layer, char name[32],
                                           uint64_t start[2]) {
    snprintf(name, 32, "layers.%d.w", layer);
    start[0] = 0;
    start[1] = rank % 2 * (COLUMNS / 2);
    if (layer == 1) /* as a view; the others are copied out */
        return SIZED(cairn_tensor_piece, .name = name, .dtype = "F32", .dimension_count = 2,
                     .shape = matrix_shape, .kind = CAIRN_SHARDED, .form = CAIRN_BOX,
                     .start = start, .count = half, .source = &matrices[layer][0][start[1]],
                     .source_stride = row_stride, .source_bytes = sizeof ranks[rank].halves[layer]);
    return SIZED(cairn_tensor_piece, .name = name, .dtype = "F32", .dimension_count = 2,
                 .shape = matrix_shape, .kind = CAIRN_SHARDED, .form = CAIRN_BOX, .start = start,
                 .count = half, .source = ranks[rank].halves[layer],
                 .source_bytes = sizeof ranks[rank].halves[layer]);
}

static struct cairn_tensor_piece norm_of(int layer, char name[32]) {
    snprintf(name, 32, "layers.%d.norm", layer);
    return SIZED(cairn_tensor_piece, .name = name, .dtype = "F64", .dimension_count = 1,
                 .shape = norm_shape, .kind = CAIRN_REPLICATED,
                 .source = layer ? norms[layer] : NULL, .fill = layer ? NULL : fill_norm,
                 .fill_owner = norms[layer], .source_bytes = sizeof norms[layer]);
}
static const struct cairn_tensor_piece step_piece = {.size = sizeof(struct cairn_tensor_piece),
                                                     .name = "step",
                                                     .dtype = "I64",
                                                     .kind = CAIRN_SHARDED,
                                                     .source = &scalar,
                                                     .source_bytes = sizeof scalar};
static const struct cairn_tensor_piece empty_piece = {.size = sizeof(struct cairn_tensor_piece),
                                                      .name = "none",
                                                      .dtype = "BF16",
                                                      .dimension_count = 2,
                                                      .shape = empty_shape,
                                                      .kind = CAIRN_SHARDED};

static const struct cairn_tensor_piece tied_piece = {.size = sizeof(struct cairn_tensor_piece),
                                                     .name = "tied",
                                                     .dtype = "F64",
                                                     .dimension_count = 1,
                                                     .shape = norm_shape,
                                                     .kind = CAIRN_ALIAS,
                                                     .alias_of = "layers.1.norm"};

struct listing {
    enum cairn_split_by by;
    const uint32_t *weights; /* of the group of all ranks */
    int without_norm;        /* this layer's vector is left out; -1: none */
};

static enum cairn_code list_tensors(uint32_t rank, const struct listing *listing,
                                    struct cairn_error *err) {
    char name[32], group[16];
    uint64_t start[2];
    snprintf(group, sizeof group, "tp%u", rank % 2);
    const struct cairn_split_options matrices_of = SIZED(
        cairn_split_options, .group = group, .member = rank / 2, .members = 2, .by = listing->by);
    const struct cairn_split_options all =
        SIZED(cairn_split_options, .group = "all", .member = rank, .members = RANKS,
              .by = listing->by, .weights = listing->weights);
    struct cairn_split **splits = ranks[rank].splits;
    CAIRN_TRY(cairn_split_new(&matrices_of, &splits[0], err));
    CAIRN_TRY(cairn_split_new(&all, &splits[1], err));
    for (int layer = 0; layer < LAYERS; layer++) {
        struct cairn_tensor_piece matrix = matrix_of(rank, layer, name, start);
        CAIRN_TRY(cairn_split_add(splits[0], &matrix, err));
        struct cairn_tensor_piece norm = norm_of(layer, name);
        if (layer != listing->without_norm) CAIRN_TRY(cairn_split_add(splits[1], &norm, err));
    }
    CAIRN_TRY(cairn_split_add(splits[1], &step_piece, err));
    CAIRN_TRY(cairn_split_add(splits[1], &tied_piece, err));
    return cairn_split_add(splits[1], &empty_piece, err);
}

static enum cairn_code describe(uint32_t rank, struct cairn_error *err) {
    char name[32];
    uint64_t start[2];
    for (int layer = 0; layer < LAYERS; layer++) {
        for (size_t row = 0; row < ROWS; row++)
            memcpy(ranks[rank].halves[layer][row], &matrices[layer][row][rank % 2 * (COLUMNS / 2)],
                   sizeof(float) * COLUMNS / 2);
        struct cairn_tensor_piece matrix = matrix_of(rank, layer, name, start);
        CAIRN_TRY(cairn_save_tensor(ranks[rank].save, &matrix, err));
        struct cairn_tensor_piece norm = norm_of(layer, name);
        CAIRN_TRY(cairn_save_tensor(ranks[rank].save, &norm, err));
    }
    CAIRN_TRY(cairn_save_tensor(ranks[rank].save, &step_piece, err));
    CAIRN_TRY(cairn_save_tensor(ranks[rank].save, &tied_piece, err));
    return cairn_save_tensor(ranks[rank].save, &empty_piece, err);
}

static enum cairn_code begin(uint32_t rank, uint64_t step, struct cairn_error *err) {
    const struct cairn_save_options options = {
        .size = sizeof(struct cairn_save_options), .splits = ranks[rank].splits, .split_count = 2};
    return cairn_save_begin(ranks[rank].session, step, &options, &ranks[rank].save, err);
}

static enum cairn_code save_all(uint64_t step, struct cairn_error *err) {
    for (uint32_t i = 0; i < RANKS; i++) {
        cairn_save_free(ranks[i].save);
        ranks[i].save = NULL;
        CAIRN_TRY(begin(i, step, err));
        CAIRN_TRY(describe(i, err));
        CAIRN_TRY(cairn_save_stage(ranks[i].save, err));
    }
    for (uint32_t i = 0; i < RANKS; i++)
        CAIRN_TRY(cairn_save_wait(ranks[i].save, CAIRN_COMMITTED, HANG_MS, err));
    return CAIRN_OK;
}

/* ---- reading back ---- */

static enum cairn_code read_whole(struct cairn_restore *restore, const char *name, void *into,
                                  uint64_t bytes, struct cairn_error *err) {
    const struct cairn_read read = {
        .size = sizeof(struct cairn_read), .tensor = name, .into = into, .into_bytes = bytes};
    return cairn_restore_read(restore, &read, 1, 0, err);
}

static void expect_restored(uint64_t step) {
    static float matrix[ROWS][COLUMNS];
    static double norm[NORMS];
    struct cairn_error err = {0};
    AUTO_RESTORE *restore = NULL;
    char ref[24], name[32];
    int64_t number = 0;
    snprintf(ref, sizeof ref, "%" PRIu64, step);
    const struct cairn_restore_options options = SIZED(cairn_restore_options, .ref = ref);
    REQUIRE_OK(cairn_restore_open(ranks[0].session, &options, &restore, NULL, &err));
    for (int layer = 0; layer < LAYERS; layer++) {
        snprintf(name, sizeof name, "layers.%d.w", layer);
        EXPECT_CODE(read_whole(restore, name, matrix, sizeof matrix, &err), CAIRN_OK);
        EXPECT(memcmp(matrix, matrices[layer], sizeof matrix) == 0);
        snprintf(name, sizeof name, "layers.%d.norm", layer);
        EXPECT_CODE(read_whole(restore, name, norm, sizeof norm, &err), CAIRN_OK);
        EXPECT(memcmp(norm, norms[layer], sizeof norm) == 0);
    }
    EXPECT_CODE(read_whole(restore, "tied", norm, sizeof norm, &err), CAIRN_OK);
    EXPECT(memcmp(norm, norms[1], sizeof norm) == 0);
    EXPECT_CODE(read_whole(restore, "step", &number, sizeof number, &err), CAIRN_OK);
    EXPECT(number == scalar);
    struct cairn_tensor_info info;
    EXPECT_CODE(cairn_restore_tensor_find(restore, "none", &info, &err), CAIRN_OK);
}

static uint64_t bytes_of(uint32_t rank) {
    struct cairn_save_status status;
    cairn_save_status(ranks[rank].save, &status);
    return status.total_bytes;
}

static void save_and_restore_by(enum cairn_split_by by) {
    OPEN_RANKS();
    const struct listing listing = {.by = by, .without_norm = -1};
    for (uint32_t i = 0; i < RANKS; i++) REQUIRE_OK(list_tensors(i, &listing, &err));
    uint64_t unique = sizeof matrices + sizeof norms + sizeof scalar, sum = 0, most = 0;
    for (uint64_t step = 1; step <= 6; step++) { /* more than the begins that say the marks */
        fill(step);
        REQUIRE_OK(save_all(step, &err));
        expect_restored(step);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        sum += bytes_of(i);
        most = cairn_max_u64(most, bytes_of(i));
    }
    EXPECT(sum > unique && sum <= unique + RANKS * 4096); /* a header each; nothing twice */
    if (by == CAIRN_SPLIT_SLICE) EXPECT(most < unique / RANKS + 12 * CAIRN_KIB);
    if (by == CAIRN_SPLIT_FIRST) EXPECT(bytes_of(2) < 4 * CAIRN_KIB);
}

CASE(what_one_rank_saves_for_all_is_restored, save_and_restore_by(CAIRN_SPLIT_FIRST));
CASE(layers_that_are_spread_over_the_group_are_restored, save_and_restore_by(CAIRN_SPLIT_LAYER));
CASE(tensors_that_are_spread_over_the_group_are_restored, save_and_restore_by(CAIRN_SPLIT_TENSOR));
CASE(slices_that_are_spread_evenly_over_the_group_are_restored,
     save_and_restore_by(CAIRN_SPLIT_SLICE));

TEST(ranks_with_other_lists_are_told_where_they_differ) { /* Q10 */
    OPEN_RANKS();
    const struct listing full = {.by = CAIRN_SPLIT_SLICE, .without_norm = -1},
                         less = {.by = CAIRN_SPLIT_SLICE, .without_norm = 2};
    for (uint32_t i = 0; i < RANKS; i++) REQUIRE_OK(list_tensors(i, i == 3 ? &less : &full, &err));
    fill(1);
    enum cairn_code code = save_all(1, &err);
    EXPECT_CODE(code, CAIRN_BEGIN_DIFFERS);
    EXPECT(strstr(err.message, "rank 3")); /* and whoever came before it */
    EXPECT(strstr(err.message, "differ in the tensors of the replica group \"all\", "
                               "first in \"layers.2.norm\""));
}

/* ---- lists that differ in one tensor, of any length ---- */

enum edit { EDIT_NONE, EDIT_DTYPE, EDIT_SHAPE, EDIT_MISSING, EDIT_MORE };
struct edited {
    uint32_t count;
    enum edit edit;
    uint32_t at;
};

static void name_at(uint32_t number, char ret[32]) {
    snprintf(ret, 32, "x.%06" PRIu32, number);
}

static enum cairn_code add_at(struct cairn_split *split, const struct edited *list, uint32_t number,
                              struct cairn_error *err) {
    enum edit edit = number == list->at ? list->edit : EDIT_NONE;
    const uint64_t shape[1] = {edit == EDIT_SHAPE ? 2 : 1};
    char name[32];
    const struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = name, .dtype = edit == EDIT_DTYPE ? "I8" : "U8",
              .dimension_count = 1, .shape = shape);
    name_at(number, name);
    return edit == EDIT_MISSING ? CAIRN_OK : cairn_split_add(split, &piece, err);
}

static enum cairn_code list_edited(uint32_t rank, const struct edited *list,
                                   struct cairn_error *err) {
    struct cairn_split **splits = ranks[rank].splits;
    EACH_TEXT(text, "long", "none") {
        const struct cairn_split_options options = {
            .size = sizeof options, .group = text, .member = rank, .members = RANKS};
        cairn_split_free(splits[AT_OF(text)]);
        splits[AT_OF(text)] = NULL;
        CAIRN_TRY(cairn_split_new(&options, &splits[AT_OF(text)], err));
    }
    for (uint32_t i = 0; i < list->count; i++) CAIRN_TRY(add_at(splits[0], list, i, err));
    return list->edit == EDIT_MORE ? add_at(splits[0], list, list->count, err) : CAIRN_OK;
}

/* Is the tensor `first` what the message names? */
static bool names(const char *message, uint32_t first) {
    char name[32], wanted[64];
    name_at(first, name);
    snprintf(wanted, sizeof wanted, "first in \"%s\"", name);
    return strstr(message, wanted) != NULL;
}

static enum cairn_code differ_of(uint32_t rank, enum cairn_code code, struct cairn_error *err) {
    (void)COMES(code || (code = cairn_session_problem(ranks[rank].session, err)));
    return code;
}

/* Ranks 0 and 1 begin a step; both are told. */
static bool differ_as(const struct edited *list, uint64_t step) {
    const struct edited full = {.count = list->count};
    struct cairn_error err = {0};
    bool fine = true;
    for (uint32_t i = 0; i < 2; i++) {
        cairn_save_free(ranks[i].save);
        ranks[i].save = NULL;
        fine = fine && list_edited(i, i ? list : &full, &err) == CAIRN_OK;
    }
    fine = fine && begin(0, step, &err) == CAIRN_OK;
    enum cairn_code code = fine ? begin(1, step, &err) : CAIRN_INTERNAL;
    for (uint32_t i = 2; i-- > 0; code = CAIRN_OK) {
        code = differ_of(i, code, &err);
        fine = fine && code == CAIRN_BEGIN_DIFFERS && names(err.message, list->at);
    }
    return cairn_test_check(fine, __FILE__, __LINE__, "%u tensors, edit %d at %u: %s", list->count,
                            (int)list->edit, list->at, err.message);
}

TEST(the_first_tensor_in_which_lists_differ_is_named_however_long_they_are) { /* Q10, intake.h#3 */
    OPEN_RANKS();
    static const struct edited longest[] = {{100000, EDIT_MISSING, 50000},
                                            {100000, EDIT_DTYPE, 99999}};
    uint64_t step = 0;
    EACH_OF(uint32_t, number, 5, 31, 32, 33, 1000) {
        const uint32_t count = number;
        const struct edited lists[] = {{count, EDIT_DTYPE, 0},
                                       {count, EDIT_MISSING, count / 2},
                                       {count, EDIT_SHAPE, count / 3},
                                       {count, EDIT_MISSING, count - 1},
                                       {count, EDIT_MORE, count}};
        for (size_t k = 0; k < CAIRN_COUNT(lists); k++)
            if (!differ_as(&lists[k], ++step)) return;
    }
    for (size_t i = 0; i < CAIRN_COUNT(longest); i++)
        if (!differ_as(&longest[i], ++step)) return;
}

TEST(of_several_ranks_that_differ_two_are_named_with_the_first_tensor) { /* Q10 */
    OPEN_RANKS();
    static const uint32_t counts[] = {20, 200};
    for (uint64_t step = 1; step <= CAIRN_COUNT(counts); step++) {
        const uint32_t count = counts[step - 1];
        for (uint32_t i = 0; i < RANKS; i++) {
            const struct edited list = {count, i ? EDIT_MISSING : EDIT_NONE, i * count / RANKS};
            cairn_save_free(ranks[i].save);
            ranks[i].save = NULL;
            REQUIRE_OK(list_edited(i, &list, &err));
        }
        REQUIRE_OK(begin(0, step, &err));
        for (uint32_t i = RANKS; i-- > 0;) {
            unsigned pair[2] = {0};
            EXPECT_CODE(differ_of(i, i ? begin(i, step, &err) : CAIRN_OK, &err),
                        CAIRN_BEGIN_DIFFERS);
            const char *who = strstr(err.message, ": rank ");
            REQUIRE(who && sscanf(who, ": rank %u and rank %u", &pair[0], &pair[1]) == 2);
            REQUIRE(pair[0] < RANKS && pair[1] < RANKS && pair[0] != pair[1]);
            const uint64_t low = cairn_min_u64(pair[0], pair[1]), high = pair[0] + pair[1] - low;
            EXPECT(names(err.message, (uint32_t)((low ? low : high) * count / RANKS)));
        }
    }
}

TEST(a_listed_tensor_that_is_not_described_fails_the_stage_by_name) {
    OPEN_RANKS();
    const struct listing listing = {.by = CAIRN_SPLIT_SLICE, .without_norm = -1};
    for (uint32_t i = 0; i < RANKS; i++) REQUIRE_OK(list_tensors(i, &listing, &err));
    REQUIRE_OK(begin(1, 1, &err));
    char name[32];
    uint64_t start[2];
    struct cairn_tensor_piece matrix = matrix_of(1, 0, name, start);
    REQUIRE_OK(cairn_save_tensor(ranks[1].save, &matrix, &err));
    EXPECT_CODE(cairn_save_tensor(ranks[1].save, &matrix, &err), CAIRN_INVALID);
    EXPECT(strstr(err.message, "described twice"));
    struct cairn_tensor_piece other = norm_of(0, name);
    other.dtype = "I64";
    EXPECT_CODE(cairn_save_tensor(ranks[1].save, &other, &err), CAIRN_INVALID);
    EXPECT(strstr(err.message, "group \"all\" has listed"));
    EXPECT_CODE(cairn_save_stage(ranks[1].save, &err), CAIRN_INVALID);
    EXPECT(strstr(err.message, "was not described, and this rank saves a share of it"));
}

TEST(shares_can_be_asked_for_before_anything_is_saved, err) {
    struct cairn_split *split = NULL;
    struct cairn_split_share share;
    char name[32];
    uint64_t bytes = 0;
    const uint32_t weights[] = {1, 3};
    const struct cairn_split_options options =
        SIZED(cairn_split_options, .group = "dp", .members = 2, .by = CAIRN_SPLIT_SLICE,
              .weights = weights);
    REQUIRE_OK(cairn_split_new(&options, &split, &err));
    struct cairn_tensor_piece norm = norm_of(0, name);
    REQUIRE_OK(cairn_split_add(split, &norm, &err));
    REQUIRE_OK(cairn_split_bytes(split, 1, &bytes, &err));
    EXPECT(bytes >= 3 * sizeof norms[0] / 4 - 4096 && bytes <= 3 * sizeof norms[0] / 4 + 4096);
    REQUIRE_OK(cairn_split_share_at(split, 1, 0, &share, &err));
    EXPECT_EQ_TEXT(share.name, "layers.0.norm");
    EXPECT_ALL_U64(share.start + share.count, NORMS, share.count * 8, bytes);
    EXPECT_CODE(cairn_split_share_at(split, 1, 1, &share, &err), CAIRN_NOT_FOUND);
    EXPECT_CODE(cairn_split_add(split, &norm, &err), CAIRN_INVALID);
    cairn_split_free(split);
}

TEST(a_configuration_of_parallel_writes_says_how_to_split, err) {
    EACH(one, FIELDS(int pipeline_stage, tensor_slice; enum cairn_split_by by),
         {1, 1, CAIRN_SPLIT_SLICE}, {0, 1, CAIRN_SPLIT_SLICE}, {1, 0, CAIRN_SPLIT_LAYER},
         {0, 0, CAIRN_SPLIT_FIRST}) {
        enum cairn_split_by by = CAIRN_SPLIT_TENSOR;
        const struct cairn_parallel_write config =
            SIZED(cairn_parallel_write, .pipeline_stage = one->pipeline_stage,
                  .tensor_slice = one->tensor_slice);
        REQUIRE_OK(cairn_split_by_of(&config, &by, &err));
        EXPECT_EQ_U64(by, one->by);
    }
}
