/* SPDX-License-Identifier: Apache-2.0 */
/* Who may offer a save, and whose a slab is, after the uploader's death. */
#include "tests/uploader/trainer.h"

static struct trainer_options options_of(const struct cairn_up_world *world) {
    return (struct trainer_options){.socket = world->socket_path, .job = "job-1"};
}

/* Two saves that used the same memory one after the other, as a trainer does that saves on: the
 * first one is durable, its HEAD is slow after the restart, and it must not take the second one's
 * memory, nor may what it says free it. */
TEST(v26_an_offered_slab_goes_to_its_owner_and_not_to_the_save_before) { /* Q41 */
    FAULTY_WORLD("put:*part-1*:2+:hang");
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save saves[2];
    char states[2][32], state[32];
    struct trainer_options options = options_of(&world);
    options.world_size = 2; /* the other rank never comes: both versions stay open */
    REQUIRE(trainer_open(&trainer, &options));
    REQUIRE(trainer_save(&trainer, 1, 0, 2, 1000, &saves[0]));
    CAIRN_AUTO_JSON json_t *freed = trainer_event(&trainer, "free", UINT32_MAX, HANG_MS);
    REQUIRE(freed != NULL);
    EXPECT_EQ_U64((uint64_t)json_integer_value(json_object_get(freed, "owner")), saves[0].owner);
    REQUIRE(trainer_save(&trainer, 2, 0, 2, 1000, &saves[1]));
    world_uploader_kill(&world);
    REQUIRE(world_uploader_start(&world, NULL, "head:*:*:delay@300"));
    REQUIRE(trainer_offer(&trainer, saves, 2, true, states));
    EXPECT_EQ_TEXT(states[0], "continues"); /* its HEAD is under way */
    EXPECT_EQ_TEXT(states[1], "continues");
    EXPECT_EVENT(&trainer, "durable", saves[1].number);
    CAIRN_AUTO_JSON json_t *again = trainer_event(&trainer, "free", UINT32_MAX, HANG_MS);
    REQUIRE(again != NULL);
    EXPECT_EQ_U64((uint64_t)json_integer_value(json_object_get(again, "owner")), saves[1].owner);
    EXPECT(trainer_event(&trainer, "free", UINT32_MAX, 300) == NULL);
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, saves[0].number, 100, state), "none");
}

TEST(v26_a_stage_for_another_owner_is_refused_by_name) { /* Q41 */
    WORLD();
    TRAINER_AS(trainer, options_of(&world));
    BEGUN(save, &trainer, 1, 1);
    REQUIRE(save.owner != 0);
    save.owner++;
    EXPECT(!trainer_stage(&trainer, &save, 0, 1, 1000));
    EXPECT(trainer.err.code == CAIRN_PROTOCOL && strstr(trainer.err.message, "owner"));
}

/* The trainer of run b knows version and number of run a's save, and has memory of its own. */
TEST(f_a_trainer_of_another_run_cannot_offer_its_bytes_for_a_save) {
    FAULTY_WORLD("put:*part-0*:1:hang");
    CAIRN_AUTO(trainer) owner = {0}, thief = {0};
    char states[1][32];
    struct trainer_options options = options_of(&world), other = options;
    other.run = "llm/eight";
    REQUIRE(trainer_open(&owner, &options));
    REQUIRE(trainer_open(&thief, &other));
    SAVE(save, &owner, 1, 0, 1, 1000);
    SAVE(own, &thief, 1, 0, 1, 2000);
    world_uploader_kill(&world);
    REQUIRE(world_uploader_start(&world, NULL, "put:*:1:delay@300"));
    struct trainer_save stolen = save;
    EXPECT(!trainer_offer(&thief, &stolen, 1, true, states));
    EXPECT(thief.err.code == CAIRN_FORBIDDEN && strstr(thief.err.message, "llm/seven"));
    EXPECT_OFFER(&owner, &save, true, "continues");
    EXPECT_VERDICT(&owner, save.number, "committed");
}

TEST(f_another_process_of_the_rank_cannot_offer_its_save) {
    FAULTY_WORLD("put:*part-0*:1:hang");
    char states[1][32], proc[CAIRN_UUID_TEXT_BYTES];
    TRAINER_AS(trainer, options_of(&world));
    SAVE(save, &trainer, 1, 0, 1, 1000);
    REQUIRE(world_uploader_restart(&world));
    memcpy(proc, trainer.proc, sizeof(proc));
    cairn_uuid_random(trainer.proc);
    EXPECT(!trainer_offer(&trainer, &save, 1, true, states));
    EXPECT(trainer.err.code == CAIRN_FORBIDDEN && strstr(trainer.err.message, "process"));
    memcpy(trainer.proc, proc, sizeof(proc));
    REQUIRE(trainer_offer(&trainer, &save, 1, true, states));
    EXPECT_VERDICT(&trainer, save.number, "committed");
}

/* The cancel was given while the uploader was away, so it comes as a count (Q8). */
TEST(v28_a_cancel_that_reaches_the_next_uploader_ends_the_sealed_save_as_failed) { /* Q44 */
    FAULTY_WORLD("put:*part-0*:1:hang");
    TRAINER_AS(trainer, options_of(&world));
    SAVE(save, &trainer, 1, 0, 1, 1000);
    world_uploader_kill(&world);
    REQUIRE(world_uploader_start(&world, NULL, "put:*:*:delay@500"));
    EXPECT_OFFER(&trainer, &save, true, "continues");
    CAIRN_AUTO_JSON json_t *ok =
        trainer_call(&trainer, json_pack("{s:s, s:i, s:i, s:s}", "t", "count", "step", 1, "n", 1,
                                         "reason", "cancelled meanwhile"));
    EXPECT(ok != NULL);
    EXPECT_VERDICT(&trainer, save.number, "failed");
    EXPECT_STATE(&world, save.version, "aborting");
}
