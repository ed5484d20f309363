/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Which nodes are kept, and what answers say of them (nodes.h#3, nodes.h#4). */
#include "tests/server/world.h"

#define err world.err /* of the macros */
#define UUID_A "00000000-0000-4000-8000-00000000000a"
#define UUID_B "00000000-0000-4000-8000-00000000000b"

/* grant: NULL for a node that shows none. more: a further member of uploader, or NULL. */
static enum cairn_code beat(struct cairn_world *world, const char *node, const char *uuid,
                            const char *grant, const char *more) {
    json_t *uploader = json_pack("{s:s, s:s}", "version", "1", "uuid", uuid);
    json_t *attempts = json_array();
    if (more) json_object_set_new(uploader, more, json_string("it is broken"));
    if (grant)
        json_array_append_new(attempts, json_pack("{s:s, s:i}", "grant", grant, "unsent", 0));
    const char *path = TEXT("/v1/nodes/%s", node);
    return world_call(world, "PUT", path,
                      json_pack("{s:o, s:o}", "uploader", uploader, "attempts", attempts), NULL);
}

TEST(nodes_that_somebody_makes_up_take_no_row_and_push_nobody_out) { /* nodes.h#3 */
    JOB_INSIDE(1);
    REQUIRE_OK(beat(&world, "node-a", UUID_A, hand.grant, NULL));
    REQUIRE_OK(beat(&world, "idle", UUID_B, NULL, NULL));
    inside_pass(&world.inside, SRV_SILENT_MS + 1000);
    for (int i = 0; i < 3000; i++) {
        REQUIRE_OK(beat(&world, TEXT("made-up-%d", i), UUID_B, NULL, NULL));
    }
    EXPECT_ROWS(1, "nodes");
    /* The silent stranger went for the first of them, and then none did for another. */
    size_t shown = 0;
    char cursor[400] = "";
    CAIRN_AUTO_JSON json_t *first = NULL;
    for (bool more = true; more && shown < 5000;) {
        GOT(list, TEXT("/v1/nodes?limit=400%s%s", cursor[0] ? "&cursor=" : "", cursor));
        shown += json_array_size(json_object_get(list, "items"));
        more = json_is_string(json_object_get(list, "next_cursor"));
        snprintf(cursor, sizeof(cursor), "%s", more ? world_text(list, "next_cursor") : "");
        if (!cairn_item(list, "items", "node", "node-a")) continue;
        json_decref(first);
        first = json_incref(cairn_item(list, "items", "node", "node-a"));
    }
    EXPECT_EQ_U64(shown, 1025);
    EXPECT(first != NULL);
    uint64_t heard_ms = 0;
    size_t versions = 0;
    EXPECT(srv_node_last_heard(&world.inside.server, "node-a", &heard_ms, &versions));
    EXPECT(!srv_node_last_heard(&world.inside.server, "idle", &heard_ms, &versions));
}

TEST(a_nodes_row_that_could_not_be_written_is_written_with_the_next_heartbeat) { /* Q26 */
    JOB_INSIDE(1);
    REQUIRE(world_sql(&world, "DELETE FROM nodes"));
    REQUIRE(world_sql(&world, "ALTER TABLE nodes RENAME TO moved"));
    EXPECT(beat(&world, "node-b", UUID_B, hand.grant, NULL) != CAIRN_OK);
    REQUIRE(world_sql(&world, "ALTER TABLE moved RENAME TO nodes"));
    REQUIRE_OK(beat(&world, "node-b", UUID_B, hand.grant, NULL));
    EXPECT_EQ_U64(world_count(&world, "SELECT count(*) FROM nodes WHERE node = 'node-b'"), 1);
}

/* Where the uploader of this node is asked, and whether it asks for the others; the answer. */
static json_t *beat_for_peers(struct cairn_world *world, const char *node, const char *grant,
                              const char *peer, bool asks) {
    json_t *reply = NULL, *uploader = json_pack("{s:s, s:s?}", "version", "1", "peer", peer);
    json_t *attempts = json_pack("[{s:s, s:i, s:b}]", "grant", grant, "unsent", 0, "peers", asks);
    if (!peer) json_object_del(uploader, "peer");
    EXPECT(!world_call(world, "PUT", TEXT("/v1/nodes/%s", node),
                       json_pack("{s:o, s:o}", "uploader", uploader, "attempts", attempts),
                       &reply));
    return reply;
}

TEST(nodes_of_an_attempt_hear_where_the_others_are_asked) {
    struct cairn_hand one;
    INSIDE();
    ASKED(half, "POST", WORLD_RUN "/attempts",
          json_pack("{s:s, s:i, s:i, s:[{s:i, s:s}], s:s}", "job", "j1", "world_size", 2, "after",
                    0, "ranks", "rank", 0, "proc", "j1-0", "node", "node-a"));
    const char *grant = world_text(half, "grant");
    CAIRN_AUTO_JSON json_t *alone = beat_for_peers(&world, "node-a", grant, "a:1", true);
    const json_t *item = json_array_get(json_object_get(alone, "peers"), 0);
    EXPECT(json_is_false(json_object_get(item, "complete")));
    REQUIRE_OK(hand_open(&world, &one, "j1", 1, "latest", 2));
    EXPECT_EQ_TEXT(one.grant, grant); /* which is what the nodes of an attempt have in common */
    CAIRN_AUTO_JSON json_t *unasked = beat_for_peers(&world, "node-a", one.grant, "a:1", false);
    EXPECT_EQ_U64(json_array_size(json_object_get(unasked, "peers")), 0);
    CAIRN_AUTO_JSON json_t *both = beat_for_peers(&world, "node-a", one.grant, "a:1", true);
    item = json_array_get(json_object_get(both, "peers"), 0);
    EXPECT(json_is_true(json_object_get(item, "complete")));
    EXPECT_EQ_U64((uint64_t)json_integer_value(json_object_get(item, "index")), 0);
    const json_t *nodes = json_object_get(item, "nodes");
    REQUIRE(json_array_size(nodes) == 1);
    EXPECT_SHOWS(nodes, "0.node", "node-a", "0.address", "a:1");
    /* One without a port is not named, and who is not of the newest attempt hears nothing. */
    CAIRN_AUTO_JSON json_t *mute = beat_for_peers(&world, "node-a", one.grant, NULL, true);
    item = json_array_get(json_object_get(mute, "peers"), 0);
    REQUIRE(json_is_array(json_object_get(item, "nodes")));
    struct cairn_hand next;
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 1));
    CAIRN_AUTO_JSON json_t *stale = beat_for_peers(&world, "node-a", one.grant, "a:1", true);
    EXPECT_EQ_U64(json_array_size(json_object_get(stale, "peers")), 0);
    EXPECT_EQ_U64(json_array_size(json_object_get(stale, "fenced")), 1);
}

/* A rank of two, with a node of its own; the grant. */
static void join(struct cairn_world *world, uint32_t rank, const char *node, char ret_grant[600]) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    EXPECT(!world_call(world, "POST", WORLD_RUN "/attempts",
                       json_pack("{s:s, s:i, s:i, s:[{s:i, s:s}], s:s}", "job", "j1", "world_size",
                                 2, "after", 0, "ranks", "rank", rank, "proc", TEXT("j1-%u", rank),
                                 "node", node),
                       &reply));
    snprintf(ret_grant, 600, "%s", world_text(reply, "grant"));
}

/* What it is told of the attempt's nodes. */
static json_t *ask_for_partner(struct cairn_world *world, const char *node, const char *grant) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    json_t *uploader =
        json_pack("{s:s, s:s, s:i}", "version", "1", "peer", "a:1", "partner_memory_bytes", 1);
    json_t *attempts = json_pack("[{s:s, s:i, s:b}]", "grant", grant, "unsent", 0, "peers", true);
    EXPECT(!world_call(world, "PUT", TEXT("/v1/nodes/%s", node),
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
    char grant[600];
    INSIDE("--partner-copies=1");
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
        char grant[600];
        WITH(world, world,
             world_start_inside(&world,
                                WORLD_ARGS(setting ? "--partner-copies=1" : "--partner-copies=0")));
        join(&world, 0, "node-a", grant);
        join(&world, 1, "node-b", grant);
        expect_told(&world, "node-a", grant, false, "");
        expect_told(&world, "node-b", grant, false, "");
        for (size_t i = 0; i < CAIRN_COUNT(steps); i++) {
            const char *method = steps[i].policy ? "PUT" : "DELETE";
            json_t *body = steps[i].policy ? json_loads(steps[i].policy, 0, NULL) : NULL;
            if (steps[i].path) REQUIRE_OK(world_call(&world, method, steps[i].path, body, NULL));
            expect_told(&world, "node-a", grant, true, steps[i].has[setting] ? "node-b" : "");
        }
        REQUIRE(world_end(&world));
    }
}

/* nodes.h#3, Q26 */
TEST(a_node_that_was_heard_before_it_joined_an_attempt_is_missed_like_any_other) {
    INSIDE();
    REQUIRE_OK(beat(&world, "node-a", UUID_A, NULL, NULL));
    EXPECT_ROWS(0, "nodes");
    HAND(1);
    EXPECT_ROWS(1, "nodes");
    BEGUN(save, 1);
    inside_pass(&world.inside, 11 * UINT64_C(60000));
    GOT(version, save.path);
    EXPECT(strstr(world_text(version, "reason"), "node-a was not heard"));
}

TEST(readyz_and_nodes_name_a_node_whose_journal_is_dead_and_the_server_stays_ready) {
    JOB_INSIDE(1);
    REQUIRE_OK(beat(&world, "node-a", UUID_A, hand.grant, "journal"));
    GOT(ready, "/readyz");
    EXPECT(json_is_true(json_object_get(ready, "ready"))); /* it is one node's trouble */
    EXPECT(strstr(world_text(json_object_get(ready, "checks"), "nodes"), "node-a: it is broken"));
    GOT(list, "/v1/nodes");
    EXPECT_EQ_TEXT(world_text(cairn_item(list, "items", "node", "node-a"), "trouble"),
                   "it is broken");
    REQUIRE_OK(beat(&world, "node-a", UUID_A, hand.grant, NULL));
    EXPECT_GET("/readyz", "checks.nodes", "ok");
}

TEST(two_uploaders_of_one_name_are_noticed_and_one_that_starts_again_is_not) { /* nodes.h#4 */
    JOB_INSIDE(1);
    REQUIRE_OK(beat(&world, "node-a", UUID_A, hand.grant, NULL));
    REQUIRE_OK(beat(&world, "node-a", UUID_B, hand.grant, NULL));
    REQUIRE_OK(beat(&world, "node-a", UUID_B, hand.grant, NULL));
    GOT(one, "/v1/nodes");
    EXPECT(json_is_null(json_object_get(cairn_item(one, "items", "node", "node-a"), "trouble")));
    REQUIRE_OK(beat(&world, "node-a", UUID_A, hand.grant, NULL));
    GOT(two, "/v1/nodes");
    EXPECT(
        strstr(world_text(cairn_item(two, "items", "node", "node-a"), "trouble"), "two uploaders"));
}

TEST(a_node_whose_row_has_gone_takes_no_memory_either) {
    INSIDE("--gone-retention=1h");
    REQUIRE_OK(beat(&world, "idle", UUID_A, NULL, NULL));
    inside_pass(&world.inside, UINT64_C(48) * 3600000);
    GOT(before, "/v1/nodes");
    EXPECT(cairn_item(before, "items", "node", "idle"));
    inside_pass(&world.inside, UINT64_C(2) * 3600000);
    GOT(after, "/v1/nodes");
    EXPECT(!cairn_item(after, "items", "node", "idle"));
}
