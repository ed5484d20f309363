/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan seconds=60 */
/* Saves that are copied while the trainer goes on: real server, real uploader. */
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/client/team.h"

#define SEGMENT_BYTES (16 * CAIRN_MIB) /* of client/save/copy.h */
#define FILL_BYTES (2 * SEGMENT_BYTES)
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
#define CLOSE_MS 1500

/* ---- one rank and its memory ---- */

static enum cairn_code open_one(struct cairn_team *team, uint64_t bytes, const char *job,
                                struct cairn_error *err) {
    struct cairn_open_options options = team_options(team, 0);
    options.bytes = bytes;
    options.job = job;
    options.wait_staged_ms =
        HANG_MS; /* what the job before has staged is waited for, however long */
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
    const struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "w", .dtype = "U8", .dimension_count = 1, .shape = &bytes,
              .kind = CAIRN_SHARDED, .source = source, .source_bytes = bytes);
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
    return cairn_test_reach(save, CAIRN_COMMITTED, err);
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

static enum cairn_code save_one(struct cairn_team *team, struct optimizer *optimizer, uint64_t step,
                                struct cairn_save **ret, struct cairn_error *err) {
    while (atomic_load(&optimizer->steps) != atomic_load(&optimizer->fences)) (void)sched_yield();
    write_bytes(optimizer->memory, bytes_of(step), step);
    optimizer->bytes = bytes_of(step);
    CAIRN_TRY(cairn_save_begin(team->sessions[0], step, NULL, ret, err));
    CAIRN_TRY(describe(*ret, optimizer->memory, bytes_of(step), err));
    CAIRN_TRY(cairn_save_stage_begin(*ret, err));
    CAIRN_TRY(cairn_save_fence(*ret, HANG_MS, err));
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
        EXPECT_FAILS(cairn_save_fence_stream(save, NULL, &err), CAIRN_INVALID, "are verified");
        if (step % 2) memory[SMALL_BYTES / 2]++;
        EXPECT_CODE(cairn_save_fence(save, HANG_MS, &err),
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
    _Atomic int thread, nice; /* of a fill */
    uint64_t from;            /* each fill from there on stands, not the second one */
    int fails;                /* what it returns then */
};

static int fill(void *owner, uint64_t offset, void *to, uint64_t bytes) {
    struct standing *own = owner;
    uint8_t *at = to;
    for (uint64_t i = 0; i < cairn_min_u64(bytes, PERIOD_BYTES); i++)
        at[i] = (uint8_t)(((offset + i) >> 10) + ((offset + i) & 63));
    repeat(at, bytes);
    atomic_store(&own->thread, gettid());
    atomic_store(&own->nice, getpriority(PRIO_PROCESS, 0));
    uint32_t before = atomic_fetch_add(&own->fills, 1);
    if (own->from ? offset < own->from : before != 1) return 0;
    atomic_store(&own->stands, true);
    (void)COMES(atomic_load(&own->go_on));
    return own->fails;
}

/* Of step 0, by write_bytes. */
static enum cairn_code begin_standing(struct cairn_session *session, uint64_t step,
                                      struct standing *own, struct cairn_save **ret,
                                      struct cairn_error *err) {
    const uint64_t shape = FILL_BYTES;
    const struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "w", .dtype = "U8", .dimension_count = 1, .shape = &shape,
              .kind = CAIRN_SHARDED, .source_bytes = FILL_BYTES, .fill = fill, .fill_owner = own);
    CAIRN_TRY(cairn_save_begin(session, step, NULL, ret, err));
    CAIRN_TRY(cairn_save_tensor(*ret, &piece, err));
    return cairn_save_stage_begin(*ret, err);
}

TEST(the_stall_is_what_stopped_the_caller_and_describing_is_part_of_it) {
    ALONE(FILL_BYTES);
    static struct cairn_tensor_piece pieces[20000];
    static char names[CAIRN_COUNT(pieces)][12];
    static const uint64_t shape[1] = {1};
    static const uint8_t byte = 1;
    struct standing own = {0};
    struct cairn_save *save = NULL, *copied = NULL;
    struct cairn_save_status before, after;
    for (size_t i = 0; i < CAIRN_COUNT(pieces); i++) {
        snprintf(names[i], sizeof names[i], "w%zu", i);
        pieces[i] = (struct cairn_tensor_piece){.size = sizeof pieces[i],
                                                .name = names[i],
                                                .dtype = "U8",
                                                .dimension_count = 1,
                                                .shape = shape,
                                                .kind = CAIRN_LOCAL,
                                                .source = &byte,
                                                .source_bytes = 1};
    }
    REQUIRE_OK(cairn_save_begin(team.sessions[0], 1, NULL, &save, &err));
    cairn_save_status(save, &before);
    uint64_t started_us = cairn_mono_us();
    REQUIRE_OK(cairn_save_tensors(save, pieces, CAIRN_COUNT(pieces), NULL, &err));
    uint64_t took_us = cairn_mono_us() - started_us;
    cairn_save_status(save, &after);
    EXPECT(after.stall_us - before.stall_us >= took_us / 2);
    EXPECT(after.stall_us - before.stall_us <= took_us);
    REQUIRE_OK(cairn_save_stage(save, &err));
    cairn_save_free(save);
    /* A copy that stands still beside its caller stops nobody. */
    REQUIRE_OK(begin_standing(team.sessions[0], 2, &own, &copied, &err));
    cairn_save_status(copied, &before);
    AWAIT(atomic_load(&own.stands));
    cairn_save_status(copied, &after);
    EXPECT_EQ_U64(after.stall_us, before.stall_us);
    atomic_store(&own.go_on, true);
    EXPECT_CODE(cairn_save_fence(copied, HANG_MS, &err), CAIRN_OK);
    cairn_save_status(copied, &after);
    EXPECT(after.stall_us >= before.stall_us);
    cairn_save_free(copied);
}

static bool is_readable(int fd, int timeout_ms) {
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    return poll(&wanted, 1, timeout_ms) == 1;
}

TEST(a_fence_waits_for_the_copy_and_a_begin_does_not) {
    ALONE(FILL_BYTES);
    struct standing own = {0};
    AUTO_SAVE *save = NULL, *next = NULL;
    struct cairn_save_status status;
    static uint8_t memory[SMALL_BYTES];
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    int fd = cairn_save_fd(save);
    AWAIT(atomic_load(&own.stands));
    EXPECT_FAILS(cairn_save_fence(save, SHORT_MS, &err), CAIRN_TIMEOUT, "not copied yet: ");
    EXPECT_CODE(cairn_save_poll(save, CAIRN_COPIED, &err), CAIRN_TIMEOUT);
    EXPECT_FAILS(cairn_save_wait(save, CAIRN_COMMITTED, SHORT_MS, &err), CAIRN_TIMEOUT,
                 "not copied yet: ");
    EXPECT(!is_readable(fd, 0));
    cairn_save_status(save, &status);
    EXPECT(status.stall_us >= (SHORT_MS - 1) * 1000); /* deadlines are whole ms of the clock */
    /* The next one has memory of its own, and its turn comes after this one's. */
    write_bytes(memory, SMALL_BYTES, 1);
    REQUIRE_OK(cairn_save_begin(team.sessions[0], 1, NULL, &next, &err));
    REQUIRE_OK(describe(next, memory, SMALL_BYTES, &err));
    REQUIRE_OK(cairn_save_stage_begin(next, &err));
    EXPECT_CODE(cairn_save_fence(next, SHORT_MS, &err), CAIRN_TIMEOUT);
    atomic_store(&own.go_on, true);
    EXPECT(is_readable(fd, (int)HANG_MS));
    EXPECT_CODE(cairn_save_fence(save, HANG_MS, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_poll(save, CAIRN_COPIED, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_wait(next, CAIRN_COPIED, 0, &err), CAIRN_OK);
    EXPECT_CODE(commit(save, &err), CAIRN_OK);
    EXPECT_CODE(commit(next, &err), CAIRN_OK);
    EXPECT(is_saved(team.sessions[0], 0, FILL_BYTES, &err));
    EXPECT(is_saved(team.sessions[0], 1, SMALL_BYTES, &err));
}

TEST(what_is_copied_is_in_the_store_while_the_rest_is_still_copied) {
    ALONE(FILL_BYTES);
    struct standing own = {.from = FILL_BYTES - CAIRN_MIB}; /* its third segment, by the header */
    AUTO_SAVE *save = NULL;
    struct cairn_save_status status;
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    AWAIT(atomic_load(&own.stands));
    AWAIT((cairn_save_status(save, &status), status.sent_bytes >= 2 * SEGMENT_BYTES));
    EXPECT_CODE(cairn_save_poll(save, CAIRN_COPIED, &err), CAIRN_TIMEOUT);
    atomic_store(&own.go_on, true);
    EXPECT_CODE(commit(save, &err), CAIRN_OK);
    EXPECT(is_saved(team.sessions[0], 0, FILL_BYTES, &err));
}

TEST(a_copy_beside_training_yields_to_it) {
    ALONE(FILL_BYTES);
    struct standing own = {.from = SEGMENT_BYTES};
    AUTO_SAVE *save = NULL;
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    AWAIT(atomic_load(&own.stands));
    EXPECT(own.thread != gettid());
    EXPECT(own.nice > getpriority(PRIO_PROCESS, 0) ||
           own.nice == 19); /* nothing is nicer than 19 */
    atomic_store(&own.go_on, true);
    EXPECT_CODE(commit(save, &err), CAIRN_OK);
    EXPECT(is_saved(team.sessions[0], 0, FILL_BYTES, &err));
}

struct waiter {
    pthread_t thread;
    int id;
    _Atomic bool done;
};

static void taken(int number) {
    (void)number;
}

static void *interrupt(void *owner) {
    const struct waiter *waits = owner;
    while (!atomic_load(&waits->done)) { /* a signal before the call ends nothing */
        if (cairn_test_thread_sleeps(waits->id)) pthread_kill(waits->thread, SIGUSR1);
        cairn_test_pause_ms(3); /* step of a poll */
    }
    return NULL;
}

TEST(a_signal_ends_a_fence_where_the_session_asked_for_it_and_the_fence_may_be_repeated) {
    ALONE(FILL_BYTES);
    struct standing own = {0};
    AUTO_SAVE *save = NULL;
    struct waiter waits = {.thread = pthread_self(), .id = gettid()};
    const struct sigaction action = {.sa_handler = taken, .sa_flags = SA_RESTART};
    struct cairn_open_options options = team_options(&team, 0);
    pthread_t thread;
    options.bytes = FILL_BYTES;
    options.job = "job-2";
    options.interruptible = 1;
    REQUIRE(!sigaction(SIGUSR1, &action, NULL));
    REQUIRE_OK(cairn_close(CAIRN_TAKE(team.sessions[0]), &err));
    REQUIRE_OK(cairn_open(&options, &team.sessions[0], NULL, &err));
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    AWAIT(atomic_load(&own.stands));
    REQUIRE(!pthread_create(&thread, NULL, interrupt, &waits));
    EXPECT_CODE(cairn_save_fence(save, HANG_MS, &err), CAIRN_INTERRUPTED);
    atomic_store(&waits.done, true);
    pthread_join(thread, NULL);
    atomic_store(&own.go_on, true);
    EXPECT_CODE(cairn_save_fence(save, HANG_MS, &err), CAIRN_OK);
    EXPECT_CODE(commit(save, &err), CAIRN_OK);
    EXPECT(is_saved(team.sessions[0], 0, FILL_BYTES, &err));
}

struct third {
    struct cairn_session *session;
    struct cairn_save *save;
    enum cairn_code code;
};

static void *begin_third(void *owner) {
    struct third *own = owner;
    own->code = cairn_save_begin(own->session, 4, NULL, &own->save, NULL);
    return NULL;
}

TEST(the_begin_after_the_next_one_waits_for_the_memory_of_a_copy_or_says_that_there_is_none) {
    ALONE(FILL_BYTES);
    struct standing own = {0}, second = {.go_on = true};
    struct third third = {.session = team.sessions[0]};
    AUTO_SAVE *save = NULL, *next = NULL, *none = NULL;
    struct cairn_save_status status;
    pthread_t thread;
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    REQUIRE_OK(begin_standing(team.sessions[0], 1, &second, &next, &err));
    const struct cairn_save_options brief = SIZED(cairn_save_options, .timeout_ms = SHORT_MS);
    EXPECT_CODE(cairn_save_begin(team.sessions[0], 2, &brief, &none, &err), CAIRN_TIMEOUT);
    const struct cairn_save_options skips = SIZED(cairn_save_options, .skip = 1);
    EXPECT_CODE(cairn_save_begin(team.sessions[0], 3, &skips, &none, &err), CAIRN_SKIPPED);
    REQUIRE(!pthread_create(&thread, NULL, begin_third, &third));
    EXPECT_CODE(cairn_save_fence(save, SHORT_MS, &err), CAIRN_TIMEOUT);
    atomic_store(&own.go_on, true);
    pthread_join(thread, NULL);
    EXPECT_CODE(third.code, CAIRN_OK);
    cairn_save_status(third.save, &status);
    EXPECT(status.wait_us > 0);
    cairn_save_free(third.save);
    EXPECT_CODE(commit(save, &err), CAIRN_OK);
    EXPECT_CODE(commit(next, &err), CAIRN_OK);
}

/* The first step of a thread that is started for a copy; helpers of a copy do without it. */
static _Atomic bool starts_no_thread;
int pthread_attr_init(pthread_attr_t *attributes) {
    int (*real)(pthread_attr_t * attributes) = NULL;
    void *symbol = dlsym(RTLD_NEXT, "pthread_attr_init");
    memcpy(&real, &symbol, sizeof real);
    return atomic_load(&starts_no_thread) ? ENOMEM : real(attributes);
}

TEST(where_no_thread_can_be_started_the_begin_copies_by_itself) {
    ALONE(FILL_BYTES);
    struct standing own = {.go_on = true};
    AUTO_SAVE *save = NULL;
    atomic_store(&starts_no_thread, true);
    enum cairn_code code = begin_standing(team.sessions[0], 0, &own, &save, &err);
    atomic_store(&starts_no_thread, false);
    REQUIRE_OK(code);
    EXPECT_CODE(cairn_save_poll(save, CAIRN_COPIED, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_fence(save, 0, &err), CAIRN_OK);
    EXPECT_CODE(commit(save, &err), CAIRN_OK);
    EXPECT(is_saved(team.sessions[0], 0, FILL_BYTES, &err));
}

TEST(a_save_that_is_cancelled_before_its_fence_is_read_no_more_after_it) {
    ALONE(FILL_BYTES);
    for (uint64_t step = 0; step < 4; step++) { /* more than there are generations */
        struct standing own = {0};
        AUTO_SAVE *save = NULL;
        REQUIRE_OK(begin_standing(team.sessions[0], step, &own, &save, &err));
        AWAIT(atomic_load(&own.stands));
        if (step % 2)
            EXPECT_CODE(cairn_save_cancel(save, "the loss is NaN", &err), CAIRN_OK);
        else
            EXPECT_CODE(cairn_save_fail(save, "the loss is NaN", &err), CAIRN_OK);
        EXPECT_CODE(cairn_save_fence(save, SHORT_MS, &err), CAIRN_TIMEOUT); /* it is read still */
        atomic_store(&own.go_on, true);
        EXPECT_FAILS(cairn_save_fence(save, 0, &err), CAIRN_CANCELLED, "the loss is NaN");
        memset(&own, 0xA5, sizeof own); /* nobody reads it any more */
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
            code = cairn_save_fence(save, HANG_MS, &err);
        EXPECT_FAILS(code, CAIRN_SOURCE_GONE, "returned 5 instead of 0");
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

struct caller {
    struct cairn_session *session;
    struct cairn_save *save, *next;
    bool again;
    enum cairn_code code;
    _Atomic int thread;
};

static void *call_on(void *owner) {
    struct caller *own = owner;
    atomic_store(&own->thread, gettid());
    own->code = own->again
                    ? cairn_save_again(own->session, 9, NULL, own->save, NULL, 0, &own->next, NULL)
                    : cairn_save_fence(own->save, HANG_MS, NULL);
    return NULL;
}

TEST(a_handle_that_is_freed_under_a_fence_or_a_repeat_of_its_save_is_kept_until_they_end) {
    ALONE(FILL_BYTES);
    for (uint64_t step = 0; step < 2; step++) {
        pthread_t threads[2], freeing;
        struct standing own = {0};
        struct cairn_save *save = NULL;
        REQUIRE_OK(begin_standing(team.sessions[0], step, &own, &save, &err));
        AWAIT(atomic_load(&own.stands));
        struct caller callers[2] = {{.session = team.sessions[0], .save = save},
                                    {.session = team.sessions[0], .save = save, .again = true}};
        for (size_t i = 0; i < 2; i++) {
            REQUIRE(!pthread_create(&threads[i], NULL, call_on, &callers[i]));
            AWAIT(atomic_load(&callers[i].thread) &&
                  cairn_test_thread_sleeps(atomic_load(&callers[i].thread)));
        }
        REQUIRE(!pthread_create(&freeing, NULL, free_save, save));
        AWAIT(cairn_test_thread_sleeps(atomic_load(&callers[0].thread)));
        atomic_store(&own.go_on, true);
        for (size_t i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        pthread_join(freeing, NULL);
        EXPECT(callers[0].code == CAIRN_OK || callers[0].code == CAIRN_CANCELLED);
        EXPECT(!callers[1].next || !callers[1].code);
        cairn_save_free(callers[1].next);
    }
    struct standing own = {.go_on = true};
    struct cairn_save *save = NULL;
    REQUIRE_OK(begin_standing(team.sessions[0], 20, &own, &save, &err));
    EXPECT_CODE(commit(save, &err), CAIRN_OK);
    cairn_save_free(save);
}

TEST(a_handle_that_is_freed_after_the_fence_leaves_its_save_to_the_session) {
    ALONE(FILL_BYTES);
    struct standing own = {.go_on = true};
    struct cairn_save *save = NULL;
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    EXPECT_CODE(cairn_save_fence(save, HANG_MS, &err), CAIRN_OK);
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

struct closing {
    struct cairn_session *session;
    enum cairn_code code;
    struct cairn_error err;
};

static void *close_and_tell(void *owner) {
    struct closing *own = owner;
    own->code = cairn_close(own->session, &own->err);
    return NULL;
}

TEST(a_copy_that_is_not_whole_at_the_deadline_of_the_close_ends_its_save) { /* P9 */
    ALONE(FILL_BYTES);
    pthread_t thread;
    struct standing own = {0};
    struct cairn_restore *restore = NULL;
    struct cairn_open_options options = team_options(&team, 0);
    options.bytes = FILL_BYTES;
    options.job = "job-2";
    options.timeout_ms = CLOSE_MS;
    struct closing closing = {0};
    AUTO_SAVE *save = NULL;
    REQUIRE_OK(cairn_close(CAIRN_TAKE(team.sessions[0]), &err));
    REQUIRE_OK(cairn_open(&options, &closing.session, NULL, &err));
    REQUIRE_OK(begin_standing(closing.session, 0, &own, &save, &err));
    AWAIT(atomic_load(&own.stands));
    REQUIRE(!pthread_create(&thread, NULL, close_and_tell, &closing));
    enum cairn_code code = CAIRN_OK;
    AWAIT(cairn_save_over(save, &code));
    EXPECT_EQ_U64(code, CAIRN_CANCELLED);
    atomic_store(&own.go_on, true); /* it is read until now */
    pthread_join(thread, NULL);
    EXPECT_EQ_U64(closing.code, CAIRN_CANCELLED);
    EXPECT(strstr(closing.err.message, "closed before it was copied") != NULL);
    memset(&own, 0xA5, sizeof own); /* nobody reads it any more */
    REQUIRE_OK(open_one(&team, FILL_BYTES, "job-3", &err));
    const struct cairn_restore_options first = SIZED(cairn_restore_options, .ref = "0");
    code = cairn_restore_open(team.sessions[0], &first, &restore, NULL, &err);
    EXPECT(code == CAIRN_NOT_FOUND || code == CAIRN_NOT_COMMITTED);
}

struct renewing {
    struct cairn_session *session;
    struct cairn_open_options options;
    enum cairn_code code;
};

static void *renew(void *owner) {
    struct renewing *own = owner;
    own->code = cairn_session_renew(own->session, &own->options, NULL, NULL);
    return NULL;
}

TEST(a_session_that_is_renewed_before_the_fence_waits_for_the_copy_and_its_save_is_committed) {
    ALONE(FILL_BYTES);
    pthread_t thread;
    struct standing own = {0};
    AUTO_SAVE *save = NULL;
    struct renewing renewing = {.session = team.sessions[0], .options = team_options(&team, 0)};
    renewing.options.bytes = FILL_BYTES;
    renewing.options.wait_staged_ms = HANG_MS;
    renewing.options.job = "job-2";
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    AWAIT(atomic_load(&own.stands));
    REQUIRE(!pthread_create(&thread, NULL, renew, &renewing));
    atomic_store(&own.go_on, true);
    pthread_join(thread, NULL);
    EXPECT_CODE(renewing.code, CAIRN_OK);
    EXPECT_CODE(cairn_save_fence(save, 0, &err), CAIRN_INVALID); /* of the former attempt */
    AWAIT(is_saved(team.sessions[0], 0, FILL_BYTES, &err));
}

TEST(a_fence_holds_although_the_uploader_died_and_the_next_one_seals_the_save) { /* Q43 */
    ALONE(FILL_BYTES);
    struct standing own = {0};
    AUTO_SAVE *save = NULL;
    REQUIRE_OK(begin_standing(team.sessions[0], 0, &own, &save, &err));
    AWAIT(atomic_load(&own.stands));
    cairn_world_uploader_kill(&team.world, 0);
    atomic_store(&own.go_on, true);
    EXPECT_CODE(cairn_save_fence(save, HANG_MS, &err), CAIRN_OK);
    AWAIT(cairn_test_away(save));
    EXPECT_CODE(cairn_save_poll(save, CAIRN_STAGED, &err), CAIRN_UPLOADER_GONE);
    REQUIRE_OK(cairn_world_uploader_start(&team.world, 0, NULL, &err));
    EXPECT_CODE(commit(save, &err), CAIRN_OK);
    EXPECT(!cairn_test_away(save));
    EXPECT(is_saved(team.sessions[0], 0, FILL_BYTES, &err));
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
    EXPECT_CODE(cairn_save_fence(save, HANG_MS, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_stage_begin(save, &err), CAIRN_INVALID);
    REQUIRE_OK(cairn_save_seal(save, &err));
    EXPECT_CODE(cairn_save_fence(save, HANG_MS, &err), CAIRN_OK);
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
        EXPECT_CODE(cairn_save_wait(asking.save, CAIRN_STAGED, HANG_MS, &err), CAIRN_OK);
        atomic_store(&asking.enough, true);
        REQUIRE(!pthread_join(thread, NULL));
        cairn_save_free(asking.save);
    }
}

/* ---- what may happen between begin and fence, while the trainer lives ---- */

/* Of two steps in a row with two memories; the optimizer changes both behind their fences. */
struct pair {
    struct cairn_save *saves[2];
    uint8_t *memory[2];
};

static enum cairn_code begin_copy(struct cairn_team *team, struct pair *pair, int which,
                                  uint64_t step, struct cairn_error *err) {
    enum cairn_code code;
    write_bytes(pair->memory[which], LARGE_BYTES, step);
    (void)AWAIT((code = cairn_save_begin(team->sessions[0], step, NULL, &pair->saves[which],
                                         err)) != CAIRN_UPLOADER_GONE);
    if (!code) code = describe(pair->saves[which], pair->memory[which], LARGE_BYTES, err);
    return code ? code : cairn_save_stage_begin(pair->saves[which], err);
}

static enum cairn_code fence(struct pair *pair, int which, struct cairn_error *err) {
    enum cairn_code code = cairn_save_fence(pair->saves[which], HANG_MS, err);
    memset(pair->memory[which], 0xA5, LARGE_BYTES);
    return code;
}

/* It ends committed with the right bytes, or cancelled; *ret: which. */
static enum cairn_code settle(struct cairn_team *team, struct pair *pair, int which, uint64_t step,
                              bool *ret_committed, struct cairn_error *err) {
    enum cairn_code code = commit(pair->saves[which], err);
    cairn_save_free(CAIRN_TAKE(pair->saves[which]));
    *ret_committed = code == CAIRN_OK;
    if (code || is_saved(team->sessions[0], step, LARGE_BYTES, err)) return code;
    return cairn_fail(err, CAIRN_CORRUPT, "step %" PRIu64 " is another", step);
}

TEST(cancels_deaths_and_the_next_save_before_the_fence_do_no_harm) { /* P4, Q43 */
    enum { CANCELLED, UPLOADER_DIES, NEXT_BEGUN, NEXT_BEGUN_AND_CANCELLED, KINDS };
    ALONE(LARGE_BYTES);
    struct pair pair = {.memory = {malloc(LARGE_BYTES), malloc(LARGE_BYTES)}};
    uint64_t seed = cairn_test_seed();
    REQUIRE(pair.memory[0] && pair.memory[1]);
    for (unsigned i = 0; i < DEATHS; i++) {
        uint64_t step = 1 + 2 * i;
        bool first = false, second = false;
        int kind = (int)(cairn_test_random(&seed) % KINDS);
        bool next = kind >= NEXT_BEGUN;
        REQUIRE_OK(begin_copy(&team, &pair, 0, step, &err));
        (void)usleep((unsigned)(cairn_test_random(&seed) % 20000)); /* pause of chaos */
        if (next) REQUIRE_OK(begin_copy(&team, &pair, 1, step + 1, &err));
        if (kind == UPLOADER_DIES) {
            REQUIRE_OK(cairn_world_uploader_again(&team.world, 0, &err));
        }
        if (kind == CANCELLED || kind == NEXT_BEGUN_AND_CANCELLED) {
            enum cairn_code code = cairn_save_cancel(pair.saves[0], "no more", &err);
            EXPECT(code == CAIRN_OK || code == CAIRN_ALREADY_COMMITTED);
        }
        enum cairn_code fenced = fence(&pair, 0, &err);
        EXPECT(fenced == CAIRN_OK || fenced == CAIRN_CANCELLED);
        if (next) EXPECT_CODE(fence(&pair, 1, &err), CAIRN_OK);
        enum cairn_code code = settle(&team, &pair, 0, step, &first, &err);
        bool may_end = kind == CANCELLED || kind == NEXT_BEGUN_AND_CANCELLED;
        EXPECT(code == CAIRN_OK || (may_end && code == CAIRN_CANCELLED));
        if (next) EXPECT_CODE(settle(&team, &pair, 1, step + 1, &second, &err), CAIRN_OK);
    }
    free(pair.memory[0]);
    free(pair.memory[1]);
    EXPECT_CODE(cairn_session_problem(team.sessions[0], &err), CAIRN_OK);
}

/* ---- the trainer dies before its fence ---- */

/* Saves steps until it is killed, and says of each when its copy has begun. */
static void save_until_killed(struct cairn_team *team, unsigned life, int tell_fd) {
    struct cairn_error err = {0};
    uint8_t *memory = malloc(LARGE_BYTES);
    const char *job = TEXT("job-%u", life);
    if (!memory || open_one(team, LARGE_BYTES, job, &err)) _exit(1);
    for (uint64_t step = 1 + 100 * life;; step++) {
        AUTO_SAVE *save = NULL;
        write_bytes(memory, LARGE_BYTES, step);
        enum cairn_code code = cairn_save_begin(team->sessions[0], step, NULL, &save, &err);
        if (!code) code = describe(save, memory, LARGE_BYTES, &err);
        if (!code) code = cairn_save_stage_begin(save, &err);
        if (code || write(tell_fd, "b", 1) != 1) _exit(1);
        if (cairn_save_fence(save, 0, &err)) _exit(1);
        memset(memory, 0xA5, LARGE_BYTES); /* the optimizer */
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

TEST(k03_a_trainer_that_dies_between_begin_and_fence_leaves_nothing_wrong, err) { /* K03 */
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
