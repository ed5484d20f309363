/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* ctest: as=away_behind env=CAIRN_TEST_BEHIND=1 races="full: as client/behind" */
/* The uploader dies, is away for a while, and another one comes back. */
#include "tests/client/rank.h"

static uint64_t u64_of(const json_t *object, const char *name) {
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

TEST(k04_a_dead_uploader_is_reported_before_the_waits_end_and_the_session_heals) { /* K04 */
    RANK(1);
    struct cairn_fake_message offer;
    struct cairn_save *save = NULL, *refused = NULL;
    REQUIRE_OK(rank_save(rank.session, 1, &save, &err));
    cairn_fake_uploader_down(rank.fake);
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_UPLOADER_GONE);
    EXPECT_CODE(cairn_save_begin(rank.session, 2, NULL, &refused, &err), CAIRN_UPLOADER_GONE);
    REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "offer", 1, &offer));
    const json_t *saves = json_object_get(offer.message, "saves");
    REQUIRE(json_array_size(saves) == 1);
    EXPECT_EQ_U64(u64_of(json_array_get(saves, 0), "step"), 1);
    EXPECT(json_is_true(json_object_get(json_array_get(saves, 0), "sealed")));
    EXPECT_EQ_U64(json_array_size(json_object_get(offer.message, "slabs")), 1);
    EXPECT(cairn_fake_uploader_saw(rank.fake, "count", 1, NULL)); /* step 2, Q8 */
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_OK);
    cairn_fake_uploader_event(rank.fake, json_pack("{s:s, s:I, s:I}", "t", "free", "slab",
                                                   (json_int_t)0, "owner", (json_int_t)1));
    AUTO_SAVE *next = NULL;
    EXPECT_CODE(rank_save(rank.session, 3, &next, &err), CAIRN_OK);
    cairn_save_free(save);
}

static void *come_back(void *owner) {
    cairn_test_pause_ms(400); /* pause of a stand-in: as long as its restart takes */
    return cairn_fake_uploader_up(owner, NULL) == CAIRN_OK ? owner : NULL;
}

TEST(a_rank_that_opens_while_a_killed_uploader_is_restarted_waits_for_it) { /* K04 */
    RANK_UPLOADER(1);
    pthread_t thread;
    void *back = NULL; /* a killed one does not take its socket along */
    const char *left = TEXT("%s.left", rank.path);
    REQUIRE(link(rank.path, left) == 0);
    cairn_fake_uploader_down(rank.fake);
    REQUIRE(rename(left, rank.path) == 0);
    REQUIRE(pthread_create(&thread, NULL, come_back, rank.fake) == 0);
    struct cairn_open_options options = rank_options(&rank);
    EXPECT_CODE(cairn_open(&options, &rank.session, NULL, &err), CAIRN_OK);
    EXPECT(pthread_join(thread, &back) == 0 && back);
}

static const char *text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* Else the server compares other options with those of the other ranks, and names them (Q10). */
TEST(a_begin_that_reached_no_uploader_is_reported_with_its_options) {
    static const char *const labels[] = {"{\"a\": \"b\"}", "no JSON"};
    for (size_t i = 0; i < 2; i++) {
        RANK_UPLOADER(1);
        struct cairn_save *first = NULL, *save = NULL;
        struct cairn_fake_message count;
        RANK_OPENS(options.rank = 0);
        REQUIRE_OK(rank_save(rank.session, 1, &first, &err)); /* it has the only memory */
        cairn_fake_uploader_down(rank.fake);
        const struct cairn_save_options begin =
            SIZED(cairn_save_options, .on_exists = CAIRN_EXISTS_SUPERSEDE, .format = "mine",
                  .labels_json = labels[i]);
        EXPECT_CODE(cairn_save_begin(rank.session, 2, &begin, &save, &err),
                    i ? CAIRN_INVALID : CAIRN_UPLOADER_GONE);
        REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "count", 1, &count));
        EXPECT_EQ_TEXT(text_of(count.message, "on_exists"), "supersede");
        EXPECT_EQ_TEXT(text_of(count.message, "format"), "mine");
        EXPECT_EQ_TEXT(text_of(json_object_get(count.message, "labels"), "a"), i ? "" : "b");
        cairn_save_free(first);
    }
}

TEST(an_uploader_that_dies_in_mid_stage_hears_everything_again) {
    const char *states[] = {"continues", "unknown"};
    const char *deaths[] = {"stage", "staged", "seal"};
    for (size_t i = 0; i < 6; i++) {
        RANK(1);
        AUTO_SAVE *save = NULL;
        struct cairn_fake_message staged;
        cairn_fake_uploader_offer_state(rank.fake, states[i % 2]);
        cairn_fake_uploader_script(rank.fake, deaths[i / 2], "drop");
        EXPECT_CODE(rank_save(rank.session, 1, &save, &err), CAIRN_OK);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "offer"), 1);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "begin"), 1 + i % 2);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "stage"), 2);
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "staged", 1, &staged));
        EXPECT_ALL_U64(staged.blob.size, 4, u64_of(staged.message, "bytes"), 10);
    }
}

/* The uploader may be up while its answer to the offer is still on the way. */
static enum cairn_code save_patiently(struct cairn_rank *rank, uint64_t step,
                                      struct cairn_save **ret, struct cairn_error *err) {
    enum cairn_code code;
    (void)AWAIT((code = rank_save(rank->session, step, ret, err)) != CAIRN_UPLOADER_GONE);
    return code ? code : cairn_test_reach(*ret, CAIRN_STAGED, err);
}

TEST(what_was_copied_while_the_uploader_was_away_is_sealed_with_the_next) { /* K04 */
    const char *states[] = {"continues", "unknown"};
    for (size_t i = 0; i < 4; i++) {
        RANK(1);
        struct cairn_save *save = NULL, *next = NULL;
        struct cairn_fake_message staged, seal;
        bool freed = i / 2;
        REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
        REQUIRE_OK(cairn_save_raw(save, "state", "0123456789", 10, &err));
        cairn_fake_uploader_offer_state(rank.fake, states[i % 2]);
        cairn_fake_uploader_down(rank.fake);
        EXPECT_STAGED_AWAY(save);
        EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK);
        if (freed) cairn_save_free(save);
        EXPECT_CODE(cairn_save_begin(rank.session, 2, NULL, &next, &err), CAIRN_UPLOADER_GONE);
        REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "seal", 1, &seal));
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "staged", 1, &staged));
        EXPECT_ALL_U64(staged.blob.size, 4, cairn_fake_uploader_count(rank.fake, "begin"),
                       1 + i % 2, cairn_fake_uploader_count(rank.fake, "fail"), 0);
        if (!freed) EXPECT_CODE(cairn_test_reach(save, CAIRN_STAGED, &err), CAIRN_OK);
        if (!freed) EXPECT(!cairn_test_away(save));
        if (!freed) cairn_save_free(save);
    }
}

/* Q43: a step that one rank leaves out ends for all ranks: it is begun in memory that is free. */
TEST(what_begins_while_the_uploader_is_away_is_begun_and_sealed_with_the_next) {
    for (size_t freed = 0; freed < 2; freed++) {
        RANK(2);
        struct cairn_save *first = NULL, *save = NULL, *refused = NULL;
        struct cairn_fake_message begin, stage;
        struct cairn_save_status status;
        REQUIRE_OK(rank_save(rank.session, 1, &first, &err));
        cairn_fake_uploader_down(rank.fake);
        REQUIRE_OK(cairn_save_begin(rank.session, 2, NULL, &save, &err));
        cairn_save_status(save, &status);
        EXPECT_EQ_TEXT(status.version, ""); /* nobody has named it yet */
        REQUIRE_OK(cairn_save_raw(save, "state", "0123456789", 10, &err));
        EXPECT_STAGED_AWAY(save);
        /* The other generation is lent to the first save. */
        EXPECT_CODE(cairn_save_begin(rank.session, 3, NULL, &refused, &err), CAIRN_UPLOADER_GONE);
        if (freed) cairn_save_free(save);
        REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "seal", 2, NULL));
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "begin", 2, &begin));
        EXPECT_ALL_U64(u64_of(begin.message, "step"), 2, u64_of(begin.message, "n"), 1);
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "stage", 2, &stage));
        EXPECT_EQ_U64(u64_of(stage.message, "slab"), 1);
        EXPECT(cairn_fake_uploader_saw(rank.fake, "count", 1, NULL)); /* step 3 alone */
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "count"), 1);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "fail"), 0);
        if (!freed) EXPECT_CODE(cairn_test_reach(save, CAIRN_STAGED, &err), CAIRN_OK);
        if (!freed) EXPECT(!cairn_test_away(save));
        if (!freed) cairn_save_free(save);
        cairn_save_free(first);
    }
}

/* Q43: as above, for an uploader that stops in good order: it refuses the begin and finishes what
 * it has, over the same link. */
TEST(what_begins_while_the_uploader_is_stopping_is_begun_and_sealed_with_the_next) {
    for (size_t freed = 0; freed < 2; freed++) {
        RANK(2);
        struct cairn_save *first = NULL, *save = NULL;
        struct cairn_fake_message begin, stage;
        REQUIRE_OK(rank_save(rank.session, 1, &first, &err));
        cairn_fake_uploader_script(rank.fake, "begin", "unavailable");
        REQUIRE_OK(cairn_save_begin(rank.session, 2, NULL, &save, &err));
        REQUIRE_OK(cairn_save_raw(save, "state", "0123456789", 10, &err));
        EXPECT_STAGED_AWAY(save);
        cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
        EXPECT_CODE(cairn_save_wait(first, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_OK);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "begin"), 2); /* it was asked once */
        if (freed) cairn_save_free(save);
        REQUIRE_OK(cairn_fake_uploader_again(rank.fake, &err));
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "seal", 2, NULL));
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "begin", 3, &begin));
        EXPECT_ALL_U64(u64_of(begin.message, "step"), 2, u64_of(begin.message, "n"), 1);
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "stage", 2, &stage));
        EXPECT_EQ_U64(u64_of(stage.message, "slab"), 1);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "count"), 0);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "fail"), 0);
        if (!freed) EXPECT_CODE(cairn_test_reach(save, CAIRN_STAGED, &err), CAIRN_OK);
        if (!freed) EXPECT(!cairn_test_away(save));
        if (!freed) cairn_save_free(save);
        cairn_save_free(first);
    }
}

/* Q43: it has nothing to copy, and the version needs its word all the same. */
TEST(a_rank_without_memory_that_begins_while_the_uploader_is_away_is_sealed_with_the_next) {
    RANK_UPLOADER(1);
    RANK_OPENS(options.bytes = 0);
    cairn_fake_uploader_down(rank.fake);
    BEGUN(save, 1);
    EXPECT_STAGED_AWAY(save);
    REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
    EXPECT(cairn_fake_uploader_saw(rank.fake, "seal", 1, NULL));
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "count"), 0);
}

static size_t begins_refused_at; /* so many begins have come when one was refused */

static void *free_the_first(void *owner) {
    (void)COMES(cairn_fake_uploader_count(owner, "begin") >= begins_refused_at);
    cairn_fake_uploader_event(owner, json_pack("{s:s, s:I, s:I}", "t", "free", "slab",
                                               (json_int_t)0, "owner", (json_int_t)1));
    return NULL;
}

static void *restart(void *owner) {
    (void)COMES(cairn_fake_uploader_count(owner, "begin") >= begins_refused_at);
    cairn_fake_uploader_down(owner);
    /* Longer than CAIRN_CLIENT_GONE_MS. */
    cairn_test_pause_ms(1000); /* pause of a stand-in: as long as its restart takes */
    return cairn_fake_uploader_up(owner, NULL) == CAIRN_OK ? owner : NULL;
}

/* It gives memory back until it ends, and the one after it is expected. */
TEST(a_begin_that_a_stopping_uploader_refuses_waits_for_memory_or_for_the_next_uploader) {
    void *(*const ways[])(void *owner) = {free_the_first, restart};
    for (size_t i = 0; i < 2; i++) {
        RANK(1);
        AUTO_SAVE *save = NULL;
        pthread_t thread;
        SAVED(first, 1); /* the only memory is lent */
        cairn_fake_uploader_offer_state(rank.fake, "durable");
        cairn_fake_uploader_script(rank.fake, "begin", "unavailable");
        begins_refused_at = 2;
        REQUIRE(pthread_create(&thread, NULL, ways[i], rank.fake) == 0);
        EXPECT_CODE(cairn_save_begin(rank.session, 2, NULL, &save, &err), CAIRN_OK);
        EXPECT(pthread_join(thread, NULL) == 0);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "count"), 0);
    }
}

TEST(a_file_of_a_save_that_a_stopping_uploader_refused_goes_to_the_next, err) {
    CAIRN_AUTO(rank) rank = {0};
    CAIRN_AUTO_FD fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat found;
    pthread_t thread;
    REQUIRE(fd >= 0 && fstat(fd, &found) == 0);
    REQUIRE_OK(rank_open(&rank, 1, &err));
    cairn_fake_uploader_script(rank.fake, "begin", "unavailable");
    BEGUN(save, 1);
    begins_refused_at = 1;
    REQUIRE(pthread_create(&thread, NULL, restart, rank.fake) == 0);
    EXPECT_CODE(cairn_save_file(save, "program", fd, (uint64_t)found.st_size, &err), CAIRN_OK);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT_CODE(cairn_test_stage(save, &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "begin"), 2);
}

TEST(what_begins_while_the_uploader_is_away_can_be_given_up) {
    for (size_t i = 0; i < 2; i++) {
        RANK(1);
        struct cairn_save *save = NULL, *next = NULL;
        cairn_fake_uploader_down(rank.fake);
        REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
        if (i == 0) EXPECT_CODE(cairn_save_fail(save, "no", &err), CAIRN_UPLOADER_GONE);
        cairn_save_free(save);
        REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
        EXPECT(cairn_fake_uploader_saw(rank.fake, "count", 1, NULL));
        EXPECT_CODE(save_patiently(&rank, 2, &next, &err), CAIRN_OK); /* the memory came back */
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "begin"), 1);
        cairn_save_free(next);
    }
}

/* Q41: lent after it was let go, its `free` would name an owner that is forgotten. */
TEST(what_is_given_up_while_its_late_begin_is_under_way_lends_no_memory) {
    RANK(1);
    struct cairn_save *save = NULL, *next = NULL;
    cairn_fake_uploader_down(rank.fake);
    REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
    REQUIRE_OK(cairn_save_raw(save, "state", "0123456789", 10, &err));
    EXPECT_STAGED_AWAY(save);
    cairn_fake_uploader_script(rank.fake, "begin", "late");
    REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "begin", 1, NULL));
    (void)cairn_save_fail(save, "no", &err);
    cairn_save_free(save);
    EXPECT_CODE(save_patiently(&rank, 2, &next, &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "stage"), 1); /* of step 2 */
    cairn_save_free(next);
}

TEST(what_was_copied_while_the_uploader_was_away_can_be_given_up_or_left_behind) {
    for (size_t i = 0; i < 3; i++) {
        RANK(1);
        BEGUN(save, 1);
        REQUIRE_OK(cairn_save_raw(save, "state", "0123456789", 10, &err));
        cairn_fake_uploader_down(rank.fake);
        EXPECT_STAGED_AWAY(save);
        if (i == 0) EXPECT_CODE(cairn_save_fail(save, "no", &err), CAIRN_UPLOADER_GONE);
        if (i == 1) cairn_fake_uploader_offer_state(rank.fake, "failed");
        if (i < 2) {
            REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
            REQUIRE(cairn_fake_uploader_saw(rank.fake, "offer", 1, NULL));
            enum cairn_code wanted = i == 0 ? CAIRN_CANCELLED : CAIRN_SOURCE_GONE;
            EXPECT_CODE(cairn_test_reach(save, CAIRN_COMMITTED, &err), wanted);
            struct cairn_save *next = NULL; /* the generation came back */
            EXPECT_CODE(save_patiently(&rank, 2, &next, &err), CAIRN_OK);
            cairn_save_free(next);
            EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "seal"), 1);
        }
    }
}

TEST(a_disk_that_is_full_when_slabs_are_offered_ends_no_session) { /* Q45 */
    RANK(1);
    SAVED(save, 1);
    cairn_fake_uploader_down(rank.fake);
    cairn_fake_uploader_script(rank.fake, "offer", "no-space");
    REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "offer", 2, NULL));
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
    EXPECT_CODE(cairn_test_reach(save, CAIRN_COMMITTED, &err), CAIRN_OK);
}

TEST(an_uploader_that_forgot_a_sealed_save_fails_it_by_name) {
    for (size_t renamed = 0; renamed < 2; renamed++) {
        RANK(1);
        struct cairn_save *save = NULL;
        REQUIRE_OK(rank_save(rank.session, 1, &save, &err));
        cairn_fake_uploader_offer_state(rank.fake, "unknown");
        if (renamed) cairn_fake_uploader_rename(rank.fake, "0f3a9c");
        REQUIRE_OK(cairn_fake_uploader_again(rank.fake, &err));
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "offer", 1, NULL));
        EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_SOURCE_GONE);
        EXPECT(strstr(err.message, renamed ? "of node fake and is of node 0f3a9c now"
                                           : "without its journal") != NULL);
        cairn_save_free(save);
        /* Its generation is free again: the next save does not wait. */
        EXPECT_CODE(rank_save(rank.session, 2, &save, &err), CAIRN_OK);
        cairn_save_free(save);
    }
}

/* Its version ended while nobody listened; the next uploader asks the server how. */
TEST(an_uploader_that_asks_how_a_save_ended_is_waited_for) { /* Q40 */
    RANK(1);
    AUTO_SAVE *next = NULL;
    SAVED(save, 1);
    cairn_fake_uploader_offer_state(rank.fake, "ended");
    REQUIRE_OK(cairn_fake_uploader_again(rank.fake, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "offer", 1, NULL));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, 100, &err), CAIRN_TIMEOUT);
    EXPECT_CODE(rank_save(rank.session, 2, &next, &err), CAIRN_OK); /* its memory is free */
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_OK);
}

TEST(a_seal_whose_answer_was_lost_with_the_uploader_is_not_told_again) { /* Q40 */
    for (int known = 0; known < 2; known++) {
        RANK(1);
        AUTO_SAVE *save = NULL;
        struct cairn_fake_message offer;
        cairn_fake_uploader_script(rank.fake, "seal", "drop");
        cairn_fake_uploader_offer_state(rank.fake, known ? "continues+sealed" : "ended");
        EXPECT_CODE(rank_save(rank.session, 1, &save, &err), CAIRN_OK);
        REQUIRE(cairn_fake_uploader_saw(rank.fake, "offer", 1, &offer));
        const json_t *saves = json_object_get(offer.message, "saves");
        EXPECT(json_is_true(json_object_get(json_array_get(saves, 0), "sealed")));
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "stage"), 1);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "seal"), 1);
        cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
        EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_OK);
    }
}
