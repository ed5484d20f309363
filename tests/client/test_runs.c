/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* Runs and removals through the uploader: real server, real uploader. */

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
    EXPECT_ALL_TEXT(list[0].run, "llm/13b", list[0].latest, "", list[1].run, "llm/7b");
    EXPECT_ALL_U64(list[1].version_count, 2, list[1].total_bytes, 10, list[1].latest_step, 6);
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
    EXPECT_ALL_TEXT(list[0].state, "committed", list[1].version, old.version, list[1].state,
                    "trashed");
    cairn_list_free(list);
    REQUIRE_OK(save(&team, 5, &err)); /* its step is free */
}

/* ---- other runs, no run, looks ---- */

static bool reads_x(struct cairn_restore *restore, struct cairn_error *err) {
    char found[5] = "";
    const struct cairn_read read = {.size = sizeof read,
                                    .shard = "rank-00000/x",
                                    .bytes = UINT64_MAX,
                                    .into = found,
                                    .into_bytes = sizeof found};
    return cairn_restore_read(restore, &read, 1, 0, err) == CAIRN_OK && !memcmp(found, "12345", 5);
}

TEST(a_session_restores_a_version_of_another_run_also_after_a_restart_of_the_uploader) {
    TEAM(1);
    struct cairn_session *other = NULL;
    struct cairn_restore *restore = NULL;
    struct cairn_restore_info info;
    REQUIRE_OK(save(&team, 5, &err));
    struct cairn_open_options options = team_options(&team, 0);
    options.run = "llm/13b";
    options.bytes = 0;
    REQUIRE_OK(cairn_open(&options, &other, NULL, &err));
    struct cairn_restore_options of = {.size = sizeof of, .run = "llm/7b"};
    REQUIRE_OK(cairn_restore_open(other, &of, &restore, &info, &err));
    EXPECT_EQ_U64(info.step, 5);
    EXPECT(reads_x(restore, &err));
    REQUIRE_OK(cairn_world_uploader_again(&team.world, 0, &err));
    EXPECT(reads_x(restore, &err));
    cairn_restore_free(restore);
    of.ref = "99";
    EXPECT_FAILS(cairn_restore_open(other, &of, &restore, NULL, &err), CAIRN_NOT_FOUND,
                 "llm/7b@99");
    of.run = "no project";
    EXPECT_CODE(cairn_restore_open(other, &of, &restore, NULL, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_restore_open(other, NULL, &restore, NULL, &err), CAIRN_NOT_FOUND);
    (void)cairn_close(other, NULL);
}

TEST(a_session_without_a_run_reads_any_run_and_opens_no_attempt) {
    TEAM(1);
    struct cairn_session *reader = NULL;
    struct cairn_restore *restore = NULL;
    struct cairn_version_info *versions = NULL;
    struct cairn_checkpoint *list = NULL;
    struct cairn_run *runs = NULL;
    struct cairn_save *none = NULL;
    size_t count = 0;
    REQUIRE_OK(save(&team, 5, &err));
    struct cairn_open_options options = {
        .size = sizeof options, .socket = team.world.sockets[0], .timeout_ms = HANG_MS};
    EXPECT_CODE(cairn_open(&options, &reader, NULL, &err), CAIRN_INVALID);
    options.read_only = 1;
    REQUIRE_OK(cairn_open(&options, &reader, NULL, &err));
    const struct cairn_restore_options of = {.size = sizeof of, .run = "llm/7b"};
    REQUIRE_OK(cairn_restore_open(reader, &of, &restore, NULL, &err));
    EXPECT(reads_x(restore, &err));
    cairn_restore_free(restore);
    const struct cairn_find_options find = {.size = sizeof find, .run = "llm/7b"};
    REQUIRE_OK(cairn_find(reader, &find, &versions, &count, &err));
    EXPECT(count == 1 && versions[0].step == 5);
    cairn_find_free(versions);
    REQUIRE_OK(cairn_runs(reader, &runs, &count, &err));
    EXPECT(count == 1 && runs[0].attempt == 1); /* the team's */
    cairn_runs_free(runs);
    /* Calls about the session's run. */
    EXPECT_FAILS(cairn_restore_open(reader, NULL, &restore, NULL, &err), CAIRN_INVALID,
                 "without a run");
    EXPECT_CODE(cairn_list(reader, &list, &count, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_find(reader, NULL, &versions, &count, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_annotate(reader, "5", NULL, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_alias_set(reader, "prod", "5", 0, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_remove(reader, status_of(&team).version, 0, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_begin(reader, 6, NULL, &none, &err), CAIRN_INVALID);
    (void)cairn_close(reader, NULL);
}

TEST(a_look_shows_what_a_version_has_and_holds_nothing) {
    TEAM(1);
    static const uint64_t shape[2] = {3, 5};
    static const float numbers[15] = {1, 2, 3};
    AUTO_RESTORE *look = NULL;
    struct cairn_restore_info info;
    struct cairn_tensor_info tensor;
    struct cairn_shard_info shard;
    struct cairn_reading *reading = NULL;
    const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                             .name = "w",
                                             .dtype = "F32",
                                             .dimension_count = 2,
                                             .shape = shape,
                                             .kind = CAIRN_LOCAL,
                                             .source = numbers,
                                             .source_bytes = sizeof numbers};
    REQUIRE_OK(team_begin(&team, 5, NULL, &err));
    REQUIRE_OK(cairn_save_tensor(team.saves[0], &piece, &err));
    REQUIRE_OK(team_finish(&team, &err));
    const struct cairn_save_status old = status_of(&team);
    REQUIRE_OK(save(&team, 6, &err));
    const struct cairn_restore_options of = {.size = sizeof of, .ref = "5", .look = 1};
    REQUIRE_OK(cairn_restore_open(team.sessions[0], &of, &look, &info, &err));
    EXPECT_ALL_U64(info.step, 5, info.tensor_count, 1);
    const struct cairn_read read = {.size = sizeof read, .tensor = "w"};
    EXPECT_FAILS(cairn_restore_read(look, &read, 1, 0, &err), CAIRN_INVALID, "`look`");
    EXPECT_CODE(cairn_read_begin(look, &read, 1, 0, &reading, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_remove(team.sessions[0], old.version, 0, &err), CAIRN_OK);
    cairn_world_uploader_kill(&team.world, 0);
    REQUIRE_OK(cairn_restore_tensor_find(look, "w", &tensor, &err));
    EXPECT_EQ_TEXT(tensor.dtype, "F32");
    EXPECT(tensor.dimension_count == 2 && tensor.shape[0] == 3 && tensor.shape[1] == 5);
    EXPECT_EQ_U64(tensor.bytes, sizeof numbers);
    REQUIRE_OK(cairn_restore_shard_at(look, 0, &shard, &err));
    EXPECT(shard.bytes > sizeof numbers);
}

TEST(more_looks_than_restores_are_open_at_once) {
    TEAM(1);
    struct cairn_restore *looks[20] = {NULL};
    const struct cairn_restore_options of = {.size = sizeof of, .look = 1};
    REQUIRE_OK(save(&team, 5, &err));
    for (size_t i = 0; i < CAIRN_COUNT(looks); i++)
        EXPECT_CODE(cairn_restore_open(team.sessions[0], &of, &looks[i], NULL, &err), CAIRN_OK);
    for (size_t i = 0; i < CAIRN_COUNT(looks); i++) cairn_restore_free(looks[i]);
}
