/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* ctest: as=cancel_behind env=CAIRN_TEST_BEHIND=1 races="full: as client/behind" */
/* A save that another thread cancels, or whose trainer goes away: real server, real uploader. */
#include <sched.h>

#include "tests/client/model.h"
#include "tests/client/stage.h"
#include "tests/support/world.h"

#define SEGMENT_BYTES (16 * CAIRN_MIB) /* of client/save/copy.c */
#define FILL_BYTES (4 * SEGMENT_BYTES)

static struct cairn_model model;

static enum cairn_on_disconnect on_disconnect = CAIRN_DISCONNECT_FINISH;

static enum cairn_code open_rank(const struct cairn_world *world, uint32_t rank, uint32_t ranks,
                                 uint64_t bytes, struct cairn_session **ret,
                                 struct cairn_error *err) {
    const struct cairn_open_options options = SIZED(
        cairn_open_options, .run = "llm/7b", .job = "job-1", .rank = rank, .world_size = ranks,
        .local_rank = rank, .local_world_size = ranks, .bytes = bytes, .socket = world->sockets[0],
        .copy_threads = 1, .timeout_ms = HANG_MS, .on_disconnect = on_disconnect);
    return cairn_open(&options, ret, NULL, err);
}

/* ---- while it is copied ---- */

struct copying {
    struct cairn_save *save;
    _Atomic uint32_t fills;
    _Atomic bool stands, go_on;
    _Atomic int thread; /* the one that waits, when it is about to */
    enum cairn_code code;
    struct cairn_error err;
};

/* The second range stands still until it is told to go on. */
static int fill(void *owner, uint64_t offset, void *to, uint64_t bytes) {
    struct copying *copying = owner;
    memset(to, (int)(offset & 0x7f), (size_t)bytes);
    if (atomic_fetch_add(&copying->fills, 1) != 1) return 0;
    atomic_store(&copying->stands, true);
    (void)COMES(atomic_load(&copying->go_on));
    return 0;
}

static void *stage(void *argument) {
    struct copying *copying = argument;
    copying->code = cairn_save_stage(copying->save, &copying->err);
    return NULL;
}

static enum cairn_code describe(struct copying *copying, struct cairn_error *err) {
    const uint64_t shape[1] = {FILL_BYTES};
    const struct cairn_tensor_piece piece = SIZED(
        cairn_tensor_piece, .name = "w", .dtype = "U8", .dimension_count = 1, .shape = shape,
        .kind = CAIRN_SHARDED, .source_bytes = FILL_BYTES, .fill = fill, .fill_owner = copying);
    return cairn_save_tensor(copying->save, &piece, err);
}

static enum cairn_code save_whole(struct cairn_session *session, uint64_t step,
                                  struct cairn_error *err) {
    struct copying copying = {.go_on = true};
    CAIRN_TRY(cairn_save_begin(session, step, NULL, &copying.save, err));
    enum cairn_code code = describe(&copying, err);
    if (!code) code = cairn_test_stage(copying.save, err);
    if (!code) code = cairn_test_reach(copying.save, CAIRN_COMMITTED, err);
    cairn_save_free(copying.save);
    return code;
}

TEST(a_save_that_is_cancelled_while_it_is_copied_ends_within_a_segment) {
    OPEN_WORLD(.nodes = 1);
    struct cairn_session *session = NULL;
    struct cairn_save_status status = {0};
    struct copying copying = {0};
    pthread_t thread;
    REQUIRE_OK(open_rank(&world, 0, 1, FILL_BYTES, &session, &err));
    REQUIRE_OK(cairn_save_begin(session, 1, NULL, &copying.save, &err));
    cairn_save_status(copying.save, &status);
    EXPECT_EQ_U64(status.total_bytes, 0);
    REQUIRE_OK(describe(&copying, &err));
    REQUIRE(!pthread_create(&thread, NULL, stage, &copying));
    REQUIRE_AWAIT(atomic_load(&copying.stands));
    cairn_save_status(copying.save, &status);
    EXPECT_EQ_U64(status.staged_bytes, SEGMENT_BYTES);
    EXPECT(status.total_bytes > FILL_BYTES);
    EXPECT_EQ_U64(status.durable_bytes, 0);
    EXPECT_CODE(cairn_save_cancel(copying.save, "the loss is NaN", &err), CAIRN_OK);
    atomic_store(&copying.go_on, true);
    pthread_join(thread, NULL);
    EXPECT_CODE(copying.code, CAIRN_CANCELLED);
    EXPECT(strstr(copying.err.message, "the loss is NaN") != NULL);
    EXPECT_EQ_U64(copying.fills, 2);
    EXPECT_CODE(cairn_save_cancel(copying.save, NULL, &err), CAIRN_OK); /* once more is nothing */
    EXPECT_CODE(cairn_session_problem(session, &err), CAIRN_OK); /* whoever cancels knows it */
    for (uint64_t step = 2; step <= 4; step++)                   /* its memory is free again */
        EXPECT_CODE(save_whole(session, step, &err), CAIRN_OK);
    cairn_save_free(copying.save);
    EXPECT_CODE(cairn_close(session, &err), CAIRN_OK);
}

/* ---- while it is waited for ---- */

static void *wait_committed(void *argument) {
    struct copying *waiting = argument;
    waiting->thread = gettid();
    waiting->code = cairn_save_wait(waiting->save, CAIRN_COMMITTED, HANG_MS, &waiting->err);
    return NULL;
}

TEST(a_wait_ends_when_its_save_is_cancelled_and_the_other_ranks_hear_why) { /* Q44 */
    OPEN_WORLD(.nodes = 1);
    struct cairn_session *sessions[2] = {NULL, NULL};
    struct cairn_save *saves[2] = {NULL, NULL};
    struct copying waiting = {0};
    pthread_t thread;
    cairn_model_fill(&model, 7);
    for (uint32_t rank = 0; rank < 2; rank++)
        REQUIRE_OK(open_rank(&world, rank, 2, MODEL_RANK_BYTES, &sessions[rank], &err));
    REQUIRE_OK(cairn_model_save(&model, sessions[0], 5, 0, 2, &saves[0], &err));
    REQUIRE_OK(cairn_save_begin(sessions[1], 5, NULL, &saves[1], &err));
    waiting.save = saves[0];
    REQUIRE(!pthread_create(&thread, NULL, wait_committed, &waiting));
    REQUIRE_AWAIT(waiting.thread && cairn_test_thread_sleeps(waiting.thread));
    EXPECT_CODE(cairn_save_cancel(saves[0], "no step 5", &err), CAIRN_OK);
    pthread_join(thread, NULL);
    EXPECT_CODE(waiting.code, CAIRN_CANCELLED);
    REQUIRE_OK(cairn_model_describe(&model, saves[1], 1, 2, &err));
    enum cairn_code code = cairn_test_stage(saves[1], &err);
    if (!code) code = cairn_test_reach(saves[1], CAIRN_COMMITTED, &err);
    EXPECT_FAILS(code, CAIRN_ABORTED, "no step 5");
    for (uint32_t rank = 0; rank < 2; rank++) {
        cairn_save_free(saves[rank]);
        REQUIRE_OK(cairn_model_save(&model, sessions[rank], 6, rank, 2, &saves[rank], &err));
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct cairn_save_status status;
        EXPECT_CODE(cairn_test_reach(saves[rank], CAIRN_COMMITTED, &err), CAIRN_OK);
        cairn_save_status(saves[rank], &status);
        EXPECT(status.total_bytes > 0);
        EXPECT_ALL_U64(status.staged_bytes, status.total_bytes, status.sent_bytes,
                       status.total_bytes, status.durable_bytes, status.total_bytes);
        EXPECT_CODE(cairn_save_cancel(saves[rank], NULL, &err), CAIRN_ALREADY_COMMITTED);
        cairn_save_free(saves[rank]);
        EXPECT_CODE(cairn_close(sessions[rank], &err), CAIRN_OK);
    }
}

/* ---- its trainer goes away ---- */

enum leaving { KILLED, CLOSED };

/* Rank 0 is a process of its own, and leaves once its part is durable; rank 1 then finishes. */
static enum cairn_code leave_after_durable(const struct cairn_world *world, enum leaving how,
                                           struct cairn_error *err) {
    struct cairn_session *session = NULL;
    struct cairn_save *save = NULL;
    int status = 0;
    pid_t trainer = fork();
    if (trainer == 0) {
        enum cairn_code code = open_rank(world, 0, 2, MODEL_RANK_BYTES, &session, err);
        if (!code) code = cairn_model_save(&model, session, 5, 0, 2, &save, err);
        if (!code) code = cairn_test_reach(save, CAIRN_DURABLE, err);
        if (!code && how == KILLED) raise(SIGKILL);
        cairn_save_free(save);
        if (!code) code = cairn_close(session, err);
        if (code) fprintf(stderr, "rank 0: %s\n", err->message);
        _exit(code ? 1 : 0);
    }
    /* The attempt waits for both ranks, so this one opens it meanwhile. */
    enum cairn_code code = open_rank(world, 1, 2, MODEL_RANK_BYTES, &session, err);
    if (!code) code = cairn_save_begin(session, 5, NULL, &save, err);
    (void)waitpid(trainer, &status, 0);
    if (how == KILLED ? !WIFSIGNALED(status) : status != 0)
        return cairn_fail(err, CAIRN_INTERNAL, "rank 0 did not leave as it should: %d", status);
    if (!code) code = cairn_model_describe(&model, save, 1, 2, err);
    if (how == KILLED) AWAIT(cairn_daemon_logged(&world->uploaders[0], "session.lost"));
    if (!code) code = cairn_test_stage(save, err);
    if (!code) code = cairn_test_reach(save, CAIRN_COMMITTED, err);
    cairn_save_free(save);
    (void)cairn_close(session, NULL);
    return code;
}

static void expect_end(enum cairn_on_disconnect wish, enum leaving how, enum cairn_code wanted) {
    OPEN_WORLD(.nodes = 1);
    cairn_model_fill(&model, 7);
    on_disconnect = wish;
    EXPECT_CODE(leave_after_durable(&world, how, &err), wanted);
    if (wanted) EXPECT(strstr(err.message, "on_disconnect") != NULL);
    on_disconnect = CAIRN_DISCONNECT_FINISH;
}

CASE(a_durable_save_outlives_its_trainer_unless_on_disconnect_says_otherwise,
     expect_end(CAIRN_DISCONNECT_FINISH, KILLED, CAIRN_OK)); /* K03 */
CASE(a_save_that_is_to_be_aborted_ends_with_its_trainer_for_all_ranks,
     expect_end(CAIRN_DISCONNECT_ABORT, KILLED, CAIRN_ABORTED)); /* K03 */
CASE(a_save_that_is_to_be_aborted_outlives_a_trainer_that_says_bye,
     expect_end(CAIRN_DISCONNECT_ABORT, CLOSED, CAIRN_OK));

/* ---- it goes away after its uploader was restarted ---- */

/* Rank 0: its part of step 5 is durable; then, told to, it begins step 6, so it is connected. */
static void stay_and_begin_again(const struct cairn_world *world, int told_fd, int tell_fd) {
    struct cairn_error err = {0};
    struct cairn_session *session = NULL;
    struct cairn_save *save = NULL, *next = NULL;
    char word = 'd';
    enum cairn_code code = open_rank(world, 0, 2, MODEL_RANK_BYTES, &session, &err);
    if (!code) code = cairn_model_save(&model, session, 5, 0, 2, &save, &err);
    if (!code) code = cairn_test_reach(save, CAIRN_DURABLE, &err);
    if (!code && (write(tell_fd, &word, 1) != 1 || read(told_fd, &word, 1) != 1)) _exit(1);
    if (!code) code = cairn_save_begin(session, 6, NULL, &next, &err);
    if (code) fprintf(stderr, "rank 0: %s\n", err.message);
    /* Until it has met the new uploader, which knows then whom it has lost. */
    (void)COMES(cairn_save_wait(save, CAIRN_COMMITTED, 20, &err) != CAIRN_UPLOADER_GONE);
    if (code || write(tell_fd, &word, 1) != 1) _exit(1);
    for (;;) (void)pause();
}

TEST(a_save_that_is_to_be_aborted_ends_with_its_trainer_also_after_a_restart_of_the_uploader) {
    OPEN_WORLD(.nodes = 1);
    struct cairn_session *session = NULL;
    struct cairn_save *save = NULL;
    int to[2], from[2], status = 0;
    char word = 0;
    cairn_model_fill(&model, 7);
    on_disconnect = CAIRN_DISCONNECT_ABORT;
    REQUIRE(!pipe(to) && !pipe(from));
    pid_t trainer = fork();
    if (trainer == 0) stay_and_begin_again(&world, to[0], from[1]);
    close(from[1]);
    EXPECT_CODE(open_rank(&world, 1, 2, MODEL_RANK_BYTES, &session, &err), CAIRN_OK);
    EXPECT(read(from[0], &word, 1) == 1);
    cairn_world_uploader_kill(&world, 0);
    EXPECT_CODE(cairn_world_uploader_start(&world, 0, NULL, &err), CAIRN_OK);
    EXPECT(write(to[1], "g", 1) == 1);
    EXPECT(read(from[0], &word, 1) == 1);
    (void)kill(trainer, SIGKILL);
    (void)waitpid(trainer, &status, 0);
    enum cairn_code code = cairn_model_save(&model, session, 5, 1, 2, &save, &err);
    /* Until this rank has met the new uploader, too. */
    if (save) AWAIT((code = cairn_test_reach(save, CAIRN_COMMITTED, &err)) != CAIRN_UPLOADER_GONE);
    EXPECT_FAILS(code, CAIRN_ABORTED, "on_disconnect");
    cairn_save_free(save);
    (void)cairn_close(session, NULL);
    on_disconnect = CAIRN_DISCONNECT_FINISH;
    close(to[0]), close(to[1]), close(from[0]);
}

/* ---- two threads in one handle ---- */

TEST(a_second_thread_in_a_saves_handle_is_refused_and_the_first_goes_on) {
    OPEN_WORLD(.nodes = 1);
    struct cairn_session *session = NULL;
    struct copying copying = {0};
    pthread_t thread;
    REQUIRE_OK(open_rank(&world, 0, 1, 2 * FILL_BYTES, &session, &err));
    REQUIRE_OK(cairn_save_begin(session, 1, NULL, &copying.save, &err));
    REQUIRE_OK(describe(&copying, &err));
    REQUIRE(!pthread_create(&thread, NULL, stage, &copying));
    REQUIRE_AWAIT(atomic_load(&copying.stands));
    EXPECT_FAILS(cairn_save_raw(copying.save, "late", "x", 1, &err), CAIRN_INVALID,
                 "another thread");
    EXPECT_CODE(cairn_save_set_meta(copying.save, NULL, "{}", &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_copy(copying.save, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_stage(copying.save, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_seal(copying.save, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_fail(copying.save, "no", &err), CAIRN_INVALID);
    cairn_save_free(copying.save); /* takes effect when the other call has ended */
    atomic_store(&copying.go_on, true);
    pthread_join(thread, NULL);
    EXPECT_CODE(copying.code, CAIRN_OK);
    for (uint64_t step = 2; step <= 4; step++)
        EXPECT_CODE(save_whole(session, step, &err), CAIRN_OK);
    EXPECT_CODE(cairn_close(session, &err), CAIRN_OK);
}

struct describing {
    struct cairn_save *save;
    int number;
    uint64_t until_ms;
    size_t added;
};

static void *describe_much(void *owner) {
    struct describing *own = owner;
    for (int i = 0; i < 500; i++) {
        struct cairn_error err = {0};
        const char *name = TEXT("raw-%d-%d", own->number, i);
        enum cairn_code code = CAIRN_INVALID;
        while (code == CAIRN_INVALID && cairn_mono_ms() < own->until_ms) {
            code = cairn_save_raw(own->save, name, "0123456789", 10, &err);
            if (code) (void)sched_yield(); /* the other one may stand still in its call */
        }
        own->added += code == CAIRN_OK;
    }
    return NULL;
}

TEST(what_two_threads_describe_of_one_save_at_once_is_taken_or_refused) {
    OPEN_WORLD(.nodes = 1);
    struct cairn_session *session = NULL;
    struct cairn_save *save = NULL;
    pthread_t thread;
    REQUIRE_OK(open_rank(&world, 0, 1, FILL_BYTES, &session, &err));
    REQUIRE_OK(cairn_save_begin(session, 1, NULL, &save, &err));
    struct describing first = {save, 1, cairn_mono_ms() + HANG_MS, 0}, second = first;
    second.number = 2;
    REQUIRE(!pthread_create(&thread, NULL, describe_much, &second));
    describe_much(&first);
    pthread_join(thread, NULL);
    EXPECT_ALL_U64(first.added, 500, second.added, 500);
    EXPECT_CODE(cairn_test_stage(save, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_OK);
    cairn_save_free(save);
    EXPECT_CODE(cairn_close(session, &err), CAIRN_OK);
}
