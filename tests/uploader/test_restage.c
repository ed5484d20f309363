/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* kill -9 while a trainer is staging: the one that comes back with its memory stages again what it
 * had staged, and the save goes on; whatever differs is refused. */
#include "tests/uploader/trainer.h"

/* One shard staged, something of it on the store, no seal; then the uploader dies and is back. */
static bool die_unsealed(struct cairn_up_world *world, struct cairn_trainer *trainer,
                         size_t shard_count, uint64_t bytes, struct trainer_save *save) {
    char states[1][32] = {"none"};
    const struct trainer_options options = {.socket = world->socket_path, .job = "job-1"};
    if (!trainer_open(trainer, &options) || !trainer_begin(trainer, 1, 1, save) ||
        !trainer_stage(trainer, save, 0, shard_count, bytes))
        return false;
    CAIRN_AUTO_JSON json_t *released = trainer_event(trainer, "released", save->number, HANG_MS);
    if (!released) return false;
    world_uploader_kill(world);
    if (!world_uploader_start(world, NULL, NULL) || !trainer_offer(trainer, save, 1, false, states))
        return false;
    EXPECT_EQ_TEXT(states[0], "continues");
    return true;
}

static void expect_clean(struct cairn_up_world *world, struct cairn_trainer *trainer) {
    EXPECT(trainer_bye(trainer));
    world_expect_drained(world);
}

static void goes_on(const char *fault, size_t shard_count, uint64_t bytes) {
    WORLD_WITH(.fault = fault);
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save = {0};
    REQUIRE(die_unsealed(&world, &trainer, shard_count, bytes, &save));
    REQUIRE(trainer_stage(&trainer, &save, 0, shard_count, bytes));
    SEAL_AND_COMMIT(save, &trainer);
    EXPECT_EVENT(&trainer, "free", UINT32_MAX);
    /* The same memory takes the next save. */
    COMMIT(save, &trainer, 2, 0, 1, 1000000);
    expect_clean(&world, &trainer);
}

TEST(a_save_that_was_being_sent_goes_on_when_it_is_staged_again) { /* K04, Q8 */
    NEEDS_POINTS();
    goes_on("part:*:2+:hang", 2, 2000000);
}

CASE(small_shards_that_were_whole_on_the_store_before_the_seal_stay_there,
     goes_on(NULL, 2, 300000));
CASE(a_shard_of_parts_that_was_whole_on_the_store_before_the_seal_stays_there,
     goes_on(NULL, 1, 3500000));

TEST(other_shards_or_other_memory_are_refused_when_staged_again) { /* Q15 */
    WORLD();
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save = {0};
    REQUIRE(die_unsealed(&world, &trainer, 1, 300000, &save));
    EXPECT(!trainer_stage(&trainer, &save, 0, 1, 299999)); /* other shards */
    EXPECT(trainer.err.code == CAIRN_SOURCE_CHANGED);
    EXPECT(!trainer_stage(&trainer, &save, 1, 1, 300000)); /* other memory */
    EXPECT(trainer.err.code == CAIRN_SOURCE_CHANGED);
    EXPECT(!trainer_stage(&trainer, &save, 0, 0, 0)); /* none */
    EXPECT(trainer.err.code == CAIRN_SOURCE_CHANGED);
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 300000)); /* the same */
    SEAL_AND_COMMIT(save, &trainer);
    expect_clean(&world, &trainer);
}

TEST(a_save_that_nobody_stages_again_fails_when_the_wait_is_over) { /* Q17 */
    WORLD_WITH(.uploader_args = ARGS("--offer-wait=300ms"));
    struct trainer_save save = {0};
    TRAINER(trainer, .job = "job-1");
    REQUIRE(trainer_begin(&trainer, 1, 1, &save));
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 300000));
    REQUIRE_EVENT(&trainer, "released", save.number);
    world_uploader_kill(&world);
    trainer_drop(&trainer);
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_STATE(&world, save.version, "aborting");
    world_expect_drained(&world);
}

TEST(the_journal_of_a_dead_uploader_can_be_shown, err) {
    WORLD();
    struct trainer_save save = {0};
    struct cairn_up_places places = {.node = "n1"};
    TRAINER(trainer, .job = "job-1");
    REQUIRE(trainer_begin(&trainer, 1, 1, &save));
    world_uploader_kill(&world);
    snprintf(places.journal_path, sizeof(places.journal_path), "%s", world.journal_path);
    EXPECT_CODE(cairn_up_show_journal(&places, &err), CAIRN_OK);
    EXPECT(world_open_entries(&world) > 0); /* looking changes nothing */
}
