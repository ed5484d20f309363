/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/cuda" */
/* The plug-in's copies of boxes, both ways, against the host's of the same memory. */
#include "client/session/memory.h"
#include "tests/client/cuda.h"

#define BYTES 65536

static uint8_t numbers[BYTES], wanted[BYTES], got[BYTES], stored[BYTES];

struct box {
    struct cairn_strided strided;
    uint64_t elements;
    size_t first; /* byte of the memory that its first element begins at */
};

/* A box of an array of one to five dimensions, now and then in another order of these. */
static bool random_box(uint64_t *state, struct box *ret) {
    unsigned dimensions = 1 + (unsigned)(cairn_test_random(state) % 5), order[5];
    size_t width = (size_t)1 << cairn_test_random(state) % 4;
    uint64_t count[5], most = dimensions > 3 ? 5 : 9;
    int64_t stride[5], step = 1;
    *ret = (struct box){.elements = 1};
    for (unsigned d = 0; d < dimensions; d++) order[d] = d;
    if (dimensions > 1 && cairn_test_random(state) % 4 == 0) {
        unsigned d = (unsigned)(cairn_test_random(state) % (dimensions - 1));
        order[d] = d + 1, order[d + 1] = d;
    }
    for (unsigned i = dimensions; i-- > 0;) {
        unsigned d = order[i];
        uint64_t extent = 1 + cairn_test_random(state) % most;
        bool whole = cairn_test_random(state) % 3 != 0; /* else planes are not whole rows apart */
        uint64_t more = whole ? 0 : 1 + cairn_test_random(state) % 2;
        count[d] = extent - cairn_test_random(state) % (1 + extent / 2);
        stride[d] = step;
        ret->elements *= count[d];
        step = step * (int64_t)extent + (int64_t)more;
    }
    ret->first = (size_t)cairn_test_random(state) % 64 * width;
    return cairn_strided_make(width, dimensions, count, stride, &ret->strided);
}

/* Bytes [at, at + size) of the box. */
static enum cairn_code copy(const struct cairn_client_device *device, const struct box *box,
                            void *memory, uint8_t *host, uint64_t at, uint64_t size, bool into,
                            struct cairn_error *err) {
    struct cairn_device_job *job = NULL;
    const struct cairn_device_part part = {.memory = (uint8_t *)memory + box->first,
                                           .strided = &box->strided,
                                           .at = at,
                                           .bytes = size,
                                           .host = host,
                                           .into_device = into};
    const struct cairn_device_job_options options = {
        .mark_count = 1, .host = into ? NULL : host, .bytes = into ? 0 : size};
    CAIRN_TRY(device->plugin->begin(device->handle, &options, &job, err));
    enum cairn_code code = device->plugin->copy(job, &part, err);
    if (!code) code = device->plugin->mark(job, 0, err);
    if (!code) code = device->plugin->await(job, 0, err);
    device->plugin->end(job);
    return code;
}

TEST(any_range_of_any_box_comes_from_a_device_and_goes_into_one_as_in_host_memory, err) {
    struct cairn_client_device device = {0};
    uint64_t state = cairn_test_seed();
    REQUIRE(cairn_cuda_have_runtime());
    for (size_t i = 0; i < BYTES; i++) numbers[i] = (uint8_t)cairn_test_random(&state);
    void *memory = cairn_cuda_filled(0, numbers, BYTES), *target = NULL;
    REQUIRE_OK(cairn_client_device_open(&device, &err));
    for (int round = 0; round < 500; round++) {
        struct box box;
        REQUIRE(random_box(&state, &box));
        size_t width = box.strided.element_bytes;
        uint64_t from =
            cairn_test_random(&state) % 2 ? cairn_test_random(&state) % box.elements : 0;
        uint64_t left = box.elements - from;
        uint64_t count =
            cairn_test_random(&state) % 2 ? 1 + cairn_test_random(&state) % left : left;
        size_t size = (size_t)count * width;
        memset(wanted, 0, sizeof wanted);
        memset(got, 0, sizeof got);
        cairn_strided_gather(&box.strided, numbers + box.first, from * width, wanted, size);
        EXPECT_CODE(copy(&device, &box, memory, got, from * width, size, false, &err), CAIRN_OK);
        bool same = memcmp(got, wanted, sizeof got) == 0;
        memset(wanted, 7, sizeof wanted);
        target = cairn_cuda_filled(0, wanted, BYTES);
        cairn_strided_scatter(&box.strided, wanted + box.first, from * width, got, size);
        EXPECT_CODE(copy(&device, &box, target, got, from * width, size, true, &err), CAIRN_OK);
        EXPECT_EQ_U64(cairn_cuda.copy(stored, target, BYTES, 2, NULL), 0);
        cairn_cuda.release(target);
        same = same && memcmp(stored, wanted, sizeof stored) == 0;
        if (!cairn_test_check(same, __FILE__, __LINE__, "box %d differs", round)) break;
    }
    cairn_client_device_release(&device);
    cairn_cuda.release(memory);
}

/* Planes of 5 of 6 rows, each 20 of 32 bytes; `more` bytes lie between two planes. */
static struct box planes_of(int64_t more) {
    static const uint64_t count[3] = {8, 5, 20};
    const int64_t stride[3] = {6 * 32 + more, 32, 1};
    struct box ret = {.elements = 8 * 5 * 20};
    EXPECT(cairn_strided_make(1, 3, count, stride, &ret.strided));
    return ret;
}

/* Into a device that has no memory to spare: with it, short rows are scattered there. */
static void copy_in(const struct cairn_client_device *device, const struct box *box, uint64_t at,
                    uint64_t size, struct fake_cuda_state *ret) {
    struct cairn_error err = {0};
    memset(wanted, 7, sizeof wanted);
    void *target = cairn_cuda_filled(0, wanted, BYTES);
    cairn_strided_scatter(&box->strided, wanted, at, numbers, size);
    memcpy(got, numbers, size);
    cairn_cuda.reset();
    cairn_cuda.room(BYTES); /* none for a scratch */
    EXPECT_CODE(copy(device, box, target, got, at, size, true, &err), CAIRN_OK);
    cairn_cuda.state(ret);
    cairn_cuda.reset();
    EXPECT_EQ_U64(cairn_cuda.copy(stored, target, BYTES, 2, NULL), 0);
    EXPECT(memcmp(stored, wanted, sizeof stored) == 0);
    cairn_cuda.release(target);
}

TEST(alike_planes_are_one_copy_where_they_are_whole_rows_apart_and_one_each_where_not, err) {
    struct cairn_client_device device = {0};
    struct fake_cuda_state state;
    REQUIRE(cairn_cuda_have_runtime());
    for (size_t i = 0; i < BYTES; i++) numbers[i] = (uint8_t)(i * 31 + i / 256);
    REQUIRE_OK(cairn_client_device_open(&device, &err));
    EACH(it, FIELDS(int64_t more; uint64_t at, bytes; unsigned copies, rows, planes),
         {0, 0, 800, 1, 0, 1},   /* all */
         {32, 0, 800, 1, 0, 1},  /* a row further apart */
         {4, 0, 800, 8, 8, 0},   /* no whole rows */
         {0, 40, 720, 3, 2, 1},  /* three rows, six planes, three rows */
         {0, 150, 170, 4, 2, 0}, /* half a row, two rows, a plane, a row */
         {0, 100, 100, 1, 1, 0},
         /* one plane */) {
        struct box box = planes_of(it->more);
        copy_in(&device, &box, it->at, it->bytes, &state);
        EXPECT_ALL_U64(state.copies, it->copies, state.rows_copies, it->rows, state.planes_copies,
                       it->planes);
    }
    static const uint64_t count[4] = {3, 4, 5, 20};
    static const int64_t stride[4] = {5 * 6 * 32, 6 * 32, 32, 1};
    struct box box = {.elements = 1200}; /* of each five planes four */
    EXPECT(cairn_strided_make(1, 4, count, stride, &box.strided));
    copy_in(&device, &box, 0, 1200, &state);
    EXPECT_ALL_U64(state.copies, 3, state.planes_copies, 3);
    cairn_cuda.reset();
    box = planes_of(0);
    void *target = cairn_cuda_filled(0, numbers, BYTES);
    cairn_cuda.room(BYTES);
    cairn_cuda.fail("Memcpy3DAsync", 0, 1, 0);
    EXPECT_FAILS(copy(&device, &box, target, got, 0, 800, true, &err), CAIRN_IO,
                 "cudaMemcpy3DAsync: cudaError");
    EXPECT_CODE(copy(&device, &box, target, got, 0, 800, true, &err), CAIRN_OK);
    cairn_client_device_release(&device);
    cairn_cuda.release(target);
}

/* What is kept goes with a job that fails, but not from under another one. */
TEST(a_job_that_fails_leaves_the_kernels_to_one_that_is_under_way, err) {
    struct cairn_client_device device = {0};
    struct cairn_device_job *job = NULL;
    struct fake_cuda_state state;
    struct box box = planes_of(4);
    NEEDS_KERNELS();
    for (size_t i = 0; i < BYTES; i++) numbers[i] = (uint8_t)(i * 31 + i / 256);
    void *memory = cairn_cuda_filled(0, numbers, BYTES);
    REQUIRE_OK(cairn_client_device_open(&device, &err));
    cairn_strided_gather(&box.strided, numbers, 0, wanted, 800);
    const struct cairn_device_job_options options = {.mark_count = 1, .host = stored, .bytes = 800};
    const struct cairn_device_part part = {
        .memory = memory, .strided = &box.strided, .bytes = 800, .host = stored};
    REQUIRE_OK(device.plugin->begin(device.handle, &options, &job, &err));
    EXPECT_CODE(device.plugin->copy(job, &part, &err), CAIRN_OK);
    cairn_cuda.fail("MemcpyAsync", 0, 1, 0);
    EXPECT_CODE(copy(&device, &box, memory, got, 0, 800, false, &err), CAIRN_IO);
    memset(stored, 0, sizeof stored);
    EXPECT_CODE(device.plugin->copy(job, &part, &err), CAIRN_OK);
    EXPECT_CODE(device.plugin->mark(job, 0, &err), CAIRN_OK);
    EXPECT_CODE(device.plugin->await(job, 0, &err), CAIRN_OK);
    EXPECT(memcmp(stored, wanted, 800) == 0);
    device.plugin->end(job);
    cairn_cuda.fail("MemcpyAsync", 0, 1, 0);
    EXPECT_CODE(copy(&device, &box, memory, got, 0, 800, false, &err), CAIRN_IO);
    cairn_cuda.state(&state);
    EXPECT_ALL_U64(state.modules, 0, state.streams, 0);
    EXPECT_CODE(copy(&device, &box, memory, got, 0, 800, false, &err), CAIRN_OK);
    EXPECT(memcmp(got, wanted, 800) == 0);
    cairn_client_device_release(&device);
    cairn_cuda.release(memory);
}

/* Rows of 16 KiB are copied from where they lie, and shorter ones by way of a scratch. */
TEST(long_rows_are_copied_by_the_copy_engines_and_short_ones_by_kernels_both_ways, err) {
    struct cairn_client_device device = {0};
    struct fake_cuda_state state;
    NEEDS_KERNELS();
    for (size_t i = 0; i < BYTES; i++) numbers[i] = (uint8_t)(i * 31 + i / 256);
    void *memory = cairn_cuda_filled(0, numbers, BYTES);
    REQUIRE_OK(cairn_client_device_open(&device, &err));
    EACH(one, FIELDS(uint64_t count[2]; int64_t stride[2]; unsigned rows_copies, gathers),
         {{3, 16384}, {20000, 1}, 1, 0}, {{4, 16380}, {16382, 1}, 0, 1},
         {{200, 100}, {300, 1}, 0, 1}, {{100, 300}, {1, 100}, 0, 1}) {
        struct box box = {.elements = one->count[0] * one->count[1]};
        EXPECT(cairn_strided_make(1, 2, one->count, one->stride, &box.strided));
        cairn_strided_gather(&box.strided, numbers, 0, wanted, box.elements);
        cairn_cuda.reset();
        EXPECT_CODE(copy(&device, &box, memory, got, 0, box.elements, false, &err), CAIRN_OK);
        EXPECT(memcmp(got, wanted, box.elements) == 0);
        cairn_cuda.state(&state);
        EXPECT_ALL_U64(state.rows_copies, one->rows_copies, state.gathers, one->gathers);
        memset(wanted, 7, sizeof wanted);
        cairn_strided_scatter(&box.strided, wanted, 0, got, box.elements);
        memset(stored, 7, sizeof stored);
        void *target = cairn_cuda_filled(0, stored, BYTES);
        EXPECT_CODE(copy(&device, &box, target, got, 0, box.elements, true, &err), CAIRN_OK);
        cairn_cuda.state(&state);
        EXPECT_EQ_U64(state.scatters, one->gathers);
        EXPECT_EQ_U64(cairn_cuda.copy(stored, target, BYTES, 2, NULL), 0);
        EXPECT(memcmp(stored, wanted, sizeof stored) == 0);
        cairn_cuda.release(target);
        cairn_strided_gather(&box.strided, numbers, 0, wanted, box.elements);
        cairn_client_device_release(&device); /* and what it keeps of the device's memory */
        REQUIRE_OK(cairn_client_device_open(&device, &err));
        cairn_cuda.room(BYTES);
        EXPECT_CODE(copy(&device, &box, memory, got, 0, box.elements, false, &err), CAIRN_OK);
        EXPECT(memcmp(got, wanted, box.elements) == 0);
    }
    cairn_cuda.reset();
    cairn_client_device_release(&device);
    cairn_cuda.release(memory);
}
