/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan lacks=nvcc */
/* Checksums that a device makes of what it copies, and small tensors that it puts together before
 * (fake_cuda.h). */
#include "client/device/device.h"
#include "tests/client/cuda.h"

#define SESSION_BYTES (32 * CAIRN_MIB)
#define LARGE_BYTES (18 * CAIRN_MIB + 4)

static enum cairn_code open_rank(struct cairn_rank *rank, uint32_t threads,
                                 struct cairn_error *err) {
    CAIRN_TRY(rank_uploader(rank, 1, err));
    struct cairn_open_options options = rank_options(rank);
    options.bytes = SESSION_BYTES;
    options.copy_threads = threads;
    return cairn_open(&options, &rank->session, NULL, err);
}

static struct cairn_tensor_piece bytes_piece(const char *name, const void *memory,
                                             const uint64_t *size) {
    return SIZED(cairn_tensor_piece, .name = name, .dtype = "U8", .dimension_count = 1,
                 .shape = size, .kind = CAIRN_LOCAL, .source = memory, .source_bytes = *size,
                 .memory = CAIRN_MEMORY_CUDA);
}

static uint8_t *make_bytes(size_t size) {
    size_t count = size / sizeof(uint64_t) + 1;
    uint64_t *ret = malloc(count * sizeof *ret), state = cairn_test_seed();
    for (size_t i = 0; ret && i < count; i++) ret[i] = cairn_test_random(&state);
    return (uint8_t *)ret;
}

/* A large tensor at an address that is aligned to nothing, one that is converted, and one of which
 * each rank has the whole. */
TEST(a_device_sums_all_whole_chunks_and_block_checksums_are_those_of_the_bytes) { /* inside.h#6 */
    static const uint64_t size[1] = {LARGE_BYTES}, floats[1] = {1000000};
    NEEDS_KERNELS();
    CAIRN_AUTO_HEAP uint8_t *bytes = make_bytes(LARGE_BYTES + 8);
    REQUIRE(bytes != NULL);
    uint8_t *memory = cairn_cuda_filled(0, bytes, LARGE_BYTES + 8);
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        struct cairn_error err = {0};
        struct fake_cuda_state state;
        struct cairn_save *save = NULL;
        CAIRN_AUTO(rank) rank = {0};
        REQUIRE_OK(open_rank(&rank, threads, &err));
        cairn_cuda.reset();
        REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
        struct cairn_tensor_piece piece = bytes_piece("large", memory + 1, size);
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        piece = bytes_piece("floats", memory, floats);
        piece.dtype = "BF16", piece.source_dtype = "F32", piece.source_bytes = 4 * floats[0];
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        piece = bytes_piece("replicated", memory + 4, floats);
        piece.kind = CAIRN_REPLICATED;
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
        cairn_save_free(save);
        cairn_cuda.state(&state);
        EXPECT(state.summed >= 19 * CAIRN_MIB / CAIRN_DEVICE_SUM_BYTES);
        const uint8_t *at = cairn_staged_tensor(rank.fake, "large", 1);
        EXPECT(at && memcmp(at, bytes + 1, LARGE_BYTES) == 0);
        EXPECT(cairn_cuda_sums_are_right(&rank, 1));
    }
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(memory);
}

TEST(sums_that_the_device_has_no_time_for_are_made_by_the_host) { /* inside.h#6 */
    static const uint64_t size[1] = {LARGE_BYTES};
    NEEDS_KERNELS();
    CAIRN_AUTO_HEAP uint8_t *bytes = make_bytes(LARGE_BYTES);
    REQUIRE(bytes != NULL);
    void *memory = cairn_cuda_filled(0, bytes, LARGE_BYTES);
    {
        struct cairn_error err = {0};
        CAIRN_AUTO(rank) rank = {0};
        REQUIRE_OK(open_rank(&rank, 1, &err));
        cairn_cuda.reset();
        cairn_cuda.slow_kernels(100000);
        const struct cairn_tensor_piece piece = bytes_piece("large", memory, size);
        EXPECT_CODE(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_OK);
        const uint8_t *at = cairn_staged_tensor(rank.fake, "large", 1);
        EXPECT(at && memcmp(at, bytes, LARGE_BYTES) == 0);
        EXPECT(cairn_cuda_sums_are_right(&rank, 1));
        cairn_cuda.reset();
    }
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(memory);
}

/* ---- small tensors ---- */

#define SMALL_COUNT 500

/* Of all sizes up to more than is put together, some at odd addresses, each behind the other. */
TEST(small_tensors_cross_the_link_together_and_have_the_bytes_of_each) {
    static uint64_t sizes[SMALL_COUNT][1];
    static char names[SMALL_COUNT][16];
    NEEDS_KERNELS();
    uint64_t state = cairn_test_seed(), total = 0;
    for (size_t i = 0; i < SMALL_COUNT; i++) {
        snprintf(names[i], sizeof names[i], "small%03zu", i);
        sizes[i][0] = 1 + cairn_test_random(&state) % (i % 50 ? 3000 : 70000);
        total += sizes[i][0];
    }
    CAIRN_AUTO_HEAP uint8_t *bytes = make_bytes((size_t)total);
    REQUIRE(bytes != NULL);
    uint8_t *memory = cairn_cuda_filled(1, bytes, (size_t)total);
    {
        struct cairn_error err = {0};
        struct fake_cuda_state before, after;
        struct cairn_save *save = NULL;
        CAIRN_AUTO(rank) rank = {0};
        REQUIRE_OK(open_rank(&rank, 1, &err));
        cairn_cuda.reset();
        cairn_cuda.state(&before);
        REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
        uint64_t offset = 0;
        for (size_t i = 0; i < SMALL_COUNT; i++) {
            const struct cairn_tensor_piece piece =
                bytes_piece(names[i], memory + offset, sizes[i]);
            EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
            offset += sizes[i][0];
        }
        EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
        cairn_save_free(save);
        cairn_cuda.state(&after);
        EXPECT(after.copies - before.copies < SMALL_COUNT / 10);
        offset = 0;
        for (size_t i = 0; i < SMALL_COUNT; i++) {
            const uint8_t *at = cairn_staged_tensor(rank.fake, names[i], 1);
            if (!EXPECT(at && memcmp(at, bytes + offset, sizes[i][0]) == 0)) break;
            offset += sizes[i][0];
        }
        EXPECT(cairn_cuda_sums_are_right(&rank, 1));
    }
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(memory);
}
