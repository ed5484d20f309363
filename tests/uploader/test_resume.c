/* SPDX-License-Identifier: Apache-2.0 */
/* What one job staged and the next one resumes from. */
#include "tests/uploader/trainer.h"

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
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) first = {0};
    CAIRN_AUTO(trainer) second = {0};
    CAIRN_AUTO(trainer) next = {0};
    struct trainer_options options;
    struct trainer_save save, other;
    char state[32];
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(trainer_open(&first, of_job(&world, "job-1", 0, &options)));
    REQUIRE(trainer_open(&second, of_job(&world, "job-1", 1, &options)));
    world_server_kill(&world);
    /* The server has not even heard of a begin. */
    REQUIRE(trainer_save(&first, 7, 0, 1, 1000, &save));
    REQUIRE(trainer_save(&second, 7, 0, 1, 1000, &other));
    EXPECT_EQ_TEXT(save.version, other.version);
    trainer_hang_up(&first);
    trainer_hang_up(&second);
    REQUIRE(world_server_start(&world));
    REQUIRE(trainer_open(&next, of_job(&world, "job-2", 0, &options)));
    EXPECT_EQ_U64(next.attempt, 2);
    EXPECT_EQ_TEXT(next.resumed, save.version);
    EXPECT_EQ_TEXT(world_state(&world, save.version, state), "committed");
}
