/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Retention over HTTP: policies and where they hold, previews, applying what was shown, and a
 * policy that is carried out after each commit. */
#include "server/ledger/policies.h"
#include "tests/server/world.h"

#define POLICY WORLD_RUN "/retention"
#define PREVIEW WORLD_RUN "/retention/preview"
#define APPLY WORLD_RUN "/retention/apply"

/* "300 keep newest last; 200 remove; ..." */
static const char *told(const json_t *plan) {
    static char text[2000];
    size_t at = 0, index = 0, other = 0;
    json_t *version = NULL, *reason = NULL;
    *text = '\0';
    json_array_foreach(json_object_get(plan, "versions"), index, version) {
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%" PRIu64 " %s", index ? "; " : "",
                               world_number(version, "step"), world_text(version, "fate"));
        json_array_foreach(json_object_get(version, "reasons"), other, reason)
            at += (size_t)snprintf(text + at, sizeof(text) - at, " %s", world_text(reason, "rule"));
    }
    return text;
}

/* Steps that are not in the trash, newest first, once nothing has changed for a moment. */
static const char *listed(struct cairn_world *world) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    if (cairn_say(world, "GET", WORLD_RUN "/checkpoints?trashed=false&state=committed", NULL,
                  &page))
        return world->err.message;
    return cairn_items(page, "items", "step");
}

static const char *kept(struct cairn_world *world, const char *wanted) {
    AWAIT(!strcmp(listed(world), wanted));
    return listed(world);
}

#define err world.err /* of the macros */

TEST(a_runs_policy_holds_before_its_projects_and_that_before_the_servers) { /* policies.h#1 */
    JOB(1, "--sweep-interval=50ms");
    EACH(one, FIELDS(const char *method, *path, *body, *text, *from),
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
         {"DELETE", "/v1/retention", NULL, "no rule: removes nothing", NULL}) {
        SAID(shown, one->method, one->path, one->body);
        EXPECT_EQ_TEXT(world_text(shown, "text"), one->text);
        const char *from = json_string_value(json_object_get(shown, "from"));
        EXPECT_EQ_TEXT(from ? from : "", one->from ? one->from : "");
    }
    EXPECT_SAY(CAIRN_INVALID, "PUT", POLICY, "{\"keep\":{\"last\":0}}");
    EXPECT(strstr(err.message, "/keep/last") != NULL);
    EXPECT_SAY(CAIRN_NOT_FOUND, "GET", "/v1/runs/llm/none/retention", NULL);
}

TEST(what_a_preview_shows_is_what_apply_removes_and_undelete_brings_it_back) { /* retain.h#1 */
    STARTED(saves, 5);
    CHANGE("PATCH", saves[0].path, "{\"pinned\":true}");
    CHANGE("PATCH", saves[1].path, "{\"metrics\":{\"loss\":1}}");
    CHANGE("PATCH", saves[2].path, "{\"metrics\":{\"loss\":2},\"labels\":{\"a\":\"b\"}}");
    static const char policy[] =
        "{\"policy\":{\"keep\":{\"last\":1,\"best\":[{\"count\":1,\"metric\":\"loss\",\"order\":"
        "\"min\"}],\"unmeasured_grace_s\":0}}}";
    SAID(plan, "POST", PREVIEW, policy);
    EXPECT_EQ_TEXT(told(plan), "500 keep last newest; 400 remove; 300 remove; 200 keep best; "
                               "100 keep pinned");
    EXPECT_EQ_U64(world_number(plan, "remove_bytes"), 20);
    EXPECT_EQ_TEXT(kept(&world, "500 400 300 200 100"), "500 400 300 200 100");
    static const char apply[] = "{\"plan_etag\":\"%s\",\"policy\":{\"keep\":{\"last\":1,\"best\":[{"
                                "\"count\":1,\"metric\":\"loss\",\"order\":\"min\"}],"
                                "\"unmeasured_grace_s\":0}}}";
    const char *body = TEXT(apply, world_text(plan, "plan_etag"));
    CHANGE("PATCH", saves[3].path, "{\"pinned\":true}"); /* and so another plan */
    EXPECT_SAY(CAIRN_PRECONDITION, "POST", APPLY, body);
    EXPECT_EQ_TEXT(kept(&world, "500 400 300 200 100"), "500 400 300 200 100");
    SAID(later, "POST", PREVIEW, policy);
    SAID(applied, "POST", APPLY, TEXT(apply, world_text(later, "plan_etag")));
    EXPECT_ALL_U64(world_number(applied, "removed"), 1, world_number(applied, "left"), 0);
    EXPECT_EQ_TEXT(kept(&world, "500 400 200 100"), "500 400 200 100");
    SAY("POST", TEXT("%s/undelete", saves[2].path), NULL);
    EXPECT_EQ_TEXT(kept(&world, "500 400 300 200 100"), "500 400 300 200 100");
}

/* 4,096 versions of attempt 1, which are just a page, 4,097 of attempt 2 and one of attempt 3. */
static const char three_lines[] =
    "WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM i WHERE x < 8194) INSERT INTO "
    "versions(version, run_id, attempt, step, n, nonce, state, recorded, superseded, world_size, "
    "on_exists, skip, format, labels, meta, layout, layout_writer, created_ms, opened_tick, "
    "sweeps, bytes) SELECT 'v' || x, r.run_id, CASE WHEN x <= 4096 THEN 1 WHEN x <= 8193 THEN 2 "
    "ELSE 3 END, x, 1, 'n', 1, 1, 0, 1, 0, 0, 'f', '{}', '{}', CAST('d' AS BLOB), 'w', 1, 1, 0, 1 "
    "FROM i, runs r";

TEST(a_plan_reads_each_version_once_over_several_pages_and_lines) { /* Q25 */
    JOB_INSIDE(1);
    REQUIRE(world_sql(&world, three_lines));
    SAID(plan, "POST", PREVIEW, "{\"policy\":{\"keep\":{\"last\":1}}}");
    EXPECT_EQ_U64(world_number(plan, "remove_bytes"), 8193);
}

TEST(candidates_after_a_step_of_a_line_are_the_saves_of_that_step_and_what_follows_it) {
    JOB_INSIDE(1);
    REQUIRE(world_sql(&world, three_lines));
    const struct cairn_policy policy = {0};
    const struct cairn_plan_item after = {.line = 2, .step = 8190};
    SRV_AUTO(candidates) rows = {0};
    SRV_AUTO(look) look = {0};
    SRV_AUTO(run) run = {0};
    REQUIRE_OK(srv_look_begin(world.inside.server.catalog, &look, &err));
    REQUIRE_OK(srv_run_get(look.tx, &(struct cairn_run_name){"llm", "seven"}, &run, &err));
    REQUIRE_OK(srv_candidates_load(look.tx, run.id, &policy, &after, &rows, &err));
    EXPECT_EQ_U64(rows.count, 5); /* 8190 to 8193 of attempt 2, and the save of attempt 3 */
    EXPECT_EQ_U64(rows.items[0].step, 8190);
}

TEST(a_policy_is_carried_out_after_each_commit) {
    JOB(1, "--sweep-interval=50ms");
    struct cairn_hand_save saves[4];
    REQUIRE_OK(hand_save_all(&hand, 100, 1, "error", 10, &saves[0]));
    SAY("PUT", "/v1/projects/llm/retention", "{\"keep\":{\"last\":2,\"labels\":[\"kind=kept\"]}}");
    CHANGE("PATCH", saves[0].path, "{\"labels\":{\"kind\":\"kept\"}}");
    for (uint64_t step = 200; step <= 500; step += 100)
        REQUIRE_OK(hand_save_all(&hand, step, 1, "error", 10, &saves[1]));
    EXPECT_EQ_TEXT(kept(&world, "500 400 100"), "500 400 100");
    SAY("PUT", POLICY, "{\"keep\":{}}"); /* from now on, nothing goes */
    for (uint64_t step = 600; step <= 700; step += 100)
        REQUIRE_OK(hand_save_all(&hand, step, 1, "error", 10, &saves[1]));
    EXPECT_EQ_TEXT(kept(&world, "700 600 500 400 100"), "700 600 500 400 100");
}

TEST(what_an_attempt_resumed_from_stays_until_it_has_committed) { /* Q29, V7 */
    STARTED(saves, 3);
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "200", 1));
    BEGUN(open, 250);
    SAID(plan, "POST", PREVIEW, "{\"policy\":{\"keep\":{\"first\":1}}}");
    EXPECT_EQ_TEXT(told(plan), "250 skip in-flight; 300 keep superseded; "
                               "200 keep newest resumed-from; 100 keep first");
}

TEST(saves_to_come_are_part_of_a_preview_and_of_nothing_else) {
    STARTED(saves, 2);
    SAID(plan, "POST", PREVIEW,
         "{\"policy\":{\"keep\":{\"within_s\":10800,\"first\":1}},\"assume\":["
         "{\"step\":300,\"after_s\":3600},{\"step\":400,\"after_s\":7200,\"bytes\":7},"
         "{\"step\":500,\"after_s\":7200}]}");
    EXPECT_EQ_TEXT(told(plan), "500 keep within newest; 400 keep within; 300 remove; 200 remove; "
                               "100 keep first");
    EXPECT(json_is_null(json_object_get(plan, "plan_etag")));
    EXPECT_SAY(CAIRN_INVALID, "POST", PREVIEW, "{\"assume\":[{\"step\":1,\"after_s\":\"2h\"}]}");
    EXPECT_EQ_TEXT(kept(&world, "200 100"), "200 100");
}

TEST(all_versions_go_only_by_a_flag_of_their_own) { /* retention.h#2, retention.h#3 */
    STARTED(saves, 3);
    SAID(nothing, "POST", PREVIEW, NULL);
    EXPECT_EQ_TEXT(told(nothing), "300 keep newest no-rule; 200 keep no-rule; 100 keep no-rule");
    CHANGE("PATCH", saves[1].path, "{\"pinned\":true}");
    SAID(all, "POST", PREVIEW, "{\"allow_empty\":true}");
    EXPECT_EQ_TEXT(told(all), "300 remove; 200 keep pinned; 100 remove");
    EXPECT_SAY(CAIRN_PRECONDITION, "POST", APPLY,
               TEXT("{\"plan_etag\":\"%s\"}", world_text(all, "plan_etag")));
    SAY("POST", APPLY,
        TEXT("{\"plan_etag\":\"%s\",\"allow_empty\":true}", world_text(all, "plan_etag")));
    EXPECT_EQ_TEXT(kept(&world, "200"), "200");
}
