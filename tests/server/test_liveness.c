/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Whether a run gets on, as facts. */
#include "tests/server/world.h"

static double number(const json_t *json, const char *name) {
    return json_number_value(json_object_get(json, name));
}

static json_t *look(struct cairn_world *world) {
    json_t *facts = NULL;
    if (world_call(world, "GET", WORLD_RUN "/liveness", NULL, &facts)) return NULL;
    return facts;
}

#define err world.err /* of the macros */

TEST(a_run_says_how_long_ago_and_how_often_it_commits) {
    /* a restart in between */
    struct cairn_hand_save save;
    INSIDE();
    EXPECT_REFUSED(CAIRN_NOT_FOUND, "GET", WORLD_RUN "/liveness", NULL);
    HAND(1);
    CAIRN_AUTO_JSON json_t *none = look(&world);
    EXPECT_SHOWS(none, "last_commit_at", "null", "interval_s", "null");
    EACH_OF(uint64_t, value, 0, 10, 10, 10, 90, 10) {
        inside_pass(&world.inside, value * MINUTE_MS);
        REQUIRE_OK(hand_save_all(&hand, 1 + AT_OF(value), 1, "error", 10, &save));
    }
    inside_pass(&world.inside, 25 * MINUTE_MS);
    CAIRN_AUTO_JSON json_t *facts = look(&world);
    /* A save waits for its commit, up to 20 s of this clock. */
    EXPECT(number(facts, "interval_s") > 599 && number(facts, "interval_s") < 625);
    EXPECT(number(facts, "last_commit_age_s") > 1499 && number(facts, "last_commit_age_s") < 1525);
    EXPECT_EQ_U64(json_array_size(json_object_get(facts, "open")), 0);
}

static uint64_t idle_s(struct cairn_world *world) {
    CAIRN_AUTO_JSON json_t *run = NULL;
    if (world_call(world, "GET", WORLD_RUN, NULL, &run)) return UINT64_MAX;
    const json_t *idle = json_object_get(run, "idle_s");
    return json_is_null(idle) ? UINT64_MAX : (uint64_t)json_integer_value(idle);
}

TEST(a_run_is_idle_since_its_last_commit_or_attempt_and_never_while_a_save_is_open) {
    JOB_INSIDE(1);
    inside_pass(&world.inside, 30 * MINUTE_MS);
    EXPECT(idle_s(&world) >= 1800 && idle_s(&world) < 1825);
    SAVED(save, 1);
    EXPECT(idle_s(&world) < 25);
    inside_pass(&world.inside, 40 * MINUTE_MS);
    EXPECT(idle_s(&world) >= 2400 && idle_s(&world) < 2425);
    REQUIRE_OK(hand_begin(&hand, 2, 1, "error", &save));
    EXPECT_EQ_U64(idle_s(&world), UINT64_MAX); /* somebody is at it */
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "latest", 1));
    inside_pass(&world.inside, 10 * MINUTE_MS);
    CAIRN_AUTO_JSON json_t *facts = look(&world);
    EXPECT(number(facts, "last_commit_age_s") >= 3000);
    EXPECT(idle_s(&world) >= 600 && idle_s(&world) < 625); /* a resume is life, too */
}

TEST(what_an_open_save_waits_for_is_named_by_rank_node_and_shard) {
    JOB_INSIDE(40);
    BEGUN(save, 7);
    json_t *seals = json_pack("[o, o]", hand_seal(3, NULL, "rank-00003/x", 3),
                              hand_seal(0, NULL, "rank-00000/x", 3));
    json_t *shard = hand_shard(&save, "rank-00000/x", 0, CAIRN_VIEW("abc"));
    REQUIRE_OK(hand_send(&save, json_pack("[o]", shard), seals, NULL));
    CAIRN_AUTO_JSON json_t *facts = look(&world);
    const json_t *open = json_array_get(json_object_get(facts, "open"), 0);
    EXPECT_SHOWS(open, "version", save.id.text, "ranks_sealed", "2", "missing_rank_count", "38");
    const json_t *ranks = json_object_get(open, "missing_ranks");
    EXPECT_ALL_U64(json_array_size(ranks), 16, world_number(json_array_get(ranks, 0), "rank"), 1,
                   world_number(json_array_get(ranks, 2), "rank"), 4);
    EXPECT_SHOWS(ranks, "0.node", "node-a", "0.state", "not sealed");
    EXPECT_SHOWS(open, "missing_shard_count", "1", "missing_shards.0.shard", "rank-00003/x");
}

static json_t *why_of(struct cairn_world *world, const char *path) {
    json_t *facts = NULL;
    const char *text = TEXT("%s/why", path);
    if (world_call(world, "GET", text, NULL, &facts)) return NULL;
    return facts;
}

static enum cairn_code beat(struct cairn_world *world, const struct cairn_hand *hand,
                            const char *version, const char *error) {
    json_t *body =
        json_pack("{s:{s:s, s:s}, s:[{s:s, s:i}], s:[{s:s, s:s, s:s, s:i, s:i, s:s*}]}", "uploader",
                  "version", "1", "store_waits", "the mount is away", "attempts", "grant",
                  hand->grant, "unsent", 1, "versions", "version", version, "project", "acme",
                  "run", "seven", "done_bytes", 40, "total_bytes", 100, "error", error);
    return world_call(world, "PUT", "/v1/nodes/node-a", body, NULL);
}

/* Step 7 of two ranks, begun by both. */
static bool start_open(struct cairn_world *world, struct cairn_hand *hand,
                       struct cairn_hand_save *save) {
    return world_start_inside(world, NULL) &&
           hand_open(world, hand, "j1", 0, "latest", 2) == CAIRN_OK &&
           hand_begin(hand, 7, 1, "error", save) == CAIRN_OK;
}

#define OPEN()                                                                                     \
    struct cairn_hand hand;                                                                        \
    struct cairn_hand_save save;                                                                   \
    WITH(world, world, start_open(&world, &hand, &save))

TEST(why_names_of_a_version_that_is_open_each_node_with_how_far_it_is_and_its_last_error) {
    OPEN();
    CAIRN_AUTO_JSON json_t *unheard = why_of(&world, save.path);
    EXPECT_EQ_U64(json_array_size(json_object_get(unheard, "nodes")), 0); /* it is no uploader */
    REQUIRE_OK(beat(&world, &hand, save.id.text, "shard rank-00001/x: 503 SlowDown"));
    inside_pass(&world.inside, 3000);
    CAIRN_AUTO_JSON json_t *facts = why_of(&world, save.path);
    const json_t *node = json_array_get(json_object_get(facts, "nodes"), 0);
    EXPECT_SHOWS(facts, "state", "open", "open.missing_rank_count", "2");
    EXPECT_SHOWS(node, "node", "node-a", "done_bytes", "40", "total_bytes", "100", "error",
                 "shard rank-00001/x: 503 SlowDown", "trouble", "the mount is away");
    EXPECT(world_number(node, "silent_ms") >= 3000);
    EXPECT(world_number(node, "silent_ms") < 10000);
    /* The next heartbeat says that nothing is wrong with it any more. */
    REQUIRE_OK(beat(&world, &hand, save.id.text, NULL));
    CAIRN_AUTO_JSON json_t *later = why_of(&world, save.path);
    node = json_array_get(json_object_get(later, "nodes"), 0);
    EXPECT(json_is_null(json_object_get(node, "error")));
    /* An uploader that does not count shards and parts. */
    EXPECT_SHOWS(node, "waited_for", "true", "parts_done", "null");
}

TEST(why_names_the_ranks_of_other_nodes_of_which_a_node_has_said_that_it_keeps_a_copy) { /* Q57 */
    OPEN();
    for (int count = 1; count >= 0; count--) {
        json_t *copies = json_array();
        for (int i = 0; i < count; i++)
            json_array_append_new(copies, json_pack("{s:s, s:i, s:s, s:s}", "version", save.id.text,
                                                    "rank", 1, "node", "node-b", "uploader",
                                                    "01234567-89ab-cdef-0123-456789abcdef"));
        json_t *body =
            json_pack("{s:{s:s}, s:[{s:s, s:i, s:o}], s:[]}", "uploader", "version", "1",
                      "attempts", "grant", hand.grant, "unsent", 1, "copies", copies, "versions");
        ASK("PUT", "/v1/nodes/node-a", body);
        CAIRN_AUTO_JSON json_t *facts = why_of(&world, save.path);
        const json_t *node = json_array_get(json_object_get(facts, "nodes"), 0);
        const json_t *keeps = json_object_get(node, "keeps");
        EXPECT_EQ_TEXT(world_text(node, "node"), "node-a");
        REQUIRE(json_array_size(keeps) == (size_t)count); /* the last word holds */
        if (!count) continue;
        EXPECT_SHOWS(keeps, "0.node", "node-b", "0.rank", "1");
    }
}

/* As an uploader tells them: the newest first. */
static enum cairn_code beat_errors(struct cairn_world *world, const struct cairn_hand *hand,
                                   const char *version, int count) {
    json_t *errors = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(errors, json_pack("{s:s, s:i, s:i, s:s, s:i, s:i}", "shard",
                                                "rank-00000/x", "part", 9 - i, "rank", 0, "error",
                                                "503 SlowDown", "tries", 3, "age_ms", 1000 * i));
    json_array_append_new(errors, json_pack("{s:i}", "part", 1)); /* of no shard: left out */
    json_t *body =
        json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[{s:s, s:s, s:s, s:o}]}", "uploader", "version", "1",
                  "attempts", "grant", hand->grant, "unsent", 1, "versions", "version", version,
                  "project", "acme", "run", "seven", "errors", errors);
    return world_call(world, "PUT", "/v1/nodes/node-a", body, NULL);
}

TEST(why_names_the_last_error_of_each_shard_and_part_with_its_node_and_age) {
    OPEN();
    for (int count = 2; count <= 6; count += 4) {
        REQUIRE_OK(beat_errors(&world, &hand, save.id.text, count));
        inside_pass(&world.inside, 3000);
        CAIRN_AUTO_JSON json_t *facts = why_of(&world, save.path);
        const json_t *node = json_array_get(json_object_get(facts, "nodes"), 0);
        const json_t *errors = json_object_get(node, "errors");
        EXPECT_EQ_U64(json_array_size(errors),
                      count < SRV_SHARD_ERRORS_MAX ? count : SRV_SHARD_ERRORS_MAX);
        const json_t *second = json_array_get(errors, 1);
        EXPECT_SHOWS(second, "shard", "rank-00000/x", "part", "8", "error", "503 SlowDown", "tries",
                     "3");
        EXPECT(world_number(second, "age_ms") >= 4000);
        EXPECT(world_number(second, "age_ms") < 20000);
    }
}

/* One rank of two, on a node of its own. */
static enum cairn_code open_on(struct cairn_world *world, uint32_t rank, const char *node,
                               struct cairn_hand *ret) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    enum cairn_code code =
        world_call(world, "POST", WORLD_RUN "/attempts",
                   json_pack("{s:s, s:i, s:s, s:i, s:[{s:i, s:s}], s:s}", "job", "j1", "world_size",
                             2, "resume", "latest", "after", 0, "ranks", "rank", rank, "proc",
                             TEXT("p%u", rank), "node", node),
                   &reply);
    *ret = (struct cairn_hand){.world = world, .world_size = 2};
    ret->attempt = world_number(reply, "attempt");
    (void)cairn_text_copy(ret->grant, sizeof(ret->grant), world_text(reply, "grant"));
    (void)cairn_text_copy(ret->nonce, sizeof(ret->nonce), world_text(reply, "nonce"));
    return code;
}

static enum cairn_code beat_of(struct cairn_world *world, const char *node, const char *grant,
                               const char *version) {
    const char *path = TEXT("/v1/nodes/%s", node);
    json_t *body = json_pack(
        "{s:{s:s}, s:[{s:s, s:i}], s:[{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i}]}", "uploader",
        "version", "1", "attempts", "grant", grant, "unsent", 1, "versions", "version", version,
        "project", "acme", "run", "seven", "done_bytes", 40, "total_bytes", 100, "shards_done", 1,
        "shards_total", 2, "parts_done", 3, "parts_total", 5);
    return world_call(world, "PUT", path, body, NULL);
}

TEST(why_tells_the_nodes_that_have_done_their_share_from_those_that_are_waited_for) {
    struct cairn_hand hand, other;
    INSIDE();
    REQUIRE_OK(open_on(&world, 1, "node-b", &other));
    REQUIRE_OK(open_on(&world, 0, "node-a", &hand));
    BEGUN(save, 7);
    REQUIRE_OK(beat_of(&world, "node-a", hand.grant, save.id.text));
    REQUIRE_OK(beat_of(&world, "node-b", other.grant, save.id.text));
    REQUIRE_OK(hand_put(&save, "rank-00000/x", 0, CAIRN_VIEW("abc")));
    CAIRN_AUTO_JSON json_t *facts = why_of(&world, save.path);
    const json_t *nodes = json_object_get(facts, "nodes");
    EXPECT_EQ_U64(json_array_size(nodes), 2);
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        bool waited = !strcmp(world_text(node, "node"), "node-b");
        EXPECT(json_is_true(json_object_get(node, "waited_for")) == waited);
        EXPECT_SHOWS(node, "shards_done", "1", "shards_total", "2", "parts_done", "3",
                     "parts_total", "5");
    }
}

TEST(a_version_that_is_not_open_waits_for_nothing_and_says_why_it_was_given_up) {
    JOB_INSIDE(1);
    SAVED(save, 1);
    CAIRN_AUTO_JSON json_t *done = why_of(&world, save.path);
    EXPECT_SHOWS(done, "state", "committed", "open", "null");
    BEGUN(other, 2);
    ASK("POST", TEXT("%s/abort", other.path),
        json_pack("{s:s, s:s}", "grant", hand.grant, "reason", "no use"));
    CAIRN_AUTO_JSON json_t *over = why_of(&world, other.path);
    EXPECT(json_is_null(json_object_get(over, "open")));
    EXPECT(strstr(world_text(over, "reason"), "no use") != NULL);
}
