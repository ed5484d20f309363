/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* Versions that are looked for, and what is said of one after its commit: through the uploader. */

#include "tests/client/team.h"

static enum cairn_code save(struct cairn_team *team, uint64_t step, const char *labels,
                            struct cairn_error *err) {
    const struct cairn_save_options options = {
        .size = sizeof options, .labels_json = labels, .format = "tool-1"};
    CAIRN_TRY(team_begin(team, step, &options, err));
    CAIRN_TRY(cairn_save_raw(team->saves[0], "x", "12345", 5, err));
    return team_finish(team, err);
}

struct cairn_found {
    struct cairn_version_info *list;
    size_t count;
};
static void cairn_found_release(struct cairn_found *found) {
    cairn_find_free(found->list);
}

static enum cairn_code find(const struct cairn_team *team, const struct cairn_find_options *options,
                            struct cairn_found *ret, struct cairn_error *err) {
    cairn_find_free(ret->list);
    *ret = (struct cairn_found){.count = 99};
    return cairn_find(team->sessions[0], options, &ret->list, &ret->count, err);
}
#define OPTIONS(...)                                                                               \
    (&(const struct cairn_find_options){.size = sizeof(struct cairn_find_options), __VA_ARGS__})

TEST(versions_are_found_by_ref_state_labels_and_number_with_all_that_is_known_of_them) {
    TEAM(1);
    CAIRN_AUTO(found) found = {0};
    REQUIRE_OK(save(&team, 5, "{\"kind\":\"eval\"}", &err));
    REQUIRE_OK(save(&team, 6, "{\"kind\":\"train\"}", &err));
    REQUIRE_OK(save(&team, 7, NULL, &err));
    REQUIRE_OK(find(&team, NULL, &found, &err));
    REQUIRE(found.count == 3);
    EXPECT_EQ_U64(found.list[0].step, 7);
    EXPECT_EQ_TEXT(found.list[0].labels_json, "{}");
    EXPECT_EQ_U64(found.list[2].step, 5);
    EXPECT_ALL_TEXT(found.list[2].labels_json, "{\"kind\":\"eval\"}", found.list[2].format,
                    "tool-1", found.list[2].state, "committed");
    EXPECT_EQ_U64(found.list[2].world_size, 1);
    EXPECT(found.list[0].latest && !found.list[2].latest && !found.list[2].pinned);
    REQUIRE_OK(find(&team, OPTIONS(.ref = "latest"), &found, &err));
    EXPECT(found.count == 1 && found.list[0].step == 7);
    REQUIRE_OK(find(&team, OPTIONS(.labels = "kind=eval"), &found, &err));
    EXPECT(found.count == 1 && found.list[0].step == 5);
    REQUIRE_OK(find(&team, OPTIONS(.limit = 2), &found, &err));
    EXPECT(found.count == 2 && found.list[1].step == 6);
    REQUIRE_OK(find(&team, OPTIONS(.state = "open"), &found, &err));
    EXPECT_EQ_U64(found.count, 0);
    EXPECT_CODE(find(&team, OPTIONS(.state = "good"), &found, &err), CAIRN_INVALID);
    EXPECT_CODE(find(&team, OPTIONS(.ref = "6", .state = "open"), &found, &err), CAIRN_INVALID);
}

TEST(what_is_not_there_is_an_empty_list) {
    TEAM(1);
    CAIRN_AUTO(found) found = {0};
    struct cairn_checkpoint *list = NULL;
    REQUIRE_OK(find(&team, OPTIONS(.run = "llm/nobody-saves"), &found, &err));
    EXPECT_EQ_U64(found.count, 0);
    REQUIRE_OK(find(&team, OPTIONS(.ref = "1234"), &found, &err));
    EXPECT_EQ_U64(found.count, 0);
    REQUIRE_OK(find(&team, OPTIONS(.run = "llm/nobody-saves", .ref = "latest"), &found, &err));
    EXPECT_EQ_U64(found.count, 0);
    struct cairn_open_options options = team_options(&team, 0);
    struct cairn_session *other = NULL;
    size_t count = 9;
    options.run = "llm/nobody-saves";
    options.read_only = 1;
    options.bytes = 0;
    REQUIRE_OK(cairn_open(&options, &other, NULL, &err));
    EXPECT_CODE(cairn_list(other, &list, &count, &err), CAIRN_OK);
    EXPECT_EQ_U64(count, 0);
    cairn_list_free(list);
    /* A session reads other runs' lists, too. */
    REQUIRE_OK(save(&team, 5, NULL, &err));
    struct cairn_version_info *versions = NULL;
    REQUIRE_OK(cairn_find(other, OPTIONS(.run = "llm/7b"), &versions, &count, &err));
    EXPECT(count == 1 && versions[0].step == 5);
    cairn_find_free(versions);
    (void)cairn_close(other, NULL);
}

TEST(labels_metrics_pin_and_alias_of_a_committed_version_are_set_through_the_session) {
    TEAM(1);
    CAIRN_AUTO(found) found = {0};
    REQUIRE_OK(save(&team, 5, "{\"kind\":\"eval\",\"lang\":\"de\"}", &err));
    REQUIRE_OK(save(&team, 6, NULL, &err));
    const struct cairn_annotate_options said =
        SIZED(cairn_annotate_options, .labels_json = "{\"lang\":null,\"good\":\"yes\"}",
              .metrics_json = "{\"loss\":1.5}", .pin = CAIRN_PIN_YES);
    REQUIRE_OK(cairn_annotate(team.sessions[0], "5", &said, &err));
    const struct cairn_annotate_options more =
        SIZED(cairn_annotate_options, .metrics_json = "{\"accuracy\":0.5}");
    REQUIRE_OK(cairn_annotate(team.sessions[0], "5", &more, &err));
    REQUIRE_OK(cairn_alias_set(team.sessions[0], "prod", "6", 0, &err));
    REQUIRE_OK(cairn_alias_set(team.sessions[0], "prod", "5", 0, &err));
    REQUIRE_OK(find(&team, OPTIONS(.ref = "prod"), &found, &err));
    REQUIRE(found.count == 1);
    EXPECT_EQ_U64(found.list[0].step, 5);
    EXPECT_EQ_TEXT(found.list[0].labels_json, "{\"good\":\"yes\",\"kind\":\"eval\"}");
    EXPECT_EQ_TEXT(found.list[0].metrics_json, "{\"accuracy\":0.5,\"loss\":1.5}");
    EXPECT(found.list[0].pinned);
    EXPECT_CODE(cairn_remove(team.sessions[0], found.list[0].version, 0, &err), CAIRN_IN_USE);
    const struct cairn_annotate_options unpin = {.size = sizeof unpin, .pin = CAIRN_PIN_NO};
    REQUIRE_OK(cairn_annotate(team.sessions[0], "prod", &unpin, &err));
    REQUIRE_OK(cairn_alias_set(team.sessions[0], "prod", NULL, 0, &err));
    EXPECT_CODE(cairn_remove(team.sessions[0], found.list[0].version, 0, &err), CAIRN_OK);
    REQUIRE_OK(find(&team, OPTIONS(.ref = "prod"), &found, &err));
    EXPECT_EQ_U64(found.count, 0);
}

TEST(what_cannot_be_said_of_a_version_is_refused_with_the_servers_words) {
    TEAM(1);
    REQUIRE_OK(save(&team, 5, NULL, &err));
    const struct cairn_annotate_options labels = {.size = sizeof labels, .labels_json = "[1]"};
    EXPECT_FAILS(cairn_annotate(team.sessions[0], "5", &labels, &err), CAIRN_INVALID,
                 "labels_json");
    const struct cairn_annotate_options metrics =
        SIZED(cairn_annotate_options, .metrics_json = "{\"loss\":\"low\"}");
    EXPECT_FAILS(cairn_annotate(team.sessions[0], "5", &metrics, &err), CAIRN_INVALID,
                 "/metrics/loss");
    EXPECT_CODE(cairn_annotate(team.sessions[0], "99", NULL, &err), CAIRN_NOT_FOUND);
    EXPECT_CODE(cairn_annotate(team.sessions[0], NULL, NULL, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_alias_set(team.sessions[0], "latest", "5", 0, &err), CAIRN_CONFLICT);
    EXPECT_CODE(cairn_alias_set(team.sessions[0], "prod", "99", 0, &err), CAIRN_NOT_FOUND);
    EXPECT_CODE(cairn_alias_set(team.sessions[0], "", "5", 0, &err), CAIRN_INVALID);
}
