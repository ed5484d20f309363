/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Which nodes are kept, and what answers say of them (nodes.h#3, nodes.h#4). */
#include <stdio.h>

#include "server/nodes/nodes.h"
#include "tests/server/world.h"

#define err world.err /* of the macros */
#define UUID_A "00000000-0000-4000-8000-00000000000a"
#define UUID_B "00000000-0000-4000-8000-00000000000b"

/* grant: NULL for a node that shows none. more: a further member of uploader, or NULL. */
static enum cairn_code beat(struct cairn_world *world, const char *node, const char *uuid,
                            const char *grant, const char *more) {
    char path[200];
    json_t *uploader = json_pack("{s:s, s:s}", "version", "1", "uuid", uuid);
    json_t *attempts = json_array();
    if (more) json_object_set_new(uploader, more, json_string("it is broken"));
    if (grant)
        json_array_append_new(attempts, json_pack("{s:s, s:i}", "grant", grant, "unsent", 0));
    snprintf(path, sizeof(path), "/v1/nodes/%s", node);
    return cairn_world_call(world, "PUT", path,
                            json_pack("{s:o, s:o}", "uploader", uploader, "attempts", attempts),
                            NULL);
}

static json_t *find(const json_t *list, const char *node) {
    const json_t *items = json_object_get(list, "items");
    for (size_t i = 0; i < json_array_size(items); i++) {
        json_t *item = json_array_get(items, i);
        if (!strcmp(cairn_world_text(item, "node"), node)) return item;
    }
    return NULL;
}

TEST(nodes_that_somebody_makes_up_take_no_row_and_push_nobody_out) /* nodes.h#3 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(beat(&world, "node-a", UUID_A, hand.grant, NULL));
    REQUIRE_OK(beat(&world, "idle", UUID_B, NULL, NULL));
    cairn_inside_pass(&world.inside, CAIRN_SRV_SILENT_MS + 1000);
    for (int i = 0; i < 3000; i++) {
        char name[32];
        snprintf(name, sizeof(name), "made-up-%d", i);
        REQUIRE_OK(beat(&world, name, UUID_B, NULL, NULL));
    }
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM nodes"), 1);
    /* The silent stranger went for the first of them, and then none did for another. */
    size_t shown = 0;
    char cursor[400] = "";
    CAIRN_AUTO_JSON json_t *first = NULL;
    for (bool more = true; more && shown < 5000;) {
        CAIRN_AUTO_JSON json_t *list = NULL;
        char path[500];
        snprintf(path, sizeof(path), "/v1/nodes?limit=400%s%s", cursor[0] ? "&cursor=" : "",
                 cursor);
        REQUIRE_OK(cairn_world_call(&world, "GET", path, NULL, &list));
        shown += json_array_size(json_object_get(list, "items"));
        more = json_is_string(json_object_get(list, "next_cursor"));
        snprintf(cursor, sizeof(cursor), "%s", more ? cairn_world_text(list, "next_cursor") : "");
        if (!find(list, "node-a")) continue;
        json_decref(first);
        first = json_incref(find(list, "node-a"));
    }
    EXPECT_EQ_U64(shown, 1025);
    EXPECT(first != NULL);
    uint64_t heard_ms = 0;
    size_t versions = 0;
    EXPECT(cairn_srv_node_last_heard(&world.inside.server, "node-a", &heard_ms, &versions));
    EXPECT(!cairn_srv_node_last_heard(&world.inside.server, "idle", &heard_ms, &versions));
}

/* Where the uploader of this node is asked, and whether it asks for the others; the answer. */
static json_t *beat_for_peers(struct cairn_world *world, const char *node, const char *grant,
                              const char *peer, bool asks) {
    char path[200];
    json_t *reply = NULL, *uploader = json_pack("{s:s, s:s?}", "version", "1", "peer", peer);
    json_t *attempts = json_pack("[{s:s, s:i, s:b}]", "grant", grant, "unsent", 0, "peers", asks);
    if (!peer) json_object_del(uploader, "peer");
    snprintf(path, sizeof(path), "/v1/nodes/%s", node);
    EXPECT(!cairn_world_call(world, "PUT", path,
                             json_pack("{s:o, s:o}", "uploader", uploader, "attempts", attempts),
                             &reply));
    return reply;
}

TEST(nodes_of_an_attempt_hear_where_the_others_are_asked) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand one;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    CAIRN_AUTO_JSON json_t *half = NULL;
    REQUIRE_OK(cairn_world_call(&world, "POST", WORLD_RUN "/attempts",
                                json_pack("{s:s, s:i, s:i, s:[{s:i, s:s}], s:s}", "job", "j1",
                                          "world_size", 2, "after", 0, "ranks", "rank", 0, "proc",
                                          "j1-0", "node", "node-a"),
                                &half));
    const char *grant = cairn_world_text(half, "grant");
    CAIRN_AUTO_JSON json_t *alone = beat_for_peers(&world, "node-a", grant, "a:1", true);
    const json_t *item = json_array_get(json_object_get(alone, "peers"), 0);
    EXPECT(json_is_false(json_object_get(item, "complete")));
    REQUIRE_OK(cairn_hand_open(&world, &one, "j1", 1, "latest", 2));
    EXPECT_EQ_TEXT(one.grant, grant); /* which is what the nodes of an attempt have in common */
    CAIRN_AUTO_JSON json_t *unasked = beat_for_peers(&world, "node-a", one.grant, "a:1", false);
    EXPECT_EQ_U64(json_array_size(json_object_get(unasked, "peers")), 0);
    CAIRN_AUTO_JSON json_t *both = beat_for_peers(&world, "node-a", one.grant, "a:1", true);
    item = json_array_get(json_object_get(both, "peers"), 0);
    EXPECT(json_is_true(json_object_get(item, "complete")));
    EXPECT_EQ_U64((uint64_t)json_integer_value(json_object_get(item, "index")), 0);
    const json_t *nodes = json_object_get(item, "nodes");
    REQUIRE(json_array_size(nodes) == 1);
    EXPECT_EQ_TEXT(cairn_world_text(json_array_get(nodes, 0), "node"), "node-a");
    EXPECT_EQ_TEXT(cairn_world_text(json_array_get(nodes, 0), "address"), "a:1");
    /* One without a port is not named, and who is not of the newest attempt hears nothing. */
    CAIRN_AUTO_JSON json_t *mute = beat_for_peers(&world, "node-a", one.grant, NULL, true);
    item = json_array_get(json_object_get(mute, "peers"), 0);
    REQUIRE(json_is_array(json_object_get(item, "nodes")));
    struct cairn_hand next;
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 1, "latest", 1));
    CAIRN_AUTO_JSON json_t *stale = beat_for_peers(&world, "node-a", one.grant, "a:1", true);
    EXPECT_EQ_U64(json_array_size(json_object_get(stale, "peers")), 0);
    EXPECT_EQ_U64(json_array_size(json_object_get(stale, "fenced")), 1);
}

/* A rank of two, with a node of its own; the grant. */
static void join(struct cairn_world *world, uint32_t rank, const char *node, char ret_grant[600]) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    char proc[32];
    snprintf(proc, sizeof(proc), "j1-%u", rank);
    EXPECT(!cairn_world_call(world, "POST", WORLD_RUN "/attempts",
                             json_pack("{s:s, s:i, s:i, s:[{s:i, s:s}], s:s}", "job", "j1",
                                       "world_size", 2, "after", 0, "ranks", "rank", rank, "proc",
                                       proc, "node", node),
                             &reply));
    snprintf(ret_grant, 600, "%s", cairn_world_text(reply, "grant"));
}

/* What it is told of the attempt's nodes. */
static json_t *ask_for_partner(struct cairn_world *world, const char *node, const char *grant) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    char path[200];
    json_t *uploader =
        json_pack("{s:s, s:s, s:i}", "version", "1", "peer", "a:1", "partner_memory_bytes", 1);
    json_t *attempts = json_pack("[{s:s, s:i, s:b}]", "grant", grant, "unsent", 0, "peers", true);
    snprintf(path, sizeof(path), "/v1/nodes/%s", node);
    EXPECT(!cairn_world_call(world, "PUT", path,
                             json_pack("{s:o, s:o}", "uploader", uploader, "attempts", attempts),
                             &reply));
    return json_incref(json_array_get(json_object_get(reply, "peers"), 0));
}

/* partner: "" for none. */
static void expect_told(struct cairn_world *world, const char *node, const char *grant,
                        bool complete, const char *partner) {
    CAIRN_AUTO_JSON json_t *item = ask_for_partner(world, node, grant);
    const json_t *told = json_object_get(item, "partner");
    EXPECT(json_is_boolean(json_object_get(item, "complete")));
    EXPECT(json_is_true(json_object_get(item, "complete")) == complete);
    EXPECT_EQ_TEXT(json_is_string(told) ? json_string_value(told) : "", partner);
}

/* A node whose trainers join before its first heartbeat; it asks until the list is complete. */
TEST(a_list_of_nodes_is_not_complete_before_each_was_heard_the_one_that_asks_too) {
    CAIRN_AUTO(world) world = {0};
    char grant[600];
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--partner-copies=1")));
    join(&world, 0, "node-a", grant);
    join(&world, 1, "node-b", grant);
    expect_told(&world, "node-b", grant, false, "");
    expect_told(&world, "node-b", grant, false, "");
    expect_told(&world, "node-a", grant, false, "");
    expect_told(&world, "node-a", grant, true, "node-b");
    expect_told(&world, "node-b", grant, true, "node-a");
}

/* Q57 */
TEST(the_policy_that_holds_for_a_run_says_whether_its_nodes_have_partners_else_the_setting) {
    static const struct {
        const char *path, *policy;
        bool has[2]; /* by a setting of 0, of 1 */
    } steps[] = {
        {NULL, NULL, {false, true}},
        {"/v1/retention", "{\"keep\":{},\"partner_copies\":1}", {true, true}},
        {"/v1/projects/llm/retention", "{\"keep\":{},\"partner_copies\":0}", {false, false}},
        {WORLD_RUN "/retention", "{\"keep\":{},\"partner_copies\":1}", {true, true}},
        /* The run's own policy holds as a whole, so it is the setting again. */
        {WORLD_RUN "/retention", "{\"keep\":{\"last\":3}}", {false, true}},
        {WORLD_RUN "/retention", NULL, {false, false}},
        {"/v1/projects/llm/retention", NULL, {true, true}},
        {"/v1/retention", NULL, {false, true}},
    };
    for (int setting = 0; setting <= 1; setting++) {
        CAIRN_AUTO(world) world = {0};
        char grant[600];
        REQUIRE(cairn_world_start_inside(
            &world, WORLD_ARGS(setting ? "--partner-copies=1" : "--partner-copies=0")));
        join(&world, 0, "node-a", grant);
        join(&world, 1, "node-b", grant);
        expect_told(&world, "node-a", grant, false, "");
        expect_told(&world, "node-b", grant, false, "");
        for (size_t i = 0; i < CAIRN_COUNT(steps); i++) {
            const char *method = steps[i].policy ? "PUT" : "DELETE";
            json_t *body = steps[i].policy ? json_loads(steps[i].policy, 0, NULL) : NULL;
            if (steps[i].path)
                REQUIRE_OK(cairn_world_call(&world, method, steps[i].path, body, NULL));
            expect_told(&world, "node-a", grant, true, steps[i].has[setting] ? "node-b" : "");
        }
        REQUIRE(cairn_world_end(&world));
    }
}

/* nodes.h#3, Q26 */
TEST(a_node_that_was_heard_before_it_joined_an_attempt_is_missed_like_any_other) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(beat(&world, "node-a", UUID_A, NULL, NULL));
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM nodes"), 0);
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM nodes"), 1);
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    cairn_inside_pass(&world.inside, 11 * UINT64_C(60000));
    CAIRN_AUTO_JSON json_t *version = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, &version));
    EXPECT(strstr(cairn_world_text(version, "reason"), "node-a was not heard"));
}

TEST(readyz_and_nodes_name_a_node_whose_journal_is_dead_and_the_server_stays_ready) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    CAIRN_AUTO_JSON json_t *ready = NULL, *list = NULL, *later = NULL;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(beat(&world, "node-a", UUID_A, hand.grant, "journal"));
    REQUIRE_OK(cairn_world_call(&world, "GET", "/readyz", NULL, &ready));
    EXPECT(json_is_true(json_object_get(ready, "ready"))); /* it is one node's trouble */
    EXPECT(strstr(cairn_world_text(json_object_get(ready, "checks"), "nodes"),
                  "node-a: it is broken"));
    REQUIRE_OK(cairn_world_call(&world, "GET", "/v1/nodes", NULL, &list));
    EXPECT_EQ_TEXT(cairn_world_text(find(list, "node-a"), "trouble"), "it is broken");
    REQUIRE_OK(beat(&world, "node-a", UUID_A, hand.grant, NULL));
    REQUIRE_OK(cairn_world_call(&world, "GET", "/readyz", NULL, &later));
    EXPECT_EQ_TEXT(cairn_world_text(json_object_get(later, "checks"), "nodes"), "ok");
}

TEST(two_uploaders_of_one_name_are_noticed_and_one_that_starts_again_is_not) /* nodes.h#4 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    CAIRN_AUTO_JSON json_t *one = NULL, *two = NULL;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(beat(&world, "node-a", UUID_A, hand.grant, NULL));
    REQUIRE_OK(beat(&world, "node-a", UUID_B, hand.grant, NULL));
    REQUIRE_OK(beat(&world, "node-a", UUID_B, hand.grant, NULL));
    REQUIRE_OK(cairn_world_call(&world, "GET", "/v1/nodes", NULL, &one));
    EXPECT(json_is_null(json_object_get(find(one, "node-a"), "trouble")));
    REQUIRE_OK(beat(&world, "node-a", UUID_A, hand.grant, NULL));
    REQUIRE_OK(cairn_world_call(&world, "GET", "/v1/nodes", NULL, &two));
    EXPECT(strstr(cairn_world_text(find(two, "node-a"), "trouble"), "two uploaders"));
}

TEST(a_node_whose_row_has_gone_takes_no_memory_either) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO_JSON json_t *before = NULL, *after = NULL;
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--gone-retention=1h")));
    REQUIRE_OK(beat(&world, "idle", UUID_A, NULL, NULL));
    cairn_inside_pass(&world.inside, UINT64_C(48) * 3600000);
    REQUIRE_OK(cairn_world_call(&world, "GET", "/v1/nodes", NULL, &before));
    EXPECT(find(before, "idle"));
    cairn_inside_pass(&world.inside, UINT64_C(2) * 3600000);
    REQUIRE_OK(cairn_world_call(&world, "GET", "/v1/nodes", NULL, &after));
    EXPECT(!find(after, "idle"));
}
