/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a run gets on, as facts. */
#include <stdio.h>

#include "tests/server/world.h"

#define MINUTE_MS UINT64_C(60000)

static double number(const json_t *json, const char *name) {
    return json_number_value(json_object_get(json, name));
}

static json_t *look(struct cairn_world *world) {
    json_t *facts = NULL;
    if (cairn_world_call(world, "GET", WORLD_RUN "/liveness", NULL, &facts)) return NULL;
    return facts;
}

#define err world.err /* of the macros */

TEST(a_run_says_how_long_ago_and_how_often_it_commits) {
    static const uint64_t after_min[] = {0, 10, 10, 10, 90, 10}; /* a restart in between */
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    EXPECT_CODE(cairn_world_call(&world, "GET", WORLD_RUN "/liveness", NULL, NULL),
                CAIRN_NOT_FOUND);
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    CAIRN_AUTO_JSON json_t *none = look(&world);
    EXPECT(json_is_null(json_object_get(none, "last_commit_at")));
    EXPECT(json_is_null(json_object_get(none, "interval_s")));
    for (size_t i = 0; i < CAIRN_COUNT(after_min); i++) {
        cairn_inside_pass(&world.inside, after_min[i] * MINUTE_MS);
        REQUIRE_OK(cairn_hand_save_all(&hand, 1 + i, 1, "error", 10, &save));
    }
    cairn_inside_pass(&world.inside, 25 * MINUTE_MS);
    CAIRN_AUTO_JSON json_t *facts = look(&world);
    /* A save waits for its commit, up to 20 s of this clock. */
    EXPECT(number(facts, "interval_s") > 599 && number(facts, "interval_s") < 625);
    EXPECT(number(facts, "last_commit_age_s") > 1499 && number(facts, "last_commit_age_s") < 1525);
    EXPECT_EQ_U64(json_array_size(json_object_get(facts, "open")), 0);
}

TEST(what_an_open_save_waits_for_is_named_by_rank_node_and_shard) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 40));
    REQUIRE_OK(cairn_hand_begin(&hand, 7, 1, "error", &save));
    json_t *seals = json_pack("[o, o]", cairn_hand_seal(3, NULL, "rank-00003/x", 3),
                              cairn_hand_seal(0, NULL, "rank-00000/x", 3));
    json_t *shard = cairn_hand_shard(&save, "rank-00000/x", 0, CAIRN_VIEW("abc"));
    REQUIRE_OK(cairn_hand_send(&save, json_pack("[o]", shard), seals, NULL));
    CAIRN_AUTO_JSON json_t *facts = look(&world);
    const json_t *open = json_array_get(json_object_get(facts, "open"), 0);
    EXPECT_EQ_TEXT(cairn_world_text(open, "version"), save.id.text);
    EXPECT_EQ_U64(cairn_world_number(open, "ranks_sealed"), 2);
    EXPECT_EQ_U64(cairn_world_number(open, "missing_rank_count"), 38);
    const json_t *ranks = json_object_get(open, "missing_ranks");
    EXPECT_EQ_U64(json_array_size(ranks), 16);
    EXPECT_EQ_U64(cairn_world_number(json_array_get(ranks, 0), "rank"), 1);
    EXPECT_EQ_U64(cairn_world_number(json_array_get(ranks, 2), "rank"), 4);
    EXPECT_EQ_TEXT(cairn_world_text(json_array_get(ranks, 0), "node"), "node-a");
    EXPECT_EQ_TEXT(cairn_world_text(json_array_get(ranks, 0), "state"), "not sealed");
    EXPECT_EQ_U64(cairn_world_number(open, "missing_shard_count"), 1);
    const json_t *missing = json_array_get(json_object_get(open, "missing_shards"), 0);
    EXPECT_EQ_TEXT(cairn_world_text(missing, "shard"), "rank-00003/x");
}
