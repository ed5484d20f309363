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

TEST(a_journal_whose_sync_failed_takes_no_save_and_is_named_in_nodes_and_readyz) { /* journal.h#3 */
    NEEDS_POINTS();
    WORLD_WITH(.crash_at = "uploader.journal.sync:2:fail");
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    struct trainer_options options = options_of(&world);
    REQUIRE(trainer_open(&trainer, &options)); /* the first sync: its session */
    AWAIT(journal_is_not_named(&world));
    EXPECT(!trainer_begin(&trainer, 1, 1, &save));
    EXPECT(!trainer_begin(&trainer, 2, 1, &save)); /* although only one sync has failed */
    AWAIT(journal_is_named(&world));
    EXPECT(cairn_daemon_logged(&world.uploader, "journal.write"));
    REQUIRE(world_uploader_restart(&world));
    AWAIT(journal_is_not_named(&world));
}

/* ---- the server ---- */

TEST(a_trainer_hears_that_the_server_is_away_and_that_it_is_back) { /* docs/socket.md, problem */
    WORLD();
    TRAINER_AS(trainer, options_of(&world));
    world_server_kill(&world);
    SAVE(save, &trainer, 1, 0, 1, 1000);
    CAIRN_AUTO_JSON json_t *away = trainer_event(&trainer, "problem", UINT32_MAX, HANG_MS);
    const char *address = TEXT("127.0.0.1:%u", world.port);
    EXPECT_EQ_TEXT(text_of(away, "about"), "server");
    EXPECT_EQ_TEXT(text_of(away, "code"), "unavailable");
    EXPECT(strstr(text_of(away, "message"), address) != NULL);
    CAIRN_AUTO_JSON json_t *twice = trainer_event(&trainer, "problem", UINT32_MAX, 2500);
    EXPECT(twice == NULL);
    REQUIRE(world_server_start(&world));
    EXPECT_VERDICT(&trainer, save.number, "committed");
    CAIRN_AUTO_JSON json_t *back = trainer_event(&trainer, "problem", UINT32_MAX, HANG_MS);
    EXPECT_EQ_TEXT(text_of(back, "about"), "server");
    EXPECT_EQ_TEXT(text_of(back, "code"), "ok");
}

/* ---- the memory of trainers ---- */

TEST(slabs_come_from_the_numa_node_of_their_trainer_and_the_report_says_so, err) {
    CAIRN_AUTO(slab) probe = {0};
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) here = {0}, nowhere = {0};
    REQUIRE_OK(cairn_slab_create_at("probe", CAIRN_MIB, 0, &probe, &err));
    if (!probe.numa) SKIP("this process may not bind memory to a node");
    REQUIRE(world_open(&world, &(struct world_options){0}));
    struct trainer_options options = options_of(&world);
    options.world_size = 2;
    options.numa = 1;
    REQUIRE(trainer_open(&here, &options));
    options.rank = 1;
    options.numa = 901; /* there is no such node: its slabs come from any */
    REQUIRE(trainer_open(&nowhere, &options));
    CAIRN_AUTO_JSON json_t *report = trainer_call(&here, json_pack("{s:s}", "t", "status"));
    const json_t *nodes = json_object_get(report, "slab_nodes"), *node = json_array_get(nodes, 0);
    EXPECT_EQ_U64(json_array_size(nodes), 1);
    EXPECT_EQ_U64((uint64_t)json_integer_value(json_object_get(node, "numa_node")), 0);
    uint64_t bound = (uint64_t)json_integer_value(json_object_get(node, "slab_bytes"));
    uint64_t all = (uint64_t)json_integer_value(json_object_get(report, "slab_bytes"));
    EXPECT(bound > 0 && bound * 2 == all);
}
