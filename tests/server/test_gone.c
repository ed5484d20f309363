/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What is over is forgotten after a time, and what the rules need of it stays (Q6, Q11, Q30). */
#include <stdio.h>

#include "server/ledger/attempts.h"
#include "tests/server/world.h"

#define err world.err /* of the macros */
#define HOUR_MS UINT64_C(3600000)
#define ROWS(what) cairn_world_count(&world, "SELECT count(*) FROM " what)

static bool save_and_delete(struct cairn_hand *hand, uint64_t step, struct cairn_hand_save *save) {
    if (cairn_hand_save_all(hand, step, 1, "error", 10, save)) return false;
    return !cairn_world_call(hand->world, "DELETE", save->path, NULL, NULL);
}

TEST(rows_of_versions_that_are_gone_are_trimmed_after_their_last_sweep_and_a_time) /* Q30 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand, next;
    struct cairn_hand_save save, kept;
    REQUIRE(
        cairn_world_start_inside(&world, WORLD_ARGS("--gone-retention=10h", "--trash-grace=1min")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE(save_and_delete(&hand, 1, &save));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &kept));
    cairn_inside_pass(&world.inside, 49 * HOUR_MS); /* swept for the last time */
    EXPECT_EQ_U64(ROWS("versions WHERE state = 4 AND sweeps = 5"), 1);
    cairn_inside_pass(&world.inside, 8 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("versions WHERE state = 4"), 1);
    cairn_inside_pass(&world.inside, 3 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("versions WHERE state = 4"), 0);
    EXPECT_EQ_U64(ROWS("versions"), 1);
    /* Its id is of the newest attempt, which could begin it once more. */
    EXPECT_EQ_U64(ROWS("tombstones"), 1);
    EXPECT_CODE(cairn_hand_begin(&hand, 1, 1, "error", &save), CAIRN_DELETED);
    EXPECT_EQ_U64(ROWS("versions"), 1);
    EXPECT_CODE(cairn_hand_begin(&hand, 1, 2, "error", &save), CAIRN_OK);
    /* And once there is a newer one, nobody could. */
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 1, "latest", 1));
    REQUIRE(save_and_delete(&next, 3, &save));
    cairn_inside_pass(&world.inside, 61 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("tombstones WHERE attempt = 1"), 0);
    EXPECT_EQ_U64(ROWS("tombstones WHERE attempt = 2"), 1);
}

TEST(what_the_newest_attempt_resumed_from_is_kept_although_it_is_gone) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand, next;
    struct cairn_hand_save save, more;
    REQUIRE(
        cairn_world_start_inside(&world, WORLD_ARGS("--gone-retention=1h", "--trash-grace=1min")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT_EQ_TEXT(next.resumed, save.id.text);
    REQUIRE_OK(cairn_hand_save_all(&next, 2, 1, "error", 10, &more));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", save.path, NULL, NULL));
    cairn_inside_pass(&world.inside, 60 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("versions WHERE state = 4"), 1);
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 1, "latest", 1)); /* joins; the same answer */
    EXPECT_EQ_TEXT(next.resumed, save.id.text);
}

TEST(a_run_without_versions_can_be_removed_and_counts_on_when_it_comes_back) /* Q1, Q6, V4 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand, next;
    struct cairn_hand_save save;
    CAIRN_AUTO_JSON json_t *list = NULL, *again = NULL;
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--trash-grace=1min")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    EXPECT_CODE(cairn_world_call(&world, "DELETE", WORLD_RUN, NULL, NULL), CAIRN_INVALID);
    REQUIRE_OK(cairn_world_call(&world, "DELETE", save.path, NULL, NULL));
    cairn_inside_pass(&world.inside, HOUR_MS);
    EXPECT_CODE(cairn_world_call(&world, "DELETE", WORLD_RUN, NULL, NULL), CAIRN_INVALID);
    cairn_inside_pass(&world.inside, 49 * HOUR_MS);
    REQUIRE_OK(cairn_world_call(&world, "DELETE", WORLD_RUN, NULL, NULL));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", WORLD_RUN, NULL, NULL));
    EXPECT_CODE(cairn_world_call(&world, "GET", WORLD_RUN, NULL, NULL), CAIRN_NOT_FOUND);
    REQUIRE_OK(cairn_world_call(&world, "GET", "/v1/runs", NULL, &list));
    EXPECT_EQ_U64(json_array_size(json_object_get(list, "items")), 0);
    EXPECT_EQ_U64(ROWS("attempt_ranks"), 0);
    /* No grant of before is ever one of a later attempt. */
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 1, "none", 1));
    EXPECT_EQ_U64(next.attempt, 2);
    EXPECT_CODE(cairn_hand_begin(&hand, 5, 1, "error", &save), CAIRN_STALE_ATTEMPT);
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN, NULL, &again));
    EXPECT_EQ_U64(cairn_world_number(again, "attempt"), 2);
}

TEST(a_silent_node_can_be_removed_and_goes_by_itself_after_a_time) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--gone-retention=1h")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(cairn_world_call(&world, "PUT", "/v1/nodes/node-a",
                                    json_pack("{s:{s:s}, s:[{s:s, s:i}]}", "uploader", "version",
                                              "1", "attempts", "grant", hand.grant, "unsent", 0),
                                    NULL));
        EXPECT_EQ_U64(ROWS("nodes"), 1);
        EXPECT_CODE(cairn_world_call(&world, "DELETE", "/v1/nodes/node-a", NULL, NULL),
                    CAIRN_IN_USE);
        if (i) break;
        cairn_inside_pass(&world.inside, 60000);
        REQUIRE_OK(cairn_world_call(&world, "DELETE", "/v1/nodes/node-a", NULL, NULL));
        EXPECT_EQ_U64(ROWS("nodes"), 0);
        EXPECT_CODE(cairn_world_call(&world, "DELETE", "/v1/nodes/node-a", NULL, NULL),
                    CAIRN_NOT_FOUND);
        EXPECT_EQ_U64(ROWS("events WHERE event = 'node.removed' AND reason = 'node-a'"), 1);
    }
    cairn_inside_pass(&world.inside, 50 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("nodes"), 0);
}

TEST(a_trash_of_before_there_were_marks_stays_the_trash) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    CAIRN_AUTO_JSON json_t *list = NULL;
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--trash-grace=10h")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE(save_and_delete(&hand, 1, &save));
    struct cairn_version_place place = {{"llm", "seven"}, save.step, save.id};
    struct cairn_key mark;
    cairn_key_trashed(&place, &mark);
    /* As a catalog of schema 6 leaves it whose trash is older than marks. */
    REQUIRE_OK(cairn_store_delete(world.worker, mark.text, &err));
    REQUIRE(cairn_world_sql(&world, "UPDATE runs SET unmarked = 1"));
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints", NULL, &list));
    EXPECT(json_is_true(
        json_object_get(json_array_get(json_object_get(list, "items"), 0), "trashed")));
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = mark.text};
    EXPECT_CODE(cairn_store_perform(world.worker, &head, &err), CAIRN_OK);
    EXPECT_EQ_U64(ROWS("runs WHERE unmarked = 1"), 0);
    /* Once: a mark that goes later is an undelete. */
    REQUIRE_OK(cairn_store_delete(world.worker, mark.text, &err));
    REQUIRE_OK(cairn_inside_restart(&world.inside));
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, NULL));
    EXPECT_EQ_U64(ROWS("versions WHERE trashed_tick IS NULL"), 1);
}

TEST(a_server_that_is_told_to_end_sweeps_no_further_version_and_its_next_start_does) /* sweep.h#4 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--trash-grace=1min")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    for (uint64_t step = 1; step <= 5; step++) REQUIRE(save_and_delete(&hand, step, &save));
    world.inside.server.leaving = true;
    cairn_inside_pass(&world.inside, HOUR_MS);
    EXPECT_EQ_U64(ROWS("versions WHERE state = 1"), 5);
    world.inside.server.leaving = false;
    cairn_inside_pass(&world.inside, HOUR_MS);
    EXPECT_EQ_U64(ROWS("versions WHERE state = 4"), 5);
}

/* As the report of a node says it of rank 0. */
static enum cairn_code end_rank(struct cairn_srv_tx *tx, void *argument, struct cairn_error *why) {
    const struct cairn_hand *hand = argument;
    struct cairn_srv_process process = {
        .run_id = 1, .attempt = hand->attempt, .rank = 0, .proc = "j3-0", .node = "node-a"};
    return cairn_srv_member_end_put(tx, &process, CAIRN_SRV_END_SETTLED, why);
}

TEST(ranks_of_superseded_attempts_and_tombstones_of_ended_jobs_go) { /* attempts.h#4, #5 */
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[2];
    static const char *const jobs[] = {"j0", "j1", "j2", "j3"};
    REQUIRE(cairn_world_start_inside(&world,
                                     WORLD_ARGS("--gone-retention=100h", "--trash-grace=1min")));
    for (uint64_t i = 0; i < 4; i++)
        REQUIRE_OK(cairn_hand_open(&world, &hand, jobs[i], i, "latest", 1));
    EXPECT_EQ_U64(ROWS("attempt_ranks"), 2);
    EXPECT_EQ_U64(ROWS("attempt_ranks WHERE attempt > 2"), 2);
    REQUIRE(save_and_delete(&hand, 1, &saves[0]));
    cairn_inside_pass(&world.inside, 20 * HOUR_MS);
    REQUIRE(save_and_delete(&hand, 2, &saves[1]));
    cairn_inside_pass(&world.inside, 132 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("tombstones"), 1); /* it lives, and could begin it again */
    EXPECT_EQ_U64(ROWS("versions"), 1);
    REQUIRE_OK(cairn_srv_catalog_write(world.inside.server.catalog, end_rank, &hand, &err));
    EXPECT_EQ_U64(ROWS("attempt_ranks WHERE ended > 0"), 1);
    EXPECT_EQ_U64(ROWS("tombstones"), 0);
    cairn_inside_pass(&world.inside, 22 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("versions"), 0);
    EXPECT_EQ_U64(ROWS("tombstones"), 0); /* nor of what is forgotten later */
}

/* attempts.h#5, attempts.h#6, Q1, Q31 */
TEST(a_tombstone_of_a_living_attempt_stays_and_of_a_removed_run_its_number) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand, next;
    struct cairn_hand_save saves[2];
    REQUIRE(
        cairn_world_start_inside(&world, WORLD_ARGS("--gone-retention=1h", "--trash-grace=1min")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &saves[0]));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j2", 1, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &saves[1]));
    for (size_t i = 0; i < 2; i++)
        REQUIRE_OK(cairn_world_call(&world, "DELETE", saves[i].path, NULL, NULL));
    cairn_inside_pass(&world.inside, 52 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("tombstones"), 1);
    cairn_inside_pass(&world.inside, 52 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("tombstones"), 1);
    EXPECT_EQ_U64(ROWS("versions"), 1); /* from which the attempt went on */
    REQUIRE_OK(cairn_world_call(&world, "DELETE", WORLD_RUN, NULL, NULL));
    cairn_inside_pass(&world.inside, 40 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("versions"), 0);
    EXPECT_EQ_U64(ROWS("attempts"), 2);
    cairn_inside_pass(&world.inside, 12 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("attempts"), 0);
    EXPECT_EQ_U64(ROWS("tombstones"), 0);
    EXPECT_EQ_U64(ROWS("runs"), 1);
    EXPECT_CODE(cairn_hand_begin(&hand, 5, 1, "error", &saves[0]), CAIRN_STALE_ATTEMPT);
    REQUIRE_OK(cairn_hand_open(&world, &next, "j1", 0, "none", 1));
    EXPECT_EQ_U64(next.attempt, 3);
    REQUIRE_OK(cairn_hand_save_all(&next, 5, 1, "error", 10, &saves[0]));
}
