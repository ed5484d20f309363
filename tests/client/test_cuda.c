/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* The plug-in for CUDA, through the public calls, over a runtime without a GPU (fake_cuda.h). */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/crc.h"
#include "tests/client/cuda.h"
#include "tests/client/staged.h"

#define ROWS 512
#define COLUMNS 384
#define BYTES (sizeof(uint32_t) * ROWS * COLUMNS)

static const uint64_t shape[2] = {ROWS, COLUMNS};

/* ---- what is saved ---- */

static struct cairn_tensor_piece on_device(const char *name, const void *source) {
    return (struct cairn_tensor_piece){.size = sizeof(struct cairn_tensor_piece),
                                       .name = name,
                                       .dtype = "U32",
                                       .dimension_count = 2,
                                       .shape = shape,
                                       .kind = CAIRN_LOCAL,
                                       .source = source,
                                       .source_bytes = BYTES,
                                       .memory = CAIRN_MEMORY_CUDA};
}

static uint32_t numbers[ROWS * COLUMNS], turned[ROWS * COLUMNS], host[ROWS * COLUMNS];

static void fill_numbers(void) {
    for (size_t i = 0; i < ROWS * COLUMNS; i++) numbers[i] = (uint32_t)i * 2654435761u;
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        turned[i] = numbers[i % COLUMNS * ROWS + i / COLUMNS];
}

/* ---- tests ---- */

/* First, before this process has a runtime. */
TEST(a_piece_on_a_device_is_refused_where_there_is_no_runtime_and_host_pieces_are_saved) {
    struct cairn_error err = {0};
    CAIRN_AUTO(rank) rank = {0};
    void *real = dlopen("libcudart.so.13", RTLD_NOW);
    if (real) dlclose(real);
    if (real) return; /* a machine with CUDA */
    struct cairn_save *save = NULL;
    REQUIRE_OK(rank_open(&rank, 2, &err));
    REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
    const struct cairn_tensor_piece piece = on_device("w", numbers);
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_UNSUPPORTED);
    EXPECT(strstr(err.message, "no CUDA runtime") != NULL);
    EXPECT_CODE(rank_add(save, "h", numbers, 16, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
    cairn_save_free(save);
}

TEST(memory_of_devices_is_copied_behind_what_their_streams_had) {
    struct cairn_error err = {0};
    struct cairn_save *save = NULL;
    struct fake_cuda_state state;
    void *stream = NULL;
    static const int64_t strides[2] = {1, ROWS};
    int device = -1;
    REQUIRE(cairn_cuda_have_runtime());
    fill_numbers();
    memset(host, 7, sizeof host);
    void *late = cairn_cuda_filled(0, host, BYTES), *other = cairn_cuda_filled(1, numbers, BYTES);
    REQUIRE(cairn_cuda.make_stream(&stream, 1) == 0);
    {
        CAIRN_AUTO(rank) rank = {0};
        REQUIRE_OK(rank_open(&rank, 2, &err));
        REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
        struct cairn_tensor_piece piece = on_device("late", late);
        piece.stream = stream;
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        piece = on_device("turned", other);
        piece.source_stride = strides;
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        piece = on_device("host", host);
        piece.memory = CAIRN_MEMORY_HOST;
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        cairn_cuda.write_later(stream, late, numbers, BYTES, 100); /* the trainer's kernel */
        EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
        const uint8_t *at = cairn_staged_tensor(rank.fake, "late", 1);
        EXPECT(at && memcmp(at, numbers, BYTES) == 0);
        at = cairn_staged_tensor(rank.fake, "turned", 1);
        EXPECT(at && memcmp(at, turned, BYTES) == 0);
        at = cairn_staged_tensor(rank.fake, "host", 1);
        EXPECT(at && memcmp(at, host, BYTES) == 0);
        EXPECT(cairn_cuda_sums_are_right(&rank, 1));
        cairn_save_free(save);
        cairn_cuda.state(&state);
        EXPECT_EQ_U64(state.pageable_copies, 0);
        EXPECT(state.rows_copies >= ROWS || state.gathers > 0); /* without nvcc; with it */
        EXPECT_EQ_U64(state.registered, 1); /* of two generations, the one that was used */
        EXPECT_EQ_U64(state.streams, 5);    /* the trainer's, and two that are kept a device */
        EXPECT(cairn_cuda.get_device(&device) == 0 && device == 0);
        EXPECT_EQ_U64(cairn_cuda.get_last_error(), 0);
    }
    EXPECT_EQ_U64(cairn_cuda.end_stream(stream), 0);
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(late);
    cairn_cuda.release(other);
}

/* The trainer's stream: a kernel that writes the tensor, the save, and the optimizer's step. */
TEST(p4_what_a_stream_does_behind_its_fence_changes_nothing_of_what_is_saved) { /* P4 */
    struct cairn_error err = {0};
    void *stream = NULL;
    REQUIRE(cairn_cuda_have_runtime());
    fill_numbers();
    memset(host, 7, sizeof host);
    void *memory = cairn_cuda_filled(0, host, BYTES), *other = cairn_cuda_filled(1, host, BYTES);
    REQUIRE(cairn_cuda.make_stream(&stream, 1) == 0);
    cairn_cuda.slow(100000);
    for (uint64_t step = 1; step <= 3; step++) {
        CAIRN_AUTO(rank) rank = {0};
        struct cairn_save *save = NULL;
        REQUIRE_OK(rank_open(&rank, 2, &err));
        REQUIRE_OK(cairn_save_begin(rank.session, step, NULL, &save, &err));
        struct cairn_tensor_piece piece = on_device("w", memory);
        piece.stream = stream;
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        piece = on_device("other", other); /* in another context than the stream */
        EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
        cairn_cuda.write_later(stream, memory, numbers, BYTES, 30);
        EXPECT_CODE(cairn_save_stage_begin(save, &err), CAIRN_OK);
        EXPECT_CODE(cairn_save_fence_stream(save, stream, &err), CAIRN_OK);
        cairn_cuda.write_later(stream, memory, host, BYTES, 0);
        EXPECT_CODE(cairn_save_fence(save, 0, &err), CAIRN_OK);
        EXPECT_CODE(cairn_save_fence_stream(save, stream, &err), CAIRN_OK); /* all is copied */
        EXPECT_CODE(cairn_save_wait(save, CAIRN_STAGED, 0, &err), CAIRN_OK);
        const uint8_t *at = cairn_staged_tensor(rank.fake, "w", 1);
        EXPECT(at && memcmp(at, numbers, BYTES) == 0);
        EXPECT(cairn_cuda_sums_are_right(&rank, 1));
        cairn_save_free(save);
    }
    cairn_cuda.slow(0);
    EXPECT_EQ_U64(cairn_cuda.end_stream(stream), 0);
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(memory);
    cairn_cuda.release(other);
}

TEST(a_slab_is_page_locked_once_and_where_that_fails_the_save_is_whole_and_it_is_said_once) {
    struct cairn_error err = {0};
    struct fake_cuda_state state;
    REQUIRE(cairn_cuda_have_runtime());
    fill_numbers();
    void *memory = cairn_cuda_filled(0, numbers, BYTES);
    {
        CAIRN_AUTO(rank) rank = {0};
        REQUIRE_OK(rank_open(&rank, 1, &err));
        const struct cairn_tensor_piece piece = on_device("w", memory);
        cairn_cuda.fail("HostRegister", 0, 801, 0);
        EXPECT_CODE(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_OK);
        const uint8_t *at = cairn_staged_tensor(rank.fake, "w", 1);
        EXPECT(at && memcmp(at, numbers, BYTES) == 0);
        cairn_cuda.state(&state);
        EXPECT_EQ_U64(state.pageable_copies, state.copies);
        EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_UNAVAILABLE);
        EXPECT(strstr(err.message, "not page-locked") != NULL);
        EXPECT(strstr(err.message, "cudaErrorNotSupported") != NULL);
        EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK);
        EXPECT_EQ_U64(cairn_cuda.get_last_error(), 0);
    }
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(memory);
}

TEST(a_slab_that_is_used_again_is_not_page_locked_again) {
    struct cairn_error err = {0};
    struct fake_cuda_state state;
    REQUIRE(cairn_cuda_have_runtime());
    fill_numbers();
    void *memory = cairn_cuda_filled(0, numbers, BYTES);
    {
        CAIRN_AUTO(rank) rank = {0};
        const struct cairn_tensor_piece piece = on_device("w", memory);
        cairn_cuda.reset();
        REQUIRE_OK(rank_open(&rank, 1, &err));
        for (int number = 1; number <= 3; number++) {
            EXPECT_CODE(cairn_cuda_save_one(rank.session, (uint64_t)number, &piece, &err),
                        CAIRN_OK);
            cairn_fake_uploader_event(
                rank.fake, json_pack("{s:s, s:i, s:i}", "t", "free", "slab", 0, "owner", number));
        }
        cairn_cuda.state(&state);
        EXPECT_EQ_U64(state.registered, 1);
        EXPECT_EQ_U64(state.pageable_copies, 0);
        /* The runtime refuses memory that is page-locked, which would be said here. */
        EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK);
    }
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(memory);
}

static void fail_and_recover(const char *call, unsigned after, int status, enum cairn_code code) {
    struct cairn_error err = {0};
    CAIRN_AUTO(rank) rank = {0};
    void *memory = cairn_cuda_filled(0, numbers, BYTES);
    const struct cairn_tensor_piece piece = on_device("w", memory);
    cairn_cuda.reset();
    REQUIRE_OK(rank_open(&rank, 2, &err));
    cairn_cuda.fail(call, after, status, 0);
    EXPECT_CODE(cairn_cuda_save_one(rank.session, 1, &piece, &err), code);
    EXPECT(strstr(err.message, "cudaError") != NULL);
    EXPECT_EQ_U64(cairn_cuda.get_last_error(), 0); /* the trainer finds no error of ours */
    EXPECT_CODE(cairn_cuda_save_one(rank.session, 2, &piece, &err), CAIRN_OK);
    cairn_cuda.release(memory);
}

TEST(an_error_that_passes_fails_one_save_with_its_name_and_the_next_is_whole) {
    REQUIRE(cairn_cuda_have_runtime());
    fail_and_recover("StreamCreateWithPriority", 0, 2, CAIRN_NO_MEMORY);
    fail_and_recover("StreamCreateWithPriority", 1, 2, CAIRN_NO_MEMORY);
    fail_and_recover("EventCreateWithFlags", 0, 2, CAIRN_NO_MEMORY);
    fail_and_recover("EventCreateWithFlags", 1, 2, CAIRN_NO_MEMORY);
    fail_and_recover("MemcpyAsync", 0, 1, CAIRN_IO);
    fail_and_recover("EventSynchronize", 0, 1, CAIRN_IO);
    fail_and_recover("StreamWaitEvent", 0, 1, CAIRN_IO);
    cairn_cuda_expect_nothing_left();
}

/* At the call, and when the stream comes to the copy. */
TEST(a_sticky_error_fails_the_save_with_its_name_and_host_saves_go_on) {
    static const char *const calls[] = {"MemcpyAsync", "execute"};
    REQUIRE(cairn_cuda_have_runtime());
    fill_numbers();
    for (size_t i = 0; i < CAIRN_COUNT(calls); i++) {
        struct cairn_error err = {0};
        CAIRN_AUTO(rank) rank = {0};
        struct cairn_save *save = NULL;
        void *memory = cairn_cuda_filled(0, numbers, BYTES);
        const struct cairn_tensor_piece piece = on_device("w", memory);
        REQUIRE_OK(rank_open(&rank, 2, &err));
        cairn_cuda.fail(calls[i], 0, 700, 1);
        EXPECT_CODE(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_IO);
        EXPECT(strstr(err.message, "cudaErrorIllegalAddress (700)") != NULL);
        EXPECT_CODE(cairn_cuda_save_one(rank.session, 2, &piece, &err), CAIRN_IO);
        EXPECT_CODE(rank_save(rank.session, 3, &save, &err), CAIRN_OK);
        cairn_save_free(save);
        cairn_cuda.reset();
        cairn_cuda.release(memory);
    }
}

TEST(host_memory_that_is_called_a_devices_is_refused) {
    struct cairn_error err = {0};
    CAIRN_AUTO(rank) rank = {0};
    REQUIRE(cairn_cuda_have_runtime());
    REQUIRE_OK(rank_open(&rank, 2, &err));
    const struct cairn_tensor_piece piece = on_device("w", host);
    EXPECT_CODE(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_INVALID);
    EXPECT(strstr(err.message, "tensor w: the source is not memory of a CUDA device") != NULL);
}

/* ---- large pieces: several segments, several threads ---- */

#define LARGE_BYTES (100 * CAIRN_MIB)

struct watch {
    struct cairn_rank *rank;
    uint64_t first_ms;
};

static void *watch_staged(void *argument) {
    struct watch *watch = argument;
    (void)COMES(cairn_fake_uploader_count(watch->rank->fake, "staged"));
    watch->first_ms = cairn_mono_ms();
    return NULL;
}

TEST(parts_are_told_while_later_chunks_are_copied_and_no_other_devices_context_is_opened) {
    struct cairn_error err = {0};
    struct fake_cuda_state state;
    static const uint64_t large[1] = {LARGE_BYTES};
    CAIRN_AUTO_HEAP uint8_t *bytes = malloc(LARGE_BYTES);
    REQUIRE(bytes != NULL);
    for (size_t i = 0; i < LARGE_BYTES; i++) bytes[i] = (uint8_t)(i * 31 >> 7);
    REQUIRE(cairn_cuda_have_runtime());
    void *memory = cairn_cuda_filled(1, bytes, LARGE_BYTES);
    REQUIRE(cairn_cuda.set_device(1) == 0);
    for (uint32_t threads = 1; threads <= 8; threads += 7) {
        CAIRN_AUTO(rank) rank = {0};
        struct watch watch = {.rank = &rank};
        pthread_t watcher;
        REQUIRE_OK(rank_uploader(&rank, 1, &err));
        struct cairn_open_options options = rank_options(&rank);
        options.bytes = LARGE_BYTES + CAIRN_MIB;
        options.copy_threads = threads;
        REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err));
        struct cairn_tensor_piece piece = on_device("large", memory);
        piece.dtype = "U8", piece.dimension_count = 1, piece.shape = large;
        piece.source_bytes = LARGE_BYTES;
        cairn_cuda.reset();
        cairn_cuda.slow(50000);
        REQUIRE(!pthread_create(&watcher, NULL, watch_staged, &watch));
        EXPECT_CODE(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_OK);
        uint64_t ended_ms = cairn_mono_ms();
        pthread_join(watcher, NULL);
        EXPECT(watch.first_ms + 100 < ended_ms); /* 7 chunks of 50 ms */
        const uint8_t *at = cairn_staged_tensor(rank.fake, "large", 1);
        EXPECT(at && memcmp(at, bytes, LARGE_BYTES) == 0);
        EXPECT(cairn_cuda_sums_are_right(&rank, 1));
        cairn_cuda.state(&state);
        EXPECT(state.ahead_most > 1);
        EXPECT_EQ_U64(state.contexts & 1, 0);
    }
    cairn_cuda.reset();
    EXPECT_EQ_U64(cairn_cuda.set_device(0), 0);
    cairn_cuda.release(memory);
}

/* ---- restore ---- */

#define STORED_BYTES (21 * CAIRN_MIB + 12345)

/* A version with one shard of these bytes. */
static enum cairn_code serve(struct cairn_rank *rank, const uint8_t *stored,
                             struct cairn_staged_version *version, struct cairn_error *err) {
    const struct cairn_staged_raw raw = {"a", {(const char *)stored, STORED_BYTES}};
    CAIRN_TRY(rank_open(rank, 1, err));
    return cairn_staged_serve_raw(version, rank->fake, &raw, 1, err);
}

TEST(a_model_is_restored_into_memory_of_devices_behind_what_their_streams_had) /* restore.h#4, #3 */
{
    struct cairn_error err = {0};
    struct fake_cuda_state state;
    CAIRN_AUTO_HEAP uint8_t *stored = malloc(STORED_BYTES), *got = calloc(1, STORED_BYTES);
    void *stream = NULL, *into = NULL;
    REQUIRE(stored && got && cairn_cuda_have_runtime());
    for (size_t i = 0; i < STORED_BYTES; i++) stored[i] = (uint8_t)(i ^ i >> 8 ^ i >> 16);
    REQUIRE(cairn_cuda.make(&into, STORED_BYTES) == 0);
    REQUIRE(cairn_cuda.make_stream(&stream, 1) == 0);
    {
        CAIRN_AUTO(rank) rank = {0};
        CAIRN_AUTO(staged_version) version = {0};
        struct cairn_restore *restore = NULL;
        uint8_t part[100] = {0};
        REQUIRE_OK(serve(&rank, stored, &version, &err));
        REQUIRE_OK(cairn_restore_open(rank.session, NULL, &restore, NULL, &err));
        const struct cairn_read whole = {.size = sizeof whole,
                                         .shard = "a",
                                         .bytes = UINT64_MAX,
                                         .into = into,
                                         .into_bytes = STORED_BYTES,
                                         .memory = CAIRN_MEMORY_CUDA,
                                         .stream = stream};
        const struct cairn_read some = {.size = sizeof some,
                                        .shard = "a",
                                        .offset = 1000,
                                        .bytes = sizeof part,
                                        .into = part,
                                        .into_bytes = sizeof part};
        const struct cairn_read reads[2] = {whole, some};
        cairn_cuda.write_later(stream, into, got, STORED_BYTES,
                               100); /* the trainer's last use of it */
        cairn_cuda.slow(20000);
        EXPECT_CODE(cairn_restore_read(restore, reads, 2, 0, &err), CAIRN_OK);
        cairn_cuda.state(&state);
        EXPECT_EQ_U64(state.registered, 1); /* the window */
        EXPECT_EQ_U64(state.pageable_copies, 0);
        EXPECT_EQ_U64(cairn_cuda.copy(got, into, STORED_BYTES, 2, stream), 0);
        EXPECT(memcmp(got, stored, STORED_BYTES) == 0);
        EXPECT(memcmp(part, stored + 1000, sizeof part) == 0);
        cairn_restore_free(restore);
    }
    EXPECT_EQ_U64(cairn_cuda.end_stream(stream), 0);
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(into);
}

TEST(a_window_that_a_device_does_not_take_is_said_once_with_its_cost_and_the_read_is_whole) {
    CAIRN_AUTO_HEAP uint8_t *stored = calloc(1, STORED_BYTES);
    struct cairn_error err = {0};
    struct fake_cuda_state state;
    struct cairn_restore *restore = NULL;
    CAIRN_AUTO(rank) rank = {0};
    CAIRN_AUTO(staged_version) version = {0};
    void *into = NULL;
    REQUIRE(stored && cairn_cuda_have_runtime());
    REQUIRE(cairn_cuda.make(&into, STORED_BYTES) == 0);
    cairn_cuda.without_read_only(1);
    REQUIRE_OK(serve(&rank, stored, &version, &err));
    REQUIRE_OK(cairn_restore_open(rank.session, NULL, &restore, NULL, &err));
    const struct cairn_read read = {.size = sizeof read,
                                    .shard = "a",
                                    .bytes = UINT64_MAX,
                                    .into = into,
                                    .into_bytes = STORED_BYTES,
                                    .memory = CAIRN_MEMORY_CUDA};
    for (int round = 0; round < 2; round++) {
        EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_OK);
        EXPECT_CODE(cairn_session_problem(rank.session, &err),
                    round ? CAIRN_OK : CAIRN_UNAVAILABLE);
        if (round) continue;
        EXPECT(strstr(err.message, "the memory of restores is not page-locked") != NULL);
        EXPECT(strstr(err.message, "device 0 takes no memory that is mapped to be read") != NULL);
    }
    cairn_cuda.state(&state);
    EXPECT_EQ_U64(state.pageable_copies, state.copies);
    EXPECT_EQ_U64(state.registered, 0);
    cairn_restore_free(restore);
    cairn_cuda.release(into);
}

TEST(a_sticky_error_fails_a_read_into_a_device_with_its_name_and_host_reads_go_on) /* restore.h#4 */
{
    static const char *const calls[] = {"HostRegister", "MemcpyAsync", "execute"};
    CAIRN_AUTO_HEAP uint8_t *stored = calloc(1, STORED_BYTES), *got = malloc(STORED_BYTES);
    REQUIRE(stored && got && cairn_cuda_have_runtime());
    for (size_t i = 0; i < CAIRN_COUNT(calls); i++) {
        struct cairn_error err = {0};
        CAIRN_AUTO(rank) rank = {0};
        CAIRN_AUTO(staged_version) version = {0};
        struct cairn_restore *restore = NULL;
        void *into = NULL;
        REQUIRE(cairn_cuda.make(&into, STORED_BYTES) == 0);
        REQUIRE_OK(serve(&rank, stored, &version, &err));
        REQUIRE_OK(cairn_restore_open(rank.session, NULL, &restore, NULL, &err));
        struct cairn_read read = {.size = sizeof read,
                                  .shard = "a",
                                  .bytes = UINT64_MAX,
                                  .into = into,
                                  .into_bytes = STORED_BYTES,
                                  .memory = CAIRN_MEMORY_CUDA};
        cairn_cuda.fail(calls[i], 0, i ? 700 : 801, i > 0);
        EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), i ? CAIRN_IO : CAIRN_OK);
        EXPECT(!i || strstr(err.message, "cudaErrorIllegalAddress") != NULL);
        read.memory = CAIRN_MEMORY_HOST;
        read.into = got;
        EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_OK);
        EXPECT(memcmp(got, stored, STORED_BYTES) == 0);
        read.memory = CAIRN_MEMORY_CUDA; /* and not of a device */
        if (!i) EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_INVALID);
        cairn_restore_free(restore);
        cairn_cuda.reset();
        cairn_cuda.release(into);
    }
}
