/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=gpu env=ASAN_OPTIONS=protect_shadow_gap=0 */
/* Saves from a real GPU and reads into it, where there is one. What no fake can tell: that the
 * memory of a slab, huge pages of a memfd, can be page-locked, and that bytes come back as they
 * were. */
#include <dlfcn.h>

#include "api/table/table.h"
#include "formats/convert.h"
#include "tests/client/rank.h"
#include "tests/client/staged.h"

#define SIDE 4096 /* F32: 64 MiB */
#define BYTES ((size_t)SIDE * SIDE * 4)
#define BOX_PLANES 16 /* of 64 rows of the memory each, the box has 32 of these */
#define BOX_ROWS 32
#define BOX_COLUMNS 1024
#define BOX_BYTES ((uint64_t)4 * BOX_PLANES * BOX_ROWS * BOX_COLUMNS)

static struct {
    int (*count)(int *), (*make)(void **, size_t), (*release)(void *);
    int (*copy)(void *, const void *, size_t, int);
    int (*copy_async)(void *, const void *, size_t, int, void *);
    int (*make_stream)(void **, unsigned), (*end_stream)(void *);
} cuda;

static bool find(void *library, const char *name, void *ret) {
    void *symbol = dlsym(library, name);
    memcpy(ret, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* NULL: there is a GPU; else why there is none. */
static const char *no_gpu(void) {
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12",
                                        "/usr/local/cuda/lib64/libcudart.so"};
    void *library = NULL;
    int count = 0;
    for (size_t i = 0; i < CAIRN_COUNT(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
    if (!library) return "no CUDA runtime is installed";
    if (!find(library, "cudaGetDeviceCount", &cuda.count) ||
        !find(library, "cudaMalloc", &cuda.make) || !find(library, "cudaFree", &cuda.release) ||
        !find(library, "cudaMemcpy", &cuda.copy) ||
        !find(library, "cudaMemcpyAsync", &cuda.copy_async) ||
        !find(library, "cudaStreamCreateWithFlags", &cuda.make_stream) ||
        !find(library, "cudaStreamDestroy", &cuda.end_stream))
        return "the CUDA runtime lacks a function";
    if (cuda.count(&count) || !count) return "there is no GPU that the CUDA runtime can use";
    return NULL;
}

static enum cairn_code stage(struct cairn_rank *rank, const void *memory, void *stream,
                             struct cairn_error *err) {
    static const uint64_t shape[2] = {SIDE, SIDE}, half[2] = {SIDE, SIDE / 2}, start[2] = {0, 64};
    static const int64_t rows[2] = {SIDE, 1}, planes[3] = {64 * SIDE, SIDE, 1};
    static const uint64_t box[3] = {BOX_PLANES, BOX_ROWS, BOX_COLUMNS};
    struct cairn_save *save = NULL;
    struct cairn_tensor_piece piece = {.size = sizeof piece,
                                       .name = "whole",
                                       .dtype = "F32",
                                       .dimension_count = 2,
                                       .shape = shape,
                                       .kind = CAIRN_LOCAL,
                                       .source = memory,
                                       .source_bytes = BYTES,
                                       .memory = CAIRN_MEMORY_CUDA,
                                       .stream = stream};
    CAIRN_TRY(cairn_save_begin(rank->session, 1, NULL, &save, err));
    enum cairn_code code = cairn_save_tensor(save, &piece, err);
    piece.name = "columns";
    piece.form = CAIRN_BOX, piece.start = start, piece.count = half;
    piece.source = (const float *)memory + 64;
    piece.source_stride = rows, piece.source_bytes = BYTES / 2;
    if (!code) code = cairn_save_tensor(save, &piece, err);
    piece = (struct cairn_tensor_piece){.size = sizeof piece,
                                        .name = "box",
                                        .dtype = "F32",
                                        .dimension_count = 3,
                                        .shape = box,
                                        .kind = CAIRN_LOCAL,
                                        .source = memory,
                                        .source_bytes = BOX_BYTES,
                                        .source_stride = planes,
                                        .memory = CAIRN_MEMORY_CUDA,
                                        .stream = stream};
    if (!code) code = cairn_save_tensor(save, &piece, err);
    if (!code) code = cairn_save_stage(save, err);
    cairn_save_free(save);
    return code;
}

TEST(memory_of_a_gpu_is_staged_behind_its_stream_into_memory_that_is_page_locked, err) {
    CAIRN_AUTO(rank) rank = {0};
    const char *missing = no_gpu();
    if (missing) SKIP(missing);
    CAIRN_AUTO_HEAP uint32_t *numbers = malloc(BYTES);
    void *memory = NULL, *stream = NULL;
    REQUIRE(numbers != NULL);
    for (size_t i = 0; i < BYTES / 4; i++) numbers[i] = (uint32_t)i * 2654435761u;
    REQUIRE_OK(rank_uploader(&rank, 1, &err));
    struct cairn_open_options options = rank_options(&rank);
    options.bytes = 2 * BYTES;
    REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err));
    REQUIRE(!cuda.make(&memory, BYTES) && !cuda.make_stream(&stream, 1));
    REQUIRE(!cuda.copy_async(memory, numbers, BYTES, 1, stream));
    EXPECT_CODE(stage(&rank, memory, stream, &err), CAIRN_OK);
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK); /* it could be locked */
    const uint8_t *at = cairn_staged_tensor(rank.fake, "whole", 1);
    EXPECT(at && memcmp(at, numbers, BYTES) == 0);
    at = cairn_staged_tensor(rank.fake, "columns", 1);
    bool same = at != NULL;
    for (size_t row = 0; row < SIDE && same; row++)
        same = !memcmp(at + row * SIDE * 2, numbers + row * SIDE + 64, SIDE * 2);
    EXPECT(same);
    at = cairn_staged_tensor(rank.fake, "box", 1);
    same = at != NULL;
    for (size_t row = 0; row < BOX_PLANES * BOX_ROWS && same; row++)
        same = !memcmp(at + row * BOX_COLUMNS * 4,
                       numbers + (row / BOX_ROWS * 64 + row % BOX_ROWS) * SIDE, BOX_COLUMNS * 4);
    EXPECT(same);
    cuda.end_stream(stream);
    cuda.release(memory);
}

/* All upper halves with many lower ones; transposed as well. */
TEST(a_gpu_rounds_as_the_host_does_and_its_strides_are_the_hosts) {
    static const uint64_t shape[2] = {SIDE, SIDE};
    static const int64_t turned[2] = {1, SIDE};
    const char *missing = no_gpu();
    if (missing) SKIP(missing);
    CAIRN_AUTO_HEAP uint32_t *numbers = malloc(BYTES), *across = malloc(BYTES);
    CAIRN_AUTO_HEAP uint16_t *expected = malloc(BYTES / 2);
    void *memory = NULL;
    REQUIRE(numbers && across && expected && !cuda.make(&memory, BYTES));
    for (size_t i = 0; i < BYTES / 4; i++)
        numbers[i] = (uint32_t)i << 16 | (uint32_t)(i >> 16) * 257;
    for (size_t i = 0; i < BYTES / 4; i++) across[i] = numbers[i % SIDE * SIDE + i / SIDE];
    REQUIRE(!cuda.copy(memory, numbers, BYTES, 1));
    EACH_OF(unsigned, number, CAIRN_DTYPE_BF16, CAIRN_DTYPE_F16) {
        struct cairn_error err = {0};
        struct cairn_save *save = NULL;
        CAIRN_AUTO(rank) rank = {0};
        REQUIRE_OK(rank_uploader(&rank, 1, &err));
        struct cairn_open_options options = rank_options(&rank);
        options.bytes = 2 * BYTES;
        REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err));
        struct cairn_tensor_piece piece = {.size = sizeof piece,
                                           .name = "straight",
                                           .dtype = AT_OF(number) ? "F16" : "BF16",
                                           .source_dtype = "F32",
                                           .dimension_count = 2,
                                           .shape = shape,
                                           .kind = CAIRN_LOCAL,
                                           .source = memory,
                                           .source_bytes = BYTES,
                                           .memory = CAIRN_MEMORY_CUDA};
        REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        piece.name = "turned", piece.source_stride = turned;
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
        cairn_save_free(save);
        cairn_convert(CAIRN_DTYPE_F32, numbers, number, expected, BYTES / 4);
        const uint8_t *at = cairn_staged_tensor(rank.fake, "straight", 1);
        EXPECT(at && memcmp(at, expected, BYTES / 2) == 0);
        cairn_convert(CAIRN_DTYPE_F32, across, number, expected, BYTES / 4);
        at = cairn_staged_tensor(rank.fake, "turned", 1);
        EXPECT(at && memcmp(at, expected, BYTES / 2) == 0);
    }
    cuda.release(memory);
}

TEST(a_shard_is_read_into_memory_of_a_gpu, err) {
    CAIRN_AUTO(rank) rank = {0};
    CAIRN_AUTO(staged_version) version = {0};
    struct cairn_restore *restore = NULL;
    const char *missing = no_gpu();
    if (missing) SKIP(missing);
    CAIRN_AUTO_HEAP uint8_t *stored = malloc(BYTES), *got = calloc(1, BYTES);
    void *memory = NULL;
    REQUIRE(stored && got && !cuda.make(&memory, BYTES));
    for (size_t i = 0; i < BYTES; i++) stored[i] = (uint8_t)(i ^ i >> 8 ^ i >> 16);
    const struct cairn_staged_raw raw = {"a", {(const char *)stored, BYTES}};
    REQUIRE_OK(rank_open(&rank, 1, &err));
    REQUIRE_OK(cairn_staged_serve_raw(&version, rank.fake, &raw, 1, &err));
    REQUIRE_OK(cairn_restore_open(rank.session, NULL, &restore, NULL, &err));
    const struct cairn_read read = {.size = sizeof read,
                                    .shard = "a",
                                    .bytes = UINT64_MAX,
                                    .into = memory,
                                    .into_bytes = BYTES,
                                    .memory = CAIRN_MEMORY_CUDA};
    EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_OK);
    EXPECT(!cuda.copy(got, memory, BYTES, 2));
    EXPECT(memcmp(got, stored, BYTES) == 0);
    cairn_restore_free(restore);
    cuda.release(memory);
}
