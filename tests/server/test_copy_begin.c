/* SPDX-License-Identifier: Apache-2.0 */
/* What a sweep goes on with, by a look that is some time old; and wishes and removals that meet
 * what others have changed meanwhile. */
#include "server/copies/damage.h"
#include "tests/server/world.h"

#define err world.err /* of the macros */

/* As if it had been wanted when the sweep looked. */
TEST(a_sweep_begins_no_copy_that_was_made_or_taken_back_since_it_looked) {
    char id[SRV_OPERATION_BYTES];
    JOB_INSIDE(1, SLOW_STORE);
    SAVED(save, 1);
    struct srv *server = &world.inside.server;
    const struct cairn_run_name name = {"llm", "seven"};
    const struct srv_copy_begin begin = {.name = &name, .version = save.id.text, .store = "slow"};
    REQUIRE_OK(srv_operations_new(server, &server->operations, &err));
    EXPECT_CODE(srv_copies_begin(server, &begin, id, &err), CAIRN_ABORTED);
    srv_operations_free(server->operations);
    server->operations = NULL;
    ASK("POST", TEXT("%s/promote", save.path), json_pack("{s:s}", "to", "slow"));
    inside_round(&world.inside);
    EXPECT_ROWS(1, "copies WHERE phase = 1");
    REQUIRE_OK(srv_operations_new(server, &server->operations, &err));
    EXPECT_CODE(srv_copies_begin(server, &begin, id, &err), CAIRN_ABORTED);
    EXPECT_ROWS(0, "operations");
    srv_operations_free(server->operations);
    server->operations = NULL;
}

/* Asks for a copy in the store "slow"; ret is the operation's path. */
static bool promote(struct cairn_world *world, const struct cairn_hand_save *save, char ret[100]) {
    CAIRN_AUTO_JSON json_t *begun = NULL;
    const char *path = TEXT("%s/promote", save->path);
    if (world_call(world, "POST", path, json_pack("{s:s}", "to", "slow"), &begun)) return false;
    snprintf(ret, 100, "/v1/operations/%s", world_text(begun, "id"));
    return true;
}

static void expect_done(struct cairn_world *world, const char *operation) {
    CAIRN_AUTO_JSON json_t *over = NULL;
    EXPECT_EQ_U64(world_call(world, "GET", TEXT("%s?wait=30s", operation), NULL, &over), CAIRN_OK);
    EXPECT_EQ_TEXT(world_text(over, "state"), "done");
}

/* The only place is taken by another promotion, which stands at its first part. A third one, asked
 * for behind the one that is cancelled, is begun by a sweep that has passed over that. */
TEST(a_promotion_that_is_cancelled_while_it_waits_is_not_begun_by_the_sweep) {
    struct cairn_hand_save saves[3];
    char slow[400], operations[3][100];
    snprintf(slow, sizeof(slow), "--stores=slow=%s/slow", cairn_test_folder());
    WITH(world, world,
         world_start(&world, WORLD_ARGS(slow, "--sweep-interval=50ms", "--operations-at-once=1"),
                     WORLD_ARGS("CAIRN_CRASH_AT=server.promote.after_part:delay=1500")));
    HAND(2);
    for (uint64_t i = 0; i < 3; i++)
        REQUIRE_OK(hand_save_all(&hand, 1 + i, 1, "error", 10, &saves[i]));
    for (int i = 0; i < 3; i++) REQUIRE(promote(&world, &saves[i], operations[i]));
    ASKED(cancelled, "DELETE", operations[1], NULL);
    EXPECT_EQ_TEXT(world_text(cancelled, "state"), "cancelled");
    expect_done(&world, operations[0]);
    expect_done(&world, operations[2]);
    EXPECT_GET("/v1/operations", "items.#", "3");
    EXPECT_GET(saves[1].path, "copies.#", "1");
}

/* The promotion stands behind its first part when the copy is to be removed. */
TEST(a_promotion_that_loses_to_a_demote_fails_as_aborted_and_says_so) {
    WITH(world, world,
         world_start(&world, WORLD_ARGS(SLOW_STORE, "--sweep-interval=50ms"),
                     WORLD_ARGS("CAIRN_CRASH_AT=server.promote.after_part:delay=1500")));
    HAND(1);
    SAVED(save, 1);
    ASKED(begun, "POST", TEXT("%s/promote", save.path), json_pack("{s:s}", "to", "slow"));
    ASK("POST", TEXT("%s/demote", save.path), json_pack("{s:s}", "from", "slow"));
    GOT(over, TEXT("/v1/operations/%s?wait=30s", world_text(begun, "id")));
    const json_t *problem = json_object_get(over, "problem");
    EXPECT_EQ_TEXT(world_text(over, "state"), "failed");
    EXPECT_EQ_TEXT(world_text(problem, "code"), "checkpoint-aborted");
    EXPECT(strstr(world_text(problem, "detail"), "nobody wants the copy of"));
}

/* The mark is put while the copy is being removed, and is the only one. */
TEST(the_mark_of_the_trash_outlives_the_copy_in_the_main_store) { /* records.h#1 */
    struct cairn_hand_save saves[2];
    struct cairn_key key;
    JOB_INSIDE(1, SLOW_STORE, "--trash-grace=1h");
    for (uint64_t i = 0; i < 2; i++)
        REQUIRE_OK(hand_save_all(&hand, 1 + i, 1, "error", 10, &saves[i]));
    ASK("POST", TEXT("%s/promote", saves[0].path), json_pack("{s:s}", "to", "slow"));
    inside_round(&world.inside);
    ASK("POST", TEXT("%s/demote", saves[0].path), json_pack("{s:s}", "from", "main"));
    ASK("DELETE", saves[0].path, NULL);
    inside_round(&world.inside);
    EXPECT_ROWS(1, "copies WHERE store = 'main' AND phase = 3");
    struct cairn_version_place place = hand_place(&saves[0]);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    cairn_key_trashed(&place, &key);
    EXPECT_CODE(cairn_store_perform(world.worker, &head, &err), CAIRN_OK);
    cairn_key_checksums(&place, &key);
    EXPECT_CODE(cairn_store_perform(world.worker, &head, &err), CAIRN_NOT_FOUND);
    inside_pass(&world.inside, 2 * UINT64_C(3600000)); /* it goes with the version */
    cairn_key_trashed(&place, &key);
    EXPECT_CODE(cairn_store_perform(world.worker, &head, &err), CAIRN_NOT_FOUND);
}

static enum cairn_code head(struct cairn_world *world, const struct cairn_key *key) {
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key->text};
    return cairn_store_perform(world->worker, &head, NULL);
}

/* One is superseded before its copy in the main store is removed, the other one afterwards. */
TEST(the_mark_of_what_is_superseded_outlives_the_copy_in_the_main_store) { /* records.h#3 */
    struct cairn_hand_save saves[2], newer;
    struct cairn_key marks[2], key;
    JOB_INSIDE(1, SLOW_STORE, "--trash-grace=1h");
    for (uint64_t i = 0; i < 2; i++) {
        REQUIRE_OK(hand_save_all(&hand, 1 + i, 1, "error", 10, &saves[i]));
        ASK("POST", TEXT("%s/promote", saves[i].path), json_pack("{s:s}", "to", "slow"));
        inside_round(&world.inside);
        if (!i) REQUIRE_OK(hand_save_all(&hand, 1, 2, "supersede", 10, &newer));
        ASK("POST", TEXT("%s/demote", saves[i].path), json_pack("{s:s}", "from", "main"));
        inside_round(&world.inside);
        if (i) REQUIRE_OK(hand_save_all(&hand, 2, 2, "supersede", 10, &newer));
        struct cairn_version_place place = hand_place(&saves[i]);
        cairn_key_superseded(&place, 1, &marks[i]);
        cairn_key_checksums(&place, &key);
        EXPECT_CODE(head(&world, &key), CAIRN_NOT_FOUND);
        EXPECT_CODE(head(&world, &marks[i]), CAIRN_OK);
    }
    inside_pass(&world.inside, 2 * UINT64_C(60000));
    EXPECT_CODE(head(&world, &marks[0]), CAIRN_OK);
    ASK("DELETE", saves[0].path, NULL);
    inside_pass(&world.inside, 2 * UINT64_C(3600000)); /* it goes with the version */
    EXPECT_CODE(head(&world, &marks[0]), CAIRN_NOT_FOUND);
    EXPECT_CODE(head(&world, &marks[1]), CAIRN_OK);
}

TEST(a_copy_stays_where_the_server_does_not_know_the_store_of_the_other) {
    JOB(1, SLOW_STORE);
    SAVED(save, 1);
    ASKED(begun, "POST", TEXT("%s/promote", save.path), json_pack("{s:s}", "to", "slow"));
    EXPECT_GET(TEXT("/v1/operations/%s?wait=30s", world_text(begun, "id")), "state", "done");
    REQUIRE(world_restart(&world, NULL, NULL));
    EXPECT_REFUSED(CAIRN_IN_USE, "POST", TEXT("%s/demote", save.path),
                   json_pack("{s:s}", "from", "main"));
    if (!EXPECT(strstr(err.message, "the setting stores names"))) printf("%s\n", err.message);
}

/* ---- what is found of a copy that is there no more, not yet or anew is not kept with it ---- */

static uint64_t known(struct cairn_world *world) {
    return world_count(world, "SELECT coalesce(sum(damaged), 0) FROM copies");
}

static enum cairn_code put_copy(struct srv_tx *tx, void *argument, struct cairn_error *why) {
    const struct srv_copy copy = {.store = "slow", .state = SRV_COPY_WHOLE, .changed_ms = 1000};
    return srv_copy_put(tx, argument, &copy, why);
}

TEST(damage_is_known_of_the_copy_that_was_looked_at_and_of_no_other) {
    JOB_INSIDE(1, SLOW_STORE, "--trash-grace=1h");
    SAVED(save, 1);
    SAVED(next, 2);
    struct srv *server = &world.inside.server;
    struct srv_damage found = {
        .version = save.id.text, .store = "slow", .objects = 2, .changed_ms = 1000};
    srv_damage_note(server, &found); /* it is not there yet */
    EXPECT_EQ_U64(known(&world), 0);
    REQUIRE_OK(srv_catalog_write(server->catalog, put_copy, save.id.text, &err));
    found.changed_ms = 999; /* a copy that was removed since, and made again */
    srv_damage_note(server, &found);
    EXPECT_EQ_U64(known(&world), 0);
    found.changed_ms = 1000;
    srv_damage_note(server, &found);
    EXPECT_EQ_U64(known(&world), 2);
    found.objects = 1; /* by a look at a part of it */
    srv_damage_note(server, &found);
    EXPECT_EQ_U64(known(&world), 2);
    found.all = true; /* one was mended */
    srv_damage_note(server, &found);
    EXPECT_EQ_U64(known(&world), 1);
    EXPECT_ROWS(1, "events WHERE event LIKE 'copy.%' AND reason = 'slow' AND event <> 'copy.made'");
    ASK("DELETE", next.path, NULL);
    inside_pass(&world.inside, 2 * UINT64_C(3600000));
    const struct srv_damage late = {.version = next.id.text, .store = SRV_TIER_MAIN, .objects = 3};
    srv_damage_note(server, &late); /* its objects were being deleted */
    EXPECT_EQ_U64(known(&world), 1);
}

TEST(a_copy_that_was_to_be_removed_stays_where_the_other_is_found_damaged_before) {
    JOB_INSIDE(1, SLOW_STORE, "--trash-grace=1h");
    SAVED(save, 1);
    SAVED(next, 2);
    ASK("POST", TEXT("%s/promote", save.path), json_pack("{s:s}", "to", "slow"));
    inside_round(&world.inside);
    ASK("POST", TEXT("%s/demote", save.path), json_pack("{s:s}", "from", "main"));
    const struct srv_damage found = {
        .version = save.id.text,
        .store = "slow",
        .objects = 1,
        .changed_ms = (int64_t)world_count(
            &world, "SELECT changed_ms FROM copies WHERE store = 'slow' AND phase = 1")};
    srv_damage_note(&world.inside.server, &found); /* by a verify that was under way */
    inside_round(&world.inside);
    GOT(shown, save.path);
    const json_t *main = json_array_get(json_object_get(shown, "copies"), 0);
    EXPECT_SHOWS(main, "store", "main", "state", "whole");
    ASKED(verified, "POST", TEXT("%s/verify", save.path), json_pack("{s:b}", "read", 1));
    EXPECT(json_is_true(json_object_get(verified, "ok"))); /* nothing of it was deleted */
    ASK("POST", TEXT("%s/demote", save.path), json_pack("{s:s}", "from", "main"));
    inside_round(&world.inside);
    EXPECT_GET(save.path, "copies.#", "1");
}
