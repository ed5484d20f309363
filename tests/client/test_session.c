/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* ctest: as=session_behind env=CAIRN_TEST_BEHIND=1 races="full: as client/behind" */
/* The uploader is silent, refuses, or says unexpected things; the trainer forks; deadlines hold. */
#include "tests/client/rank.h"

static uint64_t u64_of(const json_t *object, const char *name) {
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

TEST(opening_without_an_uploader_says_so_at_once, err) {
    struct cairn_session *session = NULL;
    const struct cairn_open_options options = {
        .size = sizeof options, .run = "llm/7b", .socket = "/tmp/cairn-nobody.sock"};
    EXPECT_FAILS(cairn_open(&options, &session, NULL, &err), CAIRN_UPLOADER_GONE, "llm/7b rank 0");
    EXPECT(session == NULL);
}

TEST(options_that_cannot_be_right_are_refused, err) {
    struct cairn_session *session = NULL;
    const struct cairn_open_options bad[] = {
        SIZED(cairn_open_options, .run = NULL),
        SIZED(cairn_open_options, .run = "norun"),
        SIZED(cairn_open_options, .run = "a/b", .rank = 1),
        SIZED(cairn_open_options, .run = "a/b", .local_rank = 1),
        SIZED(cairn_open_options, .run = "a/b", .world_size = 2, .job = ""),
        SIZED(cairn_open_options, .run = "a/b", .bytes = UINT64_MAX),
        SIZED(cairn_open_options, .run = "a/b", .bytes = 10, .node_bytes = 9),
    };
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++)
        EXPECT_CODE(cairn_open(&bad[i], &session, NULL, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_open(NULL, &session, NULL, &err), CAIRN_INVALID);
}

TEST(a_refusal_at_each_step_of_opening_is_passed_on, err) {
    EACH(one, FIELDS(const char *name, *slug; enum cairn_code code),
         {"hello", "unsupported", CAIRN_UNSUPPORTED}, {"attempt", "job-reused", CAIRN_JOB_REUSED},
         {"attempt", "stale-attempt", CAIRN_STALE_ATTEMPT}, {"slabs", "no-memory", CAIRN_NO_MEMORY},
         {"mapped", "io-error", CAIRN_IO}) {
        CAIRN_AUTO(rank) rank = {0};
        REQUIRE_OK(rank_uploader(&rank, 1, &err));
        struct cairn_open_options options = rank_options(&rank);
        cairn_fake_uploader_script(rank.fake, one->name, one->slug);
        EXPECT_CODE(cairn_open(&options, &rank.session, NULL, &err), one->code);
    }
}

TEST(an_uploader_that_dies_over_the_opening_is_met_again, err) { /* Q2, K04 */
    EACH_TEXT(text, "hello", "attempt", "slabs", "mapped") {
        CAIRN_AUTO(rank) rank = {0};
        AUTO_SAVE *save = NULL;
        REQUIRE_OK(rank_uploader(&rank, 1, &err));
        struct cairn_open_options options = rank_options(&rank);
        cairn_fake_uploader_script(rank.fake, text, "drop");
        EXPECT_CODE(cairn_open(&options, &rank.session, NULL, &err), CAIRN_OK);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "hello"), 2);
        EXPECT_CODE(rank_save(rank.session, 1, &save, &err), CAIRN_OK);
    }
}

TEST(a_begin_that_the_uploader_died_over_is_asked_again_with_the_same_n) { /* Q8 */
    RANK(1);
    AUTO_SAVE *save = NULL;
    struct cairn_fake_message begin;
    cairn_fake_uploader_script(rank.fake, "begin", "drop");
    EXPECT_CODE(rank_save(rank.session, 1, &save, &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "begin"), 2);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "count"), 0);
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "begin", 2, &begin));
    EXPECT_EQ_U64(u64_of(begin.message, "n"), 1);
}

TEST(every_call_ends_by_its_deadline_when_the_uploader_is_silent) { /* P9 */
    RANK_UPLOADER(2);
    struct cairn_save *save = NULL;
    struct cairn_checkpoint *list = NULL;
    size_t count = 0;
    struct cairn_open_options options = rank_options(&rank);
    options.timeout_ms = 200;
    cairn_fake_uploader_script(rank.fake, "hello", "mute");
    EXPECT_CODE(cairn_open(&options, &rank.session, NULL, &err), CAIRN_TIMEOUT);
    REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err));

    cairn_fake_uploader_script(rank.fake, "begin", "mute");
    EXPECT_FAILS(cairn_save_begin(rank.session, 1, NULL, &save, &err), CAIRN_TIMEOUT,
                 "llm/7b step 1 rank 3");
    cairn_fake_uploader_script(rank.fake, "seal", "mute");
    EXPECT_CODE(rank_save(rank.session, 2, &save, &err), CAIRN_TIMEOUT);
    EXPECT_HAS(err.message, "sealed");
    cairn_save_free(save);
    cairn_fake_uploader_script(rank.fake, "list", "mute");
    EXPECT_CODE(cairn_list(rank.session, &list, &count, &err), CAIRN_TIMEOUT);
    REQUIRE_OK(rank_save(rank.session, 3, &save, &err));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, 100, &err), CAIRN_TIMEOUT);
    EXPECT_CODE(cairn_save_wait(save, CAIRN_STAGED, HANG_MS, &err), CAIRN_OK);
    cairn_save_free(save);
}

TEST(milestones_come_as_events_and_in_any_order) {
    RANK(1);
    struct cairn_save_status status;
    SAVED(save, 1);
    cairn_fake_uploader_event(rank.fake, json_pack("{s:s, s:i, s:i, s:i, s:i}", "t", "released",
                                                   "save", 1, "shard", 0, "offset", 0, "bytes", 4));
    cairn_fake_uploader_event(rank.fake, json_pack("{s:s, s:i}", "t", "durable", "save", 1));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_DURABLE, HANG_MS, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, 10, &err), CAIRN_TIMEOUT);
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_OK);
    cairn_save_status(save, &status);
    EXPECT_ALL_U64(status.reached, CAIRN_COMMITTED, status.durable_bytes, status.total_bytes);
    EXPECT(strncmp(status.version, "ckpt_", 5) == 0);
    EXPECT_CODE(cairn_save_fail(save, "too late", &err), CAIRN_ALREADY_COMMITTED);
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK);
}

TEST(a_save_that_fails_in_the_background_is_told_once_also_when_its_handle_is_gone) { /* P9 */
    RANK(2);
    struct cairn_save *save = NULL;
    REQUIRE_OK(rank_save(rank.session, 7, &save, &err));
    cairn_save_free(save);
    REQUIRE_OK(rank_save(rank.session, 8, &save, &err));
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "aborted", "checkpoint-aborted"));
    cairn_fake_uploader_event(rank.fake, rank_verdict(2, "refused", "step-exists"));
    EXPECT_FAILS(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_STEP_EXISTS,
                 "llm/7b step 8 rank 3: the server says so");
    EXPECT_FAILS(cairn_session_problem(rank.session, &err), CAIRN_ABORTED, "step 7");
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_wait(save, CAIRN_DURABLE, HANG_MS, &err), CAIRN_STEP_EXISTS);
    cairn_save_free(save);
}

TEST(a_save_that_ended_while_it_was_staged_says_why) { /* P9 */
    RANK(1);
    AUTO_SAVE *save = NULL;
    cairn_fake_uploader_script(rank.fake, "seal", "ended");
    EXPECT_FAILS(rank_save(rank.session, 1, &save, &err), CAIRN_NO_SPACE, "the server says so");
}

TEST(a_background_failure_does_not_fail_the_next_save) {
    RANK(2);
    SAVED(save, 7);
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "failed", "store-error"));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_DURABLE, HANG_MS, &err), CAIRN_STORE);
    SAVED(next, 8);
}

/* The I/O thread takes both frames in before the thread that asked wakes up. */
TEST(v27_a_verdict_right_behind_begun_is_not_missed) { /* Q43 */
    RANK(2);
    cairn_fake_uploader_verdict_behind_begun(rank.fake);
    for (uint64_t step = 1; step <= 20; step++) {
        AUTO_SAVE *save = NULL;
        enum cairn_code code = rank_save(rank.session, step, &save, &err);
        if (code == CAIRN_OK) code = cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err);
        EXPECT_CODE(code, CAIRN_ABORTED);
    }
}

TEST(a_save_waits_for_its_own_generation_only) { /* Q14, Q20 */
    RANK(2);
    struct cairn_save *saves[3] = {0};
    struct cairn_save_options brief = {.size = sizeof brief, .timeout_ms = 150},
                              skip = {.size = sizeof skip, .skip = 1};
    REQUIRE_OK(rank_save(rank.session, 1, &saves[0], &err));
    REQUIRE_OK(rank_save(rank.session, 2, &saves[1], &err));
    EXPECT_CODE(cairn_save_begin(rank.session, 3, &brief, &saves[2], &err), CAIRN_TIMEOUT);
    EXPECT_CODE(cairn_save_begin(rank.session, 4, &skip, &saves[2], &err), CAIRN_SKIPPED);
    EXPECT(cairn_fake_uploader_saw(rank.fake, "fail", 2, NULL)); /* both are told */
    cairn_fake_uploader_event(rank.fake, json_pack("{s:s, s:i, s:i}", "t", "free", "slab", 1,
                                                   "owner", 99)); /* Q41: of nobody here */
    EXPECT_CODE(cairn_save_begin(rank.session, 5, &brief, &saves[2], &err), CAIRN_TIMEOUT);
    cairn_fake_uploader_event(rank.fake,
                              json_pack("{s:s, s:i, s:i}", "t", "free", "slab", 1, "owner", 2));
    REQUIRE_OK(cairn_save_begin(rank.session, 6, &brief, &saves[2], &err));
    for (size_t i = 0; i < 3; i++) cairn_save_free(saves[i]);
}

TEST(a_skip_verdict_ends_the_begin) { /* Q11 */
    RANK(2);
    AUTO_SAVE *save = NULL, *second = NULL;
    struct cairn_save_options skip = {.size = sizeof skip, .skip = 1};
    REQUIRE_OK(cairn_save_begin(rank.session, 1, &skip, &save, &err));
    REQUIRE_OK(cairn_save_raw(save, "a", "b", 1, &err));
    REQUIRE_OK(cairn_save_stage(save, &err));
    pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
    uint64_t started_ms = cairn_mono_ms();
    EXPECT_CODE(cairn_save_begin(rank.session, 2, &skip, &second, &err), CAIRN_OK);
    EXPECT(cairn_mono_ms() - started_ms >= 900); /* it was unsent, no verdict came: go on */
}

TEST(k11_events_of_another_session_are_dropped) { /* K11 */
    RANK(1);
    SAVED(save, 1);
    json_t *foreign = rank_verdict(1, "committed", "");
    json_object_set_new(foreign, "session", json_string("00000000-0000-4000-8000-000000000000"));
    cairn_fake_uploader_event(rank.fake, foreign);
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, 100, &err), CAIRN_TIMEOUT);
}

TEST(an_offer_that_is_refused_for_good_ends_the_session_and_says_why) {
    RANK(1);
    struct cairn_save *save = NULL, *next = NULL;
    REQUIRE_OK(rank_save(rank.session, 1, &save, &err));
    cairn_fake_uploader_script(rank.fake, "offer", "stale-attempt");
    REQUIRE_OK(cairn_fake_uploader_again(rank.fake, &err));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_STALE_ATTEMPT);
    EXPECT_CODE(cairn_save_begin(rank.session, 2, NULL, &next, &err), CAIRN_STALE_ATTEMPT);
    cairn_save_free(save);
}

TEST(a_save_that_is_freed_or_closed_before_it_was_staged_is_failed) {
    RANK(1);
    struct cairn_save *save = NULL;
    REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
    cairn_save_free(save);
    EXPECT(cairn_fake_uploader_saw(rank.fake, "fail", 1, NULL));
    REQUIRE_OK(cairn_save_begin(rank.session, 2, NULL, &save, &err)); /* the generation is back */
    cairn_rank_leave(&rank);
    EXPECT(cairn_fake_uploader_saw(rank.fake, "bye", 1, NULL));
    EXPECT_CODE(cairn_save_raw(save, "a", "b", 1, &err), CAIRN_INVALID); /* the handle lives on */
    cairn_save_free(save);
}

TEST(a_session_that_says_goodbye_is_not_offered_again) {
    RANK_UPLOADER(1);
    struct cairn_open_options options = rank_options(&rank);
    for (int i = 0; i < 20; i++) {
        REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err));
        cairn_fake_uploader_script(rank.fake, "bye", "drop"); /* as a real one hangs up then */
        cairn_rank_leave(&rank);
    }
    EXPECT_EQ_U64(cairn_fake_uploader_connections(rank.fake), 0);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "hello"), 20);
}

TEST(giving_a_save_up_is_told_and_loses_against_a_commit) { /* Q40 */
    RANK(2);
    struct cairn_save *save = NULL;
    struct cairn_fake_message fail;
    REQUIRE_OK(rank_save(rank.session, 1, &save, &err));
    EXPECT_CODE(cairn_save_fail(save, "loss is NaN", &err), CAIRN_OK);
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "fail", 1, &fail));
    EXPECT_EQ_TEXT(json_string_value(json_object_get(fail.message, "reason")), "loss is NaN");
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_CANCELLED);
    cairn_save_free(save);
    REQUIRE_OK(rank_save(rank.session, 2, &save, &err));
    cairn_fake_uploader_script(rank.fake, "fail", "already-committed");
    EXPECT_CODE(cairn_save_fail(save, "", &err), CAIRN_ALREADY_COMMITTED);
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_OK);
    cairn_save_free(save);
}

TEST(k10_a_forked_child_is_refused_and_does_not_hold_the_connection) { /* K10 */
    RANK(1);
    struct cairn_save *save = NULL;
    int status = 0, hold[2];
    REQUIRE_OK(rank_save(rank.session, 1, &save, &err));
    REQUIRE(pipe(hold) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        struct cairn_save *other = NULL;
        char byte;
        close(hold[1]);
        bool fine = cairn_save_begin(rank.session, 2, NULL, &other, &err) == CAIRN_INVALID &&
                    cairn_save_wait(save, CAIRN_STAGED, 10, &err) == CAIRN_INVALID &&
                    cairn_session_problem(rank.session, &err) == CAIRN_INVALID;
        cairn_save_free(save);
        (void)cairn_close(rank.session, NULL);
        if (read(hold[0], &byte, 1) < 0) fine = false; /* until the parent is through */
        _exit(fine ? 0 : 1);
    }
    close(hold[0]);
    EXPECT_CODE(cairn_save_wait(save, CAIRN_STAGED, 10, &err), CAIRN_OK);
    cairn_save_free(save);
    (void)cairn_close(rank.session, NULL); /* the child has a copy of the socket */
    rank.session = NULL;
    EXPECT(cairn_fake_uploader_saw(rank.fake, "bye", 1, NULL));
    EXPECT_EQ_U64(cairn_fake_uploader_connections(rank.fake), 0);
    close(hold[1]);
    REQUIRE(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status));
    EXPECT_EQ_U64(WEXITSTATUS(status), 0);
}

TEST(a_read_only_session_opens_no_attempt_and_cannot_save) {
    RANK_UPLOADER(1);
    struct cairn_save *save = NULL;
    const struct cairn_open_options options = SIZED(
        cairn_open_options, .run = "llm/7b", .world_size = 4, .socket = rank.path, .read_only = 1);
    REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err));
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "attempt"), 0);
    EXPECT_CODE(cairn_save_begin(rank.session, 1, NULL, &save, &err), CAIRN_INVALID);
}

TEST(what_an_older_uploader_does_not_know_is_not_asked_of_it, err) {
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_restore *restore = NULL;
    struct cairn_session *reader = NULL;
    struct cairn_fake_message hello;
    REQUIRE_OK(rank_uploader(&rank, 1, &err));
    cairn_fake_uploader_speaks(rank.fake, 7);
    RANK_OPENS();
    const struct cairn_restore_options look = {.size = sizeof look, .look = 1};
    EXPECT_CODE(cairn_restore_open(rank.session, &look, &restore, NULL, &err), CAIRN_UNSUPPORTED);
    const struct cairn_restore_options other = {.size = sizeof other, .run = "llm/13b"};
    EXPECT_CODE(cairn_restore_open(rank.session, &other, &restore, NULL, &err), CAIRN_UNSUPPORTED);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "restore"), 0);
    /* It would want a run, and refuses the hello. */
    struct cairn_open_options of_none = {
        .size = sizeof of_none, .socket = rank.path, .read_only = 1, .timeout_ms = HANG_MS};
    cairn_fake_uploader_script(rank.fake, "hello", "invalid");
    EXPECT_FAILS(cairn_open(&of_none, &reader, NULL, &err), CAIRN_UNSUPPORTED, "older release");
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "hello", 2, &hello));
    EXPECT_EQ_TEXT(json_string_value(json_object_get(hello.message, "run")), "");
    EXPECT_EQ_U64((uint64_t)json_integer_value(json_object_get(hello.message, "min")), 8);
}

TEST(a_look_that_is_freed_says_nothing_to_the_uploader, err) {
    CAIRN_AUTO(rank) rank = {0};
    CAIRN_AUTO(staged_version) version = {0};
    struct cairn_restore *look = NULL;
    const struct cairn_staged_raw raw = {"a", {"12345", 5}};
    REQUIRE_OK(rank_open(&rank, 1, &err));
    REQUIRE_OK(cairn_staged_serve_raw(&version, rank.fake, &raw, 1, &err));
    const struct cairn_restore_options of = {.size = sizeof of, .look = 1};
    REQUIRE_OK(cairn_restore_open(rank.session, &of, &look, NULL, &err));
    cairn_restore_free(look);
    cairn_rank_leave(&rank); /* its `bye` comes behind everything else */
    EXPECT(cairn_fake_uploader_saw(rank.fake, "bye", 1, NULL));
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "restore"), 1);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "release"), 0);
}

TEST(a_list_is_read_page_by_page_and_a_failure_is_never_an_empty_list) {
    RANK(1);
    struct cairn_checkpoint *list = NULL;
    size_t count = 0;
    REQUIRE_OK(cairn_list(rank.session, &list, &count, &err));
    REQUIRE(count == 2);
    EXPECT_ALL_U64(list[0].step, 2, list[1].step, 1);
    EXPECT(list[0].latest);
    EXPECT_EQ_TEXT(list[0].saved_at, "2026-03-02T10:14:07Z");
    cairn_list_free(list);
    list = NULL;
    cairn_fake_uploader_script(rank.fake, "list", "unavailable");
    EXPECT_CODE(cairn_list(rank.session, &list, &count, &err), CAIRN_UNAVAILABLE);
    EXPECT(list == NULL);
    EXPECT(strstr(err.message, "llm/7b: list") != NULL);
}
