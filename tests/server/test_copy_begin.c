/* SPDX-License-Identifier: Apache-2.0 */
/* What a sweep goes on with, by a look that is some time old. */
#include <stdio.h>

#include "server/jobs/copies.h"
#include "tests/server/world.h"

#define err world.err /* of the macros */

/* As if it had been wanted when the sweep looked. */
TEST(a_sweep_begins_no_copy_that_was_made_or_taken_back_since_it_looked) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char slow[400], path[300], id[CAIRN_SRV_OPERATION_BYTES];
    snprintf(slow, sizeof(slow), "--stores=slow=%s/slow", cairn_test_folder());
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS(slow)));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    struct cairn_srv *server = &world.inside.server;
    const struct cairn_run_name name = {"llm", "seven"};
    const struct cairn_srv_copy_begin begin = {
        .name = &name, .version = save.id.text, .store = "slow"};
    REQUIRE_OK(cairn_srv_operations_new(server, &server->operations, &err));
    EXPECT_CODE(cairn_srv_copies_begin(server, &begin, id, &err), CAIRN_ABORTED);
    cairn_srv_operations_free(server->operations);
    server->operations = NULL;
    snprintf(path, sizeof(path), "%s/promote", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "to", "slow"), NULL));
    cairn_inside_round(&world.inside);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM copies WHERE phase = 1"), 1);
    REQUIRE_OK(cairn_srv_operations_new(server, &server->operations, &err));
    EXPECT_CODE(cairn_srv_copies_begin(server, &begin, id, &err), CAIRN_ABORTED);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM operations"), 0);
    cairn_srv_operations_free(server->operations);
    server->operations = NULL;
}
