/* SPDX-License-Identifier: Apache-2.0 */
/* What is found of a copy that is there no more, or not yet, or anew, is not kept with it. */
#include "server/copies/damage.h"

#include <stdio.h>

#include "server/ledger/copies.h"
#include "tests/server/world.h"

#define err world.err /* of the macros */

static uint64_t known(struct cairn_world *world) {
    return cairn_world_count(world, "SELECT coalesce(sum(damaged), 0) FROM copies");
}

static enum cairn_code put_copy(struct cairn_srv_tx *tx, void *argument, struct cairn_error *why) {
    const struct cairn_srv_copy copy = {
        .store = "slow", .state = CAIRN_SRV_COPY_WHOLE, .changed_ms = 1000};
    return cairn_srv_copy_put(tx, argument, &copy, why);
}

TEST(damage_is_known_of_the_copy_that_was_looked_at_and_of_no_other) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save, next;
    char slow[400];
    snprintf(slow, sizeof(slow), "--stores=slow=%s/slow", cairn_test_folder());
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS(slow, "--trash-grace=1h")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &next));
    struct cairn_srv *server = &world.inside.server;
    struct cairn_srv_damage found = {
        .version = save.id.text, .store = "slow", .objects = 2, .changed_ms = 1000};
    cairn_srv_damage_note(server, &found); /* it is not there yet */
    EXPECT_EQ_U64(known(&world), 0);
    REQUIRE_OK(cairn_srv_catalog_write(server->catalog, put_copy, save.id.text, &err));
    found.changed_ms = 999; /* a copy that was removed since, and made again */
    cairn_srv_damage_note(server, &found);
    EXPECT_EQ_U64(known(&world), 0);
    found.changed_ms = 1000;
    cairn_srv_damage_note(server, &found);
    EXPECT_EQ_U64(known(&world), 2);
    found.objects = 1; /* by a look at a part of it */
    cairn_srv_damage_note(server, &found);
    EXPECT_EQ_U64(known(&world), 2);
    found.all = true; /* one was mended */
    cairn_srv_damage_note(server, &found);
    EXPECT_EQ_U64(known(&world), 1);
    EXPECT_EQ_U64(cairn_world_count(
                      &world, "SELECT count(*) FROM events WHERE event LIKE 'copy.%' AND reason = "
                              "'slow' AND event <> 'copy.made'"),
                  1);
    REQUIRE_OK(cairn_world_call(&world, "DELETE", next.path, NULL, NULL));
    cairn_inside_pass(&world.inside, 2 * UINT64_C(3600000));
    const struct cairn_srv_damage late = {
        .version = next.id.text, .store = CAIRN_SRV_TIER_MAIN, .objects = 3};
    cairn_srv_damage_note(server, &late); /* its objects were being deleted */
    EXPECT_EQ_U64(known(&world), 1);
}

TEST(a_copy_that_was_to_be_removed_stays_where_the_other_is_found_damaged_before) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO_JSON json_t *shown = NULL, *later = NULL;
    struct cairn_hand hand;
    struct cairn_hand_save save, next;
    char slow[400], path[300];
    snprintf(slow, sizeof(slow), "--stores=slow=%s/slow", cairn_test_folder());
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS(slow, "--trash-grace=1h")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &next));
    snprintf(path, sizeof(path), "%s/promote", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "to", "slow"), NULL));
    cairn_inside_round(&world.inside);
    snprintf(path, sizeof(path), "%s/demote", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "from", "main"), NULL));
    const struct cairn_srv_damage found = {
        .version = save.id.text,
        .store = "slow",
        .objects = 1,
        .changed_ms = (int64_t)cairn_world_count(
            &world, "SELECT changed_ms FROM copies WHERE store = 'slow' AND phase = 1")};
    cairn_srv_damage_note(&world.inside.server, &found); /* by a verify that was under way */
    cairn_inside_round(&world.inside);
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, &shown));
    const json_t *main = json_array_get(json_object_get(shown, "copies"), 0);
    EXPECT_EQ_TEXT(cairn_world_text(main, "store"), "main");
    EXPECT_EQ_TEXT(cairn_world_text(main, "state"), "whole");
    snprintf(path, sizeof(path), "%s/verify", save.path);
    CAIRN_AUTO_JSON json_t *verified = NULL;
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:b}", "read", 1), &verified));
    EXPECT(json_is_true(json_object_get(verified, "ok"))); /* nothing of it was deleted */
    snprintf(path, sizeof(path), "%s/demote", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "from", "main"), NULL));
    cairn_inside_round(&world.inside);
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, &later));
    EXPECT_EQ_U64(json_array_size(json_object_get(later, "copies")), 1);
}
