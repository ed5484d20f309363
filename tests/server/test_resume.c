/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again races="full: as server/save and server/http, other requests" */
/* What a resume waits for, for how long, and whom an attempt takes in (Q3, Q51, Q54). */
#include "tests/server/world.h"

struct call {
    uint64_t wait_ms;
    const char *job, *proc, *node, *incarnation;
    uint64_t after;
    uint32_t rank;
    int ended; /* a rank of the node that has ended; -1: none */
};

static enum cairn_code open_by(struct cairn_world *world, const struct call *call,
                               json_t **ret_reply) {
    json_t *body = json_pack("{s:s, s:i, s:s, s:I, s:I, s:[{s:i, s:s}], s:s}", "job", call->job,
                             "world_size", 2, "resume", "latest", "after", (json_int_t)call->after,
                             "wait_staged_ms", (json_int_t)call->wait_ms, "ranks", "rank",
                             call->rank, "proc", call->proc, "node", call->node);
    if (call->incarnation) json_object_set_new(body, "incarnation", json_string(call->incarnation));
    if (call->ended >= 0) json_object_set_new(body, "ended", json_pack("[i]", call->ended));
    return world_call(world, "POST", WORLD_RUN "/attempts", body, ret_reply);
}

/* proc: of rank 0, which has ended; NULL: nobody has. */
static enum cairn_code beat(struct cairn_world *world, const char *node, const char *grant,
                            const char *proc) {
    const char *path = TEXT("/v1/nodes/%s", node);
    json_t *body = json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[]}", "uploader", "version", "1",
                             "attempts", "grant", grant, "unsent", 0, "versions");
    if (proc)
        json_object_set_new(body, "ended",
                            json_pack("[{s:s, s:i, s:s, s:b}]", "grant", grant, "rank", 0, "proc",
                                      proc, "settled", 0));
    return world_call(world, "PUT", path, body, NULL);
}

/* A save of two ranks that both have sealed, of which rank 1's shard is still being sent. */
static enum cairn_code stage(struct cairn_hand *hand, struct cairn_hand_save *save) {
    CAIRN_TRY(hand_begin(hand, 7, 1, "error", save));
    CAIRN_TRY(hand_put(save, "a", 0, CAIRN_VIEW("1234")));
    return hand_seal_alone(save, 1, "b", 4);
}

#define err world.err /* of the macros */

TEST(a_wait_for_staged_saves_of_10_minutes_is_kept_and_nothing_aborted_before) { /* V35, Q51 */
    struct cairn_hand_save save;
    JOB_INSIDE(2);
    REQUIRE_OK(stage(&hand, &save));
    struct call call = {
        .job = "j2", .wait_ms = 600000, .proc = "p", .node = "node-b", .after = 1, .ended = -1};
    uint64_t from_ms = world.inside.clock.mono_ms, left_ms = 10 * MINUTE_MS;
    int polls = 0;
    while (world.inside.clock.mono_ms - from_ms < 8 * MINUTE_MS) {
        EXPECT_CODE(open_by(&world, &call, NULL), CAIRN_BUSY);
        uint64_t passed_ms = world.inside.clock.mono_ms - from_ms;
        left_ms = world_number(world.inside.extra, "left_ms");
        EXPECT_EQ_U64(left_ms + passed_ms, 10 * MINUTE_MS);
        REQUIRE(++polls < 20); /* a long poll, not a short one */
        call.wait_ms = left_ms;
    }
    /* What was staged becomes durable in the ninth minute, and is what the resume chooses. */
    REQUIRE_OK(hand_register(&save, "b", 1, CAIRN_VIEW("1234")));
    CAIRN_AUTO_JSON json_t *answer = NULL;
    REQUIRE_OK(open_by(&world, &call, &answer));
    EXPECT_EQ_TEXT(world_text(answer, "resume_version"), save.id.text);
}

TEST(a_wait_for_staged_saves_ends_when_its_time_is_over) { /* Q3, Q51 */
    struct cairn_hand_save save;
    JOB_INSIDE(2);
    REQUIRE_OK(stage(&hand, &save));
    struct call call = {
        .job = "j2", .wait_ms = 90000, .proc = "p", .node = "node-b", .after = 1, .ended = -1};
    uint64_t from_ms = world.inside.clock.mono_ms;
    EXPECT_CODE(open_by(&world, &call, NULL), CAIRN_BUSY);
    EXPECT_EQ_U64(world_number(world.inside.extra, "left_ms"), 30000);
    call.wait_ms = 30000;
    CAIRN_AUTO_JSON json_t *answer = NULL;
    REQUIRE_OK(open_by(&world, &call, &answer));
    EXPECT_EQ_U64(world.inside.clock.mono_ms - from_ms, 90000);
    EXPECT(json_is_null(json_object_get(answer, "resume_version")));
    /* A call that waits for nothing is answered at once, whatever it would have waited. */
    call = (struct call){
        .job = "j3", .wait_ms = 600000, .proc = "p", .node = "node-b", .after = 2, .ended = -1};
    from_ms = world.inside.clock.mono_ms;
    REQUIRE_OK(open_by(&world, &call, NULL));
    EXPECT_EQ_U64(world.inside.clock.mono_ms, from_ms);
}

TEST(an_attempt_takes_no_stranger_once_one_of_its_processes_has_ended) { /* V38, Q54 */
    INSIDE();
    struct call first = {.job = "train", .proc = "old-0", .node = "node-a", .ended = -1};
    CAIRN_AUTO_JSON json_t *answer = NULL;
    REQUIRE_OK(open_by(&world, &first, &answer));
    const char *grant = world_text(answer, "grant");
    REQUIRE_OK(beat(&world, "node-a", grant, NULL));
    /* The first incarnation dies before its rank 1 has come; the second one has its job string. */
    REQUIRE_OK(beat(&world, "node-a", grant, "old-0"));
    struct call second = {
        .job = "train", .proc = "new-1", .node = "node-b", .rank = 1, .after = 1, .ended = -1};
    EXPECT_FAILS(open_by(&world, &second, NULL), CAIRN_JOB_REUSED, "rank 0");
    EXPECT_ROWS(1, "attempt_ranks");
    /* Whoever is known is still answered, and a job string of its own opens the next attempt. */
    REQUIRE_OK(open_by(&world, &first, NULL));
    second.job = "train-2";
    REQUIRE_OK(open_by(&world, &second, NULL));
}

TEST(a_node_says_with_the_call_itself_which_of_its_processes_have_ended) { /* V38, Q54 */
    INSIDE();
    struct call first = {.job = "train", .proc = "old-0", .node = "node-a", .ended = -1};
    REQUIRE_OK(open_by(&world, &first, NULL));
    struct call second = {
        .job = "train", .proc = "new-1", .node = "node-a", .rank = 1, .after = 1, .ended = 0};
    EXPECT_CODE(open_by(&world, &second, NULL), CAIRN_JOB_REUSED);
    /* Only a rank's own node may say that it has ended. */
    second.node = "node-b";
    REQUIRE_OK(open_by(&world, &second, NULL));
}

TEST(what_has_ended_in_the_attempt_before_keeps_no_rank_of_the_next_one_out) { /* Q54 */
    INSIDE();
    struct call dead = {.job = "first", .proc = "old-0", .node = "node-a", .ended = -1};
    REQUIRE_OK(open_by(&world, &dead, NULL));
    /* Both ranks of the next job saw attempt 1, whose rank 0 has ended on their node. */
    struct call zero = {.job = "second", .proc = "new-0", .node = "node-a", .after = 1, .ended = 0};
    struct call one = {
        .job = "second", .proc = "new-1", .node = "node-a", .rank = 1, .after = 1, .ended = 0};
    REQUIRE_OK(open_by(&world, &zero, NULL));
    REQUIRE_OK(open_by(&world, &one, NULL));
    EXPECT_ROWS(2, "attempt_ranks WHERE attempt = 2");
}

TEST(ranks_that_open_late_are_taken_while_the_others_live) { /* Q54 */
    INSIDE();
    struct call first = {.job = "train", .proc = "p-0", .node = "node-a", .ended = -1};
    struct call late = {
        .job = "train", .proc = "p-1", .node = "node-b", .rank = 1, .after = 1, .ended = -1};
    CAIRN_AUTO_JSON json_t *answer = NULL;
    REQUIRE_OK(open_by(&world, &first, &answer));
    struct cairn_hand hand = {.world = &world, .world_size = 2};
    snprintf(hand.grant, sizeof(hand.grant), "%s", world_text(answer, "grant"));
    ASK("POST", WORLD_RUN "/checkpoints", hand_begin_body(&hand, 1, 1, 0, "error"));
    REQUIRE_OK(open_by(&world, &late, NULL));
    /* A save that began before rank 1 had opened is completed by it. */
    SAVED(save, 1);
}

TEST(an_incarnation_that_all_ranks_carry_settles_who_belongs_together) { /* V38, Q54 */
    INSIDE();
    struct call first = {
        .job = "train", .proc = "p-0", .node = "node-a", .incarnation = "4711.0", .ended = -1};
    struct call late = {.job = "train",
                        .proc = "p-1",
                        .node = "node-b",
                        .incarnation = "4711.1",
                        .rank = 1,
                        .after = 1,
                        .ended = -1};
    CAIRN_AUTO_JSON json_t *answer = NULL;
    REQUIRE_OK(open_by(&world, &first, &answer));
    EXPECT_CODE(open_by(&world, &late, NULL), CAIRN_JOB_REUSED); /* before anybody has ended */
    EXPECT(strstr(err.message, "4711.0"));
    /* One of its own comes late, after another has done its work and ended. */
    REQUIRE_OK(beat(&world, "node-a", world_text(answer, "grant"), "p-0"));
    late.incarnation = "4711.0";
    REQUIRE_OK(open_by(&world, &late, NULL));
}
