/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Retention over HTTP: policies and where they hold, previews, applying what was shown, and a
 * policy that is carried out after each commit. */
#include <stdio.h>
#include <time.h>

#include "tests/server/world.h"

#define POLICY WORLD_RUN "/retention"
#define PREVIEW WORLD_RUN "/retention/preview"
#define APPLY WORLD_RUN "/retention/apply"

static enum cairn_code call(struct cairn_world *world, const char *method, const char *path,
                            const char *body, json_t **ret) {
    return cairn_world_call(world, method, path, body ? json_loads(body, 0, NULL) : NULL, ret);
}

static enum cairn_code patch(struct cairn_world *world, const char *path, const char *body) {
    CAIRN_TRY(cairn_rest_set_if_match(world->rest, "*", &world->err));
    enum cairn_code code = call(world, "PATCH", path, body, NULL);
    return cairn_rest_set_if_match(world->rest, NULL, NULL) ? CAIRN_INTERNAL : code;
}

/* "300 keep newest last; 200 remove; ..." */
static const char *told(const json_t *plan) {
    static char text[2000];
    size_t at = 0, index = 0, other = 0;
    json_t *version = NULL, *reason = NULL;
    *text = '\0';
    json_array_foreach(json_object_get(plan, "versions"), index, version) {
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%" PRIu64 " %s", index ? "; " : "",
                               cairn_world_number(version, "step"),
                               cairn_world_text(version, "fate"));
        json_array_foreach(json_object_get(version, "reasons"), other, reason)
            at += (size_t)snprintf(text + at, sizeof(text) - at, " %s",
                                   cairn_world_text(reason, "rule"));
    }
    return text;
}

/* Steps that are not in the trash, newest first, once nothing has changed for a moment. */
static const char *listed(struct cairn_world *world) {
    static char text[500];
    CAIRN_AUTO_JSON json_t *page = NULL;
    size_t index = 0, at = 0;
    json_t *item = NULL;
    *text = '\0';
    if (call(world, "GET", WORLD_RUN "/checkpoints?trashed=false&state=committed", NULL, &page))
        return world->err.message;
    json_array_foreach(json_object_get(page, "items"), index, item)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%" PRIu64, index ? " " : "",
                               cairn_world_number(item, "step"));
    return text;
}

static const char *kept(struct cairn_world *world, const char *wanted) {
    AWAIT(!strcmp(listed(world), wanted));
    return listed(world);
}

#define err world.err /* of the macros */

TEST(a_runs_policy_holds_before_its_projects_and_that_before_the_servers) { /* policies.h#1 */
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    REQUIRE(cairn_hand_start(&world, &hand, NULL, 0));
    static const struct {
        const char *method, *path, *body, *text, *from;
    } steps[] = {
        {"GET", POLICY, NULL, "no rule: removes nothing", NULL},
        {"PUT", "/v1/retention", "{\"keep\":{\"last\":9}}", "last 9", "server"},
        {"GET", POLICY, NULL, "last 9", "server"},
        {"PUT", "/v1/projects/llm/retention", "{\"keep\":{\"first\":2}}", "first 2", "project"},
        {"GET", POLICY, NULL, "first 2", "project"},
        {"PUT", POLICY, "{\"keep\":{}}", "no rule: removes nothing", "run"},
        {"GET", POLICY, NULL, "no rule: removes nothing", "run"},
        {"DELETE", POLICY, NULL, "first 2", "project"},
        {"DELETE", "/v1/projects/llm/retention", NULL, "last 9", "server"},
        {"GET", "/v1/projects/llm/retention", NULL, "last 9", "server"},
        {"DELETE", "/v1/retention", NULL, "no rule: removes nothing", NULL},
    };
    for (size_t i = 0; i < CAIRN_COUNT(steps); i++) {
        CAIRN_AUTO_JSON json_t *shown = NULL;
        REQUIRE_OK(call(&world, steps[i].method, steps[i].path, steps[i].body, &shown));
        EXPECT_EQ_TEXT(cairn_world_text(shown, "text"), steps[i].text);
        const char *from = json_string_value(json_object_get(shown, "from"));
        EXPECT_EQ_TEXT(from ? from : "", steps[i].from ? steps[i].from : "");
    }
    EXPECT_CODE(call(&world, "PUT", POLICY, "{\"keep\":{\"last\":0}}", NULL), CAIRN_INVALID);
    EXPECT(strstr(err.message, "/keep/last") != NULL);
    EXPECT_CODE(call(&world, "GET", "/v1/runs/llm/none/retention", NULL, NULL), CAIRN_NOT_FOUND);
}

TEST(what_a_preview_shows_is_what_apply_removes_and_undelete_brings_it_back) { /* retain.h#1 */
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[5];
    char body[300];
    REQUIRE(cairn_hand_start(&world, &hand, saves, 5));
    REQUIRE_OK(patch(&world, saves[0].path, "{\"pinned\":true}"));
    REQUIRE_OK(patch(&world, saves[1].path, "{\"metrics\":{\"loss\":1}}"));
    REQUIRE_OK(patch(&world, saves[2].path, "{\"metrics\":{\"loss\":2},\"labels\":{\"a\":\"b\"}}"));
    CAIRN_AUTO_JSON json_t *plan = NULL, *later = NULL, *applied = NULL;
    static const char policy[] =
        "{\"policy\":{\"keep\":{\"last\":1,\"best\":[{\"count\":1,\"metric\":\"loss\",\"order\":"
        "\"min\"}],\"unmeasured_grace_s\":0}}}";
    REQUIRE_OK(call(&world, "POST", PREVIEW, policy, &plan));
    EXPECT_EQ_TEXT(told(plan), "500 keep last newest; 400 remove; 300 remove; 200 keep best; "
                               "100 keep pinned");
    EXPECT_EQ_U64(cairn_world_number(plan, "remove_bytes"), 20);
    EXPECT_EQ_TEXT(kept(&world, "500 400 300 200 100"), "500 400 300 200 100");
    static const char apply[] = "{\"plan_etag\":\"%s\",\"policy\":{\"keep\":{\"last\":1,\"best\":[{"
                                "\"count\":1,\"metric\":\"loss\",\"order\":\"min\"}],"
                                "\"unmeasured_grace_s\":0}}}";
    snprintf(body, sizeof(body), apply, cairn_world_text(plan, "plan_etag"));
    REQUIRE_OK(patch(&world, saves[3].path, "{\"pinned\":true}")); /* and so another plan */
    EXPECT_CODE(call(&world, "POST", APPLY, body, NULL), CAIRN_PRECONDITION);
    EXPECT_EQ_TEXT(kept(&world, "500 400 300 200 100"), "500 400 300 200 100");
    REQUIRE_OK(call(&world, "POST", PREVIEW, policy, &later));
    snprintf(body, sizeof(body), apply, cairn_world_text(later, "plan_etag"));
    REQUIRE_OK(call(&world, "POST", APPLY, body, &applied));
    EXPECT_EQ_U64(cairn_world_number(applied, "removed"), 1);
    EXPECT_EQ_U64(cairn_world_number(applied, "left"), 0);
    EXPECT_EQ_TEXT(kept(&world, "500 400 200 100"), "500 400 200 100");
    snprintf(body, sizeof(body), "%s/undelete", saves[2].path);
    REQUIRE_OK(call(&world, "POST", body, NULL, NULL));
    EXPECT_EQ_TEXT(kept(&world, "500 400 300 200 100"), "500 400 300 200 100");
}

TEST(a_policy_is_carried_out_after_each_commit) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[4];
    REQUIRE(cairn_hand_start(&world, &hand, saves, 1));
    REQUIRE_OK(call(&world, "PUT", "/v1/projects/llm/retention",
                    "{\"keep\":{\"last\":2,\"labels\":[\"kind=kept\"]}}", NULL));
    REQUIRE_OK(patch(&world, saves[0].path, "{\"labels\":{\"kind\":\"kept\"}}"));
    for (uint64_t step = 200; step <= 500; step += 100)
        REQUIRE_OK(cairn_hand_save_all(&hand, step, 1, "error", 10, &saves[1]));
    EXPECT_EQ_TEXT(kept(&world, "500 400 100"), "500 400 100");
    REQUIRE_OK(call(&world, "PUT", POLICY, "{\"keep\":{}}", NULL)); /* from now on, nothing goes */
    for (uint64_t step = 600; step <= 700; step += 100)
        REQUIRE_OK(cairn_hand_save_all(&hand, step, 1, "error", 10, &saves[1]));
    EXPECT_EQ_TEXT(kept(&world, "700 600 500 400 100"), "700 600 500 400 100");
}

TEST(what_an_attempt_resumed_from_stays_until_it_has_committed) { /* Q29, V7 */
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[3], open;
    CAIRN_AUTO_JSON json_t *plan = NULL;
    REQUIRE(cairn_hand_start(&world, &hand, saves, 3));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j2", 1, "200", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 250, 1, "error", &open));
    REQUIRE_OK(call(&world, "POST", PREVIEW, "{\"policy\":{\"keep\":{\"first\":1}}}", &plan));
    EXPECT_EQ_TEXT(told(plan), "250 skip in-flight; 300 keep superseded; "
                               "200 keep newest resumed-from; 100 keep first");
}

TEST(saves_to_come_are_part_of_a_preview_and_of_nothing_else) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[2];
    CAIRN_AUTO_JSON json_t *plan = NULL;
    REQUIRE(cairn_hand_start(&world, &hand, saves, 2));
    REQUIRE_OK(call(&world, "POST", PREVIEW,
                    "{\"policy\":{\"keep\":{\"within_s\":10800,\"first\":1}},\"assume\":["
                    "{\"step\":300,\"after_s\":3600},{\"step\":400,\"after_s\":7200,\"bytes\":7},"
                    "{\"step\":500,\"after_s\":7200}]}",
                    &plan));
    EXPECT_EQ_TEXT(told(plan), "500 keep within newest; 400 keep within; 300 remove; 200 remove; "
                               "100 keep first");
    EXPECT(json_is_null(json_object_get(plan, "plan_etag")));
    EXPECT_CODE(
        call(&world, "POST", PREVIEW, "{\"assume\":[{\"step\":1,\"after_s\":\"2h\"}]}", NULL),
        CAIRN_INVALID);
    EXPECT_EQ_TEXT(kept(&world, "200 100"), "200 100");
}

TEST(all_versions_go_only_by_a_flag_of_their_own) { /* retention.h#2, retention.h#3 */
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[3];
    char body[200];
    CAIRN_AUTO_JSON json_t *nothing = NULL, *all = NULL;
    REQUIRE(cairn_hand_start(&world, &hand, saves, 3));
    REQUIRE_OK(call(&world, "POST", PREVIEW, NULL, &nothing));
    EXPECT_EQ_TEXT(told(nothing), "300 keep newest no-rule; 200 keep no-rule; 100 keep no-rule");
    REQUIRE_OK(patch(&world, saves[1].path, "{\"pinned\":true}"));
    REQUIRE_OK(call(&world, "POST", PREVIEW, "{\"allow_empty\":true}", &all));
    EXPECT_EQ_TEXT(told(all), "300 remove; 200 keep pinned; 100 remove");
    snprintf(body, sizeof(body), "{\"plan_etag\":\"%s\"}", cairn_world_text(all, "plan_etag"));
    EXPECT_CODE(call(&world, "POST", APPLY, body, NULL), CAIRN_PRECONDITION);
    snprintf(body, sizeof(body), "{\"plan_etag\":\"%s\",\"allow_empty\":true}",
             cairn_world_text(all, "plan_etag"));
    REQUIRE_OK(call(&world, "POST", APPLY, body, NULL));
    EXPECT_EQ_TEXT(kept(&world, "200"), "200");
}
