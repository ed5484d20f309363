/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* PATCH of versions and runs: merging, If-Match, pins, and lists that filter by what was said. */
#include <stdio.h>

#include "tests/server/world.h"

/* A running server, an attempt, and versions of steps 1 to `count`. */
static bool start(struct cairn_world *world, struct cairn_hand *hand, struct cairn_hand_save *saves,
                  size_t count) {
    if (!cairn_world_start(world, WORLD_ARGS("--sweep-interval=50ms"), NULL)) return false;
    if (cairn_hand_open(world, hand, "j1", 0, "latest", 1)) return false;
    for (size_t i = 0; i < count; i++)
        if (cairn_hand_save_all(hand, i + 1, 1, "error", 10, &saves[i])) return false;
    return true;
}

static enum cairn_code patch(struct cairn_world *world, const char *match, const char *path,
                             const char *body, json_t **ret) {
    CAIRN_TRY(cairn_rest_set_if_match(world->rest, match, &world->err));
    enum cairn_code code = cairn_world_call(world, "PATCH", path, json_loads(body, 0, NULL), ret);
    return cairn_rest_set_if_match(world->rest, NULL, NULL) ? CAIRN_INTERNAL : code;
}

static bool shows(const json_t *version, const char *name, const char *wanted) {
    CAIRN_AUTO(buf) text = {0};
    if (cairn_json_dump(json_object_get(version, name), &text, NULL)) return false;
    EXPECT_EQ_TEXT(text.data, wanted);
    return !strcmp(text.data, wanted);
}

#define err world.err /* of the macros */

TEST(what_is_said_of_a_version_is_merged_and_part_of_what_latest_answers) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(start(&world, &hand, &save, 1));
    CAIRN_AUTO_JSON json_t *first = NULL, *latest = NULL, *bare = NULL;
    REQUIRE_OK(patch(&world, "*", save.path,
                     "{\"labels\":{\"team\":\"nlp\",\"tier\":\"tmp\"},\"metrics\":{\"loss\":1.5,"
                     "\"acc\":3},\"note\":\"good\"}",
                     &first));
    REQUIRE_OK(patch(&world, "*", save.path,
                     "{\"labels\":{\"tier\":null},\"metrics\":{\"acc\":null,\"b\":2}}", NULL));
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    EXPECT(shows(latest, "labels", "{\"kind\":\"test\",\"team\":\"nlp\"}"));
    EXPECT(shows(latest, "metrics", "{\"b\":2,\"loss\":1.5}"));
    EXPECT(shows(latest, "note", "\"good\""));
    EXPECT(shows(latest, "pinned", "false"));
    REQUIRE_OK(patch(&world, "*", save.path, "{\"note\":null}", &bare));
    EXPECT(shows(bare, "note", "null"));
    EXPECT(shows(bare, "labels", "{\"kind\":\"test\",\"team\":\"nlp\"}"));
    CAIRN_AUTO_JSON json_t *cleared = NULL;
    REQUIRE_OK(patch(&world, "*", save.path, "{\"pinned\":true}", NULL));
    REQUIRE_OK(patch(&world, "*", save.path, "{\"labels\":null,\"metrics\":null,\"pinned\":null}",
                     &cleared)); /* RFC 7396: all of them */
    EXPECT(shows(cleared, "labels", "{}"));
    EXPECT(shows(cleared, "metrics", "{}"));
    EXPECT(shows(cleared, "pinned", "false"));
    static const char *const slips[] = {"{\"labels\":{\"a\":1}}",
                                        "{\"metrics\":{\"a\":\"1\"}}",
                                        "{\"metrics\":{\"a b\":1}}",
                                        "{\"pinned\":\"yes\"}",
                                        "{\"pined\":true}",
                                        "{\"labels\":[]}",
                                        "{\"labels\":{\"\":\"a\"}}",
                                        "{\"labels\":{\"a\":\"b\\nc\"}}",
                                        "{\"labels\":{\"a\\u007f\":\"\"}}"};
    for (size_t i = 0; i < CAIRN_COUNT(slips); i++)
        EXPECT_CODE(patch(&world, "*", save.path, slips[i], NULL), CAIRN_INVALID);
}

TEST(a_change_says_what_it_has_seen_and_fails_where_that_is_gone) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[2];
    char id[80];
    REQUIRE(start(&world, &hand, saves, 2));
    EXPECT_CODE(patch(&world, NULL, saves[0].path, "{\"pinned\":true}", NULL),
                CAIRN_PRECONDITION_MISSING);
    EXPECT_CODE(patch(&world, "\"0000000000000000\"", saves[0].path, "{\"pinned\":true}", NULL),
                CAIRN_PRECONDITION);
    snprintf(id, sizeof(id), "\"%s\"", saves[0].id.text);
    EXPECT_CODE(patch(&world, id, WORLD_RUN "/checkpoints/latest", "{\"pinned\":true}", NULL),
                CAIRN_PRECONDITION);
    REQUIRE_OK(patch(&world, id, WORLD_RUN "/checkpoints/1", "{\"pinned\":true}", NULL));
    EXPECT_CODE(patch(&world, NULL, WORLD_RUN, "{\"note\":\"a\"}", NULL),
                CAIRN_PRECONDITION_MISSING);
    EXPECT_CODE(patch(&world, "\"0\"", WORLD_RUN, "{\"note\":\"a\"}", NULL), CAIRN_PRECONDITION);
    CAIRN_AUTO_JSON json_t *run = NULL;
    REQUIRE_OK(patch(&world, "*", WORLD_RUN, "{\"note\":\"a\",\"labels\":{\"k\":\"v\"}}", &run));
    EXPECT(shows(run, "note", "\"a\""));
    EXPECT(shows(run, "labels", "{\"k\":\"v\"}"));
    CAIRN_AUTO_JSON json_t *cleared = NULL;
    REQUIRE_OK(patch(&world, "*", WORLD_RUN, "{\"labels\":null}", &cleared));
    EXPECT(shows(cleared, "labels", "{}"));
    EXPECT(shows(cleared, "note", "\"a\""));
}

TEST(what_is_pinned_is_deleted_by_nobody_and_what_is_trashed_is_not_pinned) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[2];
    REQUIRE(start(&world, &hand, saves, 2));
    REQUIRE_OK(patch(&world, "*", saves[0].path, "{\"pinned\":true}", NULL));
    EXPECT_CODE(cairn_world_call(&world, "DELETE", saves[0].path, NULL, NULL), CAIRN_IN_USE);
    REQUIRE_OK(patch(&world, "*", saves[0].path, "{\"pinned\":false}", NULL));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", saves[0].path, NULL, NULL));
    EXPECT_CODE(patch(&world, "*", saves[0].path, "{\"pinned\":true}", NULL), CAIRN_CONFLICT);
    REQUIRE_OK(patch(&world, "*", saves[0].path, "{\"note\":\"why\"}", NULL));
}

TEST(labels_of_an_open_version_are_those_of_its_save) { /* Q22 */
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(start(&world, &hand, NULL, 0));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    EXPECT_CODE(patch(&world, "*", save.path, "{\"labels\":{\"a\":\"b\"}}", NULL),
                CAIRN_NOT_COMMITTED);
    CAIRN_AUTO_JSON json_t *shown = NULL;
    REQUIRE_OK(patch(&world, "*", save.path, "{\"pinned\":true,\"metrics\":{\"a\":1}}", &shown));
    EXPECT(shows(shown, "state", "\"open\""));
}

#undef err
/* The steps of a list, as "3 1". */
static const char *steps_of(struct cairn_world *world, const char *query) {
    static char text[200];
    char path[300];
    CAIRN_AUTO_JSON json_t *page = NULL;
    snprintf(path, sizeof(path), WORLD_RUN "/checkpoints?%s", query);
    *text = '\0';
    if (cairn_world_call(world, "GET", path, NULL, &page)) return world->err.message;
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach(json_object_get(page, "items"), index, item) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof(text) - at, "%s%" PRIu64, at ? " " : "",
                 cairn_world_number(item, "step"));
    }
    bool more = !json_is_null(json_object_get(page, "next_cursor"));
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", more ? " ..." : "");
    return text;
}

#define err world.err

TEST(lists_filter_by_label_step_attempt_time_and_trash) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[5];
    REQUIRE(start(&world, &hand, saves, 5));
    REQUIRE_OK(patch(&world, "*", saves[0].path, "{\"labels\":{\"tier\":\"keep\"}}", NULL));
    REQUIRE_OK(
        patch(&world, "*", saves[2].path, "{\"labels\":{\"tier\":\"keep\",\"x\":\"\"}}", NULL));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", saves[3].path, NULL, NULL));
    static const struct {
        const char *query, *steps;
    } cases[] = {
        {"", "5 4 3 2 1"},
        {"l=tier=keep", "3 1"},
        {"l=tier=keep,x", "3"},
        {"l=!tier", "5 4 2"},
        {"l=tier=keep&limit=1", "3 ..."},
        {"l=tier=keep&order=step&limit=2", "1 3"},
        {"l=x&limit=1", "3"},
        {"step_ge=2&step_lt=4", "3 2"},
        {"attempt=1&limit=1", "5 ..."},
        {"attempt=2", ""},
        {"trashed=true", "4"},
        {"trashed=false", "5 3 2 1"},
        {"since=2000-01-01T00:00:00Z&trashed=true", "4"},
        {"since=2999-01-01T00:00:00Z", ""},
        {"state=committed&l=!tier&trashed=false", "5 2"},
    };
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++)
        EXPECT_EQ_TEXT(steps_of(&world, cases[i].query), cases[i].steps);
    static const char *const slips[] = {"l=a,,b", "step_ge=x", "since=yesterday", "trashed=yes"};
    char path[200];
    for (size_t i = 0; i < CAIRN_COUNT(slips); i++) {
        snprintf(path, sizeof(path), WORLD_RUN "/checkpoints?%s", slips[i]);
        EXPECT_CODE(cairn_world_call(&world, "GET", path, NULL, NULL), CAIRN_INVALID);
    }
}

TEST(runs_are_listed_by_label_page_by_page) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    char path[200], cursor[600] = "";
    for (int i = 0; i < 250; i++) {
        snprintf(path, sizeof(path), "/v1/runs/p/r%03d", i);
        REQUIRE_OK(cairn_world_call(
            &world, "PUT", path, json_pack("{s:{s:s}}", "labels", "k", i % 100 ? "a" : "b"), NULL));
    }
    size_t found = 0, pages = 0;
    for (bool more = true; more && pages < 10; pages++) {
        CAIRN_AUTO_JSON json_t *page = NULL;
        char request[900];
        snprintf(request, sizeof(request), "/v1/runs?l=k=b&limit=2%s", cursor);
        REQUIRE_OK(cairn_world_call(&world, "GET", request, NULL, &page));
        found += json_array_size(json_object_get(page, "items"));
        more = json_is_string(json_object_get(page, "next_cursor"));
        snprintf(cursor, sizeof(cursor), "&cursor=%s", cairn_world_text(page, "next_cursor"));
    }
    EXPECT_EQ_U64(found, 3); /* 0, 100, 200 */
    EXPECT_EQ_U64(pages, 2);
}
