/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* The plug-in for CUDA, through the public calls, over a runtime without a GPU (fake_cuda.h). */
#include <dlfcn.h>

#include "tests/client/cuda.h"

#define ROWS 512
#define COLUMNS 384
#define BYTES (sizeof(uint32_t) * ROWS * COLUMNS)

static const uint64_t shape[2] = {ROWS, COLUMNS};

/* ---- what is saved ---- */

static struct cairn_tensor_piece on_device(const char *name, const void *source) {
    return SIZED(cairn_tensor_piece, .name = name, .dtype = "U32", .dimension_count = 2,
                 .shape = shape, .kind = CAIRN_LOCAL, .source = source, .source_bytes = BYTES,
                 .memory = CAIRN_MEMORY_CUDA);
}

static uint32_t numbers[ROWS * COLUMNS], turned[ROWS * COLUMNS], host[ROWS * COLUMNS];

static void fill_numbers(void) {
    for (size_t i = 0; i < ROWS * COLUMNS; i++) numbers[i] = (uint32_t)i * 2654435761u;
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        turned[i] = numbers[i % COLUMNS * ROWS + i / COLUMNS];
}

/* ---- tests ---- */

/* First, before this process has a runtime. */
TEST(a_piece_on_a_device_is_refused_where_there_is_no_runtime_and_host_pieces_are_saved, err) {
    CAIRN_AUTO(rank) rank = {0};
    void *real = dlopen("libcudart.so.13", RTLD_NOW);
    if (real) dlclose(real);
    if (real) return; /* a machine with CUDA */
    REQUIRE_OK(rank_open(&rank, 2, &err));
    BEGUN(save, 1);
    const struct cairn_tensor_piece piece = on_device("w", numbers);
    EXPECT_FAILS(cairn_save_tensor(save, &piece, &err), CAIRN_UNSUPPORTED, "no CUDA runtime");
    EXPECT_CODE(rank_add(save, "h", numbers, 16, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
}

TEST(memory_of_devices_is_copied_behind_what_their_streams_had, err) {
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
TEST(p4_what_a_stream_does_behind_its_fence_changes_nothing_of_what_is_saved, err) { /* P4 */
    void *stream = NULL;
    REQUIRE(cairn_cuda_have_runtime());
    fill_numbers();
    memset(host, 7, sizeof host);
    void *memory = cairn_cuda_filled(0, host, BYTES), *other = cairn_cuda_filled(1, host, BYTES);
    REQUIRE(cairn_cuda.make_stream(&stream, 1) == 0);
    cairn_cuda.slow(100000);
    for (uint64_t step = 1; step <= 3; step++) {
        CAIRN_AUTO(rank) rank = {0};
        REQUIRE_OK(rank_open(&rank, 2, &err));
        BEGUN(save, step);
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
    }
    cairn_cuda.slow(0);
    EXPECT_EQ_U64(cairn_cuda.end_stream(stream), 0);
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(memory);
    cairn_cuda.release(other);
}

/* One of a few shows what one of many does; --full plays all of them. */
#ifdef __SANITIZE_THREAD__
#define FENCED (getenv("CAIRN_TEST_SLOW") ? 1000 : 60)
#else
#define FENCED (getenv("CAIRN_TEST_SLOW") ? 1000 : 200)
#endif
#define FENCED_IN_ROW 50 /* of one session: a scripted uploader remembers all that it was told */

/* A kernel writes the tensor, the save is begun, and the optimizer's kernel overwrites it behind
 * the fence; each save's copies take another time. */
static enum cairn_code save_fenced(struct cairn_rank *rank, const struct cairn_tensor_piece *piece,
                                   uint64_t step, const uint32_t *content,
                                   struct cairn_error *err) {
    AUTO_SAVE *save = NULL;
    void *memory = (void *)(uintptr_t)piece->source;
    cairn_cuda.slow((unsigned)(step % 4) * 400);
    CAIRN_TRY(cairn_save_begin(rank->session, step, NULL, &save, err));
    CAIRN_TRY(cairn_save_tensor(save, piece, err));
    cairn_cuda.write_later(piece->stream, memory, content, BYTES, 0);
    CAIRN_TRY(cairn_save_stage_begin(save, err));
    CAIRN_TRY(cairn_save_fence_stream(save, piece->stream, err));
    cairn_cuda.write_later(piece->stream, memory, host, BYTES, 0);
    return cairn_save_wait(save, CAIRN_STAGED, 0, err);
}

TEST(p4_kernels_behind_the_fences_of_many_saves_change_nothing_of_what_is_saved) { /* P4 */
    struct cairn_error err = {0};
    void *stream = NULL;
    REQUIRE(cairn_cuda_have_runtime());
    fill_numbers();
    memset(host, 7, sizeof host);
    void *memory = cairn_cuda_filled(0, host, BYTES);
    REQUIRE(cairn_cuda.make_stream(&stream, 1) == 0);
    struct cairn_tensor_piece piece = on_device("w", memory);
    piece.stream = stream;
    for (int done = 0; done < FENCED; done += FENCED_IN_ROW) {
        CAIRN_AUTO(rank) rank = {0};
        REQUIRE_OK(rank_open(&rank, 1, &err));
        for (uint64_t step = 1; step <= FENCED_IN_ROW; step++) {
            const uint32_t *content = step % 2 ? numbers : turned;
            REQUIRE_OK(save_fenced(&rank, &piece, step, content, &err));
            const uint8_t *at = cairn_staged_tensor(rank.fake, "w", step);
            REQUIRE(at && memcmp(at, content, BYTES) == 0);
            cairn_fake_uploader_event(rank.fake, json_pack("{s:s, s:i, s:I}", "t", "free", "slab",
                                                           0, "owner", (json_int_t)step));
        }
    }
    cairn_cuda.slow(0);
    EXPECT_EQ_U64(cairn_cuda.end_stream(stream), 0);
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(memory);
}

TEST(a_slab_is_page_locked_once_and_where_that_fails_the_save_is_whole_and_it_is_said_once, err) {
    struct fake_cuda_state state;
    fill_numbers();
    DEVICE(void, memory, 0, numbers, BYTES);
    CAIRN_AUTO(rank) rank = {0};
    REQUIRE_OK(rank_open(&rank, 1, &err));
    const struct cairn_tensor_piece piece = on_device("w", memory);
    cairn_cuda.fail("HostRegister", 0, 801, 0);
    EXPECT_CODE(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_OK);
    const uint8_t *at = cairn_staged_tensor(rank.fake, "w", 1);
    EXPECT(at && memcmp(at, numbers, BYTES) == 0);
    cairn_cuda.state(&state);
    EXPECT_EQ_U64(state.pageable_copies, state.copies);
    EXPECT_FAILS(cairn_session_problem(rank.session, &err), CAIRN_UNAVAILABLE, "not page-locked");
    EXPECT(strstr(err.message, "cudaErrorNotSupported") != NULL);
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_cuda.get_last_error(), 0);
}

TEST(a_slab_that_is_used_again_is_not_page_locked_again_nor_are_streams_and_events_made_again,
     err) {
    struct fake_cuda_state state;
    unsigned made = 0;
    fill_numbers();
    DEVICE(void, memory, 0, numbers, BYTES);
    CAIRN_AUTO(rank) rank = {0};
    const struct cairn_tensor_piece piece = on_device("w", memory);
    cairn_cuda.reset();
    REQUIRE_OK(rank_open(&rank, 1, &err));
    for (int number = 1; number <= 3; number++) {
        EXPECT_CODE(cairn_cuda_save_one(rank.session, (uint64_t)number, &piece, &err), CAIRN_OK);
        cairn_fake_uploader_event(
            rank.fake, json_pack("{s:s, s:i, s:i}", "t", "free", "slab", 0, "owner", number));
        cairn_cuda.state(&state);
        if (number == 1) made = state.made;
        EXPECT_EQ_U64(state.made, made);
    }
    EXPECT(made > 0);
    EXPECT_ALL_U64(state.registered, 1, state.pageable_copies, 0);
    /* The runtime refuses memory that is page-locked, which would be said here. */
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK);
}

TEST(memory_that_is_reserved_once_a_device_is_known_is_page_locked_before_a_save_needs_it, err) {
    struct fake_cuda_state state;
    fill_numbers();
    DEVICE(void, memory, 0, numbers, BYTES);
    CAIRN_AUTO(rank) rank = {0};
    const struct cairn_tensor_piece piece = on_device("w", memory);
    cairn_cuda.reset();
    REQUIRE_OK(rank_open(&rank, 2, &err));
    EXPECT_CODE(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_OK);
    cairn_fake_uploader_event(rank.fake,
                              json_pack("{s:s, s:i, s:i}", "t", "free", "slab", 0, "owner", 1));
    REQUIRE_OK(cairn_session_reserve(rank.session, RANK_BYTES, 0, HANG_MS, &err));
    cairn_cuda.state(&state);
    EXPECT_EQ_U64(state.registered, 2);
    cairn_cuda.fail("HostRegister", 0, 801, 1); /* no save makes this call */
    EXPECT_CODE(cairn_cuda_save_one(rank.session, 2, &piece, &err), CAIRN_OK);
    EXPECT_CODE(cairn_cuda_save_one(rank.session, 3, &piece, &err), CAIRN_OK);
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK);
    cairn_cuda.reset();
}

/* The fake's devices are each next to a node of their own. */
TEST(memory_that_is_reserved_once_a_device_is_known_is_asked_for_of_its_numa_node, err) {
    REQUIRE(cairn_cuda_have_runtime());
    fill_numbers();
    EACH(one, FIELDS(int first, second; int64_t node; /* -1: none is said */ const char *fails),
         {1, 1, 1, NULL}, {0, 1, -1, NULL}, {1, 1, -1, "DeviceGetAttribute"}) {
        CAIRN_AUTO(rank) rank = {0};
        struct cairn_fake_message asked;
        void *memory[2] = {cairn_cuda_filled(one->first, numbers, BYTES),
                           cairn_cuda_filled(one->second, numbers, BYTES)};
        cairn_cuda.reset();
        REQUIRE_OK(rank_open(&rank, 2, &err));
        for (int k = 0; k < 2; k++) {
            const struct cairn_tensor_piece piece = on_device("w", memory[k]);
            EXPECT_CODE(cairn_cuda_save_one(rank.session, (uint64_t)k + 1, &piece, &err), CAIRN_OK);
            REQUIRE(cairn_fake_uploader_saw(rank.fake, "stage", (size_t)k + 1, &asked));
            cairn_fake_uploader_event(rank.fake, json_pack("{s:s, s:O, s:i}", "t", "free", "slab",
                                                           json_object_get(asked.message, "slab"),
                                                           "owner", k + 1));
        }
        if (one->fails) cairn_cuda.fail(one->fails, 0, 1, 0);
        REQUIRE_OK(cairn_session_reserve(rank.session, RANK_BYTES, 0, HANG_MS, &err));
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "slabs", 2, &asked));
        const json_t *node = json_object_get(asked.message, "numa_node");
        EXPECT_EQ_U64(node != NULL, one->node >= 0);
        if (node) EXPECT_EQ_U64((uint64_t)json_integer_value(node), (uint64_t)one->node);
        EXPECT_EQ_U64(cairn_cuda.get_last_error(), 0);
        cairn_cuda.release(memory[0]);
        cairn_cuda.release(memory[1]);
    }
    cairn_cuda.reset();
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
    REQUIRE(cairn_cuda_have_runtime());
    fill_numbers();
    EACH_TEXT(text, "MemcpyAsync", "execute") {
        RANK(2);
        AUTO_SAVE *save = NULL;
        void *memory = cairn_cuda_filled(0, numbers, BYTES);
        const struct cairn_tensor_piece piece = on_device("w", memory);
        cairn_cuda.fail(text, 0, 700, 1);
        EXPECT_FAILS(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_IO,
                     "cudaErrorIllegalAddress (700)");
        EXPECT_CODE(cairn_cuda_save_one(rank.session, 2, &piece, &err), CAIRN_IO);
        EXPECT_CODE(rank_save(rank.session, 3, &save, &err), CAIRN_OK);
        cairn_cuda.reset();
        cairn_cuda.release(memory);
    }
}

TEST(host_memory_that_is_called_a_devices_is_refused, err) {
    CAIRN_AUTO(rank) rank = {0};
    REQUIRE(cairn_cuda_have_runtime());
    REQUIRE_OK(rank_open(&rank, 2, &err));
    const struct cairn_tensor_piece piece = on_device("w", host);
    EXPECT_FAILS(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_INVALID,
                 "tensor w: the source is not memory of a CUDA device");
}

/* ---- large pieces: several segments, several threads ---- */

#define LARGE_BYTES (100 * CAIRN_MIB)

#define LOOKS_MAX 20

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

TEST(parts_are_told_while_later_chunks_are_copied_and_no_other_devices_context_is_opened, err) {
    struct fake_cuda_state state;
    static const uint64_t large[1] = {LARGE_BYTES};
    CAIRN_AUTO_HEAP uint8_t *bytes = malloc(LARGE_BYTES);
    REQUIRE(bytes != NULL);
    for (size_t i = 0; i < LARGE_BYTES; i++) bytes[i] = (uint8_t)(i * 31 >> 7);
    REQUIRE(cairn_cuda_have_runtime());
    void *memory = cairn_cuda_filled(1, bytes, LARGE_BYTES);
    REQUIRE(cairn_cuda.set_device(1) == 0);
    /* A watcher that a busy machine lets look too late has seen nothing: it looks again. */
    bool early = false;
    for (uint32_t threads = 1, looks = 0; threads <= 8; threads += early ? 7 : 0, looks++) {
        CAIRN_AUTO(rank) rank = {0};
        struct watch watch = {.rank = &rank};
        pthread_t watcher;
        REQUIRE_OK(rank_uploader(&rank, 1, &err));
        RANK_OPENS(options.bytes = LARGE_BYTES + CAIRN_MIB, options.copy_threads = threads);
        struct cairn_tensor_piece piece = on_device("large", memory);
        piece.dtype = "U8", piece.dimension_count = 1, piece.shape = large;
        piece.source_bytes = LARGE_BYTES;
        cairn_cuda.reset();
        cairn_cuda.slow(50000);
        REQUIRE(!pthread_create(&watcher, NULL, watch_staged, &watch));
        EXPECT_CODE(cairn_cuda_save_one(rank.session, 1, &piece, &err), CAIRN_OK);
        uint64_t ended_ms = cairn_mono_ms();
        pthread_join(watcher, NULL);
        early = watch.first_ms + 100 < ended_ms; /* 7 chunks of 50 ms */
        REQUIRE(early || looks < LOOKS_MAX);
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
        AUTO_RESTORE *restore = NULL;
        uint8_t part[100] = {0};
        REQUIRE_OK(serve(&rank, stored, &version, &err));
        REQUIRE_OK(cairn_restore_open(rank.session, NULL, &restore, NULL, &err));
        const struct cairn_read whole =
            SIZED(cairn_read, .shard = "a", .bytes = UINT64_MAX, .into = into,
                  .into_bytes = STORED_BYTES, .memory = CAIRN_MEMORY_CUDA, .stream = stream);
        const struct cairn_read some =
            SIZED(cairn_read, .shard = "a", .offset = 1000, .bytes = sizeof part, .into = part,
                  .into_bytes = sizeof part);
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
    }
    EXPECT_EQ_U64(cairn_cuda.end_stream(stream), 0);
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(into);
}

TEST(a_window_that_a_device_does_not_take_is_said_once_with_its_cost_and_the_read_is_whole, err) {
    CAIRN_AUTO_HEAP uint8_t *stored = calloc(1, STORED_BYTES);
    struct fake_cuda_state state;
    AUTO_RESTORE *restore = NULL;
    CAIRN_AUTO(rank) rank = {0};
    CAIRN_AUTO(staged_version) version = {0};
    void *into = NULL;
    REQUIRE(stored && cairn_cuda_have_runtime());
    REQUIRE(cairn_cuda.make(&into, STORED_BYTES) == 0);
    cairn_cuda.without_read_only(1);
    REQUIRE_OK(serve(&rank, stored, &version, &err));
    cairn_rank_leave(&rank);
    cairn_fake_uploader_speaks(rank.fake, 7); /* it gives no writable window */
    RANK_OPENS();
    REQUIRE_OK(cairn_restore_open(rank.session, NULL, &restore, NULL, &err));
    const struct cairn_read read =
        SIZED(cairn_read, .shard = "a", .bytes = UINT64_MAX, .into = into,
              .into_bytes = STORED_BYTES, .memory = CAIRN_MEMORY_CUDA);
    for (int round = 0; round < 2; round++) {
        EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_OK);
        EXPECT_CODE(cairn_session_problem(rank.session, &err),
                    round ? CAIRN_OK : CAIRN_UNAVAILABLE);
        if (round) continue;
        EXPECT(strstr(err.message, "the memory of restores is not page-locked") != NULL);
        EXPECT(strstr(err.message, "device 0 takes no memory that is mapped to be read") != NULL);
    }
    cairn_cuda.state(&state);
    EXPECT_ALL_U64(state.pageable_copies, state.copies, state.registered, 0);
    cairn_cuda.release(into);
}

TEST(a_device_that_locks_no_memory_that_is_read_gets_a_window_that_may_be_written, err) {
    CAIRN_AUTO_HEAP uint8_t *stored = malloc(STORED_BYTES), *got = calloc(1, STORED_BYTES);
    struct fake_cuda_state state;
    AUTO_RESTORE *restore = NULL;
    CAIRN_AUTO(rank) rank = {0};
    CAIRN_AUTO(staged_version) version = {0};
    void *into = NULL;
    REQUIRE(stored && got && cairn_cuda_have_runtime());
    for (size_t i = 0; i < STORED_BYTES; i++) stored[i] = (uint8_t)(i ^ i >> 8 ^ i >> 16);
    REQUIRE(cairn_cuda.make(&into, STORED_BYTES) == 0);
    cairn_cuda.without_read_only(1);
    REQUIRE_OK(serve(&rank, stored, &version, &err));
    REQUIRE_OK(cairn_restore_open(rank.session, NULL, &restore, NULL, &err));
    struct cairn_read read = {.size = sizeof read,
                              .shard = "a",
                              .bytes = UINT64_MAX,
                              .into = got,
                              .into_bytes = STORED_BYTES};
    /* Reads into host memory have a window that only the uploader writes; it is replaced. */
    EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_OK);
    memset(got, 0, STORED_BYTES);
    read.into = into;
    read.memory = CAIRN_MEMORY_CUDA;
    for (int round = 0; round < 2; round++)
        EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_OK);
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "window"), 2);
    cairn_cuda.state(&state);
    EXPECT_EQ_U64(state.pageable_copies, 0);
    EXPECT_EQ_U64(state.registered, 1);
    EXPECT_EQ_U64(cairn_cuda.copy(got, into, STORED_BYTES, 2, NULL), 0);
    EXPECT(memcmp(got, stored, STORED_BYTES) == 0);
    cairn_cuda.release(into);
}

TEST(a_sticky_error_fails_a_read_into_a_device_with_its_name_and_host_reads_go_on) /* restore.h#4 */
{
    CAIRN_AUTO_HEAP uint8_t *stored = calloc(1, STORED_BYTES), *got = malloc(STORED_BYTES);
    REQUIRE(stored && got && cairn_cuda_have_runtime());
    EACH_TEXT(text, "HostRegister", "MemcpyAsync", "execute") {
        struct cairn_error err = {0};
        CAIRN_AUTO(rank) rank = {0};
        CAIRN_AUTO(staged_version) version = {0};
        AUTO_RESTORE *restore = NULL;
        void *into = NULL;
        REQUIRE(cairn_cuda.make(&into, STORED_BYTES) == 0);
        REQUIRE_OK(serve(&rank, stored, &version, &err));
        REQUIRE_OK(cairn_restore_open(rank.session, NULL, &restore, NULL, &err));
        struct cairn_read read = SIZED(cairn_read, .shard = "a", .bytes = UINT64_MAX, .into = into,
                                       .into_bytes = STORED_BYTES, .memory = CAIRN_MEMORY_CUDA);
        cairn_cuda.fail(text, 0, AT_OF(text) ? 700 : 801, AT_OF(text) > 0);
        EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err),
                    AT_OF(text) ? CAIRN_IO : CAIRN_OK);
        EXPECT(!AT_OF(text) || strstr(err.message, "cudaErrorIllegalAddress") != NULL);
        read.memory = CAIRN_MEMORY_HOST;
        read.into = got;
        EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_OK);
        EXPECT(memcmp(got, stored, STORED_BYTES) == 0);
        read.memory = CAIRN_MEMORY_CUDA; /* and not of a device */
        if (!AT_OF(text))
            EXPECT_CODE(cairn_restore_read(restore, &read, 1, 0, &err), CAIRN_INVALID);
        cairn_cuda.reset();
        cairn_cuda.release(into);
    }
}
