/* SPDX-License-Identifier: Apache-2.0 */
/* What a sweep goes on with, by a look that is some time old; and wishes and removals that meet
 * what others have changed meanwhile. */
#include <stdio.h>

#include "server/copies/copies.h"
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

/* Asks for a copy in the store "slow"; ret is the operation's path. */
static bool promote(struct cairn_world *world, const struct cairn_hand_save *save, char ret[100]) {
    char path[300];
    CAIRN_AUTO_JSON json_t *begun = NULL;
    snprintf(path, sizeof(path), "%s/promote", save->path);
    if (cairn_world_call(world, "POST", path, json_pack("{s:s}", "to", "slow"), &begun))
        return false;
    snprintf(ret, 100, "/v1/operations/%s", cairn_world_text(begun, "id"));
    return true;
}

static void expect_done(struct cairn_world *world, const char *operation) {
    CAIRN_AUTO_JSON json_t *over = NULL;
    char path[130];
    snprintf(path, sizeof(path), "%s?wait=30s", operation);
    EXPECT_EQ_U64(cairn_world_call(world, "GET", path, NULL, &over), CAIRN_OK);
    EXPECT_EQ_TEXT(cairn_world_text(over, "state"), "done");
}

/* The only place is taken by another promotion, which stands at its first part. A third one, asked
 * for behind the one that is cancelled, is begun by a sweep that has passed over that. */
TEST(a_promotion_that_is_cancelled_while_it_waits_is_not_begun_by_the_sweep) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO_JSON json_t *cancelled = NULL, *all = NULL, *version = NULL;
    struct cairn_hand hand;
    struct cairn_hand_save saves[3];
    char slow[400], operations[3][100];
    snprintf(slow, sizeof(slow), "--stores=slow=%s/slow", cairn_test_folder());
    REQUIRE(cairn_world_start(&world,
                              WORLD_ARGS(slow, "--sweep-interval=50ms", "--operations-at-once=1"),
                              WORLD_ARGS("CAIRN_CRASH_AT=server.promote.after_part:delay=1500")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    for (uint64_t i = 0; i < 3; i++)
        REQUIRE_OK(cairn_hand_save_all(&hand, 1 + i, 1, "error", 10, &saves[i]));
    for (int i = 0; i < 3; i++) REQUIRE(promote(&world, &saves[i], operations[i]));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", operations[1], NULL, &cancelled));
    EXPECT_EQ_TEXT(cairn_world_text(cancelled, "state"), "cancelled");
    expect_done(&world, operations[0]);
    expect_done(&world, operations[2]);
    REQUIRE_OK(cairn_world_call(&world, "GET", "/v1/operations", NULL, &all));
    EXPECT_EQ_U64(json_array_size(json_object_get(all, "items")), 3);
    REQUIRE_OK(cairn_world_call(&world, "GET", saves[1].path, NULL, &version));
    EXPECT_EQ_U64(json_array_size(json_object_get(version, "copies")), 1);
}

/* The promotion stands behind its first part when the copy is to be removed. */
TEST(a_promotion_that_loses_to_a_demote_fails_as_aborted_and_says_so) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO_JSON json_t *begun = NULL, *over = NULL;
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char slow[400], path[300];
    snprintf(slow, sizeof(slow), "--stores=slow=%s/slow", cairn_test_folder());
    REQUIRE(cairn_world_start(&world, WORLD_ARGS(slow, "--sweep-interval=50ms"),
                              WORLD_ARGS("CAIRN_CRASH_AT=server.promote.after_part:delay=1500")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    snprintf(path, sizeof(path), "%s/promote", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "to", "slow"), &begun));
    snprintf(path, sizeof(path), "%s/demote", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "from", "slow"), NULL));
    snprintf(path, sizeof(path), "/v1/operations/%s?wait=30s", cairn_world_text(begun, "id"));
    REQUIRE_OK(cairn_world_call(&world, "GET", path, NULL, &over));
    const json_t *problem = json_object_get(over, "problem");
    EXPECT_EQ_TEXT(cairn_world_text(over, "state"), "failed");
    EXPECT_EQ_TEXT(cairn_world_text(problem, "code"), "checkpoint-aborted");
    EXPECT(strstr(cairn_world_text(problem, "detail"), "nobody wants the copy of"));
}

/* The mark is put while the copy is being removed, and is the only one. */
TEST(the_mark_of_the_trash_outlives_the_copy_in_the_main_store) { /* records.h#1 */
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[2];
    struct cairn_key key;
    char slow[400], path[1500];
    snprintf(slow, sizeof(slow), "--stores=slow=%s/slow", cairn_test_folder());
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS(slow, "--trash-grace=1h")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    for (uint64_t i = 0; i < 2; i++)
        REQUIRE_OK(cairn_hand_save_all(&hand, 1 + i, 1, "error", 10, &saves[i]));
    snprintf(path, sizeof(path), "%s/promote", saves[0].path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "to", "slow"), NULL));
    cairn_inside_round(&world.inside);
    snprintf(path, sizeof(path), "%s/demote", saves[0].path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "from", "main"), NULL));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", saves[0].path, NULL, NULL));
    cairn_inside_round(&world.inside);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM copies WHERE store = 'main' AND "
                                            "phase = 3"),
                  1);
    struct cairn_version_place place = {{"llm", "seven"}, saves[0].step, saves[0].id};
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    cairn_key_trashed(&place, &key);
    EXPECT_CODE(cairn_store_perform(world.worker, &head, &err), CAIRN_OK);
    cairn_key_checksums(&place, &key);
    EXPECT_CODE(cairn_store_perform(world.worker, &head, &err), CAIRN_NOT_FOUND);
    cairn_inside_pass(&world.inside, 2 * UINT64_C(3600000)); /* it goes with the version */
    cairn_key_trashed(&place, &key);
    EXPECT_CODE(cairn_store_perform(world.worker, &head, &err), CAIRN_NOT_FOUND);
}

static enum cairn_code head(struct cairn_world *world, const struct cairn_key *key) {
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key->text};
    return cairn_store_perform(world->worker, &head, NULL);
}

/* One is superseded before its copy in the main store is removed, the other one afterwards. */
TEST(the_mark_of_what_is_superseded_outlives_the_copy_in_the_main_store) { /* records.h#3 */
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[2], newer;
    struct cairn_key marks[2], key;
    char slow[400], path[1500];
    snprintf(slow, sizeof(slow), "--stores=slow=%s/slow", cairn_test_folder());
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS(slow, "--trash-grace=1h")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    for (uint64_t i = 0; i < 2; i++) {
        REQUIRE_OK(cairn_hand_save_all(&hand, 1 + i, 1, "error", 10, &saves[i]));
        snprintf(path, sizeof(path), "%s/promote", saves[i].path);
        REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "to", "slow"), NULL));
        cairn_inside_round(&world.inside);
        if (!i) REQUIRE_OK(cairn_hand_save_all(&hand, 1, 2, "supersede", 10, &newer));
        snprintf(path, sizeof(path), "%s/demote", saves[i].path);
        REQUIRE_OK(
            cairn_world_call(&world, "POST", path, json_pack("{s:s}", "from", "main"), NULL));
        cairn_inside_round(&world.inside);
        if (i) REQUIRE_OK(cairn_hand_save_all(&hand, 2, 2, "supersede", 10, &newer));
        struct cairn_version_place place = {{"llm", "seven"}, saves[i].step, saves[i].id};
        cairn_key_superseded(&place, 1, &marks[i]);
        cairn_key_checksums(&place, &key);
        EXPECT_CODE(head(&world, &key), CAIRN_NOT_FOUND);
        EXPECT_CODE(head(&world, &marks[i]), CAIRN_OK);
    }
    cairn_inside_pass(&world.inside, 2 * UINT64_C(60000));
    EXPECT_CODE(head(&world, &marks[0]), CAIRN_OK);
    REQUIRE_OK(cairn_world_call(&world, "DELETE", saves[0].path, NULL, NULL));
    cairn_inside_pass(&world.inside, 2 * UINT64_C(3600000)); /* it goes with the version */
    EXPECT_CODE(head(&world, &marks[0]), CAIRN_NOT_FOUND);
    EXPECT_CODE(head(&world, &marks[1]), CAIRN_OK);
}

TEST(a_copy_stays_where_the_server_does_not_know_the_store_of_the_other) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO_JSON json_t *begun = NULL, *over = NULL;
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char slow[400], path[300];
    snprintf(slow, sizeof(slow), "--stores=slow=%s/slow", cairn_test_folder());
    REQUIRE(cairn_world_start(&world, WORLD_ARGS(slow), NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    snprintf(path, sizeof(path), "%s/promote", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "to", "slow"), &begun));
    snprintf(path, sizeof(path), "/v1/operations/%s?wait=30s", cairn_world_text(begun, "id"));
    REQUIRE_OK(cairn_world_call(&world, "GET", path, NULL, &over));
    EXPECT_EQ_TEXT(cairn_world_text(over, "state"), "done");
    REQUIRE(cairn_world_restart(&world, NULL, NULL));
    snprintf(path, sizeof(path), "%s/demote", save.path);
    EXPECT_CODE(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "from", "main"), NULL),
                CAIRN_IN_USE);
    if (!EXPECT(strstr(err.message, "the setting stores names"))) printf("%s\n", err.message);
}
