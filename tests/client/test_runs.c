/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* Runs and removals through the uploader: real server, real uploader. */
#include <cairn/runs.h>

#include "tests/client/team.h"

static enum cairn_code save(struct cairn_team *team, uint64_t step, struct cairn_error *err) {
    CAIRN_TRY(team_begin(team, step, NULL, err));
    CAIRN_TRY(cairn_save_raw(team->saves[0], "x", "12345", 5, err));
    return team_finish(team, err);
}

static struct cairn_save_status status_of(const struct cairn_team *team) {
    struct cairn_save_status status;
    cairn_save_status(team->saves[0], &status);
    return status;
}

/* The lease of a restore ends behind the call that frees it. */
TEST(what_a_session_has_restored_and_freed_it_can_remove_at_once) {
    TEAM(1);
    for (uint64_t step = 1; step <= 4; step++) {
        struct cairn_restore *restore = NULL;
        REQUIRE_OK(save(&team, step, &err));
        const struct cairn_save_status old = status_of(&team);
        const struct cairn_restore_options of = {.size = sizeof of, .ref = old.version};
        REQUIRE_OK(save(&team, step + 100, &err));
        REQUIRE_OK(cairn_restore_open(team.sessions[0], &of, &restore, NULL, &err));
        cairn_restore_free(restore);
        EXPECT_CODE(cairn_remove(team.sessions[0], old.version, 0, &err), CAIRN_OK);
    }
}

TEST(runs_are_listed_by_name_with_what_a_resume_takes) {
    TEAM(1);
    struct cairn_run *list = NULL;
    struct cairn_session *other = NULL;
    size_t count = 9;
    struct cairn_open_options options = team_options(&team, 0);
    REQUIRE_OK(save(&team, 5, &err));
    REQUIRE_OK(save(&team, 6, &err));
    options.run = "llm/13b"; /* nothing is saved to it */
    options.bytes = 0;
    REQUIRE_OK(cairn_open(&options, &other, NULL, &err));
    REQUIRE_OK(cairn_runs(other, &list, &count, &err));
    (void)cairn_close(other, NULL);
    REQUIRE(count == 2);
    EXPECT_EQ_TEXT(list[0].run, "llm/13b");
    EXPECT_EQ_TEXT(list[0].latest, "");
    EXPECT_EQ_TEXT(list[1].run, "llm/7b");
    EXPECT_EQ_U64(list[1].version_count, 2);
    EXPECT_EQ_U64(list[1].total_bytes, 10);
    EXPECT_EQ_U64(list[1].latest_step, 6);
    EXPECT_EQ_TEXT(list[1].latest, status_of(&team).version);
    EXPECT(strlen(list[1].created_at) >= 20);
    cairn_runs_free(list);
}

TEST(a_removed_version_is_listed_as_trashed_and_may_be_removed_twice) {
    TEAM(1);
    struct cairn_checkpoint *list = NULL;
    size_t count = 0;
    REQUIRE_OK(save(&team, 5, &err));
    const struct cairn_save_status old = status_of(&team);
    REQUIRE_OK(save(&team, 6, &err));
    EXPECT_CODE(cairn_remove(team.sessions[0], "latest", 0, &err), CAIRN_INVALID);
    EXPECT_CODE(
        cairn_remove(team.sessions[0], "ckpt_00000000-0000-8000-8000-000000000000", 0, &err),
        CAIRN_NOT_FOUND);
    REQUIRE_OK(cairn_remove(team.sessions[0], old.version, 0, &err));
    EXPECT_CODE(cairn_remove(team.sessions[0], old.version, 0, &err), CAIRN_OK);
    REQUIRE_OK(cairn_list(team.sessions[0], &list, &count, &err));
    EXPECT_EQ_U64(count, 2);
    EXPECT_EQ_TEXT(list[0].state, "committed");
    EXPECT_EQ_TEXT(list[1].version, old.version);
    EXPECT_EQ_TEXT(list[1].state, "trashed");
    cairn_list_free(list);
    REQUIRE_OK(save(&team, 5, &err)); /* its step is free */
}
