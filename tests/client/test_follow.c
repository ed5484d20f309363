/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* ctest: as=follow_behind env=CAIRN_TEST_BEHIND=1 races="full: as client/behind" */
/* Ranks that leave it to rank 0 when a checkpoint is whole. Real server, real uploader. */
#include <cairn/poll.h>
#include <pthread.h>

#include "common/hooks.h"
#include "tests/client/rank.h"
#include "tests/client/team.h"

static const struct cairn_save_options following = {.size = sizeof following, .follow = 1};

/* Rank 0 as ever, the others following it. */
static enum cairn_code begin_following(struct cairn_team *team, uint64_t step,
                                       struct cairn_error *err) {
    for (uint32_t rank = 0; rank < team->ranks; rank++) {
        cairn_save_free(team->saves[rank]);
        team->saves[rank] = NULL;
        CAIRN_TRY(cairn_save_begin(team->sessions[rank], step, rank ? &following : NULL,
                                   &team->saves[rank], err));
    }
    return CAIRN_OK;
}

TEST(ranks_that_follow_hear_of_the_seal_of_rank_0_and_add_to_the_save_until_then) {
    TEAM(3);
    REQUIRE_OK(begin_following(&team, 5, &err));
    EXPECT_FAILS(cairn_save_wait(team.saves[1], CAIRN_DECIDED, 200, &err), CAIRN_TIMEOUT,
                 "rank 0 has not sealed");
    EXPECT_CODE(cairn_save_poll(team.saves[2], CAIRN_DECIDED, &err), CAIRN_TIMEOUT);
    REQUIRE_OK(cairn_save_raw(team.saves[1], "late", "of rank 1", 9, &err));
    REQUIRE_OK(cairn_save_raw(team.saves[0], "own", "of rank 0", 9, &err));
    REQUIRE_OK(cairn_test_stage(team.saves[0], &err));
    REQUIRE_OK(cairn_test_reach(team.saves[1], CAIRN_DECIDED, &err));
    REQUIRE_OK(cairn_test_reach(team.saves[2], CAIRN_DECIDED, &err)); /* it has nothing */
    EXPECT_CODE(cairn_save_poll(team.saves[2], CAIRN_DECIDED, &err), CAIRN_OK);
    REQUIRE_OK(cairn_test_stage(team.saves[1], &err));
    REQUIRE_OK(cairn_test_stage(team.saves[2], &err));
    REQUIRE_OK(team_commit_and_restore(&team, &err));
    char text[10] = "";
    const struct cairn_read read = {
        .size = sizeof read, .shard = "rank-00001/late", .bytes = 9, .into = text, .into_bytes = 9};
    REQUIRE_OK(cairn_restore_read(team.restore, &read, 1, 0, &err));
    EXPECT_EQ_TEXT(text, "of rank 1");
}

TEST(a_save_that_follows_hears_of_the_decision_over_a_restarted_uploader_too) { /* Q59 */
    TEAM(2);
    REQUIRE_OK(begin_following(&team, 5, &err));
    EXPECT_CODE(cairn_save_wait(team.saves[1], CAIRN_DECIDED, 200, &err), CAIRN_TIMEOUT);
    REQUIRE_OK(cairn_world_uploader_again(&team.world, 0, &err));
    REQUIRE_OK(cairn_save_raw(team.saves[0], "own", "of rank 0", 9, &err));
    REQUIRE_OK(cairn_test_stage(team.saves[0], &err));
    REQUIRE_OK(cairn_test_reach(team.saves[1], CAIRN_DECIDED, &err));
    REQUIRE_OK(cairn_test_stage(team.saves[1], &err));
    REQUIRE_OK(team_commit(&team, &err));
}

TEST(a_rank_that_stages_before_rank_0_is_told_of_the_decision_only_when_it_is_made) { /* Q59 */
    TEAM(3);
    REQUIRE_OK(begin_following(&team, 5, &err));
    REQUIRE_OK(cairn_save_raw(team.saves[1], "early", "of rank 1", 9, &err));
    REQUIRE_OK(cairn_test_stage(team.saves[1], &err));
    REQUIRE_OK(cairn_test_reach(team.saves[1], CAIRN_DURABLE, &err));
    EXPECT_FAILS(cairn_save_wait(team.saves[1], CAIRN_DECIDED, 200, &err), CAIRN_TIMEOUT,
                 "rank 0 has not sealed");
    REQUIRE_OK(cairn_world_uploader_again(&team.world, 0, &err));
    EXPECT(cairn_save_poll(team.saves[1], CAIRN_DECIDED, &err) != CAIRN_OK);
    REQUIRE_OK(cairn_test_stage(team.saves[0], &err));
    REQUIRE_OK(cairn_test_reach(team.saves[1], CAIRN_DECIDED, &err)); /* rank 2 has not staged */
    REQUIRE_OK(cairn_test_stage(team.saves[2], &err));
    REQUIRE_OK(team_commit(&team, &err));
}

TEST(a_save_that_follows_and_was_begun_without_an_uploader_hears_of_the_decision) { /* Q59 */
    TEAM(2);
    cairn_world_uploader_kill(&team.world, 0);
    REQUIRE_OK(begin_following(&team, 5, &err));
    REQUIRE_OK(cairn_world_uploader_start(&team.world, 0, NULL, &err));
    REQUIRE_OK(cairn_save_raw(team.saves[0], "own", "of rank 0", 9, &err));
    REQUIRE_OK(cairn_test_stage(team.saves[0], &err));
    REQUIRE_OK(cairn_test_reach(team.saves[1], CAIRN_DECIDED, &err));
    REQUIRE_OK(cairn_test_stage(team.saves[1], &err));
    REQUIRE_OK(team_commit(&team, &err));
}

TEST(the_end_of_rank_0s_save_ends_the_wait_of_those_that_follow_it) {
    TEAM(2);
    REQUIRE_OK(begin_following(&team, 5, &err));
    REQUIRE_OK(cairn_save_fail(team.saves[0], "the loss is not a number", &err));
    EXPECT_FAILS(cairn_test_reach(team.saves[1], CAIRN_DECIDED, &err), CAIRN_ABORTED,
                 "the loss is not a number");
    /* The decision belongs to its own save: an earlier one's is not the next one's. */
    REQUIRE_OK(begin_following(&team, 6, &err));
    REQUIRE_OK(cairn_test_stage(team.saves[0], &err));
    REQUIRE_OK(cairn_test_reach(team.saves[1], CAIRN_DECIDED, &err));
    REQUIRE_OK(cairn_test_stage(team.saves[1], &err));
    REQUIRE_OK(team_commit(&team, &err));
    const struct cairn_save_options again = {
        .size = sizeof again, .on_exists = CAIRN_EXISTS_SUPERSEDE, .follow = 1};
    AUTO_SAVE *next = NULL;
    REQUIRE_OK(cairn_save_begin(team.sessions[1], 6, &again, &next, &err));
    EXPECT_CODE(cairn_save_wait(next, CAIRN_DECIDED, 300, &err), CAIRN_TIMEOUT);
}

TEST(what_cannot_follow_is_refused) {
    TEAM(2);
    AUTO_SAVE *save = NULL;
    EXPECT_FAILS(cairn_save_begin(team.sessions[0], 5, &following, &save, &err), CAIRN_INVALID,
                 "rank 0 decides");
    REQUIRE_OK(cairn_save_begin(team.sessions[1], 6, NULL, &save, &err));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_DECIDED, HANG_MS, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_poll(save, CAIRN_DECIDED, &err), CAIRN_INVALID);
}

/* ---- a begin that meets a new uploader ---- */

#ifdef CAIRN_CRASHPOINTS
struct beginning {
    struct cairn_session *session;
    struct cairn_save *save;
    enum cairn_code code;
};

static void *begin_to_follow(void *owner) {
    struct beginning *own = owner;
    own->code = cairn_save_begin(own->session, 5, &following, &own->save, NULL);
    return NULL;
}

/* The caller stands still where the begin is made, until `go_on` is there. */
static bool hold_at_begin(const char *passed, const char *go_on) {
    char point[400];
    snprintf(point, sizeof point, "client.begin.made:1:until=%s", go_on);
    cairn_crashpoint_arm(point);
    return setenv("CAIRN_CRASH_LIST", passed, 1) == 0;
}

static bool touch(const char *path) {
    FILE *file = fopen(path, "we");
    return file && !fclose(file);
}

/* The caller makes the message without the session's lock, so the session's thread, which sends the
 * begins of saves that follow to each new uploader, leaves it alone until it is whole. */
TEST(a_begin_that_is_being_made_is_not_sent_by_the_sessions_thread) { /* Q59 */
    RANK(1);
    pthread_t thread;
    char passed[300], go_on[300];
    struct cairn_checkpoint *list = NULL;
    struct cairn_fake_message begin = {0};
    size_t count = 0;
    struct beginning own = {.session = rank.session};
    snprintf(passed, sizeof passed, "%s/passed", cairn_test_folder());
    snprintf(go_on, sizeof go_on, "%s/go-on", cairn_test_folder());
    REQUIRE(hold_at_begin(passed, go_on));
    REQUIRE(!pthread_create(&thread, NULL, begin_to_follow, &own));
    (void)AWAIT(access(passed, F_OK) == 0);
    cairn_fake_uploader_down(rank.fake);
    enum cairn_code up = cairn_fake_uploader_up(rank.fake, &err);
    EXPECT_CODE(up, CAIRN_OK);
    /* The next uploader, which has been offered all by then, answers it. */
    (void)AWAIT((up = cairn_list(rank.session, &list, &count, &err)) != CAIRN_UPLOADER_GONE);
    cairn_list_free(list);
    EXPECT_CODE(up, CAIRN_OK);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "offer"), 1);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "begin"), 0);
    EXPECT(touch(go_on));
    pthread_join(thread, NULL);
    unsetenv("CAIRN_CRASH_LIST");
    cairn_crashpoint_arm("");
    EXPECT_CODE(own.code, CAIRN_OK);
    EXPECT(cairn_fake_uploader_saw(rank.fake, "begin", 1, &begin));
    EXPECT(json_is_true(json_object_get(begin.message, "follow")));
    cairn_save_free(own.save);
}
#endif
