/* SPDX-License-Identifier: Apache-2.0 */
/* What an uploader says of itself: its journal to the server, the server's absence to a trainer. */
#include "tests/uploader/trainer.h"

static struct trainer_options options_of(const struct cairn_up_world *world) {
    return (struct trainer_options){.socket = world->socket_path, .job = "job-1"};
}

static const char *text_of(const json_t *json, const char *key) {
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "";
}

/* ---- the journal ---- */

/* Both places where an operator looks: the node's row, and readyz. */
static bool journal_is_named(void *owner) {
    CAIRN_AUTO_JSON json_t *nodes = world_get(owner, "/v1/nodes");
    CAIRN_AUTO_JSON json_t *ready = world_get(owner, "/readyz");
    const json_t *node = json_array_get(json_object_get(nodes, "items"), 0);
    const char *own = text_of(json_object_get(node, "uploader"), "journal");
    const char *checks = text_of(json_object_get(ready, "checks"), "nodes");
    return strstr(own, "syncing the journal") && !strcmp(text_of(node, "trouble"), own) &&
           strstr(checks, "n1") && strstr(checks, "syncing the journal");
}
static bool journal_is_not_named(void *owner) {
    CAIRN_AUTO_JSON json_t *nodes = world_get(owner, "/v1/nodes");
    CAIRN_AUTO_JSON json_t *ready = world_get(owner, "/readyz");
    const json_t *node = json_array_get(json_object_get(nodes, "items"), 0);
    return node && json_is_null(json_object_get(node, "trouble")) &&
           !*text_of(json_object_get(node, "uploader"), "journal") &&
           !strcmp(text_of(json_object_get(ready, "checks"), "nodes"), "ok");
}

TEST(a_journal_whose_sync_failed_takes_no_save_and_is_named_in_nodes_and_readyz) /* journal.h#3 */
{
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    REQUIRE(
        world_open(&world, &(struct world_options){.crash_at = "uploader.journal.sync:2:fail"}));
    struct trainer_options options = options_of(&world);
    REQUIRE(trainer_open(&trainer, &options)); /* the first sync: its session */
    EXPECT(world_await(journal_is_not_named, &world, 5000));
    EXPECT(!trainer_begin(&trainer, 1, 1, &save));
    EXPECT(!trainer_begin(&trainer, 2, 1, &save)); /* although only one sync has failed */
    EXPECT(world_await(journal_is_named, &world, 5000));
    EXPECT(cairn_daemon_logged(&world.uploader, "journal.write"));
    world_uploader_kill(&world);
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT(world_await(journal_is_not_named, &world, 5000));
}

/* ---- the server ---- */

TEST(a_trainer_hears_that_the_server_is_away_and_that_it_is_back) /* docs/socket.md, problem */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    char state[32], address[32];
    REQUIRE(world_open(&world, &(struct world_options){0}));
    struct trainer_options options = options_of(&world);
    REQUIRE(trainer_open(&trainer, &options));
    world_server_kill(&world);
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 1000, &save));
    CAIRN_AUTO_JSON json_t *away = trainer_event(&trainer, "problem", UINT32_MAX, 10000);
    snprintf(address, sizeof(address), "127.0.0.1:%u", world.port);
    EXPECT_EQ_TEXT(text_of(away, "about"), "server");
    EXPECT_EQ_TEXT(text_of(away, "code"), "unavailable");
    EXPECT(strstr(text_of(away, "message"), address) != NULL);
    CAIRN_AUTO_JSON json_t *twice = trainer_event(&trainer, "problem", UINT32_MAX, 2500);
    EXPECT(twice == NULL);
    REQUIRE(world_server_start(&world));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 20000, state), "committed");
    CAIRN_AUTO_JSON json_t *back = trainer_event(&trainer, "problem", UINT32_MAX, 5000);
    EXPECT_EQ_TEXT(text_of(back, "about"), "server");
    EXPECT_EQ_TEXT(text_of(back, "code"), "ok");
}
