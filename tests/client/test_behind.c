/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan seconds=60 */
/* Saves that are copied while the trainer goes on: real server, real uploader. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cairn/poll.h>
#include <cairn/stage.h>

#include "tests/client/team.h"

#define SEGMENT_BYTES (16 * CAIRN_MIB) /* of client/save/copy.h */
#define FILL_BYTES (4 * SEGMENT_BYTES)
#define SMALL_BYTES (96 * CAIRN_KIB)
#define LARGE_BYTES (20 * CAIRN_MIB)
/* One of a few shows what one of many does; --full plays all of them. With races looked for each
 * costs ten times as much. */
#ifdef __SANITIZE_THREAD__
#define AT_LEAST(all, few, fewest) (getenv("CAIRN_TEST_SLOW") ? (all) : (fewest))
#else
#define AT_LEAST(all, few, fewest) (getenv("CAIRN_TEST_SLOW") ? (all) : (few))
#endif
#define SAVES AT_LEAST(1000, 200, 60)
#define DEATHS AT_LEAST(50, 12, 6)
#define SHORT_MS 20 /* what must not come has time to */

/* ---- one rank and its memory ---- */

static enum cairn_code open_one(struct cairn_team *team, uint64_t bytes, const char *job,
                                struct cairn_error *err) {
    struct cairn_open_options options = team_options(team, 0);
    options.bytes = bytes;
    options.job = job;
    options.copy_threads = 2;
    return cairn_open(&options, &team->sessions[0], NULL, err);
}
#define ALONE(bytes)                                                                               \
    struct cairn_error err = {0};                                                                  \
    CAIRN_AUTO(team) team = {0};                                                                   \
    if (!cairn_world_possible()) SKIP("cairn-server and cairn-uploader are not built here");       \
    REQUIRE_OK(team_world(&team, 1, &err));                                                        \
    REQUIRE_OK(open_one(&team, (bytes), "job-1", &err))

static enum cairn_code describe(struct cairn_save *save, const void *source, uint64_t bytes,
                                struct cairn_error *err) {
    const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                             .name = "w",
                                             .dtype = "U8",
                                             .dimension_count = 1,
                                             .shape = &bytes,
                                             .kind = CAIRN_SHARDED,
                                             .source = source,
                                             .source_bytes = bytes};
    return cairn_save_tensor(save, &piece, err);
}

#define PERIOD_BYTES (256 * CAIRN_KIB) /* after which the bytes of a tensor come again */

/* By blocks: ThreadSanitizer looks at each byte that a loop writes, and at a block once. */
static void repeat(uint8_t *to, uint64_t bytes) {
    for (uint64_t at = PERIOD_BYTES; at < bytes; at += PERIOD_BYTES)
        memcpy(to + at, to, cairn_min_u64(PERIOD_BYTES, bytes - at));
}

static void write_bytes(uint8_t *to, uint64_t bytes, uint64_t step) {
    for (uint64_t i = 0; i < cairn_min_u64(bytes, PERIOD_BYTES); i++)
        to[i] = (uint8_t)(step * 7 + (i >> 10) + (i & 63));
    repeat(to, bytes);
}

/* Is tensor w of that step, of so many bytes, what write_bytes makes of it? */
static bool is_saved(struct cairn_session *session, uint64_t step, uint64_t bytes,
                     struct cairn_error *err) {
    char ref[24];
    struct cairn_restore *restore = NULL;
    uint8_t *found = malloc(bytes), *wanted = malloc(bytes);
    snprintf(ref, sizeof ref, "%" PRIu64, step);
    const struct cairn_restore_options options = {.size = sizeof options, .ref = ref};
    const struct cairn_read read = {
        .size = sizeof read, .tensor = "w", .into = found, .into_bytes = bytes};
    enum cairn_code code = cairn_restore_open(session, &options, &restore, NULL, err);
    if (!code) code = cairn_restore_read(restore, &read, 1, 0, err);
    cairn_restore_free(restore);
    write_bytes(wanted, bytes, step);
    bool same = !code && found && wanted && !memcmp(found, wanted, bytes);
    free(found);
    free(wanted);
    return same;
}

static enum cairn_code commit(struct cairn_save *save, struct cairn_error *err) {
    enum cairn_code code;
    for (uint64_t until_ms = cairn_mono_ms() + 3 * TEAM_WAIT_MS;;) {
        code = cairn_save_wait(save, CAIRN_COMMITTED, 2000, err);
        bool not_yet = code == CAIRN_UPLOADER_GONE || code == CAIRN_TIMEOUT;
        if (!not_yet || cairn_mono_ms() >= until_ms) return code;
    }
}

/* ---- the sources after the fence ---- */

/* The optimizer: it writes to the sources as soon as it may. */
struct optimizer {
    uint8_t *memory;
    uint64_t bytes;
    _Atomic unsigned fences, steps;
    _Atomic bool ends;
};

static void *optimize(void *argument) {
    struct optimizer *own = argument;
    while (!atomic_load(&own->ends)) {
        unsigned fences = atomic_load(&own->fences);
        if (atomic_load(&own->steps) == fences) {
            (void)sched_yield();
            continue;
        }
        memset(own->memory, (int)(0xA5 ^ fences), own->bytes);
        atomic_store(&own->steps, fences);
    }
    return NULL;
}

static uint64_t bytes_of(uint64_t step) {
    return step % 50 ? SMALL_BYTES : LARGE_BYTES;
}

#define LONG_MS 300000 /* a busy machine copies late, under ThreadSanitizer above all */

static enum cairn_code save_one(struct cairn_team *team, struct optimizer *optimizer, uint64_t step,
                                struct cairn_save **ret, struct cairn_error *err) {
    while (atomic_load(&optimizer->steps) != atomic_load(&optimizer->fences)) (void)sched_yield();
    write_bytes(optimizer->memory, bytes_of(step), step);
    optimizer->bytes = bytes_of(step);
    CAIRN_TRY(cairn_save_begin(team->sessions[0], step, NULL, ret, err));
    CAIRN_TRY(describe(*ret, optimizer->memory, bytes_of(step), err));
    CAIRN_TRY(cairn_save_stage_begin(*ret, err));
    CAIRN_TRY(cairn_save_fence(*ret, LONG_MS, err));
    atomic_fetch_add(&optimizer->fences, 1);
    return CAIRN_OK;
}

static enum cairn_code save_many(struct cairn_team *team, struct optimizer *optimizer,
                                 struct cairn_error *err) {
    struct cairn_save *last = NULL, *save = NULL;
    enum cairn_code code = CAIRN_OK;
    uint64_t step = 0;
    while (!code && step < SAVES) {
        save = NULL;
        code = save_one(team, optimizer, ++step, &save, err);
        if (!code && last) code = commit(last, err);
        if (!code && last && !is_saved(team->sessions[0], step - 1, bytes_of(step - 1), err))
            code = cairn_fail(err, CAIRN_CORRUPT, "step %" PRIu64 " is another", step - 1);
        cairn_save_free(last);
        last = save;
    }
    if (!code) code = commit(last, err);
    cairn_save_free(last);
    if (!code && !is_saved(team->sessions[0], step, bytes_of(step), err))
        code = cairn_fail(err, CAIRN_CORRUPT, "step %" PRIu64 " is another", step);
    return code;
}

TEST(p4_sources_that_change_right_after_the_fence_are_saved_as_they_were) { /* P4 */
    pthread_t thread;
    ALONE(LARGE_BYTES);
    struct optimizer optimizer = {.memory = malloc(LARGE_BYTES)};
    REQUIRE(optimizer.memory && !pthread_create(&thread, NULL, optimize, &optimizer));
    EXPECT_CODE(save_many(&team, &optimizer, &err), CAIRN_OK);
    atomic_store(&optimizer.ends, true);
    pthread_join(thread, NULL);
    free(optimizer.memory);
}

TEST(p4_sources_that_change_before_the_fence_are_found_where_they_are_verified) { /* P4 */
    ALONE(LARGE_BYTES);
    const struct cairn_save_options options = {.size = sizeof options, .verify_sources = 1};
    uint8_t *memory = malloc(SMALL_BYTES);
    REQUIRE(memory);
    for (uint64_t step = 1; step <= 4; step++) {
        write_bytes(memory, SMALL_BYTES, step);
        REQUIRE_OK(team_begin(&team, step, &options, &err));
        struct cairn_save *save = team.saves[0];
        struct cairn_save_status status = {0};
        REQUIRE_OK(describe(save, memory, SMALL_BYTES, &err));
        REQUIRE_OK(cairn_save_stage_begin(save, &err));
        AWAIT((cairn_save_status(save, &status), status.staged_bytes > SMALL_BYTES));
        EXPECT_CODE(cairn_save_poll(save, CAIRN_COPIED, &err), CAIRN_TIMEOUT);
        if (step % 2) memory[SMALL_BYTES / 2]++;
        EXPECT_CODE(cairn_save_fence(save, LONG_MS, &err),
                    step % 2 ? CAIRN_SOURCE_CHANGED : CAIRN_OK);
        if (step % 2) EXPECT(strstr(err.message, "w, or what follows") != NULL);
        if (step % 2) EXPECT_CODE(cairn_session_problem(team.sessions[0], &err), CAIRN_OK);
        if (step % 2) continue;
        EXPECT_CODE(commit(save, &err), CAIRN_OK);
        EXPECT(is_saved(team.sessions[0], step, SMALL_BYTES, &err));
    }
    free(memory);
}

/* ---- a copy that stands still ---- */

struct standing {
    _Atomic uint32_t fills;
    _Atomic bool stands, go_on;
    int fails; /* what the second fill returns */
};

static int fill(void *owner, uint64_t offset, void *to, uint64_t bytes) {
    struct standing *own = owner;
    uint8_t *at = to;
    for (uint64_t i = 0; i < cairn_min_u64(bytes, PERIOD_BYTES); i++)
        at[i] = (uint8_t)(((offset + i) >> 10) + ((offset + i) & 63));
    repeat(at, bytes);
    if (atomic_fetch_add(&own->fills, 1) != 1) return 0;
    atomic_store(&own->stands, true);
    (void)COMES(atomic_load(&own->go_on));
    return own->fails;
}

/* Of step 0, by write_bytes. */
static enum cairn_code begin_standing(struct cairn_session *session, uint64_t step,
                                      struct standing *own, struct cairn_save **ret,
                                      struct cairn_error *err) {
    const uint64_t shape = FILL_BYTES;
    const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                             .name = "w",
                                             .dtype = "U8",
                                             .dimension_count = 1,
                                             .shape = &shape,
                                             .kind = CAIRN_SHARDED,
                                             .source_bytes = FILL_BYTES,
                                             .fill = fill,
                                             .fill_owner = own};
    CAIRN_TRY(cairn_save_begin(session, step, NULL, ret, err));
    CAIRN_TRY(cairn_save_tensor(*ret, &piece, err));
    return cairn_save_stage_begin(*ret, err);
}

static bool is_readable(int fd, int timeout_ms) {
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    return poll(&wanted, 1, timeout_ms) == 1;
}

TEST(a_fence_waits_for_the_copy_and_a_begin_does_not) {
    ALONE(FILL_BYTES);
    struct standing own = {0};
    struct cairn_save *save = NULL, *next = NULL;
    struct cairn_save_status status;
    static uint8_t memory[SMALL_BYTES];
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    int fd = cairn_save_fd(save);
    AWAIT(atomic_load(&own.stands));
    EXPECT_CODE(cairn_save_fence(save, SHORT_MS, &err), CAIRN_TIMEOUT);
    EXPECT(strstr(err.message, "not copied yet: ") != NULL);
    EXPECT_CODE(cairn_save_poll(save, CAIRN_COPIED, &err), CAIRN_TIMEOUT);
    EXPECT(!is_readable(fd, 0));
    cairn_save_status(save, &status);
    EXPECT(status.stall_us >= SHORT_MS * 1000);
    /* The next one has memory of its own, and its turn comes after this one's. */
    write_bytes(memory, SMALL_BYTES, 1);
    REQUIRE_OK(cairn_save_begin(team.sessions[0], 1, NULL, &next, &err));
    REQUIRE_OK(describe(next, memory, SMALL_BYTES, &err));
    REQUIRE_OK(cairn_save_stage_begin(next, &err));
    EXPECT_CODE(cairn_save_fence(next, SHORT_MS, &err), CAIRN_TIMEOUT);
    atomic_store(&own.go_on, true);
    EXPECT(is_readable(fd, LONG_MS));
    EXPECT_CODE(cairn_save_fence(save, LONG_MS, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_poll(save, CAIRN_COPIED, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_wait(next, CAIRN_COPIED, 0, &err), CAIRN_OK);
    EXPECT_CODE(commit(save, &err), CAIRN_OK);
    EXPECT_CODE(commit(next, &err), CAIRN_OK);
    EXPECT(is_saved(team.sessions[0], 0, FILL_BYTES, &err));
    EXPECT(is_saved(team.sessions[0], 1, SMALL_BYTES, &err));
    cairn_save_free(save);
    cairn_save_free(next);
}

TEST(a_save_that_is_cancelled_before_its_fence_is_read_no_more_after_it) {
    ALONE(FILL_BYTES);
    for (uint64_t step = 0; step < 4; step++) { /* more than there are generations */
        struct standing own = {0};
        struct cairn_save *save = NULL;
        REQUIRE_OK(begin_standing(team.sessions[0], step, &own, &save, &err));
        AWAIT(atomic_load(&own.stands));
        if (step % 2)
            EXPECT_CODE(cairn_save_cancel(save, "the loss is NaN", &err), CAIRN_OK);
        else
            EXPECT_CODE(cairn_save_fail(save, "the loss is NaN", &err), CAIRN_OK);
        EXPECT_CODE(cairn_save_fence(save, SHORT_MS, &err), CAIRN_TIMEOUT); /* it is read still */
        atomic_store(&own.go_on, true);
        EXPECT_CODE(cairn_save_fence(save, 0, &err), CAIRN_CANCELLED);
        EXPECT(strstr(err.message, "the loss is NaN") != NULL);
        memset(&own, 0xA5, sizeof own); /* nobody reads it any more */
        cairn_save_free(save);
    }
    EXPECT_CODE(cairn_session_problem(team.sessions[0], &err), CAIRN_OK);
}

TEST(a_copy_that_fails_is_returned_by_the_fence_else_by_the_session) {
    ALONE(FILL_BYTES);
    for (uint64_t step = 0; step < 2; step++) {
        struct standing own = {.fails = 5, .go_on = true};
        struct cairn_save *save = NULL;
        REQUIRE_OK(begin_standing(team.sessions[0], step, &own, &save, &err));
        enum cairn_code code = CAIRN_OK;
        if (step)
            AWAIT((code = cairn_session_problem(team.sessions[0], &err)) != CAIRN_OK);
        else
            code = cairn_save_fence(save, (uint32_t)cairn_test_hang_ms(), &err);
        EXPECT_CODE(code, CAIRN_SOURCE_GONE);
        EXPECT(strstr(err.message, "returned 5 instead of 0") != NULL);
        cairn_save_free(save);
        EXPECT_CODE(cairn_session_problem(team.sessions[0], &err), CAIRN_OK);
    }
}

static void *free_save(void *save) {
    cairn_save_free(save);
    return NULL;
}

static void *close_session(void *session) {
    struct cairn_error err = {0};
    return cairn_close(session, &err) == CAIRN_OK ? NULL : session;
}

TEST(a_handle_that_is_freed_before_the_copy_is_whole_ends_its_save_and_waits_for_its_reader) {
    ALONE(FILL_BYTES);
    pthread_t thread;
    struct standing own = {0};
    struct cairn_save *save = NULL;
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    AWAIT(atomic_load(&own.stands));
    REQUIRE(!pthread_create(&thread, NULL, free_save, save));
    atomic_store(&own.go_on, true);
    pthread_join(thread, NULL);
    uint32_t fills = own.fills;
    for (uint64_t step = 1; step <= 3; step++) { /* its memory is free again */
        struct standing other = {.go_on = true};
        REQUIRE_OK(begin_standing(team.sessions[0], step, &other, &save, &err));
        EXPECT_CODE(commit(save, &err), CAIRN_OK);
        cairn_save_free(save);
    }
    EXPECT_EQ_U64(own.fills, fills);
}

TEST(a_handle_that_is_freed_after_the_fence_leaves_its_save_to_the_session) {
    ALONE(FILL_BYTES);
    struct standing own = {.go_on = true};
    struct cairn_save *save = NULL;
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    EXPECT_CODE(cairn_save_fence(save, LONG_MS, &err), CAIRN_OK);
    cairn_save_free(save);
    EXPECT_CODE(cairn_close(team.sessions[0], &err), CAIRN_OK);
    REQUIRE_OK(open_one(&team, FILL_BYTES, "job-2", &err));
    AWAIT(is_saved(team.sessions[0], 0, FILL_BYTES, &err));
}

TEST(a_session_that_is_closed_before_the_fence_waits_for_the_copy_and_its_save_is_committed) {
    ALONE(FILL_BYTES);
    pthread_t thread;
    void *failed = NULL;
    struct standing own = {0};
    struct cairn_save *save = NULL;
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    AWAIT(atomic_load(&own.stands));
    REQUIRE(!pthread_create(&thread, NULL, close_session, team.sessions[0]));
    atomic_store(&own.go_on, true);
    pthread_join(thread, &failed);
    EXPECT(!failed);
    EXPECT_CODE(cairn_save_fence(save, 0, &err), CAIRN_INVALID); /* the session is closed */
    cairn_save_free(save);
    REQUIRE_OK(open_one(&team, FILL_BYTES, "job-2", &err));
    AWAIT(is_saved(team.sessions[0], 0, FILL_BYTES, &err));
}

TEST(a_fence_holds_although_the_uploader_died_and_the_next_one_seals_the_save) { /* Q43 */
    ALONE(FILL_BYTES);
    struct standing own = {0};
    struct cairn_save *save = NULL;
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    AWAIT(atomic_load(&own.stands));
    cairn_world_uploader_kill(&team.world, 0);
    atomic_store(&own.go_on, true);
    EXPECT_CODE(cairn_save_fence(save, LONG_MS, &err), CAIRN_OK);
    REQUIRE_OK(cairn_world_uploader_start(&team.world, 0, NULL, &err));
    EXPECT_CODE(commit(save, &err), CAIRN_OK);
    EXPECT(is_saved(team.sessions[0], 0, FILL_BYTES, &err));
    cairn_save_free(save);
}

/* ---- orders of calls ---- */

TEST(calls_in_another_order_are_refused_and_the_copy_goes_on) {
    ALONE(FILL_BYTES);
    struct standing own = {0};
    static uint8_t memory[SMALL_BYTES];
    struct cairn_save *save = NULL;
    EXPECT_CODE(cairn_save_stage_begin(NULL, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_fence(NULL, 0, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_fence_stream(NULL, NULL, &err), CAIRN_INVALID);
    REQUIRE_OK(cairn_save_begin(team.sessions[0], 1, NULL, &save, &err));
    EXPECT_CODE(cairn_save_fence(save, 0, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_fence_stream(save, NULL, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_poll(save, CAIRN_COPIED, &err), CAIRN_TIMEOUT);
    write_bytes(memory, SMALL_BYTES, 1);
    REQUIRE_OK(describe(save, memory, SMALL_BYTES, &err));
    REQUIRE_OK(cairn_save_copy(save, &err));
    EXPECT_CODE(cairn_save_fence(save, LONG_MS, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_stage_begin(save, &err), CAIRN_INVALID);
    REQUIRE_OK(cairn_save_seal(save, &err));
    EXPECT_CODE(cairn_save_fence(save, LONG_MS, &err), CAIRN_OK);
    EXPECT_CODE(commit(save, &err), CAIRN_OK);
    cairn_save_free(save);
    REQUIRE_OK(begin_standing(team.sessions[0], 2, &own, &save, &err));
    EXPECT_CODE(cairn_save_stage_begin(save, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_copy(save, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_seal(save, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_raw(save, "late", memory, 1, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_set_meta(save, NULL, "{}", &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_fence_stream(save, NULL, &err), CAIRN_OK); /* no source is on a device */
    atomic_store(&own.go_on, true);
    EXPECT_CODE(commit(save, &err), CAIRN_OK);
    cairn_save_free(save);
}

/* ---- another thread asks for a fence while the copy ends ---- */

struct asking {
    struct cairn_save *save;
    atomic_bool enough;
};

static void *ask_for_fences(void *owner) {
    struct asking *asking = owner;
    while (!atomic_load(&asking->enough)) (void)cairn_save_fence_stream(asking->save, NULL, NULL);
    return NULL;
}

TEST(a_fence_on_a_stream_may_be_asked_for_until_the_save_is_freed) {
    ALONE(FILL_BYTES);
    static uint8_t memory[SMALL_BYTES];
    write_bytes(memory, SMALL_BYTES, 1);
    for (uint64_t step = 1; step <= SAVES; step++) {
        struct asking asking = {0};
        pthread_t thread;
        REQUIRE_OK(cairn_save_begin(team.sessions[0], step, NULL, &asking.save, &err));
        REQUIRE_OK(describe(asking.save, memory, SMALL_BYTES, &err));
        REQUIRE_OK(cairn_save_stage_begin(asking.save, &err));
        REQUIRE(!pthread_create(&thread, NULL, ask_for_fences, &asking));
        EXPECT_CODE(cairn_save_wait(asking.save, CAIRN_STAGED, LONG_MS, &err), CAIRN_OK);
        atomic_store(&asking.enough, true);
        REQUIRE(!pthread_join(thread, NULL));
        cairn_save_free(asking.save);
    }
}

/* ---- the trainer dies before its fence ---- */

/* Saves steps until it is killed, and says of each when its copy has begun. */
static void save_until_killed(struct cairn_team *team, unsigned life, int tell_fd) {
    struct cairn_error err = {0};
    char job[24];
    uint8_t *memory = malloc(LARGE_BYTES);
    snprintf(job, sizeof job, "job-%u", life);
    if (!memory || open_one(team, LARGE_BYTES, job, &err)) _exit(1);
    for (uint64_t step = 1 + 100 * life;; step++) {
        struct cairn_save *save = NULL;
        write_bytes(memory, LARGE_BYTES, step);
        enum cairn_code code = cairn_save_begin(team->sessions[0], step, NULL, &save, &err);
        if (!code) code = describe(save, memory, LARGE_BYTES, &err);
        if (!code) code = cairn_save_stage_begin(save, &err);
        if (code || write(tell_fd, "b", 1) != 1) _exit(1);
        if (cairn_save_fence(save, 0, &err)) _exit(1);
        memset(memory, 0xA5, LARGE_BYTES); /* the optimizer */
        cairn_save_free(save);
    }
}

static enum cairn_code check_committed(struct cairn_team *team, struct cairn_error *err) {
    struct cairn_checkpoint *list = NULL;
    size_t count = 0, committed = 0;
    CAIRN_TRY(cairn_list(team->sessions[0], &list, &count, err));
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i].state, "committed") != 0 || list[i].superseded) continue;
        committed++;
        if (is_saved(team->sessions[0], list[i].step, LARGE_BYTES, err)) continue;
        cairn_list_free(list);
        return cairn_fail(err, CAIRN_CORRUPT, "a committed step is not what was saved");
    }
    cairn_list_free(list);
    return committed ? CAIRN_OK : cairn_fail(err, CAIRN_NOT_FOUND, "nothing was committed at all");
}

TEST(k03_a_trainer_that_dies_between_begin_and_fence_leaves_nothing_wrong) { /* K03 */
    struct cairn_error err = {0};
    CAIRN_AUTO(team) team = {0};
    if (!cairn_world_possible()) SKIP("cairn-server and cairn-uploader are not built here");
    REQUIRE_OK(team_world(&team, 1, &err));
    uint64_t seed = cairn_test_seed();
    for (unsigned life = 1; life <= DEATHS; life++) {
        int from[2], status = 0;
        char word = 0;
        unsigned copies = 1 + (unsigned)(cairn_test_random(&seed) % 3);
        unsigned us = (unsigned)(cairn_test_random(&seed) % 20000);
        REQUIRE(!pipe(from));
        pid_t trainer = fork();
        if (trainer == 0) save_until_killed(&team, life, from[1]);
        close(from[1]);
        for (unsigned i = 0; i < copies; i++) EXPECT(read(from[0], &word, 1) == 1);
        (void)usleep(us); /* pause of chaos: the moment of its death */
        (void)kill(trainer, SIGKILL);
        (void)waitpid(trainer, &status, 0);
        EXPECT(WIFSIGNALED(status));
        close(from[0]);
    }
    REQUIRE_OK(open_one(&team, LARGE_BYTES, "job-last", &err));
    EXPECT_CODE(check_committed(&team, &err), CAIRN_OK);
    static uint8_t memory[SMALL_BYTES];
    write_bytes(memory, SMALL_BYTES, 9000);
    REQUIRE_OK(team_begin(&team, 9000, NULL, &err));
    REQUIRE_OK(describe(team.saves[0], memory, SMALL_BYTES, &err));
    REQUIRE_OK(cairn_save_stage_begin(team.saves[0], &err));
    EXPECT_CODE(commit(team.saves[0], &err), CAIRN_OK);
    EXPECT(is_saved(team.sessions[0], 9000, SMALL_BYTES, &err));
}
