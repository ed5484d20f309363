/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* What cairn_session_problem says of saves that have not failed. */
#include "tests/client/rank.h"

static bool problem_comes(struct cairn_session *session, struct cairn_error *err) {
    return AWAIT(cairn_session_problem(session, err) != CAIRN_OK);
}

static json_t *node_problem(const char *code) {
    return json_pack("{s:s, s:s, s:s}", "t", "problem", "code", code, "message", "no store");
}

TEST(what_does_not_get_on_is_told_once_and_fails_nothing, err) { /* Q43, Q55 */
    CAIRN_AUTO(rank) rank = {0};
    AUTO_SAVE *save = NULL;
    REQUIRE_OK(rank_open(&rank, 2, &err));
    REQUIRE_OK(rank_save(rank.session, 9, &save, &err));
    cairn_fake_uploader_event(rank.fake,
                              json_pack("{s:s, s:i, s:s, s:s}", "t", "problem", "save", 1, "code",
                                        "unavailable", "message", "it fails"));
    REQUIRE(problem_comes(rank.session, &err));
    EXPECT_FAILS(err.code, CAIRN_UNAVAILABLE, "llm/7b step 9 rank 3: it fails");
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK);
    cairn_fake_uploader_event(rank.fake, node_problem("unavailable"));
    REQUIRE(problem_comes(rank.session, &err));
    EXPECT(strstr(err.message, "llm/7b rank 3: no store") != NULL);
    cairn_fake_uploader_event(rank.fake, node_problem("unavailable"));
    cairn_fake_uploader_event(rank.fake, node_problem("ok"));
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_OK);
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK); /* it was over by then */
}

/* ---- errors say what they are about ---- */

static void expect_about(const struct cairn_error *err, const char *run, int64_t step,
                         int64_t rank) {
    struct cairn_error_about about;
    EXPECT_EQ_U64(cairn_error_about(err, &about), 1);
    EXPECT_EQ_TEXT(about.run, run);
    EXPECT_EQ_U64(about.has_step, step >= 0);
    EXPECT_EQ_U64(about.has_rank, rank >= 0);
    if (step >= 0) EXPECT_EQ_U64(about.step, (uint64_t)step);
    if (rank >= 0) EXPECT_EQ_U64(about.rank, (uint64_t)rank);
}

TEST(errors_have_run_step_and_rank_as_fields, err) {
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_save *save = NULL, *next = NULL;
    struct cairn_restore *restore = NULL;
    struct cairn_session *session = NULL;
    struct cairn_checkpoint *list = NULL;
    size_t count = 0;
    REQUIRE_OK(rank_open(&rank, 2, &err));
    REQUIRE_OK(rank_save(rank.session, 9, &save, &err));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, 20, &err), CAIRN_TIMEOUT);
    expect_about(&err, "llm/7b", 9, 3);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_INVALID);
    expect_about(&err, "llm/7b", 9, 3);
    /* The failure of a save that the program has forgotten. */
    cairn_save_free(save);
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "aborted", "no-space"));
    REQUIRE(problem_comes(rank.session, &err));
    expect_about(&err, "llm/7b", 9, 3);
    REQUIRE_OK(cairn_save_begin(rank.session, 10, NULL, &next, &err));
    EXPECT_CODE(cairn_save_tensor(next, NULL, &err), CAIRN_INVALID);
    expect_about(&err, "llm/7b", 10, 3);
    EXPECT_CODE(cairn_save_raw(next, "a/../b", "x", 1, &err), CAIRN_INVALID);
    expect_about(&err, "llm/7b", 10, 3);
    cairn_save_free(next);
    cairn_fake_uploader_event(rank.fake, node_problem("unavailable"));
    do REQUIRE(problem_comes(rank.session, &err)); /* of step 10, which was not staged */
    while (err.code != CAIRN_UNAVAILABLE);
    expect_about(&err, "llm/7b", -1, 3);
    cairn_fake_uploader_script(rank.fake, "restore", "not-found");
    const struct cairn_restore_options other = {.size = sizeof other, .run = "llm/13b"};
    EXPECT_CODE(cairn_restore_open(rank.session, &other, &restore, NULL, &err), CAIRN_NOT_FOUND);
    expect_about(&err, "llm/13b", -1, 3);
    cairn_fake_uploader_script(rank.fake, "list", "unavailable");
    EXPECT_CODE(cairn_list(rank.session, &list, &count, &err), CAIRN_UNAVAILABLE);
    expect_about(&err, "llm/7b", -1, -1);
    struct cairn_open_options options = rank_options(&rank);
    options.socket = "/nowhere/uploader.sock";
    EXPECT_CODE(cairn_open(&options, &session, NULL, &err), CAIRN_UPLOADER_GONE);
    expect_about(&err, "llm/7b", -1, 3);
}

/* ---- saves that take longer than the time between them ---- */

static json_t *event_of(const char *name, int save) {
    return json_pack("{s:s, s:i}", "t", name, "save", save);
}

static json_t *free_of(int slab, int owner) {
    return json_pack("{s:s, s:i, s:i}", "t", "free", "slab", slab, "owner", owner);
}

static void await_durable(struct cairn_save *save, bool durable) {
    struct cairn_error err = {0};
    if (durable) EXPECT_CODE(cairn_save_wait(save, CAIRN_DURABLE, HANG_MS, &err), CAIRN_OK);
}

/* A part of the first save; 0 both: an uploader that does not measure. */
static json_t *released_of(int link_us, int store_us) {
    json_t *event = json_pack("{s:s, s:i, s:i, s:i, s:i}", "t", "released", "save", 1, "shard", 0,
                              "offset", 0, "bytes", 4);
    if (!link_us && !store_us) return event;
    json_object_set_new(event, "link_us", json_integer(link_us));
    json_object_set_new(event, "store_us", json_integer(store_us));
    return event;
}

/* Four saves: each is sent, or durable and not committed, when the next one begins. */
static void four_late(bool durable, int link_us, int store_us, const char *said) {
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_error err = {0};
    struct cairn_save *saves[4] = {NULL};
    REQUIRE_OK(rank_open(&rank, 2, &err));
    for (int i = 0; i < 4; i++) {
        if (i >= 2) { /* the memory comes back, the end does not */
            cairn_fake_uploader_event(rank.fake, free_of(i % 2, i - 1));
            cairn_fake_uploader_event(rank.fake, released_of(link_us, store_us));
        }
        REQUIRE_OK(rank_save(rank.session, (uint64_t)i + 1, &saves[i], &err));
        if (durable) cairn_fake_uploader_event(rank.fake, event_of("durable", i + 1));
        await_durable(saves[i], durable);
        enum cairn_code wanted = i == 2 ? CAIRN_UNAVAILABLE : CAIRN_OK; /* at the second time */
        EXPECT_CODE(cairn_session_warning(rank.session, &err), wanted);
        if (i == 2) EXPECT(strstr(err.message, said) != NULL);
        if (i == 2) EXPECT(strstr(err.message, "llm/7b rank 3: ") != NULL);
        if (i == 2) EXPECT(strstr(err.message, "step 1 was under way when step 3 began") != NULL);
        EXPECT_CODE(cairn_session_warning(rank.session, &err), CAIRN_OK); /* once */
        EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK); /* nothing has failed */
    }
    for (int i = 0; i < 4; i++) cairn_save_free(saves[i]);
}

TEST(saves_that_outlast_their_interval_are_warned_of_at_the_second_time_with_the_bottleneck) {
    four_late(false, 0, 0, "by the store or the link to it: ");
    four_late(false, 9000, 1000, "by the link to the store: ");
    four_late(false, 9000, 1000, ", 90 % of a part's time on its way; ");
    four_late(false, 1000, 9000, "by the store: ");
    four_late(false, 1000, 9000, ", 90 % of a part's time with the store; ");
    four_late(true, 0, 0, "by the server or other ranks: ");
}

TEST(a_save_that_ends_in_time_starts_the_count_of_late_ones_again, err) {
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_save *save = NULL;
    REQUIRE_OK(rank_open(&rank, 2, &err));
    for (int i = 0; i < 6; i++) {
        REQUIRE_OK(rank_save(rank.session, (uint64_t)i + 1, &save, &err));
        EXPECT_CODE(cairn_session_warning(rank.session, &err), CAIRN_OK);
        for (int before = i; i % 2 && before <= i + 1; before++) /* every second time all end */
            cairn_fake_uploader_event(rank.fake, rank_verdict((uint64_t)before, "committed", ""));
        if (i % 2) EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_OK);
        for (int slab = 0; i % 2 && slab < 2; slab++)
            cairn_fake_uploader_event(rank.fake, free_of(slab, i + slab));
        cairn_save_free(save);
    }
}

static void *free_soon(void *argument) {
    cairn_test_pause_ms(200); /* pause of a stand-in: it frees memory late */
    cairn_fake_uploader_event(argument, free_of(0, 1));
    cairn_test_pause_ms(400); /* pause of a stand-in */
    cairn_fake_uploader_event(argument, free_of(0, 2));
    return NULL;
}

TEST(where_memory_holds_one_save_the_slab_is_named_as_what_begins_wait_for, err) {
    CAIRN_AUTO(rank) rank = {0};
    pthread_t thread;
    REQUIRE_OK(rank_open(&rank, 1, &err));
    REQUIRE(!pthread_create(&thread, NULL, free_soon, rank.fake));
    for (uint64_t step = 1; step <= 3; step++) {
        AUTO_SAVE *save = NULL;
        EXPECT_CODE(rank_save(rank.session, step, &save, &err), CAIRN_OK);
    }
    pthread_join(thread, NULL);
    EXPECT_FAILS(cairn_session_warning(rank.session, &err), CAIRN_UNAVAILABLE, "by the slab: ");
}
