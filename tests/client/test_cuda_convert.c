/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: lacks=nvcc races="full: as client/cuda" */
/* Elements of a device that are stored as another type: what nvcc compiles for a device runs here
 * as it was compiled for the host, in the fake's streams (fake_cuda.h). */

#include "formats/convert.h"
#include "tests/client/cuda.h"

#define SESSION_BYTES (40 * CAIRN_MIB)
#define ELEMENTS (1u << 20)

struct types {
    const char *from, *to;
    unsigned from_dtype, to_dtype;
    size_t from_width, to_width;
};
static const struct types narrow = {"F32", "BF16", CAIRN_DTYPE_F32, CAIRN_DTYPE_BF16, 4, 2};

static uint8_t *source, *expected;

static enum cairn_code open_rank(struct cairn_rank *rank, uint32_t threads,
                                 struct cairn_error *err) {
    CAIRN_TRY(rank_uploader(rank, 1, err));
    struct cairn_open_options options = rank_options(rank);
    options.bytes = SESSION_BYTES;
    options.copy_threads = threads;
    return cairn_open(&options, &rank->session, NULL, err);
}

static struct cairn_tensor_piece flat_piece(const char *name, const struct types *types,
                                            const uint64_t *elements, const void *memory) {
    return SIZED(cairn_tensor_piece, .name = name, .dtype = types->to, .source_dtype = types->from,
                 .dimension_count = 1, .shape = elements, .kind = CAIRN_LOCAL, .source = memory,
                 .source_bytes = *elements * types->from_width, .memory = CAIRN_MEMORY_CUDA);
}

/* Both for `bytes` of source and as much of what is expected. */
static bool have_room(size_t bytes) {
    free(source);
    free(expected);
    source = malloc(bytes);
    expected = malloc(bytes);
    return EXPECT(source && expected);
}

/* Every upper half with the lower ones where BF16 and F16 are rounded up, down, and to the even
 * neighbour: zeros, subnormals, infinities and NaN among them; and numbers without a pattern. Of a
 * type of 16 bits all that there are, again and again. */
static void fill_source(const struct types *types) {
    static const uint32_t low[] = {0,      1,      0xfff,  0x1000, 0x1001, 0x1fff, 0x2000,
                                   0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xfff0, 0xffff};
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        uint32_t bits = (i & 0xffff) << 16 | (i >> 16 < CAIRN_COUNT(low) ? low[i >> 16] : 0);
        uint16_t half = (uint16_t)i;
        if (i >> 16 >= CAIRN_COUNT(low)) bits = i * 2654435761u ^ i >> 3;
        if (types->from_width == 4)
            memcpy(source + 4 * (size_t)i, &bits, 4);
        else
            memcpy(source + 2 * (size_t)i, &half, 2);
    }
}

TEST(what_a_device_converts_is_what_the_host_does_for_all_kinds_of_numbers) { /* convert.h#1 */
    static const struct types all[] = {{"F32", "BF16", CAIRN_DTYPE_F32, CAIRN_DTYPE_BF16, 4, 2},
                                       {"F32", "F16", CAIRN_DTYPE_F32, CAIRN_DTYPE_F16, 4, 2},
                                       {"BF16", "F32", CAIRN_DTYPE_BF16, CAIRN_DTYPE_F32, 2, 4},
                                       {"F16", "F32", CAIRN_DTYPE_F16, CAIRN_DTYPE_F32, 2, 4},
                                       {"BF16", "F16", CAIRN_DTYPE_BF16, CAIRN_DTYPE_F16, 2, 2},
                                       {"F16", "BF16", CAIRN_DTYPE_F16, CAIRN_DTYPE_BF16, 2, 2}};
    static const uint64_t count[1] = {ELEMENTS};
    NEEDS_KERNELS();
    REQUIRE(have_room(4 * ELEMENTS));
    for (size_t i = 0; i < CAIRN_COUNT(all); i++) {
        struct cairn_error err = {0};
        struct fake_cuda_state state, before;
        CAIRN_AUTO(rank) rank = {0};
        fill_source(&all[i]);
        cairn_convert(all[i].from_dtype, source, all[i].to_dtype, expected, ELEMENTS);
        void *memory = cairn_cuda_filled(1, source, ELEMENTS * all[i].from_width);
        REQUIRE_OK(open_rank(&rank, 1, &err));
        const struct cairn_tensor_piece piece = flat_piece("w", &all[i], count, memory);
        cairn_cuda.state(&before);
        EXPECT_CODE(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_OK);
        cairn_cuda.state(&state);
        const uint8_t *at = cairn_staged_tensor(rank.fake, "w", 1);
        EXPECT(at && memcmp(at, expected, ELEMENTS * all[i].to_width) == 0);
        EXPECT(cairn_cuda_sums_are_right(&rank, 1));
        /* Over the link go the bytes that are stored, and no other. */
        EXPECT_EQ_U64(state.copied_bytes - before.copied_bytes, ELEMENTS * all[i].to_width);
        EXPECT_EQ_U64(state.pageable_copies, before.pageable_copies);
        cairn_cuda.release(memory);
    }
    cairn_cuda_expect_nothing_left();
}

/* ---- sources that lie apart ---- */

#define ROWS 3001
#define COLUMNS 1999
#define CELLS ((size_t)ROWS * COLUMNS)

/* Transposed, as `stored` rows of ROWS elements each. */
static void turn(const uint32_t *from, uint32_t *to) {
    for (size_t i = 0; i < CELLS; i++) to[i] = from[i % ROWS * COLUMNS + i / ROWS];
}

/* Two tensors: the second begins, and both end, within a segment, a chunk and a block. */
TEST(strided_and_unaligned_memory_is_converted_in_chunks_by_any_number_of_threads) {
    static const uint64_t shape[2] = {COLUMNS, ROWS}, cells[1] = {CELLS};
    static const int64_t stride[2] = {1, COLUMNS};
    NEEDS_KERNELS();
    REQUIRE(have_room(4 * CELLS));
    CAIRN_AUTO_HEAP uint32_t *turned = malloc(4 * CELLS);
    CAIRN_AUTO_HEAP uint8_t *shifted = malloc(4 * CELLS + 1);
    CAIRN_AUTO_HEAP uint8_t *straight = malloc(4 * CELLS);
    REQUIRE(turned && shifted && straight);
    for (uint32_t i = 0; i < CELLS; i++) ((uint32_t *)(void *)source)[i] = i * 2654435761u;
    turn((const uint32_t *)(const void *)source, turned);
    cairn_convert(CAIRN_DTYPE_F32, turned, CAIRN_DTYPE_BF16, expected, CELLS);
    cairn_convert(CAIRN_DTYPE_F32, source, CAIRN_DTYPE_BF16, straight, CELLS);
    memcpy(shifted + 1, source, 4 * CELLS);
    void *first = cairn_cuda_filled(0, source, 4 * CELLS);
    uint8_t *second = cairn_cuda_filled(0, shifted, 4 * CELLS + 1);
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        struct cairn_error err = {0};
        struct fake_cuda_state state, before;
        struct cairn_save *save = NULL;
        CAIRN_AUTO(rank) rank = {0};
        REQUIRE_OK(open_rank(&rank, threads, &err));
        cairn_cuda.state(&before);
        /* Beside what exists there is room for 1 MiB of the 8 that are asked for. */
        cairn_cuda.room(8 * CELLS + 1 + CAIRN_MIB);
        REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
        struct cairn_tensor_piece piece = flat_piece("turned", &narrow, cells, first);
        piece.dimension_count = 2, piece.shape = shape, piece.source_stride = stride;
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        piece = flat_piece("shifted", &narrow, cells, second + 1);
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
        cairn_save_free(save);
        cairn_cuda.state(&state);
        EXPECT(state.launches - before.launches >= 4 * CELLS / CAIRN_MIB);
        EXPECT_EQ_U64(state.memories, before.memories + 1);
        const uint8_t *at = cairn_staged_tensor(rank.fake, "turned", 1);
        EXPECT(at && memcmp(at, expected, 2 * CELLS) == 0);
        at = cairn_staged_tensor(rank.fake, "shifted", 1);
        EXPECT(at && memcmp(at, straight, 2 * CELLS) == 0);
        EXPECT(cairn_cuda_sums_are_right(&rank, 1));
        EXPECT_CODE(cairn_close(rank.session, &err), CAIRN_OK);
        rank.session = NULL;
        cairn_cuda.state(&state);
        EXPECT_EQ_U64(state.memories, before.memories);
    }
    cairn_cuda_expect_nothing_left();
    cairn_cuda.reset();
    cairn_cuda.release(first);
    cairn_cuda.release(second);
}

#define SHARED 100003

TEST(the_share_of_a_split_is_converted_from_where_it_begins) {
    static const uint64_t elements[1] = {SHARED};
    static const int64_t every_second[1] = {2};
    NEEDS_KERNELS();
    REQUIRE(have_room(8 * SHARED));
    for (uint32_t i = 0; i < 2 * SHARED; i++) ((uint32_t *)(void *)source)[i] = i * 2654435761u;
    for (size_t i = 0; i < SHARED; i++) memcpy(expected + 4 * i, source + 8 * i, 4);
    CAIRN_AUTO_HEAP uint16_t *stored = malloc(2 * SHARED);
    REQUIRE(stored != NULL);
    cairn_convert(CAIRN_DTYPE_F32, expected, CAIRN_DTYPE_BF16, stored, SHARED);
    void *memory = cairn_cuda_filled(0, source, 8 * SHARED);
    {
        struct cairn_error err = {0};
        struct cairn_save *save = NULL;
        struct cairn_split *split = NULL;
        struct cairn_split_share share = {0};
        CAIRN_AUTO(rank) rank = {0};
        const struct cairn_split_options half = {
            .size = sizeof half, .group = "dp", .member = 1, .members = 2, .by = CAIRN_SPLIT_SLICE};
        struct cairn_tensor_piece piece = flat_piece("w", &narrow, elements, memory);
        piece.kind = CAIRN_SHARDED, piece.source_stride = every_second;
        REQUIRE_OK(open_rank(&rank, 1, &err));
        REQUIRE_OK(cairn_split_new(&half, &split, &err));
        REQUIRE_OK(cairn_split_add(split, &piece, &err));
        REQUIRE_OK(cairn_split_share_at(split, 1, 0, &share, &err));
        const struct cairn_save_options options = {
            .size = sizeof options, .splits = &split, .split_count = 1};
        REQUIRE_OK(cairn_save_begin(rank.session, 1, &options, &save, &err));
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
        cairn_save_free(save);
        EXPECT(share.start > 0 && share.count > 1000);
        const uint8_t *at = cairn_staged_tensor(rank.fake, "w", 1);
        EXPECT(at && memcmp(at, stored + share.start, 2 * share.count) == 0);
        cairn_split_free(split);
    }
    cairn_cuda.release(memory);
}

/* ---- restores into a device ---- */

#define READ_ROWS 1500
#define READ_COLUMNS 900 /* more than a slot of the fake's window */
#define APART_BYTES ((size_t)READ_ROWS * (READ_COLUMNS + 3) * 4)

/* A version with one tensor of random bits behind an item of odd length, and what is read of it. */
struct floats {
    struct cairn_rank rank;
    struct cairn_staged_version version;
    struct cairn_restore *restore;
    uint32_t *bits;
    uint8_t *wanted, *got;
};

static void cairn_floats_release(struct floats *floats) {
    cairn_restore_free(floats->restore);
    cairn_staged_version_release(&floats->version);
    cairn_rank_release(&floats->rank);
    free(floats->bits);
    free(floats->wanted);
    free(floats->got);
}

static enum cairn_code serve_floats(struct floats *floats, struct cairn_error *err) {
    struct cairn_rank *rank = &floats->rank;
    static const uint64_t shape[2] = {READ_ROWS, READ_COLUMNS};
    struct cairn_save *save = NULL;
    CAIRN_TRY(rank_uploader(rank, 1, err));
    struct cairn_open_options options = rank_options(rank);
    options.rank = 0;
    options.world_size = 1;
    options.bytes = 16 * CAIRN_MIB;
    CAIRN_TRY(cairn_open(&options, &rank->session, NULL, err));
    CAIRN_TRY(cairn_save_begin(rank->session, 40, NULL, &save, err));
    const struct cairn_item item = {.size = sizeof item, .name = "a", .source = "odd", .bytes = 3};
    const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                             .name = "w",
                                             .dtype = "F32",
                                             .dimension_count = 2,
                                             .shape = shape,
                                             .kind = CAIRN_SHARDED,
                                             .source = floats->bits,
                                             .source_bytes =
                                                 (uint64_t)READ_ROWS * READ_COLUMNS * 4};
    enum cairn_code code = cairn_save_item(save, &item, err);
    if (!code) code = cairn_save_tensor(save, &piece, err);
    if (!code) code = cairn_save_stage(save, err);
    if (!code) code = cairn_staged_keep(&floats->version, rank->fake, 0, err);
    cairn_save_free(save);
    return code ? code : cairn_staged_serve(&floats->version, rank->fake, 1, err);
}

static enum cairn_code open_floats(struct floats *ret, struct cairn_error *err) {
    uint64_t random = cairn_test_seed();
    ret->bits = malloc((size_t)READ_ROWS * READ_COLUMNS * 4);
    ret->wanted = malloc(APART_BYTES);
    ret->got = malloc(APART_BYTES);
    if (!ret->bits || !ret->wanted || !ret->got)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a tensor");
    for (size_t i = 0; i < (size_t)READ_ROWS * READ_COLUMNS; i++)
        ret->bits[i] = (uint32_t)cairn_test_random(&random);
    CAIRN_TRY(serve_floats(ret, err));
    return cairn_restore_open(ret->rank.session, NULL, &ret->restore, NULL, err);
}
#define FLOATS(floats)                                                                             \
    __attribute__((cleanup(cairn_floats_release))) struct floats floats = {0};                     \
    NEEDS_KERNELS();                                                                               \
    REQUIRE_OK(open_floats(&floats, &err))

/* Into host memory and into a device: gaps stay, and so does what is behind. */
static void read_both(struct floats *floats, struct cairn_read read, size_t number) {
    struct cairn_error err = {0};
    memset(floats->wanted, 7, APART_BYTES);
    memcpy(floats->got, floats->wanted, APART_BYTES);
    void *memory = cairn_cuda_filled(0, floats->got, APART_BYTES);
    read.into = floats->wanted;
    EXPECT_CODE(cairn_restore_read(floats->restore, &read, 1, 0, &err), CAIRN_OK);
    read.into = memory;
    read.memory = CAIRN_MEMORY_CUDA;
    EXPECT_CODE(cairn_restore_read(floats->restore, &read, 1, 0, &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_cuda.copy(floats->got, memory, APART_BYTES, 2, NULL), 0);
    cairn_test_check(!memcmp(floats->got, floats->wanted, APART_BYTES), __FILE__, __LINE__,
                     "case %zu: the device has other bytes", number);
    cairn_cuda.release(memory);
}

TEST(a_read_into_a_device_is_converted_and_put_apart_as_in_host_memory, err) { /* restore.h#4 */
    struct fake_cuda_state state;
    FLOATS(floats);
    EACH(one,
         FIELDS(const char *dtype; /* NULL: as it is stored */ size_t width; int64_t stride[2]
                /* 0: none */),
         {NULL, 4, {1, READ_ROWS}}, {NULL, 4, {READ_COLUMNS + 3, 1}}, {"BF16", 2, {0}},
         {"BF16", 2, {1, READ_ROWS}}, {"F16", 2, {READ_COLUMNS + 3, 1}}) {
        const struct cairn_read read = {.size = sizeof read,
                                        .tensor = "w",
                                        .into_bytes =
                                            (uint64_t)READ_ROWS * READ_COLUMNS * one->width,
                                        .into_dtype = one->dtype,
                                        .into_stride = one->stride[0] ? one->stride : NULL};
        read_both(&floats, read, AT(one));
    }
    cairn_cuda.state(&state);
    EXPECT(state.scatters > 0);
    /* What no device converts is refused before a byte is written. */
    void *memory = cairn_cuda_filled(0, floats.got, APART_BYTES);
    const struct cairn_read wide = {.size = sizeof wide,
                                    .tensor = "w",
                                    .into = memory,
                                    .into_bytes = (uint64_t)READ_ROWS * READ_COLUMNS * 8,
                                    .memory = CAIRN_MEMORY_CUDA,
                                    .into_dtype = "F64"};
    EXPECT_FAILS(cairn_restore_read(floats.restore, &wide, 1, 0, &err), CAIRN_UNSUPPORTED,
                 "F32, BF16 and F16 alone are converted");
    cairn_cuda.release(memory);
}

/* A flat read of three ranges, and one of two boxes, of which the second ends elsewhere. */
TEST(several_regions_of_a_tensor_are_read_into_a_device_at_once_as_into_host_memory) {
    struct cairn_error err = {0};
    static const uint64_t flat[] = {5, 900000, 17}, flats[] = {70001, 1, 300000};
    static const uint64_t boxes[] = {0, 3, 700, 100}, counts[] = {9, 800, 31, 401};
    FLOATS(floats);
    EACH(one, FIELDS(const char *dtype; size_t width; bool boxes), {NULL, 4, false},
         {"BF16", 2, false}, {NULL, 4, true}, {"F16", 2, true}) {
        uint64_t elements = one->boxes ? 9 * 800 + 31 * 401 : 70001 + 1 + 300000;
        const struct cairn_read read =
            SIZED(cairn_read, .tensor = "w", .form = one->boxes ? CAIRN_BOX : CAIRN_FLAT,
                  .start = one->boxes ? boxes : flat, .count = one->boxes ? counts : flats,
                  .region_count = one->boxes ? 2 : 3, .into_bytes = elements * one->width,
                  .into_dtype = one->dtype);
        read_both(&floats, read, AT(one));
        if (!one->dtype && !one->boxes)
            EXPECT(!memcmp(floats.got, floats.bits + 5, (size_t)70001 * 4));
    }
}

/* ---- order ---- */

/* Tensors too small for a chunk that a device sums, and converted each by itself. */
TEST(one_scratch_is_filled_while_the_other_is_copied) {
    enum { TENSORS = 8 };
    static const uint64_t elements[1] = {20000};
    static char names[TENSORS][8];
    struct cairn_error err = {0};
    struct fake_cuda_state state;
    NEEDS_KERNELS();
    REQUIRE(have_room(4 * elements[0]));
    memset(source, 3, 4 * elements[0]);
    DEVICE(uint8_t, memory, 0, source, 4 * elements[0]);
    CAIRN_AUTO(rank) rank = {0};
    AUTO_SAVE *save = NULL;
    REQUIRE_OK(open_rank(&rank, 1, &err));
    cairn_cuda.reset();
    cairn_cuda.slow(20000);
    cairn_cuda.slow_kernels(5000);
    REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
    for (size_t i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "w%zu", i);
        const struct cairn_tensor_piece piece = flat_piece(names[i], &narrow, elements, memory);
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    }
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
    cairn_cuda.state(&state);
    EXPECT_EQ_U64(state.gathers, TENSORS);
    EXPECT(state.overlaps >= TENSORS / 2);
    cairn_cuda.reset();
}

TEST(a_device_converts_behind_what_the_trainers_stream_had) {
    static const uint64_t elements[1] = {ELEMENTS};
    NEEDS_KERNELS();
    void *stream = NULL;
    REQUIRE(have_room(4 * ELEMENTS));
    fill_source(&narrow);
    cairn_convert(CAIRN_DTYPE_F32, source, CAIRN_DTYPE_BF16, expected, ELEMENTS);
    CAIRN_AUTO_HEAP uint8_t *old = calloc(4, ELEMENTS);
    REQUIRE(old != NULL);
    void *memory = cairn_cuda_filled(0, old, 4 * ELEMENTS);
    REQUIRE(cairn_cuda.make_stream(&stream, 1) == 0);
    {
        struct cairn_error err = {0};
        int device = -1;
        CAIRN_AUTO(rank) rank = {0};
        REQUIRE_OK(open_rank(&rank, 1, &err));
        struct cairn_tensor_piece piece = flat_piece("w", &narrow, elements, memory);
        piece.stream = stream;
        cairn_cuda.write_later(stream, memory, source, 4 * ELEMENTS, 100);
        EXPECT_CODE(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_OK);
        const uint8_t *at = cairn_staged_tensor(rank.fake, "w", 1);
        EXPECT(at && memcmp(at, expected, 2 * ELEMENTS) == 0);
        EXPECT(cairn_cuda.get_device(&device) == 0 && device == 0);
        EXPECT_EQ_U64(cairn_cuda.get_last_error(), 0);
    }
    EXPECT_EQ_U64(cairn_cuda.end_stream(stream), 0);
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(memory);
}

/* ---- what fails ---- */

/* A save where `call` fails once, and one after it. */
static void fail_once(const char *call, int status, enum cairn_code code, const char *why) {
    static const uint64_t elements[1] = {4096};
    struct cairn_error err = {0};
    CAIRN_AUTO(rank) rank = {0};
    cairn_cuda.reset();
    REQUIRE_OK(rank_open(&rank, 2, &err));
    void *memory = cairn_cuda_filled(0, source, 4 * 4096);
    const struct cairn_tensor_piece piece = flat_piece("w", &narrow, elements, memory);
    cairn_cuda.fail(call, 0, status, 0);
    EXPECT_CODE(cairn_cuda_save_one(rank.session, 1, &piece, &err), code);
    EXPECT(strstr(err.message, "tensor w") != NULL);
    EXPECT(strstr(err.message, why) != NULL);
    EXPECT_EQ_U64(cairn_cuda.get_last_error(), 0);
    EXPECT_CODE(cairn_cuda_save_one(rank.session, 2, &piece, &err), CAIRN_OK);
    cairn_cuda.release(memory);
}

TEST(a_kernel_that_cannot_be_loaded_or_started_fails_that_save_by_name_and_the_next_is_whole) {
    NEEDS_KERNELS();
    REQUIRE(have_room(4 * 4096));
    memset(source, 0, 4 * 4096);
    fail_once("ModuleLoadData", 209, CAIRN_UNSUPPORTED, "device 0 takes no kernel");
    fail_once("ModuleLoadData", 209, CAIRN_UNSUPPORTED, "CUDA_ERROR_NO_BINARY_FOR_GPU (209)");
    fail_once("ModuleLoadData", 2, CAIRN_NO_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY");
    fail_once("ModuleGetFunction", 500, CAIRN_UNSUPPORTED, "cuModuleGetFunction");
    fail_once("LaunchKernel", 1, CAIRN_IO, "cuLaunchKernel: CUDA_ERROR_OTHER (1)");
    fail_once("Malloc", 1, CAIRN_IO, "cudaMalloc");
    cairn_cuda_expect_nothing_left();
}

TEST(a_device_without_64_KiB_to_spare_fails_the_save_with_no_memory_and_the_next_is_whole) {
    static const uint64_t elements[1] = {4096};
    NEEDS_KERNELS();
    REQUIRE(have_room(4 * 4096));
    memset(source, 0, 4 * 4096);
    {
        RANK(2);
        void *memory = cairn_cuda_filled(0, source, 4 * 4096);
        const struct cairn_tensor_piece piece = flat_piece("w", &narrow, elements, memory);
        cairn_cuda.room(4 * 4096 + 64 * CAIRN_KIB - 1);
        EXPECT_FAILS(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_NO_MEMORY,
                     "device 0, 65536 bytes to convert: cudaMalloc");
        EXPECT_EQ_U64(cairn_cuda.get_last_error(), 0);
        cairn_cuda.room(4 * 4096 + 64 * CAIRN_KIB);
        EXPECT_CODE(cairn_cuda_save_one(rank.session, 2, &piece, &err), CAIRN_OK);
        cairn_cuda.reset();
        cairn_cuda.release(memory);
    }
    cairn_cuda_expect_nothing_left();
}

TEST(a_kernel_that_faults_in_its_stream_fails_the_save_with_cudas_name_for_it, err) {
    static const uint64_t elements[1] = {4096};
    CAIRN_AUTO(rank) rank = {0};
    NEEDS_KERNELS();
    REQUIRE(have_room(4 * 4096));
    memset(source, 0, 4 * 4096);
    REQUIRE_OK(rank_open(&rank, 2, &err));
    void *memory = cairn_cuda_filled(0, source, 4 * 4096);
    const struct cairn_tensor_piece piece = flat_piece("w", &narrow, elements, memory);
    cairn_cuda.fail("kernel", 0, 700, 1);
    EXPECT_FAILS(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_IO,
                 "cudaErrorIllegalAddress (700)");
    cairn_cuda.reset();
    cairn_cuda.release(memory);
}

TEST(a_type_that_no_device_converts_is_refused_before_the_save_is_staged, err) {
    static const uint64_t elements[1] = {2};
    static const struct types wide = {"F64", "BF16", CAIRN_DTYPE_F64, CAIRN_DTYPE_BF16, 8, 2};
    static const double numbers[2] = {1, 2};
    CAIRN_AUTO(rank) rank = {0};
    NEEDS_KERNELS();
    REQUIRE_OK(rank_open(&rank, 2, &err));
    void *memory = cairn_cuda_filled(0, numbers, sizeof numbers);
    const struct cairn_tensor_piece piece = flat_piece("w", &wide, elements, memory);
    EXPECT_FAILS(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_UNSUPPORTED,
                 "tensor w: on a device F32, BF16 and F16 alone");
    cairn_cuda.release(memory);
}
