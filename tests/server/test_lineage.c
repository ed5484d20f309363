/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What a version was trained from, and waiting for the next one. */
#include "tests/server/world.h"

#define LATEST WORLD_RUN "/checkpoints/latest"

static enum cairn_code call(struct cairn_world *world, const char *method, const char *base,
                            const char *tail, const char *body, json_t **ret) {
    const char *path = TEXT("%s%s", base, tail);
    if (body) CAIRN_TRY(cairn_rest_set_if_match(world->rest, "*", &world->err));
    return world_call(world, method, path, body ? json_loads(body, 0, NULL) : NULL, ret);
}

/* "ID by step" of each ancestor, as the test writes it. */
static bool chain_is(struct cairn_world *world, const char *path, const char *wanted) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    char found[1000] = "";
    size_t index = 0, used = 0;
    json_t *item = NULL;
    if (call(world, "GET", path, "/lineage", NULL, &reply)) return false;
    json_array_foreach(json_object_get(reply, "items"), index, item) {
        const char *by = json_string_value(json_object_get(item, "by"));
        const char *state = json_string_value(json_object_get(item, "state"));
        used += (size_t)snprintf(found + used, sizeof(found) - used, "%s%s/%s@%d%s",
                                 !by                   ? ""
                                 : !strcmp(by, "from") ? " < "
                                                       : " ",
                                 world_text(item, "project"), world_text(item, "run"),
                                 (int)world_number(item, "step"), state ? "" : "!");
    }
    if (strcmp(found, wanted)) fprintf(stderr, "%s: %s\n", path, found);
    return !strcmp(found, wanted);
}

#define err world.err /* of the macros */

TEST(a_chain_goes_through_attempts_and_what_is_forgotten) { /* version_lists.h#1, #2 */
    JOB_INSIDE(1);
    SAVED(one, 1);
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "latest", 1));
    SAVED(two, 2);
    SAVED(beyond, 3);
    REQUIRE_OK(hand_open(&world, &hand, "j3", 2, "2", 1));
    SAVED(three, 4);
    EXPECT(chain_is(&world, three.path, "llm/seven@4 llm/seven@2 llm/seven@1"));
    EXPECT(chain_is(&world, beyond.path, "llm/seven@3 llm/seven@1"));
    /* The row of what the newest attempt resumed from is kept; that of before goes in the end. */
    REQUIRE_OK(hand_open(&world, &hand, "j4", 3, "latest", 1));
    SAVED(last, 5);
    REQUIRE(world_sql(&world, "DELETE FROM versions WHERE step = 2"));
    EXPECT_CODE(call(&world, "GET", two.path, "", NULL, NULL), CAIRN_NOT_FOUND);
    EXPECT(chain_is(&world, last.path, "llm/seven@5 llm/seven@4 llm/seven@2! llm/seven@1"));
}

TEST(a_chain_goes_on_in_the_run_that_a_run_began_from) { /* version_lists.h#1, #3 */
    CAIRN_AUTO_JSON json_t *run = NULL;
    JOB(1);
    SAVED(one, 1);
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "latest", 1));
    SAVED(three, 4);
    const char *from = TEXT("{\"from\":\"llm/seven@%s\"}", three.id.text);
    REQUIRE_OK(call(&world, "PUT", "/v1/runs/llm/chat", "", NULL, NULL));
    EXPECT_CODE(call(&world, "PATCH", "/v1/runs/llm/chat", "", "{\"from\":\"llm/seven@9\"}", NULL),
                CAIRN_NOT_FOUND);
    EXPECT_CODE(call(&world, "PATCH", "/v1/runs/llm/chat", "", "{\"from\":\"llm/seven\"}", NULL),
                CAIRN_INVALID);
    REQUIRE_OK(call(&world, "PATCH", "/v1/runs/llm/chat", "", from, &run));
    EXPECT_EQ_U64(world_number(json_object_get(run, "from"), "step"), 4);
    /* A run that says it began from itself ends the chain. */
    REQUIRE_OK(call(&world, "PATCH", WORLD_RUN, "", from, NULL));
    EXPECT(chain_is(&world, three.path, "llm/seven@4 llm/seven@1"));
    EXPECT(chain_is(&world, one.path, "llm/seven@1 < llm/seven@4"));
    REQUIRE_OK(call(&world, "PATCH", WORLD_RUN, "", "{\"from\":null}", NULL));
    EXPECT(chain_is(&world, one.path, "llm/seven@1"));
}

TEST(latest_newer_than_a_step_or_a_version_waits_for_what_comes_next) {
    CAIRN_AUTO_JSON json_t *newer = NULL, *back = NULL;
    INSIDE();
    EXPECT_CODE(call(&world, "GET", LATEST, "?newer_than=1&wait=1s", NULL, NULL), CAIRN_NOT_FOUND);
    HAND(1);
    SAVED(one, 1);
    SAVED(two, 2);
    REQUIRE_OK(call(&world, "GET", LATEST, "?newer_than=1", NULL, &newer));
    EXPECT_EQ_U64(world_number(newer, "step"), 2);
    EXPECT(json_is_object(json_object_get(newer, "meta")));
    EXPECT(json_is_object(json_object_get(newer, "metrics")));
    EXPECT(json_is_object(json_object_get(newer, "labels")));
    uint64_t before_ms = world.inside.clock.mono_ms;
    EXPECT_CODE(call(&world, "GET", LATEST, "?newer_than=2&wait=30s", NULL, NULL), CAIRN_NOT_YET);
    EXPECT(world.inside.clock.mono_ms >= before_ms + 30000);
    const char *tail = TEXT("?newer_than=%s", two.id.text);
    EXPECT_CODE(call(&world, "GET", LATEST, tail, NULL, NULL), CAIRN_NOT_YET);
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "1", 1)); /* back to step 1 */
    REQUIRE_OK(call(&world, "GET", LATEST, tail, NULL, &back));
    EXPECT_EQ_U64(world_number(back, "step"), 1);
    EXPECT_CODE(call(&world, "GET", LATEST, "?newer_than=1", NULL, NULL), CAIRN_NOT_YET);
    EXPECT_CODE(call(&world, "GET", one.path, "?newer_than=1", NULL, NULL), CAIRN_INVALID);
    EXPECT_CODE(call(&world, "GET", LATEST, "?newer_than=x", NULL, NULL), CAIRN_INVALID);
}

TEST(a_commit_wakes_who_waits_for_the_next_one) {
    struct cairn_hand_save two;
    CAIRN_AUTO(calling) waiting = {0};
    JOB(1);
    SAVED(one, 1);
    REQUIRE(calling_wait(&waiting, &world, LATEST "?newer_than=1", 60000));
    REQUIRE_OK(hand_save_all(&hand, 2, 1, "error", 10, &two));
    EXPECT_CODE(calling_end(&waiting), CAIRN_OK);
    EXPECT_SHOWS(waiting.reply, "step", "2");
    EXPECT(waiting.took_ms < 55000);
}
