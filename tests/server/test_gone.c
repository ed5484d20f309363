/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What is over is forgotten after a time, and what the rules need of it stays (Q6, Q11, Q30). */
#include "server/ledger/attempts.h"
#include "tests/server/world.h"

#define err world.err /* of the macros */
#define ROWS(what) world_count(&world, "SELECT count(*) FROM " what)

static bool save_and_delete(struct cairn_hand *hand, uint64_t step, struct cairn_hand_save *save) {
    if (hand_save_all(hand, step, 1, "error", 10, save)) return false;
    return !world_call(hand->world, "DELETE", save->path, NULL, NULL);
}

TEST(rows_of_versions_that_are_gone_are_trimmed_after_their_last_sweep_and_a_time) { /* Q30 */
    struct cairn_hand next;
    struct cairn_hand_save save;
    JOB_INSIDE(1, "--gone-retention=10h", "--trash-grace=1min");
    REQUIRE(save_and_delete(&hand, 1, &save));
    SAVED(kept, 2);
    inside_pass(&world.inside, 49 * HOUR_MS); /* swept for the last time */
    EXPECT_EQ_U64(ROWS("versions WHERE state = 4 AND sweeps = 5"), 1);
    inside_pass(&world.inside, 8 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("versions WHERE state = 4"), 1);
    inside_pass(&world.inside, 3 * HOUR_MS);
    EXPECT_ALL_U64(ROWS("versions WHERE state = 4"), 0, ROWS("versions"), 1);
    /* Its id is of the newest attempt, which could begin it once more. */
    EXPECT_EQ_U64(ROWS("tombstones"), 1);
    EXPECT_CODE(hand_begin(&hand, 1, 1, "error", &save), CAIRN_DELETED);
    EXPECT_EQ_U64(ROWS("versions"), 1);
    EXPECT_CODE(hand_begin(&hand, 1, 2, "error", &save), CAIRN_OK);
    /* And once there is a newer one, nobody could. */
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 1));
    REQUIRE(save_and_delete(&next, 3, &save));
    inside_pass(&world.inside, 61 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("tombstones WHERE attempt = 1"), 0);
    EXPECT_EQ_U64(ROWS("tombstones WHERE attempt = 2"), 1);
}

TEST(what_the_newest_attempt_resumed_from_is_kept_although_it_is_gone) {
    struct cairn_hand next;
    struct cairn_hand_save more;
    JOB_INSIDE(1, "--gone-retention=1h", "--trash-grace=1min");
    SAVED(save, 1);
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT_EQ_TEXT(next.resumed, save.id.text);
    REQUIRE_OK(hand_save_all(&next, 2, 1, "error", 10, &more));
    ASK("DELETE", save.path, NULL);
    inside_pass(&world.inside, 60 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("versions WHERE state = 4"), 1);
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 1)); /* joins; the same answer */
    EXPECT_EQ_TEXT(next.resumed, save.id.text);
}

TEST(a_run_without_versions_can_be_removed_and_counts_on_when_it_comes_back) { /* Q1, Q6, V4 */
    struct cairn_hand next;
    JOB_INSIDE(1, "--trash-grace=1min");
    SAVED(save, 1);
    EXPECT_REFUSED(CAIRN_INVALID, "DELETE", WORLD_RUN, NULL);
    ASK("DELETE", save.path, NULL);
    inside_pass(&world.inside, HOUR_MS);
    EXPECT_REFUSED(CAIRN_INVALID, "DELETE", WORLD_RUN, NULL);
    inside_pass(&world.inside, 49 * HOUR_MS);
    ASK("DELETE", WORLD_RUN, NULL);
    ASK("DELETE", WORLD_RUN, NULL);
    EXPECT_REFUSED(CAIRN_NOT_FOUND, "GET", WORLD_RUN, NULL);
    GOT(list, "/v1/runs");
    EXPECT_ALL_U64(json_array_size(json_object_get(list, "items")), 0, ROWS("attempt_ranks"), 0);
    /* No grant of before is ever one of a later attempt. */
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "none", 1));
    EXPECT_EQ_U64(next.attempt, 2);
    EXPECT_CODE(hand_begin(&hand, 5, 1, "error", &save), CAIRN_STALE_ATTEMPT);
    EXPECT_GET(WORLD_RUN, "attempt", "2");
}

TEST(a_silent_node_can_be_removed_and_goes_by_itself_after_a_time) {
    JOB_INSIDE(1, "--gone-retention=1h");
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(hand_beat(&hand, "node-a"));
        EXPECT_EQ_U64(ROWS("nodes"), 1);
        EXPECT_REFUSED(CAIRN_IN_USE, "DELETE", "/v1/nodes/node-a", NULL);
        if (i) break;
        inside_pass(&world.inside, 60000);
        ASK("DELETE", "/v1/nodes/node-a", NULL);
        EXPECT_EQ_U64(ROWS("nodes"), 0);
        EXPECT_REFUSED(CAIRN_NOT_FOUND, "DELETE", "/v1/nodes/node-a", NULL);
        EXPECT_EQ_U64(ROWS("events WHERE event = 'node.removed' AND reason = 'node-a'"), 1);
    }
    inside_pass(&world.inside, 50 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("nodes"), 0);
}

TEST(a_trash_of_before_there_were_marks_stays_the_trash) {
    struct cairn_hand_save save;
    JOB_INSIDE(1, "--trash-grace=10h");
    REQUIRE(save_and_delete(&hand, 1, &save));
    struct cairn_version_place place = hand_place(&save);
    struct cairn_key mark;
    cairn_key_trashed(&place, &mark);
    /* As a catalog of schema 6 leaves it whose trash is older than marks. */
    REQUIRE_OK(cairn_store_delete(world.worker, mark.text, &err));
    REQUIRE(world_sql(&world, "UPDATE runs SET unmarked = 1"));
    REQUIRE_OK(inside_restart(&world.inside));
    EXPECT_GET(WORLD_RUN "/checkpoints", "items.0.trashed", "true");
    EXPECT_PERFORMED(CAIRN_OK, head, world.worker, {.op = CAIRN_STORE_HEAD, .key = mark.text});
    EXPECT_EQ_U64(ROWS("runs WHERE unmarked = 1"), 0);
    /* Once: a mark that goes later is an undelete. */
    REQUIRE_OK(cairn_store_delete(world.worker, mark.text, &err));
    REQUIRE_OK(inside_restart(&world.inside));
    ASK("GET", save.path, NULL);
    EXPECT_EQ_U64(ROWS("versions WHERE trashed_tick IS NULL"), 1);
}

TEST(a_server_that_is_told_to_end_sweeps_no_further_version_and_its_next_start_does) /* sweep.h#4 */
{
    struct cairn_hand_save save;
    JOB_INSIDE(1, "--trash-grace=1min");
    for (uint64_t step = 1; step <= 5; step++) REQUIRE(save_and_delete(&hand, step, &save));
    world.inside.server.leaving = true;
    inside_pass(&world.inside, HOUR_MS);
    EXPECT_EQ_U64(ROWS("versions WHERE state = 1"), 5);
    world.inside.server.leaving = false;
    inside_pass(&world.inside, HOUR_MS);
    EXPECT_EQ_U64(ROWS("versions WHERE state = 4"), 5);
}

/* As the report of a node says it of rank 0. */
static enum cairn_code end_rank(struct srv_tx *tx, void *argument, struct cairn_error *why) {
    const struct cairn_hand *hand = argument;
    struct srv_process process = {
        .run_id = 1, .attempt = hand->attempt, .rank = 0, .proc = "j3-0", .node = "node-a"};
    return srv_member_end_put(tx, &process, SRV_END_SETTLED, why);
}

TEST(ranks_of_superseded_attempts_and_tombstones_of_ended_jobs_go) { /* attempts.h#4, #5 */
    struct cairn_hand hand;
    struct cairn_hand_save saves[2];
    static const char *const jobs[] = {"j0", "j1", "j2", "j3"};
    INSIDE("--gone-retention=100h", "--trash-grace=1min");
    for (uint64_t i = 0; i < 4; i++) REQUIRE_OK(hand_open(&world, &hand, jobs[i], i, "latest", 1));
    EXPECT_ALL_U64(ROWS("attempt_ranks"), 2, ROWS("attempt_ranks WHERE attempt > 2"), 2);
    REQUIRE(save_and_delete(&hand, 1, &saves[0]));
    inside_pass(&world.inside, 20 * HOUR_MS);
    REQUIRE(save_and_delete(&hand, 2, &saves[1]));
    inside_pass(&world.inside, 132 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("tombstones"), 1); /* it lives, and could begin it again */
    EXPECT_EQ_U64(ROWS("versions"), 1);
    REQUIRE_OK(srv_catalog_write(world.inside.server.catalog, end_rank, &hand, &err));
    EXPECT_ALL_U64(ROWS("attempt_ranks WHERE ended > 0"), 1, ROWS("tombstones"), 0);
    inside_pass(&world.inside, 22 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("versions"), 0);
    EXPECT_EQ_U64(ROWS("tombstones"), 0); /* nor of what is forgotten later */
}

/* attempts.h#5, attempts.h#6, Q1, Q31 */
TEST(a_tombstone_of_a_living_attempt_stays_and_of_a_removed_run_its_number) {
    struct cairn_hand next;
    struct cairn_hand_save saves[2];
    JOB_INSIDE(1, "--gone-retention=1h", "--trash-grace=1min");
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", 10, &saves[0]));
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "latest", 1));
    REQUIRE_OK(hand_save_all(&hand, 2, 1, "error", 10, &saves[1]));
    for (size_t i = 0; i < 2; i++)
        REQUIRE_OK(world_call(&world, "DELETE", saves[i].path, NULL, NULL));
    inside_pass(&world.inside, 52 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("tombstones"), 1);
    inside_pass(&world.inside, 52 * HOUR_MS);
    EXPECT_EQ_U64(ROWS("tombstones"), 1);
    EXPECT_EQ_U64(ROWS("versions"), 1); /* from which the attempt went on */
    ASK("DELETE", WORLD_RUN, NULL);
    inside_pass(&world.inside, 40 * HOUR_MS);
    EXPECT_ALL_U64(ROWS("versions"), 0, ROWS("attempts"), 2);
    inside_pass(&world.inside, 12 * HOUR_MS);
    EXPECT_ALL_U64(ROWS("attempts"), 0, ROWS("tombstones"), 0, ROWS("runs"), 1);
    EXPECT_CODE(hand_begin(&hand, 5, 1, "error", &saves[0]), CAIRN_STALE_ATTEMPT);
    REQUIRE_OK(hand_open(&world, &next, "j1", 0, "none", 1));
    EXPECT_EQ_U64(next.attempt, 3);
    REQUIRE_OK(hand_save_all(&next, 5, 1, "error", 10, &saves[0]));
}
