/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* PATCH of versions and runs: merging, If-Match, pins, and lists that filter by what was said. */
#include "tests/server/world.h"

static bool shows(const json_t *version, const char *name, const char *wanted) {
    CAIRN_AUTO(buf) text = {0};
    if (cairn_json_dump(json_object_get(version, name), &text, NULL)) return false;
    EXPECT_EQ_TEXT(text.data, wanted);
    return !strcmp(text.data, wanted);
}

#define err world.err /* of the macros */

TEST(what_is_said_of_a_version_is_merged_and_part_of_what_latest_answers) {
    JOB(1, "--sweep-interval=50ms");
    SAVED(save, 1);
    CAIRN_AUTO_JSON json_t *first = NULL, *bare = NULL;
    REQUIRE_OK(
        cairn_change(&world, "*", "PATCH", save.path,
                     "{\"labels\":{\"team\":\"nlp\",\"tier\":\"tmp\"},\"metrics\":{\"loss\":1.5,"
                     "\"acc\":3},\"note\":\"good\"}",
                     &first));
    CHANGE("PATCH", save.path, "{\"labels\":{\"tier\":null},\"metrics\":{\"acc\":null,\"b\":2}}");
    GOT(latest, WORLD_RUN "/checkpoints/latest");
    EXPECT(shows(latest, "labels", "{\"kind\":\"test\",\"team\":\"nlp\"}"));
    EXPECT(shows(latest, "metrics", "{\"b\":2,\"loss\":1.5}"));
    EXPECT(shows(latest, "note", "\"good\""));
    EXPECT(shows(latest, "pinned", "false"));
    REQUIRE_OK(cairn_change(&world, "*", "PATCH", save.path, "{\"note\":null}", &bare));
    EXPECT(shows(bare, "note", "null"));
    EXPECT(shows(bare, "labels", "{\"kind\":\"test\",\"team\":\"nlp\"}"));
    CAIRN_AUTO_JSON json_t *cleared = NULL;
    CHANGE("PATCH", save.path, "{\"pinned\":true}");
    REQUIRE_OK(cairn_change(&world, "*", "PATCH", save.path,
                            "{\"labels\":null,\"metrics\":null,\"pinned\":null}",
                            &cleared)); /* RFC 7396: all of them */
    EXPECT(shows(cleared, "labels", "{}"));
    EXPECT(shows(cleared, "metrics", "{}"));
    EXPECT(shows(cleared, "pinned", "false"));
    EACH_TEXT(text, "{\"labels\":{\"a\":1}}", "{\"metrics\":{\"a\":\"1\"}}",
              "{\"metrics\":{\"a b\":1}}", "{\"pinned\":\"yes\"}", "{\"pined\":true}",
              "{\"labels\":[]}", "{\"labels\":{\"\":\"a\"}}", "{\"labels\":{\"a\":\"b\\nc\"}}",
              "{\"labels\":{\"a\\u007f\":\"\"}}")
        EXPECT_CODE(cairn_change(&world, "*", "PATCH", save.path, text, NULL), CAIRN_INVALID);
}

static size_t changes_of(struct cairn_world *world, const char *path, const char *event) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    size_t index = 0, count = 0;
    json_t *item = NULL;
    EXPECT(!cairn_say(world, "GET", TEXT("%s/events?since=0&limit=1000", path), NULL, &page));
    json_array_foreach(json_object_get(page, "items"), index, item)
        count += !strcmp(world_text(item, "event"), event);
    return count;
}

TEST(a_change_that_is_repeated_or_names_nothing_is_no_event) {
    JOB(1, "--sweep-interval=50ms");
    SAVED(save, 1);
    EACH_TEXT(
        body,
        "{\"labels\":{\"a\":\"b\"},\"metrics\":{\"loss\":1.5},\"note\":\"n\",\"pinned\":true}",
        "{}", "{\"labels\":{}}", "{\"labels\":{\"none\":null}}", "{\"metrics\":{\"loss\":1.5}}") {
        CHANGE("PATCH", save.path, body);
        CHANGE("PATCH", save.path, body);
        EXPECT_EQ_U64(changes_of(&world, save.path, "checkpoint.annotated"), 1);
    }
    EACH_TEXT(of_run, "{\"labels\":{\"a\":\"b\"},\"note\":\"n\"}", "{}", "{\"note\":\"n\"}") {
        CHANGE("PATCH", WORLD_RUN, of_run);
        CHANGE("PATCH", WORLD_RUN, of_run);
        EXPECT_EQ_U64(changes_of(&world, WORLD_RUN, "run.annotated"), 1);
    }
}

TEST(a_change_says_what_it_has_seen_and_fails_where_that_is_gone) {
    JOB(1, "--sweep-interval=50ms");
    SAVES(saves, 2);
    EXPECT_CODE(cairn_change(&world, NULL, "PATCH", saves[0].path, "{\"pinned\":true}", NULL),
                CAIRN_PRECONDITION_MISSING);
    EXPECT_CODE(cairn_change(&world, "\"0000000000000000\"", "PATCH", saves[0].path,
                             "{\"pinned\":true}", NULL),
                CAIRN_PRECONDITION);
    const char *id = TEXT("\"%s\"", saves[0].id.text);
    EXPECT_CODE(cairn_change(&world, id, "PATCH", WORLD_RUN "/checkpoints/latest",
                             "{\"pinned\":true}", NULL),
                CAIRN_PRECONDITION);
    REQUIRE_OK(
        cairn_change(&world, id, "PATCH", WORLD_RUN "/checkpoints/1", "{\"pinned\":true}", NULL));
    EXPECT_CODE(cairn_change(&world, NULL, "PATCH", WORLD_RUN, "{\"note\":\"a\"}", NULL),
                CAIRN_PRECONDITION_MISSING);
    EXPECT_CODE(cairn_change(&world, "\"0\"", "PATCH", WORLD_RUN, "{\"note\":\"a\"}", NULL),
                CAIRN_PRECONDITION);
    CAIRN_AUTO_JSON json_t *run = NULL;
    REQUIRE_OK(cairn_change(&world, "*", "PATCH", WORLD_RUN,
                            "{\"note\":\"a\",\"labels\":{\"k\":\"v\"}}", &run));
    EXPECT(shows(run, "note", "\"a\""));
    EXPECT(shows(run, "labels", "{\"k\":\"v\"}"));
    CAIRN_AUTO_JSON json_t *cleared = NULL;
    REQUIRE_OK(cairn_change(&world, "*", "PATCH", WORLD_RUN, "{\"labels\":null}", &cleared));
    EXPECT(shows(cleared, "labels", "{}"));
    EXPECT(shows(cleared, "note", "\"a\""));
}

TEST(what_is_pinned_is_deleted_by_nobody_and_what_is_trashed_is_not_pinned) {
    JOB(1, "--sweep-interval=50ms");
    SAVES(saves, 2);
    CHANGE("PATCH", saves[0].path, "{\"pinned\":true}");
    EXPECT_REFUSED(CAIRN_IN_USE, "DELETE", saves[0].path, NULL);
    CHANGE("PATCH", saves[0].path, "{\"pinned\":false}");
    ASK("DELETE", saves[0].path, NULL);
    EXPECT_CHANGE(CAIRN_CONFLICT, "PATCH", saves[0].path, "{\"pinned\":true}");
    CHANGE("PATCH", saves[0].path, "{\"note\":\"why\"}");
}

TEST(labels_of_an_open_version_are_those_of_its_save) { /* Q22 */
    JOB(1, "--sweep-interval=50ms");
    BEGUN(save, 1);
    EXPECT_CHANGE(CAIRN_NOT_COMMITTED, "PATCH", save.path, "{\"labels\":{\"a\":\"b\"}}");
    CAIRN_AUTO_JSON json_t *shown = NULL;
    REQUIRE_OK(cairn_change(&world, "*", "PATCH", save.path,
                            "{\"pinned\":true,\"metrics\":{\"a\":1}}", &shown));
    EXPECT(shows(shown, "state", "\"open\""));
}

#undef err
/* The steps of a list, as "3 1". */
static const char *steps_of(struct cairn_world *world, const char *query) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    if (world_call(world, "GET", TEXT(WORLD_RUN "/checkpoints?%s", query), NULL, &page))
        return world->err.message;
    bool more = !json_is_null(json_object_get(page, "next_cursor"));
    return TEXT("%s%s", cairn_items(page, "items", "step"), more ? " ..." : "");
}

#define err world.err

TEST(lists_filter_by_label_step_attempt_time_and_trash) {
    JOB(1, "--sweep-interval=50ms");
    SAVES(saves, 5);
    CHANGE("PATCH", saves[0].path, "{\"labels\":{\"tier\":\"keep\"}}");
    CHANGE("PATCH", saves[2].path, "{\"labels\":{\"tier\":\"keep\",\"x\":\"\"}}");
    ASK("DELETE", saves[3].path, NULL);
    EACH(one, FIELDS(const char *query, *steps), {"", "5 4 3 2 1"}, {"l=tier=keep", "3 1"},
         {"l=tier=keep,x", "3"}, {"l=!tier", "5 4 2"}, {"l=tier=keep&limit=1", "3 ..."},
         {"l=tier=keep&order=step&limit=2", "1 3"}, {"l=x&limit=1", "3"},
         {"step_ge=2&step_lt=4", "3 2"}, {"attempt=1&limit=1", "5 ..."}, {"attempt=2", ""},
         {"trashed=true", "4"}, {"trashed=false", "5 3 2 1"},
         {"since=2000-01-01T00:00:00Z&trashed=true", "4"}, {"since=2999-01-01T00:00:00Z", ""},
         {"state=committed&l=!tier&trashed=false", "5 2"})
        EXPECT_EQ_TEXT(steps_of(&world, one->query), one->steps);
    EACH_TEXT(text, "l=a,,b", "step_ge=x", "since=yesterday", "trashed=yes") {
        EXPECT_REFUSED(CAIRN_INVALID, "GET", TEXT(WORLD_RUN "/checkpoints?%s", text), NULL);
    }
}

TEST(runs_are_listed_by_label_page_by_page) {
    WORLD();
    char path[200], cursor[600] = "";
    for (int i = 0; i < 250; i++) {
        snprintf(path, sizeof(path), "/v1/runs/p/r%03d", i);
        ASK("PUT", path, json_pack("{s:{s:s}}", "labels", "k", i % 100 ? "a" : "b"));
    }
    size_t found = 0, pages = 0;
    for (bool more = true; more && pages < 10; pages++) {
        GOT(page, TEXT("/v1/runs?l=k=b&limit=2%s", cursor));
        found += json_array_size(json_object_get(page, "items"));
        more = json_is_string(json_object_get(page, "next_cursor"));
        snprintf(cursor, sizeof(cursor), "&cursor=%s", world_text(page, "next_cursor"));
    }
    EXPECT_EQ_U64(found, 3); /* 0, 100, 200 */
    EXPECT_EQ_U64(pages, 2);
}
