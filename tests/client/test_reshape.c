/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* ctest: as=reshape_long labels=full env=CAIRN_RESHAPE_CASES=10000 */
/*
 * What ranks in one random layout saved, read by others in another: other regions, other types,
 * other names, other places in memory. Sources go through cairn_save_stage and destinations through
 * cairn_restore_read; the store in between is the test's memory. The truth is made element by
 * element. CAIRN_RESHAPE_CASES says how many reads there are; each version's seed is printed when
 * it fails.
 */
#include "formats/convert.h"
#include "tests/client/rank.h"

#define RANKS_MAX CAIRN_STAGED_RANKS_MAX
#define TENSORS 8
#define DIMENSIONS_MAX 4
#define ELEMENTS_MAX 4096 /* 8^4 */
#define DEALT_MAX (TENSORS * 81 + 64)
#define INTO_BYTES_MAX (16 * 3 * ELEMENTS_MAX) /* with gaps */
#define SLAB_BYTES CAIRN_MIB
#define VERSIONS_EACH 20 /* of one fake uploader, which records no more than 4,096 messages */

enum how { FLAT, GRID, WHOLE_ON_SOME, OWN_OF_EACH, HOW_COUNT };
struct tensor {
    char name[40], known[40];
    enum how how;
    unsigned dtype, dimension_count;
    uint64_t shape[DIMENSIONS_MAX], elements;
    uint8_t bytes[RANKS_MAX][16 * ELEMENTS_MAX]; /* one each where they are LOCAL, else the first */
};
static struct tensor tensors[TENSORS];
static uint64_t seed;

static uint64_t below(uint64_t limit) {
    return cairn_test_random(&seed) % limit;
}

/* ---- what is saved ---- */

static void make_tensor(struct tensor *tensor, size_t number) {
    static const unsigned dtypes[] = {CAIRN_DTYPE_F32,  CAIRN_DTYPE_BF16,   CAIRN_DTYPE_F16,
                                      CAIRN_DTYPE_F64,  CAIRN_DTYPE_I64,    CAIRN_DTYPE_U8,
                                      CAIRN_DTYPE_F32,  CAIRN_DTYPE_BF16,   CAIRN_DTYPE_C32,
                                      CAIRN_DTYPE_C128, CAIRN_DTYPE_F8_E3M4};
    tensor->how = number ? (enum how)below(HOW_COUNT) : OWN_OF_EACH; /* each rank has a table */
    tensor->dtype = dtypes[below(CAIRN_COUNT(dtypes))];
    tensor->dimension_count = (unsigned)below(DIMENSIONS_MAX + 1);
    tensor->elements = 1;
    for (unsigned d = 0; d < tensor->dimension_count; d++) {
        tensor->shape[d] = below(40) ? 1 + below(8) : 0;
        tensor->elements *= tensor->shape[d];
    }
    bool model = below(2);
    snprintf(tensor->known, sizeof tensor->known, "layers.%zu.w", number);
    snprintf(tensor->name, sizeof tensor->name, "%s%s", model ? "model." : "", tensor->known);
    for (size_t rank = 0; rank < RANKS_MAX; rank++)
        for (size_t i = 0; i < sizeof tensor->bytes[rank]; i += 8) {
            uint64_t random = cairn_test_random(&seed);
            memcpy(tensor->bytes[rank] + i, &random, 8);
        }
}

static size_t width_of(unsigned dtype) {
    return cairn_dtype_bits(dtype) / 8;
}

static void strides_of(const struct tensor *tensor, int64_t *ret) {
    int64_t stride = 1;
    for (unsigned d = tensor->dimension_count; d-- > 0;) {
        ret[d] = stride;
        stride *= (int64_t)tensor->shape[d];
    }
}

/* Who saves which part of a tensor. */
struct dealt {
    const struct tensor *tensor;
    uint32_t rank;
    enum cairn_kind kind;
    enum cairn_form form;
    uint64_t start[DIMENSIONS_MAX], count[DIMENSIONS_MAX], elements, at;
    bool strided;
};
static struct dealt dealt[DEALT_MAX];
static size_t dealt_count;

/* Ranges of the flattened tensor, as ZeRO has them. */
static void deal_flat(const struct tensor *tensor, uint32_t ranks) {
    uint64_t start = 0;
    for (int cuts = 0; !cuts || start < tensor->elements; cuts++) {
        uint64_t count = tensor->elements - start;
        if (count && cuts < 8 && below(4)) count = 1 + below(count);
        dealt[dealt_count++] = (struct dealt){.tensor = tensor,
                                              .rank = (uint32_t)below(ranks),
                                              .kind = CAIRN_SHARDED,
                                              .form = CAIRN_FLAT,
                                              .start = {start},
                                              .count = {count},
                                              .elements = count,
                                              .at = start};
        start += count;
    }
}

/* A grid over all dimensions, as tensor parallelism and row shards have it; each box lies within
 * the memory of the whole tensor. */
static void deal_grid(const struct tensor *tensor, uint32_t ranks) {
    uint64_t parts[DIMENSIONS_MAX] = {1, 1, 1, 1}, boxes = 1;
    int64_t strides[DIMENSIONS_MAX];
    strides_of(tensor, strides);
    for (unsigned d = 0; d < tensor->dimension_count; d++) {
        parts[d] = 1 + below(cairn_min_u64(3, cairn_max_u64(tensor->shape[d], 1)));
        boxes *= parts[d];
    }
    for (uint64_t box = 0; box < boxes; box++) {
        struct dealt one = {.tensor = tensor,
                            .rank = (uint32_t)below(ranks),
                            .kind = CAIRN_SHARDED,
                            .form = CAIRN_BOX,
                            .elements = 1,
                            .strided = true};
        uint64_t left = box;
        for (unsigned d = 0; d < tensor->dimension_count; d++) {
            uint64_t part = left % parts[d];
            one.start[d] = tensor->shape[d] * part / parts[d];
            one.count[d] = tensor->shape[d] * (part + 1) / parts[d] - one.start[d];
            one.at += one.start[d] * (uint64_t)strides[d];
            one.elements *= one.count[d];
            left /= parts[d];
        }
        dealt[dealt_count++] = one;
    }
}

static void deal_whole(const struct tensor *tensor, uint32_t ranks) {
    uint32_t one = (uint32_t)below(ranks);
    bool own = tensor->how == OWN_OF_EACH;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (!own && rank != one && below(2)) continue;
        dealt[dealt_count++] = (struct dealt){.tensor = tensor,
                                              .rank = rank,
                                              .kind = own ? CAIRN_LOCAL : CAIRN_REPLICATED,
                                              .elements = tensor->elements};
    }
}

static void deal(uint32_t ranks) {
    dealt_count = 0;
    for (size_t t = 0; t < TENSORS; t++) {
        if (tensors[t].how == FLAT) deal_flat(&tensors[t], ranks);
        if (tensors[t].how == GRID) deal_grid(&tensors[t], ranks);
        if (tensors[t].how >= WHOLE_ON_SOME) deal_whole(&tensors[t], ranks);
    }
}

static enum cairn_code add(struct cairn_save *save, const struct dealt *part,
                           struct cairn_error *err) {
    const struct tensor *tensor = part->tensor;
    size_t width = width_of(tensor->dtype);
    int64_t strides[DIMENSIONS_MAX];
    strides_of(tensor, strides);
    const struct cairn_tensor_piece piece = {
        .size = sizeof piece,
        .name = tensor->name,
        .dtype = cairn_dtype_text(tensor->dtype),
        .dimension_count = tensor->dimension_count,
        .shape = tensor->shape,
        .kind = part->kind,
        .form = part->form,
        .start = part->start,
        .count = part->count,
        .source = tensor->bytes[part->kind == CAIRN_LOCAL ? part->rank : 0] + part->at * width,
        .source_bytes = part->elements * width,
        .source_stride = part->strided ? strides : NULL};
    return cairn_save_tensor(save, &piece, err);
}

static enum cairn_code save_rank(struct cairn_staged_version *version, struct cairn_rank *world,
                                 uint32_t rank, uint32_t ranks, struct cairn_error *err) {
    struct cairn_open_options options = rank_options(world);
    struct cairn_session *session = NULL;
    struct cairn_save *save = NULL;
    options.rank = rank;
    options.world_size = ranks;
    options.bytes = SLAB_BYTES;
    CAIRN_TRY(cairn_open(&options, &session, NULL, err));
    enum cairn_code code = cairn_save_begin(session, 40, NULL, &save, err);
    for (size_t i = 0; !code && i < dealt_count; i++)
        if (dealt[i].rank == rank) code = add(save, &dealt[i], err);
    if (!code) code = cairn_save_stage(save, err);
    if (!code) code = cairn_staged_keep(version, world->fake, rank, err);
    cairn_save_free(save);
    (void)cairn_close(session, NULL);
    return code;
}

/* ---- what is read ---- */

struct asked {
    const struct tensor *tensor;
    uint32_t local_rank;
    enum cairn_form form;
    uint64_t start[DIMENSIONS_MAX], count[DIMENSIONS_MAX], elements;
    unsigned dtype, dimension_count; /* of the region */
    int64_t stride[DIMENSIONS_MAX];
    bool strided;
    uint8_t *into, *wanted; /* INTO_BYTES_MAX each */
};

static bool is_float(unsigned dtype) {
    return cairn_convertible(dtype, CAIRN_DTYPE_F32);
}

static void ask_region(struct asked *ask) {
    const struct tensor *tensor = ask->tensor;
    ask->form = (enum cairn_form)below(3);
    ask->elements = 1;
    ask->dimension_count = tensor->dimension_count;
    if (ask->form == CAIRN_FLAT) {
        ask->dimension_count = 1;
        ask->start[0] = below(tensor->elements + 1);
        ask->count[0] = below(tensor->elements - ask->start[0] + 1);
    }
    for (unsigned d = 0; ask->form != CAIRN_FLAT && d < tensor->dimension_count; d++) {
        bool whole = ask->form == CAIRN_WHOLE || !below(3);
        ask->start[d] = whole ? 0 : below(tensor->shape[d] + 1);
        ask->count[d] = whole ? tensor->shape[d] : below(tensor->shape[d] - ask->start[d] + 1);
    }
    for (unsigned d = 0; d < ask->dimension_count; d++) ask->elements *= ask->count[d];
}

/* Dimensions in any order, each a little further apart than what is inside of it; some backwards
 * would need another first element, so none are. */
static void ask_strides(struct asked *ask) {
    unsigned order[DIMENSIONS_MAX] = {0, 1, 2, 3};
    int64_t stride = 1 + (int64_t)below(2);
    ask->strided = below(2);
    for (unsigned d = ask->dimension_count; d > 1; d--) {
        unsigned other = (unsigned)below(d), kept = order[d - 1];
        order[d - 1] = order[other];
        order[other] = kept;
    }
    for (unsigned i = 0; i < ask->dimension_count; i++) {
        unsigned d = ask->strided ? order[i] : ask->dimension_count - 1 - i;
        if (!ask->strided && !i) stride = 1;
        ask->stride[d] = stride;
        stride = stride * (int64_t)ask->count[d] + (ask->strided ? (int64_t)below(2) : 0);
    }
}

/* Element `number` of the region in the tensor. */
static uint64_t source_of(const struct asked *ask, uint64_t number) {
    int64_t strides[DIMENSIONS_MAX];
    uint64_t at = 0;
    if (ask->form == CAIRN_FLAT) return ask->start[0] + number;
    strides_of(ask->tensor, strides);
    for (unsigned d = ask->dimension_count; d-- > 0;) {
        at += (ask->start[d] + number % ask->count[d]) * (uint64_t)strides[d];
        number /= ask->count[d];
    }
    return at;
}

static uint64_t place_of(const struct asked *ask, uint64_t number) {
    uint64_t at = 0;
    for (unsigned d = ask->dimension_count; d-- > 0;) {
        at += number % ask->count[d] * (uint64_t)ask->stride[d];
        number /= ask->count[d];
    }
    return at;
}

static void make_wanted(const struct asked *ask) {
    const struct tensor *tensor = ask->tensor;
    size_t from_width = width_of(tensor->dtype), to_width = width_of(ask->dtype);
    const uint8_t *bytes = tensor->bytes[tensor->how == OWN_OF_EACH ? ask->local_rank : 0];
    memset(ask->into, 0xa5, INTO_BYTES_MAX);
    memset(ask->wanted, 0xa5, INTO_BYTES_MAX);
    for (uint64_t i = 0; i < ask->elements; i++) {
        uint64_t from[2] = {0}, to[2] = {0}; /* an element of up to 16 bytes */
        memcpy(from, bytes + source_of(ask, i) * from_width, from_width);
        if (tensor->dtype == ask->dtype)
            memcpy(to, from, sizeof to);
        else
            cairn_convert(tensor->dtype, from, ask->dtype, to, 1);
        memcpy(ask->wanted + place_of(ask, i) * to_width, to, to_width);
    }
}

static struct cairn_read ask_one(struct asked *ask, uint32_t ranks, bool renamed) {
    static const unsigned floats[] = {CAIRN_DTYPE_F32, CAIRN_DTYPE_BF16, CAIRN_DTYPE_F16,
                                      CAIRN_DTYPE_F64};
    ask->tensor = &tensors[below(TENSORS)];
    ask->local_rank = (uint32_t)below(ranks);
    ask->dtype = ask->tensor->dtype;
    bool other = is_float(ask->dtype) && below(2);
    if (other) ask->dtype = floats[below(CAIRN_COUNT(floats))];
    ask_region(ask);
    ask_strides(ask);
    make_wanted(ask);
    return SIZED(cairn_read, .tensor = renamed ? ask->tensor->known : ask->tensor->name,
                 .local_rank_of = ask->local_rank, .form = ask->form, .start = ask->start,
                 .count = ask->count, .into = ask->into,
                 .into_bytes = ask->elements * width_of(ask->dtype),
                 .into_dtype = other ? cairn_dtype_text(ask->dtype) : NULL,
                 .into_stride = ask->strided ? ask->stride : NULL);
}

static struct asked asked[TENSORS];

static bool read_some(struct cairn_restore *restore, uint32_t ranks, bool renamed) {
    struct cairn_error err = {0};
    struct cairn_read reads[TENSORS];
    for (size_t i = 0; i < TENSORS; i++) reads[i] = ask_one(&asked[i], ranks, renamed);
    enum cairn_code code = cairn_restore_read(restore, reads, TENSORS, HANG_MS, &err);
    EXPECT_CODE(code, CAIRN_OK);
    for (size_t i = 0; !code && i < TENSORS; i++) {
        bool same = memcmp(asked[i].into, asked[i].wanted, INTO_BYTES_MAX) == 0;
        cairn_test_check(same, __FILE__, __LINE__, "read %zu of %s: other bytes than were saved", i,
                         asked[i].tensor->name);
        if (!same) return false;
    }
    return !code;
}

static enum cairn_code save_all(struct cairn_staged_version *version, struct cairn_rank *world,
                                uint32_t ranks, struct cairn_error *err) {
    for (size_t t = 0; t < TENSORS; t++) make_tensor(&tensors[t], t);
    deal(ranks);
    for (uint32_t rank = 0; rank < ranks; rank++)
        CAIRN_TRY(save_rank(version, world, rank, ranks, err));
    return cairn_staged_serve(version, world->fake, ranks, err);
}

static enum cairn_code open_reader(struct cairn_rank *world, struct cairn_error *err) {
    const struct cairn_open_options open =
        SIZED(cairn_open_options, .run = "llm/7b", .socket = world->path, .read_only = 1,
              .timeout_ms = HANG_MS);
    return cairn_open(&open, &world->session, NULL, err);
}

static const struct cairn_rename without_model = {
    .size = sizeof without_model, .stored = "model.", .known = ""};

/* One version in one layout, and three readers in others. */
static bool one_version(struct cairn_rank *world, uint64_t *cases) {
    struct cairn_error err = {0};
    struct cairn_restore *restore = NULL;
    CAIRN_AUTO(staged_version) version = {0};
    uint32_t ranks = 1 + (uint32_t)below(RANKS_MAX);
    bool renamed = below(2), good = true;
    const struct cairn_restore_options options = {
        .size = sizeof options, .ref = "40", .renames = &without_model, .rename_count = renamed};
    enum cairn_code code = save_all(&version, world, ranks, &err);
    EXPECT_CODE(code, CAIRN_OK);
    if (!code) code = open_reader(world, &err);
    if (!code) code = cairn_restore_open(world->session, &options, &restore, NULL, &err);
    EXPECT_CODE(code, CAIRN_OK);
    for (int reader = 0; !code && good && reader < 3; reader++, *cases += TENSORS)
        good = read_some(restore, ranks, renamed);
    cairn_restore_free(restore);
    cairn_rank_leave(world);
    return !code && good;
}

TEST(what_any_layout_saved_any_other_restores_as_any_type_at_any_place, err) {
    CAIRN_AUTO(rank) world = {0};
    const char *wanted = getenv("CAIRN_RESHAPE_CASES");
    uint64_t cases = 0, limit = wanted ? strtoull(wanted, NULL, 10) : 300;
    uint8_t *memory = malloc(2 * TENSORS * (size_t)INTO_BYTES_MAX);
    REQUIRE(memory != NULL);
    for (size_t i = 0; i < TENSORS; i++) {
        asked[i].into = memory + 2 * i * (size_t)INTO_BYTES_MAX;
        asked[i].wanted = asked[i].into + INTO_BYTES_MAX;
    }
    enum cairn_code code = CAIRN_OK;
    seed = cairn_test_seed();
    printf("  %" PRIu64 " cases from seed %" PRIu64 "\n", limit, seed);
    for (int number = 0; !code && cases < limit; number++) {
        uint64_t own = seed;
        if (number % VERSIONS_EACH == 0) {
            cairn_rank_release(&world);
            code = rank_uploader(&world, 1, &err);
            EXPECT_CODE(code, CAIRN_OK);
            if (code) break;
        }
        if (one_version(&world, &cases)) continue;
        printf("  the version that fails: CAIRN_TEST_SEED=%" PRIu64 "\n", own);
        break;
    }
    EXPECT(cases >= limit);
    free(memory);
}

/* ---- names ---- */

static struct cairn_restore *open_renamed(struct cairn_rank *world,
                                          const struct cairn_rename *rules, size_t count,
                                          enum cairn_code wanted) {
    struct cairn_error err = {0};
    struct cairn_restore *restore = NULL;
    const struct cairn_restore_options options = {
        .size = sizeof options, .ref = "40", .renames = rules, .rename_count = count};
    EXPECT_CODE(cairn_restore_open(world->session, &options, &restore, NULL, &err), wanted);
    return restore;
}

struct reported {
    char text[400];
};
static void report(void *owner, enum cairn_mismatch what, const char *name) {
    struct reported *reported = owner;
    size_t used = strlen(reported->text);
    snprintf(reported->text + used, sizeof reported->text - used, "%s%s ",
             what == CAIRN_TENSOR_MISSING ? "-" : "+", name);
}

static enum cairn_code open_version(struct cairn_staged_version *version, struct cairn_rank *world,
                                    struct cairn_error *err) {
    seed = cairn_test_seed();
    CAIRN_TRY(rank_uploader(world, 1, err));
    CAIRN_TRY(save_all(version, world, 2, err));
    return open_reader(world, err);
}

TEST(tensors_that_are_missing_or_surplus_are_reported_and_refused_unless_allowed, err) {
    CAIRN_AUTO(rank) world = {0};
    CAIRN_AUTO(staged_version) version = {0};
    struct reported reported = {""};
    const char *names[TENSORS + 1];
    REQUIRE_OK(open_version(&version, &world, &err));
    struct cairn_restore *restore = open_renamed(&world, &without_model, 1, CAIRN_OK);
    REQUIRE(restore != NULL);
    for (size_t i = 0; i < TENSORS; i++) names[i] = tensors[i].known;
    struct cairn_match_options match =
        SIZED(cairn_match_options, .names = names, .name_count = TENSORS, .report = report,
              .owner = &reported);
    EXPECT_CODE(cairn_restore_match(restore, &match, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(reported.text, "");
    names[2] = "head.w";
    names[TENSORS] = "layers.0.w"; /* once more counts once */
    match.name_count = TENSORS + 1;
    EXPECT_CODE(cairn_restore_match(restore, &match, &err), CAIRN_NOT_FOUND);
    EXPECT_EQ_TEXT(reported.text, "-head.w +layers.2.w ");
    EXPECT(strstr(err.message, "1 tensor missing") && strstr(err.message, "layers.2.w"));
    match.allow_missing = 1;
    EXPECT_CODE(cairn_restore_match(restore, &match, &err), CAIRN_NOT_FOUND);
    EXPECT(strstr(err.message, "surplus") && !strstr(err.message, "head.w"));
    match.allow_surplus = 1;
    EXPECT_CODE(cairn_restore_match(restore, &match, &err), CAIRN_OK);
    cairn_restore_free(restore);
}

TEST(renames_hold_for_every_call_and_those_that_collide_are_refused, err) {
    CAIRN_AUTO(rank) world = {0};
    CAIRN_AUTO(staged_version) version = {0};
    struct cairn_tensor_info info;
    const struct cairn_rename collide[2] = {
        SIZED(cairn_rename, .stored = tensors[0].name, .known = "w", .whole = 1),
        SIZED(cairn_rename, .stored = tensors[1].name, .known = "w", .whole = 1)};
    REQUIRE_OK(open_version(&version, &world, &err));
    EXPECT(!open_renamed(&world, collide, 2, CAIRN_INVALID));
    const struct cairn_rename nothing = {
        .size = sizeof nothing, .stored = tensors[3].name, .known = ""};
    EXPECT(!open_renamed(&world, &nothing, 1, CAIRN_INVALID)); /* a tensor without a name */
    struct cairn_restore *restore = open_renamed(&world, collide, 1, CAIRN_OK);
    REQUIRE(restore != NULL);
    EXPECT_CODE(cairn_restore_tensor_find(restore, "w", &info, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(info.name, "w");
    EXPECT_CODE(cairn_restore_tensor_find(restore, tensors[0].name, &info, &err), CAIRN_NOT_FOUND);
    EXPECT_CODE(cairn_restore_tensor_find(restore, tensors[1].name, &info, &err), CAIRN_OK);
    for (uint32_t i = 0; i < TENSORS; i++) {
        EXPECT_CODE(cairn_restore_tensor_at(restore, i, &info, &err), CAIRN_OK);
        if (i + 1 == TENSORS) EXPECT_EQ_TEXT(info.name, "w"); /* the last in the order of names */
    }
    cairn_restore_free(restore);
}

TEST(reads_into_other_types_and_places_that_cannot_be_are_refused, err) {
    CAIRN_AUTO(rank) world = {0};
    CAIRN_AUTO(staged_version) version = {0};
    uint8_t into[64] = {0x11}, before[64];
    const uint64_t start[1] = {0}, count[1] = {2};
    const int64_t same_place[1] = {0};
    REQUIRE_OK(open_version(&version, &world, &err));
    struct cairn_restore *restore = open_renamed(&world, NULL, 0, CAIRN_OK);
    REQUIRE(restore != NULL);
    memcpy(before, into, sizeof into);
    struct cairn_read read =
        SIZED(cairn_read, .tensor = "no.such", .form = CAIRN_FLAT, .start = start, .count = count,
              .into = into, .into_bytes = 8, .optional = 1);
    EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_OK);
    EXPECT(memcmp(before, into, sizeof into) == 0);
    read.optional = 0;
    EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_NOT_FOUND);
    read.tensor = tensors[0].name;
    read.into_dtype = "BF17";
    EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_INVALID);
    read.into_dtype = is_float(tensors[0].dtype) ? "I32" : "F32";
    EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_UNSUPPORTED);
    read.into_dtype = NULL;
    read.into_stride = same_place;
    EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_INVALID);
    read.shard = "rank-00000/tensors.safetensors";
    read.tensor = NULL;
    EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_INVALID);
    EXPECT(memcmp(before, into, sizeof into) == 0);
    cairn_restore_free(restore);
}
