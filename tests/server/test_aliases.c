/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Aliases that people give, which protect what they point at, and `best`, which is computed. */
#include <stdio.h>

#include "tests/server/world.h"
#include "tests/support/raw.h"

#define ALIAS WORLD_RUN "/aliases/prod"

static enum cairn_code call(struct cairn_world *world, const char *match, const char *method,
                            const char *path, const char *body, json_t **ret) {
    CAIRN_TRY(cairn_rest_set_if_match(world->rest, match, &world->err));
    enum cairn_code code =
        cairn_world_call(world, method, path, body ? json_loads(body, 0, NULL) : NULL, ret);
    return cairn_rest_set_if_match(world->rest, NULL, NULL) ? CAIRN_INTERNAL : code;
}

/* The step that a reference means; 0: none. */
static uint64_t step_of(struct cairn_world *world, const char *ref) {
    char path[200];
    CAIRN_AUTO_JSON json_t *version = NULL;
    snprintf(path, sizeof(path), WORLD_RUN "/checkpoints/%s", ref);
    return call(world, NULL, "GET", path, NULL, &version) ? 0 : cairn_world_number(version, "step");
}

#define err world.err /* of the macros */

TEST(an_alias_is_moved_only_by_who_knows_where_it_points) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[2];
    char first[80];
    CAIRN_AUTO_JSON json_t *page = NULL;
    REQUIRE(cairn_hand_start(&world, &hand, saves, 2));
    EXPECT_EQ_U64(step_of(&world, "prod"), 0);
    EXPECT_CODE(call(&world, "*", "PUT", ALIAS, "{\"ref\":\"100\"}", NULL), CAIRN_PRECONDITION);
    REQUIRE_OK(call(&world, NULL, "PUT", ALIAS, "{\"ref\":\"100\"}", NULL));
    EXPECT_EQ_U64(step_of(&world, "prod"), 100);
    EXPECT_CODE(call(&world, NULL, "PUT", ALIAS, "{\"ref\":\"latest\"}", NULL),
                CAIRN_PRECONDITION_MISSING);
    snprintf(first, sizeof(first), "\"%s\"", saves[0].id.text);
    REQUIRE_OK(call(&world, first, "PUT", ALIAS, "{\"ref\":\"latest\"}", NULL));
    EXPECT_CODE(call(&world, first, "PUT", ALIAS, "{\"ref\":\"100\"}", NULL), CAIRN_PRECONDITION);
    EXPECT_EQ_U64(step_of(&world, "prod"), 200);
    REQUIRE_OK(call(&world, NULL, "GET", WORLD_RUN "/aliases", NULL, &page));
    const json_t *item = json_array_get(json_object_get(page, "items"), 0);
    EXPECT_EQ_TEXT(cairn_world_text(item, "alias"), "prod");
    EXPECT_EQ_U64(cairn_world_number(item, "step"), 200);
    EXPECT_CODE(call(&world, first, "DELETE", ALIAS, NULL, NULL), CAIRN_PRECONDITION);
    /* Repeats, whatever they say of the state before. */
    REQUIRE_OK(call(&world, first, "PUT", ALIAS, "{\"ref\":\"latest\"}", NULL));
    REQUIRE_OK(call(&world, NULL, "PUT", ALIAS, "{\"ref\":\"200\"}", NULL));
    REQUIRE_OK(call(&world, "*", "DELETE", ALIAS, NULL, NULL));
    REQUIRE_OK(call(&world, "*", "DELETE", ALIAS, NULL, NULL));
    REQUIRE_OK(call(&world, NULL, "DELETE", ALIAS, NULL, NULL));
    EXPECT_EQ_U64(step_of(&world, "prod"), 0);
    CAIRN_AUTO_JSON json_t *events = NULL;
    unsigned told = 0;
    size_t index = 0;
    json_t *event = NULL;
    REQUIRE_OK(call(&world, NULL, "GET", WORLD_RUN "/events?since=0&limit=1000", NULL, &events));
    json_array_foreach(json_object_get(events, "items"), index, event)
        told += !strncmp(cairn_world_text(event, "event"), "alias.", 6);
    EXPECT_EQ_U64(told, 3); /* made, moved, removed */
    static const char *const computed[] = {WORLD_RUN "/aliases/latest", WORLD_RUN "/aliases/best"};
    for (size_t i = 0; i < CAIRN_COUNT(computed); i++)
        EXPECT_CODE(call(&world, NULL, "PUT", computed[i], "{\"ref\":\"100\"}", NULL),
                    CAIRN_CONFLICT);
    EXPECT_CODE(call(&world, NULL, "PUT", WORLD_RUN "/aliases/100", "{\"ref\":\"100\"}", NULL),
                CAIRN_INVALID);
}

/* The status of a PUT that is to make something new. */
static int put_new(const struct cairn_world *world, const char *path, const char *body) {
    CAIRN_AUTO(buf) reply = {0};
    char request[600];
    snprintf(request, sizeof(request),
             "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "If-None-Match: *\r\nContent-Length: %zu\r\n\r\n%s",
             path, strlen(body), body);
    return cairn_raw_exchange(world->server.port, request, strlen(request), &reply);
}

TEST(a_put_that_wants_nothing_to_be_there_makes_a_run_or_an_alias_once) /* RFC 9110, 13.1.2 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[2];
    CAIRN_AUTO_JSON json_t *run = NULL;
    REQUIRE(cairn_hand_start(&world, &hand, saves, 2));
    EXPECT(put_new(&world, ALIAS, "{\"ref\":\"100\"}") == 201);
    EXPECT(put_new(&world, ALIAS, "{\"ref\":\"200\"}") == 412);
    EXPECT_EQ_U64(step_of(&world, "prod"), 100);
    static const char other[] = "/v1/runs/llm/other";
    EXPECT(put_new(&world, other, "{\"labels\":{\"a\":\"first\"}}") == 201);
    EXPECT(put_new(&world, other, "{\"labels\":{\"a\":\"second\"}}") == 412);
    REQUIRE_OK(call(&world, NULL, "GET", other, NULL, &run));
    EXPECT_EQ_TEXT(cairn_world_text(json_object_get(run, "labels"), "a"), "first");
    REQUIRE_OK(call(&world, NULL, "DELETE", other, NULL, NULL));
    EXPECT(put_new(&world, other, "{}") == 201); /* what was removed is not there */
}

TEST(what_an_alias_points_at_is_removed_by_nobody) { /* versions.h#2 */
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[3], open;
    CAIRN_AUTO_JSON json_t *plan = NULL, *shown = NULL;
    REQUIRE(cairn_hand_start(&world, &hand, saves, 3));
    REQUIRE_OK(call(&world, NULL, "PUT", ALIAS, "{\"ref\":\"100\"}", NULL));
    EXPECT_CODE(call(&world, NULL, "DELETE", saves[0].path, NULL, NULL), CAIRN_IN_USE);
    REQUIRE_OK(call(&world, NULL, "POST", WORLD_RUN "/retention/preview",
                    "{\"policy\":{\"keep\":{\"last\":1}}}", &plan));
    EXPECT_EQ_U64(cairn_world_number(plan, "remove"), 1);
    EXPECT_EQ_U64(cairn_world_number(plan, "keep"), 2);
    REQUIRE_OK(call(&world, NULL, "GET", saves[0].path, NULL, &shown));
    EXPECT_EQ_TEXT(json_string_value(json_array_get(json_object_get(shown, "aliases"), 0)), "prod");
    REQUIRE_OK(call(&world, NULL, "DELETE", saves[1].path, NULL, NULL));
    EXPECT_CODE(call(&world, "*", "PUT", ALIAS, "{\"ref\":\"200\"}", NULL), CAIRN_NOT_FOUND);
    char trashed[120];
    snprintf(trashed, sizeof(trashed), "{\"ref\":\"%s\"}", saves[1].id.text);
    EXPECT_CODE(call(&world, "*", "PUT", ALIAS, trashed, NULL), CAIRN_CONFLICT);
    REQUIRE_OK(cairn_hand_begin(&hand, 400, 1, "error", &open));
    EXPECT_CODE(call(&world, "*", "PUT", ALIAS, "{\"ref\":\"400\"}", NULL), CAIRN_NOT_COMMITTED);
    REQUIRE_OK(call(&world, "*", "PUT", ALIAS, "{\"ref\":\"300\"}", NULL));
    REQUIRE_OK(call(&world, NULL, "DELETE", saves[0].path, NULL, NULL));
}

TEST(best_is_the_version_with_the_best_metric_that_is_there) { /* versions.h#3 */
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[5];
    static const char *const metrics[] = {"1.5", "-2.5", "-0.25", "-2.5", "7"};
    REQUIRE(cairn_hand_start(&world, &hand, saves, 5));
    for (size_t i = 0; i < 5; i++) {
        char body[100];
        snprintf(body, sizeof(body), "{\"metrics\":{\"loss\":%s,\"other\":0}}", metrics[i]);
        REQUIRE_OK(call(&world, "*", "PATCH", saves[i].path, body, NULL));
    }
    EXPECT_EQ_U64(step_of(&world, "best"), 0); /* nobody has said by what */
    REQUIRE_OK(call(&world, NULL, "PUT", "/v1/retention",
                    "{\"keep\":{\"last\":9,\"best\":[{\"count\":1,\"metric\":\"loss\",\"order\":"
                    "\"min\"}]}}",
                    NULL));
    EXPECT_EQ_U64(step_of(&world, "best"), 400); /* as good as 200, and newer */
    EXPECT_CODE(call(&world, NULL, "DELETE", WORLD_RUN "/checkpoints/best", NULL, NULL),
                CAIRN_INVALID);
    REQUIRE_OK(call(&world, NULL, "DELETE", saves[3].path, NULL, NULL));
    EXPECT_EQ_U64(step_of(&world, "best"), 200);
    REQUIRE_OK(call(&world, "*", "PATCH", saves[1].path, "{\"metrics\":{\"loss\":null}}", NULL));
    EXPECT_EQ_U64(step_of(&world, "best"), 300);
    REQUIRE_OK(call(&world, NULL, "PUT", WORLD_RUN "/retention",
                    "{\"keep\":{\"best\":[{\"count\":9,\"metric\":\"loss\",\"order\":\"max\"}]}}",
                    NULL));
    EXPECT_EQ_U64(step_of(&world, "best"), 500);
}
