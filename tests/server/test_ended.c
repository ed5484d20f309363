/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again races="full: as server/save and server/http, other requests" */
/* Ranks whose process has ended, and the saves that wait for them (Q56, V41). */
#include "tests/server/world.h"

#define err world.err /* of the macros */

static enum cairn_code begin_by(struct cairn_hand *hand, uint64_t step, uint32_t rank,
                                struct cairn_hand_save *ret, char ret_state[32]) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    json_t *body = hand_begin_body(hand, step, 1, rank, "error");
    CAIRN_TRY(hand_begin_by(hand, body, ret, &reply));
    snprintf(ret_state, 32, "%s", world_text(reply, "state"));
    return CAIRN_OK;
}

/* Sealed, and its only shard registered. */
static enum cairn_code seal_by(struct cairn_hand_save *save, uint32_t rank) {
    const char *name = TEXT("r%u", rank);
    return hand_put(save, name, rank, CAIRN_VIEW("1234"));
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
    const char *path = TEXT("/v1/nodes/%s", what->node ? what->node : "node-a");
    CAIRN_AUTO_JSON json_t *reply = NULL;
    json_t *body =
        json_pack("{s:{s:s}, s:{s:s, s:I}, s:[{s:s, s:i, s:s, s:b}]}", "uploader", "version", "1",
                  "heard", "catalog", world->inside.server.store_uuid, "generation",
                  (json_int_t)(world->inside.server.generation - what->generations), "ended",
                  "grant", hand->grant, "rank", what->rank, "proc",
                  what->proc ? what->proc : "j1-0", "settled", !what->unsettled);
    if (world_call(world, "PUT", path, body, &reply)) return false;
    return json_array_size(json_object_get(reply, "ended")) == 1;
}

/* "open", or why it is no longer. */
static void shown(struct cairn_world *world, const struct cairn_hand_save *save, char ret[512]) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    enum cairn_code code = world_call(world, "GET", save->path, NULL, &version);
    const char *state = code ? cairn_code_info(code)->slug : world_text(version, "state");
    bool over = !strcmp(state, "aborting") || !strcmp(state, "gone");
    snprintf(ret, 512, "%s", over ? world_text(version, "reason") : state);
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

TEST(v41_what_an_ended_rank_has_not_sealed_ends_at_once_naming_rank_node_and_process) { /* Q56 */
    struct cairn_hand_save never, now;
    char state[32];
    JOB_INSIDE(2);
    BEGUN(sealed, 1);
    REQUIRE_OK(seal_by(&sealed, 0));
    BEGUN(begun, 2);
    REQUIRE_OK(begin_by(&hand, 3, 1, &never, state));
    REQUIRE_OK(seal_by(&never, 1));
    uint64_t before_ms = world.inside.clock.mono_ms;
    EXPECT(report(&hand, &(struct report){0}));
    EXPECT_OPEN(&sealed); /* its part of that is whole */
    EXPECT_ENDED(&begun);
    EXPECT_ENDED(&never);
    WAITED(heard, &never); /* who waits hears it */
    EXPECT_EQ_TEXT(world_text(heard, "code"), "source-gone");
    EXPECT_EQ_U64(world.inside.clock.mono_ms, before_ms);
    EXPECT(report(&hand, &(struct report){0})); /* again is no change */
    /* What begins from now on is answered by the begin itself. */
    REQUIRE_OK(begin_by(&hand, 4, 1, &now, state));
    EXPECT_EQ_TEXT(state, "aborting");
    EXPECT_ENDED(&now);
    REQUIRE_OK(seal_by(&sealed, 1));
    inside_commit(&world.inside);
    EXPECT_SHOWN(&sealed, "committed");
}

TEST(v41_a_report_that_comes_before_the_begin_of_another_node_is_its_answer) { /* Q56 */
    struct cairn_hand_save save;
    char state[32];
    JOB_INSIDE(2);
    EXPECT(report(&hand, &(struct report){0}));
    REQUIRE_OK(begin_by(&hand, 1, 1, &save, state));
    EXPECT_EQ_TEXT(state, "aborting");
    EXPECT_ENDED(&save);
    /* A restart of the server forgets nothing of it. */
    REQUIRE_OK(inside_restart(&world.inside));
    REQUIRE_OK(begin_by(&hand, 2, 1, &save, state));
    EXPECT_ENDED(&save);
}

TEST(an_ended_rank_whose_seal_is_still_on_its_way_ends_nothing) { /* Q3, Q16, Q56 */
    JOB_INSIDE(2);
    BEGUN(save, 1);
    REQUIRE_OK(seal_by(&save, 1));
    EXPECT(!report(&hand, &(struct report){.unsettled = true}));
    inside_round(&world.inside);
    EXPECT_OPEN(&save);
    REQUIRE_OK(seal_by(&save, 0));
    inside_commit(&world.inside);
    EXPECT_SHOWN(&save, "committed");
    EXPECT(report(&hand, &(struct report){0}));
}

TEST(a_report_counts_only_for_the_catalog_that_answered_its_node_last) { /* Q19, Q56 */
    JOB_INSIDE(2);
    BEGUN(save, 1);
    /* The catalog was put back: the seal that the node has reported is not in it. */
    EXPECT(!report(&hand, &(struct report){.generations = 1}));
    EXPECT_OPEN(&save);
    EXPECT(report(&hand, &(struct report){0}));
    EXPECT_ENDED(&save);
}

TEST(a_report_names_the_process_its_node_and_its_attempt) { /* Q2, Q54, Q56 */
    struct cairn_hand next;
    JOB_INSIDE(2);
    BEGUN(save, 1);
    (void)report(&hand, &(struct report){.node = "node-b"});
    (void)report(&hand, &(struct report){.proc = "another"});
    (void)report(&hand, &(struct report){.rank = 2, .proc = "j1-2"}); /* of a world of 2 */
    EXPECT_OPEN(&save);
    EXPECT_ROWS(2, "attempt_ranks");
    /* The ranks of the next attempt are others, whatever is said of those before. */
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 2));
    EXPECT(report(&hand, &(struct report){0})); /* it need not come again */
    REQUIRE_OK(hand_save_all(&next, 2, 1, "error", 10, &save));
}

TEST(a_frozen_run_ends_nothing_until_it_is_reconciled) { /* Q36, Q56 */
    JOB_INSIDE(2);
    BEGUN(save, 1);
    REQUIRE(world_sql(&world, "INSERT INTO frozen_runs(run_id, cause, since_ms) SELECT "
                              "run_id, 'test', 0 FROM runs"));
    EXPECT(!report(&hand, &(struct report){0}));
    EXPECT_ROWS(1, "versions WHERE state = 0");
    /* A reconcile knows no processes: the node puts its rank in again. */
    REQUIRE(world_sql(&world, "DELETE FROM attempt_ranks"));
    REQUIRE(world_sql(&world, "DELETE FROM frozen_runs"));
    EXPECT(report(&hand, &(struct report){0}));
    EXPECT_ENDED(&save);
}

TEST(a_sweep_ends_what_an_ended_rank_left_open) { /* Q26, Q56 */
    JOB_INSIDE(2);
    BEGUN(save, 1);
    REQUIRE(world_sql(&world, "UPDATE attempt_ranks SET ended = 2 WHERE rank = 0"));
    inside_round(&world.inside);
    EXPECT_ENDED(&save);
}

/* ---- what a heartbeat is told of open versions: so uploaders find abandoned ones (Q12) ---- */

/* The versions that the answer to one heartbeat names; the caller owns them. */
static json_t *named(struct cairn_hand *hand) {
    CAIRN_AUTO_JSON json_t *answer = NULL;
    if (hand_unsent(hand, "node-a", 0, &answer)) return NULL;
    return json_incref(json_object_get(answer, "versions"));
}

static size_t named_count(struct cairn_hand *hand) {
    CAIRN_AUTO_JSON json_t *versions = named(hand);
    return versions ? json_array_size(versions) : SIZE_MAX;
}

TEST(a_heartbeats_answer_names_step_and_n_of_what_is_open_in_its_attempt) { /* Q12 */
    struct cairn_hand_save saves[3];
    static const uint64_t steps[] = {900, 7, 7};
    static const uint32_t ns[] = {1, 2, 3};
    JOB_INSIDE(2);
    for (size_t i = 0; i < 3; i++)
        REQUIRE_OK(hand_begin(&hand, steps[i], ns[i], "new-version", &saves[i]));
    CAIRN_AUTO_JSON json_t *versions = named(&hand);
    EXPECT_EQ_U64(json_array_size(versions), 3);
    size_t found = 0;
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < json_array_size(versions); k++) {
            const json_t *item = json_array_get(versions, k);
            if (strcmp(world_text(item, "version"), saves[i].id.text) != 0) continue;
            found++;
            EXPECT_EQ_TEXT(world_text(item, "state"), "open");
            EXPECT_ALL_U64(world_number(item, "step"), steps[i], world_number(item, "n"), ns[i]);
        }
    }
    EXPECT_EQ_U64(found, 3);
}

/* What this catalog calls open may be committed: an uploader must not hear of it as open. */
TEST(nothing_is_named_of_a_run_that_is_frozen_or_was_not_compared_with_its_store) { /* Q35, Q36 */
    JOB_INSIDE(2);
    BEGUN(save, 1);
    EXPECT_EQ_U64(named_count(&hand), 1);
    REQUIRE_OK(inside_restart(&world.inside));
    EXPECT_EQ_U64(named_count(&hand), 0);
    ASK("GET", WORLD_RUN, NULL); /* compared before that */
    EXPECT_EQ_U64(named_count(&hand), 1);
    world.inside.server.frozen = true; /* the whole catalog is behind */
    EXPECT_EQ_U64(named_count(&hand), 0);
    world.inside.server.frozen = false;
    EXPECT_EQ_U64(named_count(&hand), 1);
    REQUIRE(world_sql(&world, "INSERT INTO frozen_runs(run_id, cause, since_ms) "
                              "VALUES(1, 'the store is ahead', 0)"));
    EXPECT_EQ_U64(named_count(&hand), 0);
}
