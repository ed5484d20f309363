/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* Labels and meta: given until the seal, read from what is restored. Real server, real uploader. */
#include "tests/client/team.h"

static const char bytes[] = "raw bytes";

static enum cairn_code begin_all(struct cairn_team *team, uint64_t step, const char *labels,
                                 const char *meta, struct cairn_error *err) {
    const struct cairn_save_options options = {
        .size = sizeof options, .labels_json = labels, .meta_json = meta};
    CAIRN_TRY(team_begin(team, step, &options, err));
    for (uint32_t rank = 0; rank < team->ranks; rank++)
        CAIRN_TRY(cairn_save_raw(team->saves[rank], "x", bytes, sizeof bytes, err));
    return CAIRN_OK;
}

TEST(labels_and_meta_are_read_from_what_is_restored) {
    TEAM(2);
    REQUIRE_OK(begin_all(&team, 5, "{ \"b\": \"2\", \"a\": \"1\" }",
                         "{\"loss\": 0.5, \"origin\": null}", &err));
    REQUIRE_OK(team_finish_and_restore(&team, &err));
    EXPECT_EQ_TEXT(cairn_restore_labels(team.restore), "{\"a\":\"1\",\"b\":\"2\"}");
    EXPECT_EQ_TEXT(cairn_restore_meta(team.restore), "{\"loss\":0.5,\"origin\":null}");
    /* A save that was given none. */
    REQUIRE_OK(begin_all(&team, 6, NULL, "{\"origin\":1}", &err));
    REQUIRE_OK(team_finish_and_restore(&team, &err));
    EXPECT_EQ_TEXT(cairn_restore_labels(team.restore), "{}");
    EXPECT_EQ_TEXT(cairn_restore_meta(team.restore), "{\"origin\":1}");
}

TEST(what_rank_0_sets_before_its_seal_stands_for_what_its_begin_said) { /* Q10 */
    TEAM(2);
    REQUIRE_OK(begin_all(&team, 5, "{\"kind\":\"first\"}", "{\"loss\":9,\"origin\":1}", &err));
    /* NULL leaves what is there, the last word counts, and other ranks have none. */
    REQUIRE_OK(cairn_save_set_meta(team.saves[0], NULL, "{\"loss\":3,\"origin\":1}", &err));
    REQUIRE_OK(cairn_save_set_meta(team.saves[0], NULL, "{\"loss\":2,\"origin\":1}", &err));
    REQUIRE_OK(cairn_save_set_meta(team.saves[1], "{\"kind\":\"other\"}", NULL, &err));
    REQUIRE_OK(team_finish(&team, &err));
    EXPECT_CODE(cairn_save_set_meta(team.saves[0], NULL, "{}", &err), CAIRN_INVALID);
    REQUIRE_OK(team_restore(&team, NULL, &err));
    EXPECT_EQ_TEXT(cairn_restore_labels(team.restore), "{\"kind\":\"first\"}");
    EXPECT_EQ_TEXT(cairn_restore_meta(team.restore), "{\"loss\":2,\"origin\":1}");
    /* Where it came from is added, as at the begin. */
    REQUIRE_OK(begin_all(&team, 6, NULL, NULL, &err));
    REQUIRE_OK(cairn_save_set_meta(team.saves[0], "{\"kind\":\"late\"}", "{\"loss\":1}", &err));
    REQUIRE_OK(team_finish_and_restore(&team, &err));
    EXPECT_EQ_TEXT(cairn_restore_labels(team.restore), "{\"kind\":\"late\"}");
    EXPECT(strstr(cairn_restore_meta(team.restore), "\"origin\":{") != NULL);
}

TEST(what_is_refused_of_labels_and_meta_changes_nothing) { /* Q50 */
    TEAM(1);
    REQUIRE_OK(begin_all(&team, 5, "{\"kind\":\"first\"}", "{\"origin\":1}", &err));
    EXPECT_CODE(cairn_save_set_meta(team.saves[0], "{\"a\":1}", NULL, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_save_set_meta(team.saves[0], "{\"a\":\"1\"}", "[1]", &err), CAIRN_INVALID);
    REQUIRE_OK(team_finish_and_restore(&team, &err));
    EXPECT_EQ_TEXT(cairn_restore_labels(team.restore), "{\"kind\":\"first\"}");
    EXPECT_EQ_TEXT(cairn_restore_meta(team.restore), "{\"origin\":1}");
}

TEST(labels_of_a_seal_outlive_a_server_and_an_uploader_that_were_killed) { /* Q15, Q19 */
    TEAM(1);
    REQUIRE_OK(begin_all(&team, 5, "{\"kind\":\"first\"}", NULL, &err));
    cairn_world_server_kill(&team.world);
    REQUIRE_OK(cairn_save_set_meta(team.saves[0], "{\"kind\":\"late\"}", "{\"origin\":7}", &err));
    REQUIRE_OK(cairn_save_stage(team.saves[0], &err));
    REQUIRE_OK(cairn_world_uploader_again(&team.world, 0, &err));
    REQUIRE_OK(cairn_world_server_start(&team.world, &err));
    REQUIRE_OK(team_commit_and_restore(&team, &err));
    EXPECT_EQ_TEXT(cairn_restore_labels(team.restore), "{\"kind\":\"late\"}");
    EXPECT_EQ_TEXT(cairn_restore_meta(team.restore), "{\"origin\":7}");
}

TEST(a_save_after_the_signal_that_announces_the_end_bears_its_name_as_a_label) {
    TEAM(2);
    REQUIRE_OK(cairn_last_chance_watch(NULL, &err)); /* SIGTERM and SIGUSR1 */
    REQUIRE_OK(begin_all(&team, 5, "{\"kind\":\"first\"}", NULL, &err));
    raise(SIGUSR1); /* behind the begin: that save is an ordinary one */
    REQUIRE_OK(team_finish_and_restore(&team, &err));
    EXPECT_EQ_TEXT(cairn_restore_labels(team.restore), "{\"kind\":\"first\"}");
    REQUIRE_OK(begin_all(&team, 6, "{\"kind\":\"last\"}", NULL, &err));
    REQUIRE_OK(team_finish_and_restore(&team, &err));
    EXPECT_EQ_TEXT(cairn_restore_labels(team.restore),
                   "{\"cairn.preempted\":\"SIGUSR1\",\"kind\":\"last\"}");
    /* Labels that are set later leave it there, and one of the trainer's own stays. */
    REQUIRE_OK(begin_all(&team, 7, NULL, NULL, &err));
    REQUIRE_OK(cairn_save_set_meta(team.saves[0], "{\"kind\":\"set\"}", NULL, &err));
    REQUIRE_OK(team_finish_and_restore(&team, &err));
    EXPECT_EQ_TEXT(cairn_restore_labels(team.restore),
                   "{\"cairn.preempted\":\"SIGUSR1\",\"kind\":\"set\"}");
    REQUIRE_OK(begin_all(&team, 8, "{\"cairn.preempted\":\"mine\"}", NULL, &err));
    REQUIRE_OK(team_finish_and_restore(&team, &err));
    EXPECT_EQ_TEXT(cairn_restore_labels(team.restore), "{\"cairn.preempted\":\"mine\"}");
    cairn_last_chance_unwatch();
}
