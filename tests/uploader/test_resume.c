/* SPDX-License-Identifier: Apache-2.0 */
/* What one job staged and the next one resumes from. */
#include "tests/uploader/trainer.h"
#include "uploader/trainers/attempts.h"

#define RANKS 2

static const struct trainer_options *of_job(struct cairn_up_world *world, const char *job,
                                            uint32_t rank, struct trainer_options *ret) {
    *ret = (struct trainer_options){.socket = world->socket_path,
                                    .job = job,
                                    .rank = rank,
                                    .world_size = RANKS,
                                    .local_world_size = RANKS};
    return ret;
}

TEST(a_resume_takes_the_save_that_every_rank_staged_while_the_server_was_away) /* V1, Q3, P9, K03 */
{
    WORLD();
    CAIRN_AUTO(trainer) first = {0}, second = {0}, next = {0};
    struct trainer_options options;
    char state[32];
    REQUIRE(trainer_open(&first, of_job(&world, "job-1", 0, &options)));
    REQUIRE(trainer_open(&second, of_job(&world, "job-1", 1, &options)));
    world_server_kill(&world);
    /* The server has not even heard of a begin. */
    SAVE(save, &first, 7, 0, 1, 1000);
    SAVE(other, &second, 7, 0, 1, 1000);
    EXPECT_EQ_TEXT(save.version, other.version);
    trainer_hang_up(&first);
    trainer_hang_up(&second);
    REQUIRE(world_server_start(&world));
    REQUIRE(trainer_open(&next, of_job(&world, "job-2", 0, &options)));
    EXPECT_EQ_U64(next.attempt, 2);
    EXPECT_EQ_TEXT(next.resumed, save.version);
    EXPECT_EQ_TEXT(world_state(&world, save.version, state), "committed");
}

#define RUN_PATH "/v1/runs/llm/seven"
#define WAIT_MS 64000 /* longer than the server lets one call wait */

/* A save that its only rank sealed on a node of its own, and whose shard never becomes durable. */
static bool stage_by_hand(struct cairn_up_world *world) {
    CAIRN_AUTO_JSON json_t *attempt =
        world_post(world, RUN_PATH "/attempts",
                   json_pack("{s:s, s:i, s:i, s:s, s:[{s:i, s:s}]}", "job", "by-hand", "world_size",
                             1, "after", 0, "node", "hand", "ranks", "rank", 0, "proc", "p"));
    const char *grant = json_string_value(json_object_get(attempt, "grant"));
    CAIRN_AUTO_JSON json_t *begun =
        world_post(world, RUN_PATH "/checkpoints",
                   json_pack("{s:s?, s:s, s:i, s:i, s:i, s:i}", "grant", grant, "node", "hand",
                             "step", 7, "n", 1, "rank", 0, "world_size", 1));
    const char *version = json_string_value(json_object_get(begun, "version"));
    if (!version) return false;
    const char *path = TEXT(RUN_PATH "/checkpoints/%s/shards", version);
    CAIRN_AUTO_JSON json_t *sealed = world_post(
        world, path,
        json_pack("{s:s, s:s, s:[{s:i, s:[{s:s, s:i}], s:i}]}", "grant", grant, "node", "hand",
                  "seals", "rank", 0, "shards", "name", "x", "bytes", 4, "bytes", 4));
    return sealed != NULL;
}

TEST(an_attempt_call_without_an_answer_is_given_up_20_s_after_the_longest_wait_of_a_server) {
    /* Q51 */
    EXPECT_EQ_U64(cairn_up_attempt_call_timeout_ms(0), 20000);
    EXPECT_EQ_U64(cairn_up_attempt_call_timeout_ms(5000), 25000);
    EXPECT_EQ_U64(cairn_up_attempt_call_timeout_ms(60000), 80000);
    EXPECT_EQ_U64(cairn_up_attempt_call_timeout_ms(3600000), 80000); /* what a job may ask for */
    EXPECT_EQ_U64(cairn_up_attempt_call_timeout_ms(UINT64_MAX), 80000);
}

TEST(a_wait_of_more_than_a_minute_is_kept_from_the_trainer_to_the_server) { /* V35, Q51 */
    const char *slow = getenv("CAIRN_TEST_SLOW");
    if (!slow || strcmp(slow, "1") != 0) SKIP("CAIRN_TEST_SLOW=1 runs it: a minute");
    WORLD();
    CAIRN_AUTO(trainer) next = {0};
    struct trainer_options options;
    REQUIRE(stage_by_hand(&world));
    uint64_t from_ms = cairn_mono_ms();
    (void)of_job(&world, "job-2", 0, &options);
    options.wait_staged_ms = WAIT_MS;
    REQUIRE(trainer_open(&next, &options));
    uint64_t waited_ms = cairn_mono_ms() - from_ms;
    EXPECT_EQ_U64(next.attempt, 2);
    /* Giving up happens in the transaction that opens the attempt, so nothing was before. */
    EXPECT(waited_ms >= WAIT_MS - 500);
}
