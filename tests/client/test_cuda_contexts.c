/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* What the plug-in leaves as it was: contexts of devices that the process does not use, the
 * contexts of its threads, and captures of graphs by others (fake_cuda.h). */

#include "tests/client/cuda.h"

#define SIDE 300
#define ELEMENTS ((uint64_t)SIDE * SIDE)
#define BYTES (4 * ELEMENTS)

static uint32_t numbers[ELEMENTS];

/* ---- a session, and what it is used for, each step by a thread of its own ---- */

struct life {
    struct cairn_rank rank;
    struct cairn_staged_version version;
    struct cairn_restore *restore;
    struct cairn_reading *reading;
    void *memory, *stream;
    bool converts;
    enum cairn_code code;
    struct cairn_error err;
    bool context_left; /* a step has ended in a thread that has a context */
};

static enum cairn_code warm(struct life *life) {
    const struct cairn_warmup_options options =
        SIZED(cairn_warmup_options, .memory = CAIRN_MEMORY_CUDA);
    return cairn_warmup(life->rank.session, &options, &life->err);
}

/* As it lies, turned, converted, and many small ones. */
static enum cairn_code describe(const struct life *life, struct cairn_save *save,
                                struct cairn_error *err) {
    static const uint64_t shape[2] = {SIDE, SIDE}, few[1] = {10};
    static const int64_t turned[2] = {1, SIDE};
    struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "plain", .dtype = "F32", .dimension_count = 2,
              .shape = shape, .kind = CAIRN_LOCAL, .source = life->memory, .source_bytes = BYTES,
              .memory = CAIRN_MEMORY_CUDA, .stream = life->stream);
    CAIRN_TRY(cairn_save_tensor(save, &piece, err));
    piece.name = "turned", piece.source_stride = turned;
    CAIRN_TRY(cairn_save_tensor(save, &piece, err));
    piece.name = "converted", piece.source_dtype = "F32", piece.dtype = "BF16";
    if (life->converts) CAIRN_TRY(cairn_save_tensor(save, &piece, err));
    piece.source_stride = NULL, piece.source_dtype = NULL, piece.dtype = "F32";
    piece.dimension_count = 1, piece.shape = few, piece.source_bytes = 40;
    for (char name[] = "a"; name[0] <= 'z'; name[0]++) {
        piece.name = name;
        CAIRN_TRY(cairn_save_tensor(save, &piece, err));
    }
    return CAIRN_OK;
}

static enum cairn_code save(struct life *life) {
    AUTO_SAVE *made = NULL;
    CAIRN_TRY(cairn_save_begin(life->rank.session, 1, NULL, &made, &life->err));
    CAIRN_TRY(describe(life, made, &life->err));
    return cairn_save_stage(made, &life->err);
}

/* By a thread of the library, with a fence for the trainer's stream. */
static enum cairn_code save_beside(struct life *life) {
    AUTO_SAVE *made = NULL;
    CAIRN_TRY(cairn_save_begin(life->rank.session, 2, NULL, &made, &life->err));
    CAIRN_TRY(describe(life, made, &life->err));
    CAIRN_TRY(cairn_save_stage_begin(made, &life->err));
    CAIRN_TRY(cairn_save_fence_stream(made, life->stream, &life->err));
    CAIRN_TRY(cairn_save_fence(made, 0, &life->err));
    return cairn_save_wait(made, CAIRN_STAGED, 0, &life->err);
}

static struct cairn_read read_of(const struct life *life) {
    return SIZED(cairn_read, .shard = "a", .bytes = UINT64_MAX, .into = life->memory,
                 .into_bytes = BYTES, .memory = CAIRN_MEMORY_CUDA, .stream = life->stream);
}

static enum cairn_code restore(struct life *life) {
    const struct cairn_read read = read_of(life);
    CAIRN_TRY(cairn_restore_open(life->rank.session, NULL, &life->restore, NULL, &life->err));
    return cairn_restore_read(life->restore, &read, 1, 0, &life->err);
}

/* By a thread of the library. */
static enum cairn_code restore_later(struct life *life) {
    const struct cairn_read read = read_of(life);
    CAIRN_TRY(cairn_read_begin(life->restore, &read, 1, 0, &life->reading, &life->err));
    enum cairn_code code = cairn_read_wait(life->reading, 0, &life->err);
    cairn_read_free(life->reading);
    cairn_restore_free(life->restore);
    return code;
}

static enum cairn_code end(struct life *life) {
    enum cairn_code code = cairn_close(life->rank.session, &life->err);
    life->rank.session = NULL;
    return code;
}

static enum cairn_code (*const steps[])(struct life *life) = {warm,    save,          save_beside,
                                                              restore, restore_later, end};
struct step {
    struct life *life;
    size_t number;
};

static void *run(void *argument) {
    const struct step *step = argument;
    void *context = NULL;
    step->life->code = steps[step->number](step->life);
    step->life->context_left |= cairn_cuda.current_context(&context) || context;
    return NULL;
}

static void expect_steps(struct life *life) {
    for (size_t i = 0; i < CAIRN_COUNT(steps); i++) {
        struct step step = {life, i};
        pthread_t thread;
        REQUIRE(!pthread_create(&thread, NULL, run, &step));
        pthread_join(thread, NULL);
        if (!cairn_test_check(!life->code, __FILE__, __LINE__, "step %zu: %s", i,
                              life->err.message))
            return;
    }
}

static bool begin(struct life *life) {
    const struct cairn_staged_raw raw = {"a", {(const char *)numbers, BYTES}};
    for (size_t i = 0; i < ELEMENTS; i++) numbers[i] = (uint32_t)i * 2654435761u;
    return EXPECT(rank_open(&life->rank, 2, &life->err) == CAIRN_OK) &&
           EXPECT(cairn_staged_serve_raw(&life->version, life->rank.fake, &raw, 1, &life->err) ==
                  CAIRN_OK);
}

static void release(struct life *life) {
    cairn_staged_version_release(&life->version);
    cairn_rank_release(&life->rank);
}

/* ---- tests ---- */

/* The process's only context is not a primary one, so a call that opens one is seen. */
TEST(no_call_opens_a_context_and_threads_have_afterwards_what_they_had) { /* inside.h#1 */
    struct life life = {.converts = !cairn_cuda_no_kernels()};
    struct fake_cuda_state state;
    void *context = NULL, *current = NULL;
    REQUIRE(cairn_cuda_have_runtime());
    REQUIRE(begin(&life));
    cairn_cuda.forget_contexts();
    REQUIRE(cairn_cuda.make_context(&context, 0, 1) == 0);
    REQUIRE(cairn_cuda.make(&life.memory, BYTES) == 0);
    REQUIRE(cairn_cuda.make_stream(&life.stream, 1) == 0);
    cairn_cuda.reset();
    expect_steps(&life);
    cairn_cuda.state(&state);
    EXPECT_EQ_U64(state.contexts, 0);
    EXPECT(!life.context_left);
    EXPECT(cairn_cuda.current_context(&current) == 0 && current == context);
    release(&life);
    EXPECT_EQ_U64(cairn_cuda.end_stream(life.stream), 0);
    cairn_cuda.release(life.memory);
    cairn_cuda.end_context(context);
    cairn_cuda_expect_nothing_left();
}

TEST(memory_of_a_pool_is_copied_in_its_devices_primary_context_which_is_given_back) {
    struct life life = {.converts = !cairn_cuda_no_kernels()};
    struct fake_cuda_state state;
    REQUIRE(cairn_cuda_have_runtime());
    REQUIRE(begin(&life));
    cairn_cuda.forget_contexts();
    REQUIRE(cairn_cuda.set_device(1) == 0);
    REQUIRE(cairn_cuda.make_stream(&life.stream, 1) == 0);
    REQUIRE(cairn_cuda.make_pooled(&life.memory, BYTES, life.stream) == 0);
    cairn_cuda.reset();
    expect_steps(&life);
    cairn_cuda.state(&state);
    EXPECT_EQ_U64(state.contexts, 0);
    EXPECT(!life.context_left);
    release(&life);
    EXPECT_EQ_U64(cairn_cuda.end_stream(life.stream), 0);
    cairn_cuda.release(life.memory);
    EXPECT_EQ_U64(cairn_cuda.set_device(0), 0);
    cairn_cuda_expect_nothing_left();
}

TEST(a_warm_up_before_the_process_has_used_a_device_leaves_the_memory_to_the_first_save) {
    struct life life = {0};
    struct fake_cuda_state state;
    REQUIRE(cairn_cuda_have_runtime());
    REQUIRE(begin(&life));
    cairn_cuda.forget_contexts();
    cairn_cuda.reset();
    EXPECT(warm(&life) == CAIRN_OK);
    cairn_cuda.state(&state);
    EXPECT_EQ_U64(state.contexts, 0);
    EXPECT_EQ_U64(state.registered, 0);
    EXPECT_EQ_U64(cairn_cuda.set_device(0), 0);
    life.memory = cairn_cuda_filled(0, numbers, BYTES);
    EXPECT(save(&life) == CAIRN_OK);
    cairn_cuda.state(&state);
    EXPECT_EQ_U64(state.registered, 1);
    EXPECT(warm(&life) == CAIRN_OK);
    cairn_cuda.state(&state);
    EXPECT_EQ_U64(state.registered, 2);
    release(&life);
    cairn_cuda.release(life.memory);
    cairn_cuda_expect_nothing_left();
}

static void *reserve_often(void *argument) {
    struct life *life = argument;
    for (int i = 0; i < 20 && !life->code; i++)
        life->code = cairn_session_reserve(life->rank.session, RANK_BYTES, 0, 5000, &life->err);
    return NULL;
}

/* The memory that a warm-up locks is not unmapped meanwhile: the runtime refuses what is not there,
 * and a page-lock of it would stay. */
TEST(a_warm_up_locks_the_memory_that_the_session_has_while_another_thread_reserves, err) {
    struct life life = {0};
    pthread_t thread;
    const struct cairn_warmup_options options = {.size = sizeof options,
                                                 .memory = CAIRN_MEMORY_CUDA};
    REQUIRE(cairn_cuda_have_runtime());
    REQUIRE(begin(&life));
    life.memory = cairn_cuda_filled(0, numbers, BYTES);
    REQUIRE(!pthread_create(&thread, NULL, reserve_often, &life));
    for (int i = 0; i < 100; i++)
        if (!EXPECT(cairn_warmup(life.rank.session, &options, &err) == CAIRN_OK)) break;
    REQUIRE(!pthread_join(thread, NULL));
    EXPECT_CODE(life.code, CAIRN_OK);
    release(&life);
    cairn_cuda.release(life.memory);
    cairn_cuda_expect_nothing_left();
}

TEST(a_capture_of_a_graph_by_another_thread_outlives_all_that_a_session_does) { /* inside.h#2 */
    struct life life = {.converts = !cairn_cuda_no_kernels()};
    void *captured = NULL, *graph = NULL;
    REQUIRE(cairn_cuda_have_runtime());
    REQUIRE(begin(&life));
    life.memory = cairn_cuda_filled(0, numbers, BYTES);
    REQUIRE(cairn_cuda.make_stream(&life.stream, 1) == 0);
    REQUIRE(cairn_cuda.make_stream(&captured, 1) == 0);
    EXPECT_EQ_U64(cairn_cuda.begin_capture(captured, 0), 0);
    expect_steps(&life);
    EXPECT_EQ_U64(cairn_cuda.end_capture(captured, &graph), 0);
    release(&life);
    EXPECT_EQ_U64(cairn_cuda.end_stream(life.stream), 0);
    EXPECT_EQ_U64(cairn_cuda.end_stream(captured), 0);
    cairn_cuda.release(life.memory);
    cairn_cuda_expect_nothing_left();
}
