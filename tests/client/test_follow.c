/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* Ranks that leave it to rank 0 when a checkpoint is whole. Real server, real uploader. */
#include <cairn/poll.h>
#include <pthread.h>

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

/* While the uploader is on its way back, the session seals it. */
static bool stage(struct cairn_save *save, struct cairn_error *err) {
    enum cairn_code code = cairn_save_stage(save, err);
    return code == CAIRN_OK || code == CAIRN_UPLOADER_GONE;
}

/* Until it is something else than "ask again". */
static enum cairn_code await_decision(struct cairn_save *save, struct cairn_error *err) {
    uint64_t deadline_ms = cairn_mono_ms() + TEAM_WAIT_MS;
    enum cairn_code code;
    do code = cairn_save_wait(save, CAIRN_DECIDED, 1000, err);
    while ((code == CAIRN_TIMEOUT || code == CAIRN_UPLOADER_GONE) && cairn_mono_ms() < deadline_ms);
    return code;
}

TEST(ranks_that_follow_hear_of_the_seal_of_rank_0_and_add_to_the_save_until_then) {
    TEAM(3);
    REQUIRE_OK(begin_following(&team, 5, &err));
    EXPECT_CODE(cairn_save_wait(team.saves[1], CAIRN_DECIDED, 200, &err), CAIRN_TIMEOUT);
    EXPECT(strstr(err.message, "rank 0 has not sealed") != NULL);
    EXPECT_CODE(cairn_save_poll(team.saves[2], CAIRN_DECIDED, &err), CAIRN_TIMEOUT);
    REQUIRE_OK(cairn_save_raw(team.saves[1], "late", "of rank 1", 9, &err));
    REQUIRE_OK(cairn_save_raw(team.saves[0], "own", "of rank 0", 9, &err));
    REQUIRE_OK(cairn_test_stage(team.saves[0], &err));
    REQUIRE_OK(await_decision(team.saves[1], &err));
    REQUIRE_OK(await_decision(team.saves[2], &err)); /* it has nothing */
    EXPECT_CODE(cairn_save_poll(team.saves[2], CAIRN_DECIDED, &err), CAIRN_OK);
    REQUIRE_OK(cairn_test_stage(team.saves[1], &err));
    REQUIRE_OK(cairn_test_stage(team.saves[2], &err));
    REQUIRE_OK(team_commit(&team, &err));
    REQUIRE_OK(team_restore(&team, NULL, &err));
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
    cairn_world_uploader_kill(&team.world, 0);
    REQUIRE_OK(cairn_world_uploader_start(&team.world, 0, NULL, &err));
    REQUIRE_OK(cairn_save_raw(team.saves[0], "own", "of rank 0", 9, &err));
    REQUIRE(stage(team.saves[0], &err));
    REQUIRE_OK(await_decision(team.saves[1], &err));
    REQUIRE(stage(team.saves[1], &err));
    REQUIRE_OK(team_commit(&team, &err));
}

TEST(a_save_that_follows_and_was_begun_without_an_uploader_hears_of_the_decision) { /* Q59 */
    TEAM(2);
    cairn_world_uploader_kill(&team.world, 0);
    REQUIRE_OK(begin_following(&team, 5, &err));
    REQUIRE_OK(cairn_world_uploader_start(&team.world, 0, NULL, &err));
    REQUIRE_OK(cairn_save_raw(team.saves[0], "own", "of rank 0", 9, &err));
    REQUIRE(stage(team.saves[0], &err));
    REQUIRE_OK(await_decision(team.saves[1], &err));
    REQUIRE(stage(team.saves[1], &err));
    REQUIRE_OK(team_commit(&team, &err));
}

TEST(the_end_of_rank_0s_save_ends_the_wait_of_those_that_follow_it) {
    TEAM(2);
    REQUIRE_OK(begin_following(&team, 5, &err));
    REQUIRE_OK(cairn_save_fail(team.saves[0], "the loss is not a number", &err));
    EXPECT_CODE(await_decision(team.saves[1], &err), CAIRN_ABORTED);
    EXPECT(strstr(err.message, "the loss is not a number") != NULL);
    /* The decision belongs to its own save: an earlier one's is not the next one's. */
    REQUIRE_OK(begin_following(&team, 6, &err));
    REQUIRE_OK(cairn_test_stage(team.saves[0], &err));
    REQUIRE_OK(await_decision(team.saves[1], &err));
    REQUIRE_OK(cairn_test_stage(team.saves[1], &err));
    REQUIRE_OK(team_commit(&team, &err));
    const struct cairn_save_options again = {
        .size = sizeof again, .on_exists = CAIRN_EXISTS_SUPERSEDE, .follow = 1};
    struct cairn_save *next = NULL;
    REQUIRE_OK(cairn_save_begin(team.sessions[1], 6, &again, &next, &err));
    EXPECT_CODE(cairn_save_wait(next, CAIRN_DECIDED, 300, &err), CAIRN_TIMEOUT);
    cairn_save_free(next);
}

TEST(what_cannot_follow_is_refused) {
    TEAM(2);
    struct cairn_save *save = NULL;
    EXPECT_CODE(cairn_save_begin(team.sessions[0], 5, &following, &save, &err), CAIRN_INVALID);
    EXPECT(strstr(err.message, "rank 0 decides") != NULL);
    REQUIRE_OK(cairn_save_begin(team.sessions[1], 6, NULL, &save, &err));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_DECIDED, 100, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_poll(save, CAIRN_DECIDED, &err), CAIRN_INVALID);
    cairn_save_free(save);
}
