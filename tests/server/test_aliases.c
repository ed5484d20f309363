/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Aliases that people give, which protect what they point at, and `best`, which is computed. */
#include "tests/server/world.h"

#define ALIAS WORLD_RUN "/aliases/prod"

/* The step that a reference means; 0: none. */
static uint64_t step_of(struct cairn_world *world, const char *ref) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    const char *path = TEXT(WORLD_RUN "/checkpoints/%s", ref);
    return world_call(world, "GET", path, NULL, &version) ? 0 : world_number(version, "step");
}

#define err world.err /* of the macros */

TEST(an_alias_is_moved_only_by_who_knows_where_it_points) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    STARTED(saves, 2);
    EXPECT_EQ_U64(step_of(&world, "prod"), 0);
    EXPECT_CHANGE(CAIRN_PRECONDITION, "PUT", ALIAS, "{\"ref\":\"100\"}");
    REQUIRE_OK(cairn_change(&world, NULL, "PUT", ALIAS, "{\"ref\":\"100\"}", NULL));
    EXPECT_EQ_U64(step_of(&world, "prod"), 100);
    EXPECT_CODE(cairn_change(&world, NULL, "PUT", ALIAS, "{\"ref\":\"latest\"}", NULL),
                CAIRN_PRECONDITION_MISSING);
    const char *first = TEXT("\"%s\"", saves[0].id.text);
    REQUIRE_OK(cairn_change(&world, first, "PUT", ALIAS, "{\"ref\":\"latest\"}", NULL));
    EXPECT_CODE(cairn_change(&world, first, "PUT", ALIAS, "{\"ref\":\"100\"}", NULL),
                CAIRN_PRECONDITION);
    EXPECT_EQ_U64(step_of(&world, "prod"), 200);
    REQUIRE_OK(cairn_change(&world, NULL, "GET", WORLD_RUN "/aliases", NULL, &page));
    EXPECT_SHOWS(page, "items.0.alias", "prod", "items.0.step", "200");
    EXPECT_CODE(cairn_change(&world, first, "DELETE", ALIAS, NULL, NULL), CAIRN_PRECONDITION);
    /* Repeats, whatever they say of the state before. */
    REQUIRE_OK(cairn_change(&world, first, "PUT", ALIAS, "{\"ref\":\"latest\"}", NULL));
    REQUIRE_OK(cairn_change(&world, NULL, "PUT", ALIAS, "{\"ref\":\"200\"}", NULL));
    CHANGE("DELETE", ALIAS, NULL);
    CHANGE("DELETE", ALIAS, NULL);
    REQUIRE_OK(cairn_change(&world, NULL, "DELETE", ALIAS, NULL, NULL));
    EXPECT_EQ_U64(step_of(&world, "prod"), 0);
    CAIRN_AUTO_JSON json_t *events = NULL;
    unsigned told = 0;
    size_t index = 0;
    json_t *event = NULL;
    REQUIRE_OK(
        cairn_change(&world, NULL, "GET", WORLD_RUN "/events?since=0&limit=1000", NULL, &events));
    json_array_foreach(json_object_get(events, "items"), index, event)
        told += !strncmp(world_text(event, "event"), "alias.", 6);
    EXPECT_EQ_U64(told, 3); /* made, moved, removed */
    EACH_TEXT(bad, "Prod", "-x", "a_b", "ckpt_1")
        EXPECT_FAILS(cairn_change(&world, NULL, "PUT", TEXT(WORLD_RUN "/aliases/%s", bad),
                                  "{\"ref\":\"100\"}", NULL),
                     CAIRN_INVALID, "alias: want [a-z]");
    EACH_TEXT(one, WORLD_RUN "/aliases/latest", WORLD_RUN "/aliases/best")
        EXPECT_CODE(cairn_change(&world, NULL, "PUT", one, "{\"ref\":\"100\"}", NULL),
                    CAIRN_CONFLICT);
    EXPECT_CODE(
        cairn_change(&world, NULL, "PUT", WORLD_RUN "/aliases/100", "{\"ref\":\"100\"}", NULL),
        CAIRN_INVALID);
}

TEST(an_alias_to_what_can_be_no_version_is_refused_by_the_name_of_the_field) {
    STARTED(saves, 1);
    EACH_TEXT(ref, "", "-1", "Latest", "007", "ckpt_1") {
        EXPECT_FAILS(cairn_change(&world, NULL, "PUT", ALIAS, TEXT("{\"ref\":\"%s\"}", ref), NULL),
                     CAIRN_INVALID, "/ref: want a step number, a version id or a word");
        EXPECT_FAILS(cairn_change(&world, "*", "PATCH", WORLD_RUN,
                                  TEXT("{\"from\":\"llm/seven@%s\"}", ref), NULL),
                     CAIRN_INVALID, "/from: want a step number, a version id or a word");
    }
    EXPECT_CHANGE(CAIRN_NOT_FOUND, "PUT", ALIAS, "{\"ref\":\"300\"}");
}

/* The status of a PUT that is to make something new. */
static int put_new(const struct cairn_world *world, const char *path, const char *body) {
    return world_ask(world, "PUT", path, "If-None-Match: *\r\n", body, NULL);
}

TEST(a_put_that_wants_nothing_to_be_there_makes_a_run_or_an_alias_once) { /* RFC 9110, 13.1.2 */
    CAIRN_AUTO_JSON json_t *run = NULL;
    STARTED(saves, 2);
    EXPECT(put_new(&world, ALIAS, "{\"ref\":\"100\"}") == 201);
    EXPECT(put_new(&world, ALIAS, "{\"ref\":\"200\"}") == 412);
    EXPECT_EQ_U64(step_of(&world, "prod"), 100);
    static const char other[] = "/v1/runs/llm/other";
    EXPECT(put_new(&world, other, "{\"labels\":{\"a\":\"first\"}}") == 201);
    EXPECT(put_new(&world, other, "{\"labels\":{\"a\":\"second\"}}") == 412);
    REQUIRE_OK(cairn_change(&world, NULL, "GET", other, NULL, &run));
    EXPECT_EQ_TEXT(world_text(json_object_get(run, "labels"), "a"), "first");
    REQUIRE_OK(cairn_change(&world, NULL, "DELETE", other, NULL, NULL));
    EXPECT(put_new(&world, other, "{}") == 201); /* what was removed is not there */
}

TEST(what_an_alias_points_at_is_removed_by_nobody) { /* versions.h#2 */
    CAIRN_AUTO_JSON json_t *plan = NULL, *shown = NULL;
    STARTED(saves, 3);
    REQUIRE_OK(cairn_change(&world, NULL, "PUT", ALIAS, "{\"ref\":\"100\"}", NULL));
    EXPECT_CODE(cairn_change(&world, NULL, "DELETE", saves[0].path, NULL, NULL), CAIRN_IN_USE);
    REQUIRE_OK(cairn_change(&world, NULL, "POST", WORLD_RUN "/retention/preview",
                            "{\"policy\":{\"keep\":{\"last\":1}}}", &plan));
    EXPECT_SHOWS(plan, "remove", "1", "keep", "2");
    REQUIRE_OK(cairn_change(&world, NULL, "GET", saves[0].path, NULL, &shown));
    EXPECT_EQ_TEXT(json_string_value(json_array_get(json_object_get(shown, "aliases"), 0)), "prod");
    REQUIRE_OK(cairn_change(&world, NULL, "DELETE", saves[1].path, NULL, NULL));
    EXPECT_CHANGE(CAIRN_NOT_FOUND, "PUT", ALIAS, "{\"ref\":\"200\"}");
    EXPECT_CHANGE(CAIRN_CONFLICT, "PUT", ALIAS, TEXT("{\"ref\":\"%s\"}", saves[1].id.text));
    BEGUN(open, 400);
    EXPECT_CHANGE(CAIRN_NOT_COMMITTED, "PUT", ALIAS, "{\"ref\":\"400\"}");
    CHANGE("PUT", ALIAS, "{\"ref\":\"300\"}");
    REQUIRE_OK(cairn_change(&world, NULL, "DELETE", saves[0].path, NULL, NULL));
}

TEST(best_is_the_version_with_the_best_metric_that_is_there) { /* versions.h#3 */
    static const char *const metrics[] = {"1.5", "-2.5", "-0.25", "-2.5", "7"};
    STARTED(saves, 5);
    for (size_t i = 0; i < 5; i++) {
        CHANGE("PATCH", saves[i].path, TEXT("{\"metrics\":{\"loss\":%s,\"other\":0}}", metrics[i]));
    }
    EXPECT_EQ_U64(step_of(&world, "best"), 0); /* nobody has said by what */
    REQUIRE_OK(
        cairn_change(&world, NULL, "PUT", "/v1/retention",
                     "{\"keep\":{\"last\":9,\"best\":[{\"count\":1,\"metric\":\"loss\",\"order\":"
                     "\"min\"}]}}",
                     NULL));
    EXPECT_EQ_U64(step_of(&world, "best"), 400); /* as good as 200, and newer */
    EXPECT_CODE(cairn_change(&world, NULL, "DELETE", WORLD_RUN "/checkpoints/best", NULL, NULL),
                CAIRN_INVALID);
    REQUIRE_OK(cairn_change(&world, NULL, "DELETE", saves[3].path, NULL, NULL));
    EXPECT_EQ_U64(step_of(&world, "best"), 200);
    CHANGE("PATCH", saves[1].path, "{\"metrics\":{\"loss\":null}}");
    EXPECT_EQ_U64(step_of(&world, "best"), 300);
    REQUIRE_OK(cairn_change(
        &world, NULL, "PUT", WORLD_RUN "/retention",
        "{\"keep\":{\"best\":[{\"count\":9,\"metric\":\"loss\",\"order\":\"max\"}]}}", NULL));
    EXPECT_EQ_U64(step_of(&world, "best"), 500);
}
