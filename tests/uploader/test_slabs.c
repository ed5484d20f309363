/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* When a trainer's memory is given back, and how much of it there is. */
#include "tests/uploader/trainer.h"

#define HELD_MS "1500"
#define LOOK_MS 600

static json_t *freed(struct cairn_trainer *trainer, uint32_t ms) {
    return trainer_event(trainer, "free", UINT32_MAX, ms);
}

/* Q20, uploader/saves/save.h#4 */
TEST(a_slab_is_given_back_after_its_shards_are_durable_and_not_before) {
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    REQUIRE(world_open(
        &world, &(struct world_options){.crash_at = "uploader.part.answered:1:delay=" HELD_MS}));
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 1, 100000);
    CAIRN_AUTO_JSON json_t *early = freed(&trainer, LOOK_MS);
    EXPECT(early == NULL);
    CAIRN_AUTO_JSON json_t *durable = trainer_event(&trainer, "durable", save.number, HANG_MS);
    CAIRN_AUTO_JSON json_t *late = freed(&trainer, HANG_MS);
    EXPECT(durable != NULL && late != NULL);
}

TEST(a_slab_is_not_given_back_while_a_request_carries_its_bytes) { /* Q20, uploader/send/send.h#4 */
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    REQUIRE(world_open(
        &world, &(struct world_options){.crash_at = "uploader.part.answered:1:delay=" HELD_MS}));
    TRAINER(trainer, .job = "job-1");
    BEGUN(save, &trainer, 1, 1);
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 3000000));
    CAIRN_AUTO_JSON json_t *none = freed(&trainer, 300); /* its first part is on the way */
    EXPECT(none == NULL);
    EXPECT(trainer_fail(&trainer, save.number, "enough"));
    CAIRN_AUTO_JSON json_t *early = freed(&trainer, LOOK_MS);
    EXPECT(early == NULL);
    CAIRN_AUTO_JSON json_t *late = freed(&trainer, HANG_MS);
    EXPECT(late != NULL);
}

TEST(all_sessions_together_take_no_more_memory_than_the_budget) { /* Q13, R9 */
    WORLD();
    struct cairn_trainer ranks[4] = {{0}};
    uint64_t bytes = 0;
    unsigned opened = 0;
    for (uint32_t i = 0; i < CAIRN_COUNT(ranks); i++) {
        struct trainer_options options = {.socket = world.socket_path,
                                          .job = "job-1",
                                          .rank = i,
                                          .world_size = 4,
                                          .bytes = 20 * CAIRN_MIB};
        if (trainer_open(&ranks[i], &options))
            opened++;
        else
            EXPECT_EQ_U64(ranks[i].err.code, CAIRN_NO_MEMORY);
        for (uint32_t k = 0; k < ranks[i].slab_count; k++) bytes += ranks[i].slabs[k].size_bytes;
    }
    EXPECT(opened >= 2);
    EXPECT(bytes <= 96 * CAIRN_MIB); /* the world's budget */
    for (uint32_t i = 0; i < CAIRN_COUNT(ranks); i++) cairn_trainer_release(&ranks[i]);
}
