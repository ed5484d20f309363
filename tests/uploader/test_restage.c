/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* kill -9 while a trainer is staging: the one that comes back with its memory stages again what it
 * had staged, and the save goes on; whatever differs is refused. */
#include "common/clock.h"
#include "tests/uploader/trainer.h"
#include "uploader/journal/journal.h"
#include "uploader/settings.h"

static const struct trainer_options *opened(struct cairn_up_world *world) {
    static struct trainer_options options;
    options = (struct trainer_options){.socket = world->socket_path, .job = "job-1"};
    return &options;
}

/* One shard staged, something of it on the store, no seal; then the uploader dies and is back. */
static bool die_unsealed(struct cairn_up_world *world, struct cairn_trainer *trainer,
                         size_t shard_count, uint64_t bytes, struct trainer_save *save) {
    char states[1][32] = {"none"};
    if (!trainer_open(trainer, opened(world)) || !trainer_begin(trainer, 1, 1, save) ||
        !trainer_stage(trainer, save, 0, shard_count, bytes))
        return false;
    CAIRN_AUTO_JSON json_t *released = trainer_event(trainer, "released", save->number, 10000);
    if (!released) return false;
    world_uploader_kill(world);
    if (!world_uploader_start(world, NULL, NULL) ||
        !trainer_offer(trainer, opened(world), save, 1, false, states))
        return false;
    EXPECT_EQ_TEXT(states[0], "continues");
    return true;
}

static void expect_clean(struct cairn_up_world *world, struct cairn_trainer *trainer) {
    CAIRN_AUTO_JSON json_t *ok = trainer_call(trainer, json_pack("{s:s}", "t", "bye"));
    EXPECT(ok && trainer_is_cut(trainer, 2000));
    EXPECT_EQ_U64(world_uploader_stop(world), 0);
    EXPECT(world_await_no_temporaries(world));
    EXPECT_EQ_U64(world_open_entries(world), 0);
}

static void goes_on(const char *fault, size_t shard_count, uint64_t bytes) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save = {0};
    char state[32];
    REQUIRE(world_open(&world, &(struct world_options){.fault = fault}));
    REQUIRE(die_unsealed(&world, &trainer, shard_count, bytes, &save));
    REQUIRE(trainer_stage(&trainer, &save, 0, shard_count, bytes));
    REQUIRE(trainer_seal(&trainer, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 20000, state), "committed");
    CAIRN_AUTO_JSON json_t *freed = trainer_event(&trainer, "free", UINT32_MAX, 2000);
    EXPECT(freed != NULL);
    /* The same memory takes the next save. */
    REQUIRE(trainer_save(&trainer, 2, 0, 1, 1000000, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    expect_clean(&world, &trainer);
}

TEST(a_save_that_was_being_sent_goes_on_when_it_is_staged_again) /* K04, Q8 */
{
    NEEDS_POINTS();
    goes_on("part:*:2+:hang", 2, 2000000);
}

TEST(small_shards_that_were_whole_on_the_store_before_the_seal_stay_there) {
    goes_on(NULL, 2, 300000);
}

TEST(a_shard_of_parts_that_was_whole_on_the_store_before_the_seal_stays_there) {
    goes_on(NULL, 1, 3500000);
}

TEST(other_shards_or_other_memory_are_refused_when_staged_again) /* Q15 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(die_unsealed(&world, &trainer, 1, 300000, &save));
    EXPECT(!trainer_stage(&trainer, &save, 0, 1, 299999)); /* other shards */
    EXPECT(trainer.err.code == CAIRN_SOURCE_CHANGED);
    EXPECT(!trainer_stage(&trainer, &save, 1, 1, 300000)); /* other memory */
    EXPECT(trainer.err.code == CAIRN_SOURCE_CHANGED);
    EXPECT(!trainer_stage(&trainer, &save, 0, 0, 0)); /* none */
    EXPECT(trainer.err.code == CAIRN_SOURCE_CHANGED);
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 300000)); /* the same */
    REQUIRE(trainer_seal(&trainer, &save));
    char state[32];
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
    expect_clean(&world, &trainer);
}

TEST(a_save_that_nobody_stages_again_fails_when_the_wait_is_over) /* Q17 */
{
    static const char *const soon[] = {"--offer-wait=300ms", NULL};
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save = {0};
    REQUIRE(world_open(&world, &(struct world_options){.uploader_args = soon}));
    REQUIRE(trainer_open(&trainer, opened(&world)));
    REQUIRE(trainer_begin(&trainer, 1, 1, &save));
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 300000));
    CAIRN_AUTO_JSON json_t *released = trainer_event(&trainer, "released", save.number, 10000);
    REQUIRE(released != NULL);
    world_uploader_kill(&world);
    cairn_trainer_release(&trainer);
    trainer = (struct cairn_trainer){0};
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT(world_await_state(&world, save.version, "aborting", 10000));
    EXPECT_EQ_U64(world_uploader_stop(&world), 0);
    EXPECT(world_await_no_temporaries(&world));
    EXPECT_EQ_U64(world_open_entries(&world), 0);
}

TEST(the_journal_of_a_dead_uploader_can_be_shown) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save = {0};
    struct cairn_up_places places = {.node = "n1"};
    struct cairn_error err = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(trainer_open(&trainer, opened(&world)));
    REQUIRE(trainer_begin(&trainer, 1, 1, &save));
    world_uploader_kill(&world);
    snprintf(places.journal_path, sizeof(places.journal_path), "%s", world.journal_path);
    EXPECT_CODE(cairn_up_show_journal(&places, &err), CAIRN_OK);
    EXPECT(world_open_entries(&world) > 0); /* looking changes nothing */
}
