/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What a heartbeat's answer says of open versions, by which an uploader finds those that a rank has
 * abandoned (Q12). */
#include "tests/server/world.h"

#define err world.err /* of the macros */

/* The versions that the answer to one heartbeat names; the caller owns them. */
static json_t *named(struct cairn_hand *hand) {
    CAIRN_AUTO_JSON json_t *answer = NULL;
    json_t *body = json_pack("{s:{s:s}, s:[{s:s, s:i}]}", "uploader", "version", "1", "attempts",
                             "grant", hand->grant, "unsent", 0);
    if (cairn_world_call(hand->world, "PUT", "/v1/nodes/node-a", body, &answer)) return NULL;
    return json_incref(json_object_get(answer, "versions"));
}

static size_t named_count(struct cairn_hand *hand) {
    CAIRN_AUTO_JSON json_t *versions = named(hand);
    return versions ? json_array_size(versions) : SIZE_MAX;
}

TEST(a_heartbeats_answer_names_step_and_n_of_what_is_open_in_its_attempt) /* Q12 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save saves[3];
    static const uint64_t steps[] = {900, 7, 7};
    static const uint32_t ns[] = {1, 2, 3};
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    for (size_t i = 0; i < 3; i++)
        REQUIRE_OK(cairn_hand_begin(&hand, steps[i], ns[i], "new-version", &saves[i]));
    CAIRN_AUTO_JSON json_t *versions = named(&hand);
    EXPECT_EQ_U64(json_array_size(versions), 3);
    size_t found = 0;
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < json_array_size(versions); k++) {
            const json_t *item = json_array_get(versions, k);
            if (strcmp(cairn_world_text(item, "version"), saves[i].id.text) != 0) continue;
            found++;
            EXPECT_EQ_TEXT(cairn_world_text(item, "state"), "open");
            EXPECT_EQ_U64(cairn_world_number(item, "step"), steps[i]);
            EXPECT_EQ_U64(cairn_world_number(item, "n"), ns[i]);
        }
    }
    EXPECT_EQ_U64(found, 3);
}

/* What this catalog calls open may be committed: an uploader must not hear of it as open. */
TEST(nothing_is_named_of_a_run_that_is_frozen_or_was_not_compared_with_its_store) /* Q35, Q36 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    EXPECT_EQ_U64(named_count(&hand), 1);
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    EXPECT_EQ_U64(named_count(&hand), 0);
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN, NULL, NULL)); /* compared before that */
    EXPECT_EQ_U64(named_count(&hand), 1);
    world.inside.server.frozen = true; /* the whole catalog is behind */
    EXPECT_EQ_U64(named_count(&hand), 0);
    world.inside.server.frozen = false;
    EXPECT_EQ_U64(named_count(&hand), 1);
    REQUIRE(cairn_world_sql(&world, "INSERT INTO frozen_runs(run_id, cause, since_ms) "
                                    "VALUES(1, 'the store is ahead', 0)"));
    EXPECT_EQ_U64(named_count(&hand), 0);
}
