/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Calls that wait: for whom, for how long, and what they say when it was too long. */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "tests/client/rank.h"

/* ---- what happens a moment later ---- */

struct later {
    pthread_t thread;
    struct cairn_rank *rank;
    json_t *event; /* NULL: the uploader comes back */
    pthread_t signalled;
    int signal; /* 0: none */
};

static void *come(void *argument) {
    struct later *later = argument;
    (void)COMES(cairn_test_thread_sleeps(getpid())); /* the main thread waits */
    if (later->signal)
        pthread_kill(later->signalled, later->signal);
    else if (later->event)
        cairn_fake_uploader_event(later->rank->fake, later->event);
    else
        (void)cairn_fake_uploader_up(later->rank->fake, NULL);
    return NULL;
}

static bool comes_later(struct later *later) {
    return pthread_create(&later->thread, NULL, come, later) == 0;
}

static struct cairn_open_options reader_options(const struct cairn_rank *rank) {
    return SIZED(cairn_open_options, .run = "llm/7b", .world_size = 4, .socket = rank->path,
                 .read_only = 1, .timeout_ms = HANG_MS);
}

/* ---- an uploader that is away ---- */

TEST(a_read_only_open_waits_for_an_uploader_that_restarts_until_its_deadline) {
    RANK_UPLOADER(1);
    cairn_fake_uploader_down(rank.fake);
    struct cairn_open_options options = reader_options(&rank);
    options.timeout_ms = 400;
    uint64_t started_ms = cairn_mono_ms();
    EXPECT_CODE(cairn_open(&options, &rank.session, NULL, &err), CAIRN_UPLOADER_GONE);
    EXPECT(strstr(err.message, rank.path) != NULL);
    EXPECT(cairn_mono_ms() - started_ms >= 400);
    options.timeout_ms = HANG_MS;
    struct later back = {.rank = &rank};
    REQUIRE(comes_later(&back));
    EXPECT_CODE(cairn_open(&options, &rank.session, NULL, &err), CAIRN_OK);
    pthread_join(back.thread, NULL);
}

TEST(a_list_waits_for_an_uploader_that_restarts) {
    RANK_UPLOADER(1);
    AUTO_LIST *list = NULL;
    size_t count = 0;
    struct cairn_open_options options = reader_options(&rank);
    REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err));
    cairn_fake_uploader_down(rank.fake);
    cairn_test_pause_ms(1000); /* pause of a stand-in: longer than a save waits for it */
    struct later back = {.rank = &rank};
    REQUIRE(comes_later(&back));
    EXPECT_CODE(cairn_list(rank.session, &list, &count, &err), CAIRN_OK);
    pthread_join(back.thread, NULL);
}

/* ---- an uploader that is there and says nothing ---- */

static void expect_silent(const struct cairn_rank *rank, const struct cairn_error *err) {
    const char *process = TEXT("(process %d)", (int)getpid()); /* the fake is a thread */
    cairn_test_check(err->code == CAIRN_TIMEOUT && strstr(err->message, rank->path) &&
                         strstr(err->message, process) && strstr(err->message, "does not answer"),
                     __FILE__, __LINE__, "%s", err->message);
}

TEST(an_uploader_that_hangs_is_named_with_its_process_within_the_deadline) {
    RANK_UPLOADER(2);
    AUTO_SAVE *save = NULL;
    struct cairn_checkpoint *list = NULL;
    size_t count = 0;
    struct cairn_open_options options = rank_options(&rank);
    options.timeout_ms = 300;
    cairn_fake_uploader_script(rank.fake, "hello", "mute");
    EXPECT_CODE(cairn_open(&options, &rank.session, NULL, &err), CAIRN_TIMEOUT);
    expect_silent(&rank, &err);
    REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err));
    cairn_test_pause_ms(2); /* pause of a stand-in: it has answered, and says nothing more */
    cairn_fake_uploader_script(rank.fake, "list", "mute");
    EXPECT_CODE(cairn_list(rank.session, &list, &count, &err), CAIRN_TIMEOUT);
    expect_silent(&rank, &err);
    cairn_fake_uploader_script(rank.fake, "seal", "mute");
    EXPECT_CODE(rank_save(rank.session, 1, &save, &err), CAIRN_TIMEOUT);
    EXPECT(strstr(err.message, rank.path) != NULL);
}

TEST(a_wait_tells_an_uploader_that_hangs_from_one_that_has_nothing_to_say) {
    RANK(2);
    SAVED(save, 1);
    cairn_test_pause_ms(2); /* pause of a stand-in: it has answered, and says nothing more */
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, 200, &err), CAIRN_TIMEOUT);
    EXPECT(strstr(err.message, "does not answer") == NULL);
    cairn_fake_uploader_script(rank.fake, "release", "mute");
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, 200, &err), CAIRN_TIMEOUT);
    expect_silent(&rank, &err);
    EXPECT_CODE(cairn_save_wait(save, CAIRN_STAGED, HANG_MS, &err), CAIRN_OK);
}

TEST(a_wait_that_is_too_short_for_an_answer_does_not_blame_the_uploader) {
    RANK(2);
    SAVED(save, 1);
    cairn_fake_uploader_script(rank.fake, "release", "mute");
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, 20, &err), CAIRN_TIMEOUT);
    EXPECT(!strstr(err.message, "does not answer"));
    EXPECT(strstr(err.message, "yet") != NULL);
}

/* The rank table is larger than a socket holds, so that its seal cannot be sent. */
TEST(a_session_is_closed_in_time_while_its_uploader_does_not_read) {
    RANK_UPLOADER(1);
    struct cairn_save *save = NULL;
    const float number = 1;
    RANK_OPENS(options.timeout_ms = 500);
    REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
    for (int i = 0; i < 10000; i++) {
        const char *name = TEXT("layers.%06d.attention.query.weight", i);
        REQUIRE_OK(rank_add(save, name, &number, 1, &err));
    }
    cairn_fake_uploader_offer_state(rank.fake, "continues");
    cairn_fake_uploader_down(rank.fake);
    EXPECT_STAGED_AWAY(save);
    EXPECT(err.code == CAIRN_OK && !err.message[0]); /* untouched */
    cairn_fake_uploader_script(rank.fake, "staged", "deaf");
    REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
    cairn_save_free(save);
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "staged", 1, NULL));
    EXPECT_CODE(cairn_close(rank.session, &err), CAIRN_UPLOADER_GONE);
    rank.session = NULL;
}

/* ---- what is missing ---- */

static json_t *trouble(const char *about, const char *code, const char *message) {
    return CAIRN_PACK(problem, .about = about, .code = code, .message = message);
}

/* The event was sent before; it is here when the wait has ended. A busy machine's uploader may
 * answer too late for one wait. */
static void expect_missing(struct cairn_save *save, enum cairn_milestone milestone,
                           const char *words) {
    struct cairn_error err = {0};
    enum cairn_code code;
    AWAIT((code = cairn_save_wait(save, milestone, 200, &err),
           code != CAIRN_TIMEOUT || !strstr(err.message, "does not answer")));
    EXPECT_CODE(code, CAIRN_TIMEOUT);
    cairn_test_check(strstr(err.message, words) != NULL, __FILE__, __LINE__, "\"%s\" lacks \"%s\"",
                     err.message, words);
}

TEST(a_wait_that_times_out_says_what_is_missing) {
    RANK(2);
    BEGUN(save, 1);
    REQUIRE_OK(cairn_save_raw(save, "one", "0123456789", 10, &err));
    REQUIRE_OK(cairn_save_raw(save, "two", "01234", 5, &err));
    REQUIRE_OK(cairn_save_stage(save, &err));
    expect_missing(save, CAIRN_DURABLE, "the store has 0 of 15 bytes");
    expect_missing(save, CAIRN_DURABLE, "2 of 2 shards");
    cairn_fake_uploader_event(rank.fake, CAIRN_PACK(released, .save = 1, .shard = 0, .bytes = 10));
    expect_missing(save, CAIRN_COMMITTED, "1 of 2 shards");
    expect_missing(save, CAIRN_COMMITTED, "rank-00003/two with 0 of 5 bytes");
    cairn_fake_uploader_event(rank.fake, trouble("store", "unavailable", "not mounted"));
    expect_missing(save, CAIRN_COMMITTED, "the store is away");
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_UNAVAILABLE);
    expect_missing(save, CAIRN_DURABLE, "s: not mounted"); /* also once it was told */
    cairn_fake_uploader_event(rank.fake, trouble("store", "ok", ""));
    cairn_fake_uploader_event(rank.fake, CAIRN_PACK(durable, .save = 1));
    expect_missing(save, CAIRN_COMMITTED, "every rank");
    cairn_fake_uploader_event(rank.fake, trouble("server", "unavailable", "refused"));
    expect_missing(save, CAIRN_COMMITTED, "the server is away");
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK);
    cairn_fake_uploader_event(rank.fake, trouble("server", "ok", ""));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, 200, &err), CAIRN_TIMEOUT);
    EXPECT(strstr(err.message, "away") == NULL);
}

struct waiter {
    struct cairn_save *save;
    uint32_t timeout_ms;
    enum cairn_code code;
    struct cairn_error err;
};
static void *wait_for_commit(void *argument) {
    struct waiter *waiter = argument;
    waiter->code = cairn_save_wait(waiter->save, CAIRN_COMMITTED, waiter->timeout_ms, &waiter->err);
    return NULL;
}

struct visitor {
    struct cairn_save *save;
    enum cairn_code code;
    _Atomic int thread;
};
static void *visit(void *argument) {
    struct visitor *visitor = argument;
    atomic_store(&visitor->thread, gettid());
    visitor->code = cairn_save_wait(visitor->save, CAIRN_COMMITTED, HANG_MS, NULL);
    return NULL;
}

TEST(a_save_that_is_freed_while_a_thread_waits_for_it_ends_that_wait_with_its_verdict) {
    EACH_TEXT(state, "committed", "aborted") {
        RANK(1);
        pthread_t thread;
        struct visitor visitor = {0};
        REQUIRE_OK(rank_save(rank.session, 1, &visitor.save, &err));
        REQUIRE(!pthread_create(&thread, NULL, visit, &visitor));
        AWAIT(atomic_load(&visitor.thread) &&
              cairn_test_thread_sleeps(atomic_load(&visitor.thread)));
        cairn_save_free(visitor.save);
        cairn_fake_uploader_event(rank.fake,
                                  rank_verdict(1, state, AT_OF(state) ? "no-space" : ""));
        pthread_join(thread, NULL);
        EXPECT_CODE(visitor.code, AT_OF(state) ? CAIRN_NO_SPACE : CAIRN_OK);
    }
}

/* Each wait asks when half of its time is over; the first one still waits when the second asks. */
TEST(two_threads_that_wait_for_one_save_both_hear_why_it_is_not_committed, err) {
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_save *save = NULL;
    pthread_t threads[2];
    REQUIRE_OK(rank_open(&rank, 2, &err));
    REQUIRE_OK(rank_save(rank.session, 1, &save, &err));
    cairn_fake_uploader_event(rank.fake, CAIRN_PACK(durable, .save = 1));
    REQUIRE_OK(cairn_save_wait(save, CAIRN_DURABLE, HANG_MS, &err));
    struct waiter waiters[2] = {{.save = save, .timeout_ms = 600},
                                {.save = save, .timeout_ms = 800}};
    for (size_t i = 0; i < 2; i++) {
        struct cairn_fake_message asked;
        cairn_fake_uploader_script(rank.fake, "why", "mute");
        if (!i)
            for (size_t k = 0; k < 2; k++)
                REQUIRE(!pthread_create(&threads[k], NULL, wait_for_commit, &waiters[k]));
        EXPECT(cairn_fake_uploader_saw(rank.fake, "why", i + 1, &asked));
    }
    for (size_t i = 0; i < 2; i++) {
        struct cairn_fake_message asked;
        if (!EXPECT(cairn_fake_uploader_at(rank.fake, "why", i, &asked))) continue;
        json_t *told = CAIRN_PACK(save_waits, .reason = "rank 2 has not sealed");
        (void)json_object_set(told, "id", json_object_get(asked.message, "id"));
        cairn_fake_uploader_event(rank.fake, told);
    }
    for (size_t i = 0; i < 2; i++) {
        REQUIRE(!pthread_join(threads[i], NULL));
        EXPECT_CODE(waiters[i].code, CAIRN_TIMEOUT);
        EXPECT(strstr(waiters[i].err.message, "rank 2 has not sealed") != NULL);
    }
    cairn_save_free(save);
}

/* ---- a save that another rank has ended ---- */

TEST(a_file_for_a_save_that_ended_answers_with_its_verdict, err) {
    CAIRN_AUTO(rank) rank = {0};
    AUTO_SAVE *save = NULL;
    CAIRN_AUTO_FD fd = open("/dev/shm/cairn-test-file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && write(fd, "0123", 4) == 4 && unlink("/dev/shm/cairn-test-file") == 0);
    REQUIRE_OK(rank_open(&rank, 2, &err));
    REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
    cairn_fake_uploader_script(rank.fake, "file", "ended");
    EXPECT_FAILS(cairn_save_file(save, "f", fd, 4, &err), CAIRN_NO_SPACE, "the server says so");
}

TEST(giving_up_a_save_that_ended_is_no_error) {
    RANK(2);
    BEGUN(save, 1);
    cairn_fake_uploader_script(rank.fake, "fail", "ended");
    EXPECT_CODE(cairn_save_fail(save, "mine", &err), CAIRN_OK);
}

/* The uploader sends a save's verdict before it forgets its number, so `not-found` without one says
 * that none will come. */
TEST(a_call_that_is_refused_as_not_found_without_a_verdict_ends_at_once) {
    RANK(2);
    AUTO_SAVE *sealed = NULL;
    BEGUN(save, 1);
    cairn_fake_uploader_script(rank.fake, "fail", "not-found");
    EXPECT_CODE(cairn_save_fail(save, "mine", &err), CAIRN_NOT_FOUND);
    cairn_fake_uploader_script(rank.fake, "seal", "not-found");
    EXPECT_CODE(rank_save(rank.session, 2, &sealed, &err), CAIRN_NOT_FOUND);
}

/* ---- handles that are left behind ---- */

TEST(handles_of_saves_that_ended_hold_no_memory) {
    RANK(2);
    struct cairn_save *left[2] = {NULL, NULL}, *next = NULL;
    for (uint64_t i = 0; i < 2; i++) {
        REQUIRE_OK(cairn_save_begin(rank.session, i + 1, NULL, &left[i], &err));
        cairn_fake_uploader_event(rank.fake, rank_verdict(i + 1, "aborted", "checkpoint-aborted"));
    }
    EXPECT_CODE(rank_save(rank.session, 3, &next, &err), CAIRN_OK);
    for (size_t i = 0; i < 2; i++) EXPECT_CODE(cairn_save_stage(left[i], &err), CAIRN_ABORTED);
    for (size_t i = 0; i < 2; i++) cairn_save_free(left[i]);
    cairn_save_free(next);
}

TEST(a_handle_that_is_left_behind_an_error_gives_its_memory_to_a_later_save) {
    RANK(2);
    struct cairn_save *left[2] = {NULL, NULL}, *next = NULL;
    for (uint64_t i = 0; i < 2; i++) {
        REQUIRE_OK(cairn_save_begin(rank.session, i + 1, NULL, &left[i], &err));
        EXPECT_CODE(cairn_save_raw(left[i], "/not/allowed", "0", 1, &err), CAIRN_INVALID);
    }
    EXPECT_CODE(rank_save(rank.session, 3, &next, &err), CAIRN_OK);
    EXPECT(cairn_fake_uploader_saw(rank.fake, "fail", 1, NULL)); /* Q8: for all ranks */
    size_t ended = 0;
    for (size_t i = 0; i < 2; i++) ended += cairn_save_stage(left[i], &err) == CAIRN_CANCELLED;
    EXPECT_EQ_U64(ended, 1);
    for (size_t i = 0; i < 2; i++) cairn_save_free(left[i]);
    cairn_save_free(next);
}

TEST(a_begin_that_waits_for_handles_names_the_step_that_holds_the_memory) {
    RANK(1);
    struct cairn_save *left = NULL, *next = NULL;
    REQUIRE_OK(cairn_save_begin(rank.session, 41, NULL, &left, &err));
    const struct cairn_save_options soon = {.size = sizeof soon, .timeout_ms = 100};
    EXPECT_FAILS(cairn_save_begin(rank.session, 42, &soon, &next, &err), CAIRN_TIMEOUT,
                 "step 41 was begun and neither staged nor freed");
    cairn_save_free(left);
}

/* ---- signals ---- */

static void taken(int number) {
    (void)number;
}

/* SA_RESTART: what a careful program installs must interrupt, too. */
static void take_signals(void) {
    const struct sigaction action = {.sa_handler = taken, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
}

TEST(a_signal_ends_a_call_that_waits_where_the_session_asked_for_it) {
    for (int interruptible = 0; interruptible < 2; interruptible++) {
        struct cairn_error err = {0};
        CAIRN_AUTO(rank) rank = {0};
        AUTO_SAVE *second = NULL;
        take_signals();
        REQUIRE_OK(rank_uploader(&rank, 2, &err));
        RANK_OPENS(options.interruptible = interruptible);
        SAVED(save, 1);
        struct later signal = {.signal = SIGUSR1, .signalled = pthread_self()};
        REQUIRE(comes_later(&signal));
        EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, interruptible ? HANG_MS : 800, &err),
                    interruptible ? CAIRN_INTERRUPTED : CAIRN_TIMEOUT);
        pthread_join(signal.thread, NULL);
        cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
        EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_OK);
        cairn_fake_uploader_script(rank.fake, "begin", "late");
        REQUIRE(comes_later(&signal));
        EXPECT_CODE(cairn_save_begin(rank.session, 2, NULL, &second, &err),
                    interruptible ? CAIRN_INTERRUPTED : CAIRN_OK);
        pthread_join(signal.thread, NULL);
    }
}

/* The call that maps the slabs stands between two waits of an open. */
static bool raises_in_madvise;
int madvise(void *address, size_t size, int advice) {
    if (raises_in_madvise) raise(SIGUSR1);
    return (int)syscall(SYS_madvise, address, size, advice);
}

TEST(a_signal_between_two_waits_of_an_open_ends_it_and_the_programs_mask_is_as_before) {
    for (int interruptible = 0; interruptible < 2; interruptible++) {
        struct cairn_error err = {0};
        CAIRN_AUTO(rank) rank = {0};
        sigset_t mask;
        take_signals();
        REQUIRE_OK(rank_uploader(&rank, 1, &err));
        struct cairn_open_options options = rank_options(&rank);
        options.interruptible = interruptible;
        cairn_fake_uploader_script(rank.fake, "mapped", "late");
        raises_in_madvise = true;
        enum cairn_code code = cairn_open(&options, &rank.session, NULL, &err);
        raises_in_madvise = false;
        EXPECT_EQ_U64(code, interruptible ? CAIRN_INTERRUPTED : CAIRN_OK);
        pthread_sigmask(SIG_SETMASK, NULL, &mask);
        EXPECT(!sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGINT));
    }
}

TEST(a_signal_ends_an_open_that_waits_where_it_asked_for_it, err) {
    CAIRN_AUTO(rank) rank = {0};
    take_signals();
    REQUIRE_OK(rank_uploader(&rank, 1, &err));
    for (int away = 0; away < 2; away++) {
        struct cairn_open_options options = reader_options(&rank);
        options.interruptible = 1;
        if (away)
            cairn_fake_uploader_down(rank.fake);
        else
            cairn_fake_uploader_script(rank.fake, "hello", "mute");
        struct later signal = {.signal = SIGUSR1, .signalled = pthread_self()};
        REQUIRE(comes_later(&signal));
        EXPECT_CODE(cairn_open(&options, &rank.session, NULL, &err), CAIRN_INTERRUPTED);
        pthread_join(signal.thread, NULL);
    }
}
