/* SPDX-License-Identifier: Apache-2.0 */
/* Many versions at once, and a run with all that it has. */
#include <stdio.h>

#include "tests/server/world.h"

static enum cairn_code call(struct cairn_world *world, const char *method, const char *path,
                            const char *body, json_t **ret) {
    return cairn_world_call(world, method, path, body ? json_loads(body, 0, NULL) : NULL, ret);
}

static bool start(struct cairn_world *world, struct cairn_hand *hand,
                  struct cairn_hand_save saves[3]) {
    if (!cairn_world_start_inside(world, WORLD_ARGS("--trash-grace=10min"))) return false;
    if (cairn_hand_open(world, hand, "j1", 0, "latest", 1)) return false;
    for (size_t i = 0; i < 3; i++)
        if (cairn_hand_save_all(hand, i + 1, 1, "error", 10, &saves[i])) return false;
    return true;
}

#define err world.err /* of the macros */

TEST(many_versions_go_at_once_and_what_cannot_is_named) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[3];
    char path[300];
    CAIRN_AUTO_JSON json_t *done = NULL;
    REQUIRE(start(&world, &hand, saves));
    snprintf(path, sizeof(path), "%s/leases", saves[1].path);
    REQUIRE_OK(call(&world, "POST", path, "{\"job\":\"reader\"}", NULL));
    REQUIRE_OK(call(&world, "POST", WORLD_RUN "/trash",
                    "{\"versions\":[\"1\",\"2\",\"7\",\"latest\"]}", &done));
    const json_t *items = json_object_get(done, "items");
    static const char *const codes[] = {NULL, "in-use", "not-found", "invalid"};
    for (size_t i = 0; i < CAIRN_COUNT(codes); i++) {
        const json_t *item = json_array_get(items, i);
        const char *code = json_string_value(json_object_get(item, "code"));
        EXPECT(json_is_true(json_object_get(item, "trashed")) == !codes[i]);
        EXPECT_EQ_TEXT(code ? code : "", codes[i] ? codes[i] : "");
    }
    EXPECT_EQ_U64(cairn_world_number(done, "bytes"), 10);
    EXPECT_CODE(call(&world, "GET", WORLD_RUN "/checkpoints/1", NULL, NULL), CAIRN_NOT_FOUND);
    REQUIRE_OK(call(&world, "GET", WORLD_RUN "/checkpoints/2", NULL, NULL));
    EXPECT_CODE(call(&world, "POST", WORLD_RUN "/trash", "{\"versions\":[]}", NULL), CAIRN_INVALID);
}

TEST(a_run_goes_with_all_that_it_has_when_its_name_is_said) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[3], open;
    CAIRN_AUTO_JSON json_t *done = NULL, *runs = NULL, *back = NULL, *state = NULL;
    char path[300];
    REQUIRE(start(&world, &hand, saves));
    REQUIRE_OK(cairn_hand_begin(&hand, 9, 1, "error", &open));
    EXPECT_CODE(call(&world, "DELETE", WORLD_RUN, NULL, NULL), CAIRN_IN_USE);
    EXPECT_EQ_U64(cairn_world_number(world.inside.extra, "versions"), 3);
    EXPECT_EQ_U64(cairn_world_number(world.inside.extra, "bytes"), 30);
    EXPECT_CODE(call(&world, "DELETE", WORLD_RUN "?confirm=eight", NULL, NULL), CAIRN_INVALID);
    REQUIRE(cairn_world_sql(&world, "UPDATE versions SET pinned = 1 WHERE step = 2"));
    EXPECT_CODE(call(&world, "DELETE", WORLD_RUN "?confirm=seven", NULL, NULL), CAIRN_IN_USE);
    REQUIRE_OK(call(&world, "GET", WORLD_RUN "/checkpoints/1", NULL, NULL)); /* nothing went */
    REQUIRE(cairn_world_sql(&world, "UPDATE versions SET pinned = 0"));
    REQUIRE_OK(call(&world, "DELETE", WORLD_RUN "?confirm=seven", NULL, &done));
    EXPECT_EQ_U64(cairn_world_number(done, "removed"), 3);
    EXPECT_EQ_U64(cairn_world_number(done, "bytes"), 30);
    EXPECT_EQ_U64(cairn_world_number(done, "aborted"), 1);
    EXPECT_EQ_U64(cairn_world_number(done, "left"), 0);
    EXPECT_CODE(call(&world, "GET", WORLD_RUN, NULL, NULL), CAIRN_NOT_FOUND);
    REQUIRE_OK(call(&world, "GET", "/v1/runs", NULL, &runs));
    EXPECT_EQ_U64(json_array_size(json_object_get(runs, "items")), 0);
    snprintf(path, sizeof(path), "%s/undelete", saves[2].path);
    REQUIRE_OK(call(&world, "POST", path, NULL, &back)); /* and the run is shown again */
    REQUIRE_OK(call(&world, "GET", WORLD_RUN, NULL, NULL));
    cairn_inside_pass(&world.inside, UINT64_C(15) * 60000);
    EXPECT_CODE(call(&world, "GET", saves[0].path, NULL, NULL), CAIRN_DELETED);
    REQUIRE_OK(call(&world, "GET", saves[2].path, NULL, &state));
    EXPECT_EQ_TEXT(cairn_world_text(state, "state"), "committed");
}
