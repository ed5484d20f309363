/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again races="full: as server/save and server/http, other requests" */
/* Ranks whose process has ended, and the saves that wait for them (Q56, V41). */
#include <stdio.h>

#include "tests/server/world.h"

#define err world.err /* of the macros */

static enum cairn_code begin_by(struct cairn_hand *hand, uint64_t step, uint32_t rank,
                                struct cairn_hand_save *ret, char ret_state[32]) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    *ret = (struct cairn_hand_save){.hand = hand, .step = step, .n = 1};
    CAIRN_TRY(cairn_world_call(hand->world, "POST", WORLD_RUN "/checkpoints",
                               cairn_hand_begin_body(hand, step, 1, rank, "error"), &reply));
    snprintf(ret->id.text, sizeof(ret->id.text), "%s", cairn_world_text(reply, "version"));
    snprintf(ret->path, sizeof(ret->path), WORLD_RUN "/checkpoints/%s", ret->id.text);
    snprintf(ret_state, 32, "%s", cairn_world_text(reply, "state"));
    return CAIRN_OK;
}

/* Sealed, and its only shard registered. */
static enum cairn_code seal_by(struct cairn_hand_save *save, uint32_t rank) {
    char name[16];
    snprintf(name, sizeof(name), "r%u", rank);
    json_t *shard = cairn_hand_shard(save, name, rank, CAIRN_VIEW("1234"));
    return cairn_hand_send(save, json_pack("[o]", shard),
                           json_pack("[o]", cairn_hand_seal(rank, NULL, name, 4)), NULL);
}

struct report {
    const char *node, *proc; /* NULL: node-a, j1-0 */
    uint32_t rank;
    bool unsettled;       /* something of it is under way */
    uint64_t generations; /* that the node is behind */
};

/* The heartbeat that reports an end; was that taken? */
static bool report(struct cairn_hand *hand, const struct report *what) {
    struct cairn_world *world = hand->world;
    char path[64];
    snprintf(path, sizeof(path), "/v1/nodes/%s", what->node ? what->node : "node-a");
    CAIRN_AUTO_JSON json_t *reply = NULL;
    json_t *body =
        json_pack("{s:{s:s}, s:{s:s, s:I}, s:[{s:s, s:i, s:s, s:b}]}", "uploader", "version", "1",
                  "heard", "catalog", world->inside.server.store_uuid, "generation",
                  (json_int_t)(world->inside.server.generation - what->generations), "ended",
                  "grant", hand->grant, "rank", what->rank, "proc",
                  what->proc ? what->proc : "j1-0", "settled", !what->unsettled);
    if (cairn_world_call(world, "PUT", path, body, &reply)) return false;
    return json_array_size(json_object_get(reply, "ended")) == 1;
}

/* "open", or why it is no longer. */
static void shown(struct cairn_world *world, const struct cairn_hand_save *save, char ret[512]) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    enum cairn_code code = cairn_world_call(world, "GET", save->path, NULL, &version);
    const char *state = code ? cairn_code_info(code)->slug : cairn_world_text(version, "state");
    bool over = !strcmp(state, "aborting") || !strcmp(state, "gone");
    snprintf(ret, 512, "%s", over ? cairn_world_text(version, "reason") : state);
}
#define EXPECT_SHOWN(save, wanted)                                                                 \
    do {                                                                                           \
        char text[512];                                                                            \
        shown(&world, save, text);                                                                 \
        EXPECT_EQ_TEXT(text, wanted);                                                              \
    } while (0)
#define EXPECT_OPEN(save) EXPECT_SHOWN(save, "open")
#define EXPECT_ENDED(save)                                                                         \
    EXPECT_SHOWN(save, "rank 0 has ended without sealing this save (process j1-0 on node node-a)")

TEST(v41_what_an_ended_rank_has_not_sealed_ends_at_once_naming_rank_node_and_process) /* Q56 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save sealed, begun, never, now;
    char state[32];
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &sealed));
    REQUIRE_OK(seal_by(&sealed, 0));
    REQUIRE_OK(cairn_hand_begin(&hand, 2, 1, "error", &begun));
    REQUIRE_OK(begin_by(&hand, 3, 1, &never, state));
    REQUIRE_OK(seal_by(&never, 1));
    uint64_t before_ms = world.inside.clock.mono_ms;
    EXPECT(report(&hand, &(struct report){0}));
    EXPECT_OPEN(&sealed); /* its part of that is whole */
    EXPECT_ENDED(&begun);
    EXPECT_ENDED(&never);
    CAIRN_AUTO_JSON json_t *heard = NULL;
    REQUIRE_OK(cairn_hand_wait(&never, &heard)); /* who waits hears it */
    EXPECT_EQ_TEXT(cairn_world_text(heard, "code"), "source-gone");
    EXPECT_EQ_U64(world.inside.clock.mono_ms, before_ms);
    EXPECT(report(&hand, &(struct report){0})); /* again is no change */
    /* What begins from now on is answered by the begin itself. */
    REQUIRE_OK(begin_by(&hand, 4, 1, &now, state));
    EXPECT_EQ_TEXT(state, "aborting");
    EXPECT_ENDED(&now);
    REQUIRE_OK(seal_by(&sealed, 1));
    cairn_inside_commit(&world.inside);
    EXPECT_SHOWN(&sealed, "committed");
}

TEST(v41_a_report_that_comes_before_the_begin_of_another_node_is_its_answer) /* Q56 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char state[32];
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    EXPECT(report(&hand, &(struct report){0}));
    REQUIRE_OK(begin_by(&hand, 1, 1, &save, state));
    EXPECT_EQ_TEXT(state, "aborting");
    EXPECT_ENDED(&save);
    /* A restart of the server forgets nothing of it. */
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    REQUIRE_OK(begin_by(&hand, 2, 1, &save, state));
    EXPECT_ENDED(&save);
}

TEST(an_ended_rank_whose_seal_is_still_on_its_way_ends_nothing) /* Q3, Q16, Q56 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    REQUIRE_OK(seal_by(&save, 1));
    EXPECT(!report(&hand, &(struct report){.unsettled = true}));
    cairn_inside_round(&world.inside);
    EXPECT_OPEN(&save);
    REQUIRE_OK(seal_by(&save, 0));
    cairn_inside_commit(&world.inside);
    EXPECT_SHOWN(&save, "committed");
    EXPECT(report(&hand, &(struct report){0}));
}

TEST(a_report_counts_only_for_the_catalog_that_answered_its_node_last) /* Q19, Q56 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    /* The catalog was put back: the seal that the node has reported is not in it. */
    EXPECT(!report(&hand, &(struct report){.generations = 1}));
    EXPECT_OPEN(&save);
    EXPECT(report(&hand, &(struct report){0}));
    EXPECT_ENDED(&save);
}

TEST(a_report_names_the_process_its_node_and_its_attempt) /* Q2, Q54, Q56 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand, next;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    (void)report(&hand, &(struct report){.node = "node-b"});
    (void)report(&hand, &(struct report){.proc = "another"});
    (void)report(&hand, &(struct report){.rank = 2, .proc = "j1-2"}); /* of a world of 2 */
    EXPECT_OPEN(&save);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM attempt_ranks"), 2);
    /* The ranks of the next attempt are others, whatever is said of those before. */
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 1, "latest", 2));
    EXPECT(report(&hand, &(struct report){0})); /* it need not come again */
    REQUIRE_OK(cairn_hand_save_all(&next, 2, 1, "error", 10, &save));
}

TEST(a_frozen_run_ends_nothing_until_it_is_reconciled) /* Q36, Q56 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    REQUIRE(cairn_world_sql(&world, "INSERT INTO frozen_runs(run_id, cause, since_ms) SELECT "
                                    "run_id, 'test', 0 FROM runs"));
    EXPECT(!report(&hand, &(struct report){0}));
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM versions WHERE state = 0"), 1);
    /* A reconcile knows no processes: the node puts its rank in again. */
    REQUIRE(cairn_world_sql(&world, "DELETE FROM attempt_ranks"));
    REQUIRE(cairn_world_sql(&world, "DELETE FROM frozen_runs"));
    EXPECT(report(&hand, &(struct report){0}));
    EXPECT_ENDED(&save);
}

TEST(a_sweep_ends_what_an_ended_rank_left_open) /* Q26, Q56 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    REQUIRE(cairn_world_sql(&world, "UPDATE attempt_ranks SET ended = 2 WHERE rank = 0"));
    cairn_inside_round(&world.inside);
    EXPECT_ENDED(&save);
}
