/* SPDX-License-Identifier: Apache-2.0 */
/* What slabs still hold is restored from them, and nobody waits for memory because of it. */
#include "tests/uploader/other.h"
#include "tests/uploader/restored.h"
#include "uploader/saves/save.h"
#include "uploader/saves/slabs.h"

static const struct range both[] = {{0, 0, SHARD_BYTES, 0}, {1, 0, SHARD_BYTES, 4 * CAIRN_MIB}};

/* The shards of step 1 are gone from the store; its documents are not. */
static bool lose_shards(struct cairn_up_world *world, const struct trainer_save *save) {
    for (int i = 0; i < 2; i++) {
        const char *path = TEXT("%s/llm/seven/%012d/%s/data/rank-00000/part-%d.bin",
                                world->store_path, 1, save->version, i);
        if (unlink(path)) return false;
    }
    return true;
}

/* The uploader has seen that the trainer left. */
static void leave(struct cairn_trainer *trainer) {
    CAIRN_AUTO_JSON json_t *answer = trainer_call(trainer, json_pack("{s:s}", "t", "bye"));
    (void)answer;
    trainer_hang_up(trainer);
}

static bool comes_back(struct cairn_up_world *world, const char *job, uint64_t bytes,
                       struct cairn_trainer *ret) {
    return trainer_open(
        ret, &(struct trainer_options){
                 .socket = world->socket_path, .job = job, .bytes = bytes, .no_slabs = !bytes});
}

/* Both shards, into a window of its own. */
static enum cairn_code read_both(struct cairn_trainer *trainer, const char *ref) {
    AUTO_RESTORED restored = {0};
    enum cairn_code code = restore(trainer, ref, NULL, &restored);
    if (code != CAIRN_OK) return code;
    if (!trainer->window.data && !open_window(trainer, 8 * CAIRN_MIB)) return CAIRN_IO;
    code = read_ranges(trainer, &restored, both, 2);
    if (code != CAIRN_OK) return code;
    return holds(trainer, &both[0]) && holds(trainer, &both[1]) ? CAIRN_OK : CAIRN_CORRUPT;
}

struct kept {
    struct cairn_up_world *world;
    uint64_t bytes;
};
static bool keeps(void *owner) {
    const struct kept *kept = owner;
    CAIRN_AUTO_JSON json_t *nodes = world_get(kept->world, "/v1/nodes");
    const json_t *node = json_array_get(json_object_get(nodes, "items"), 0);
    const json_t *said = json_object_get(json_object_get(node, "uploader"), "kept_bytes");
    return said && (uint64_t)json_integer_value(said) == kept->bytes;
}
static bool await_kept(struct cairn_up_world *world, uint64_t bytes) {
    struct kept kept = {world, bytes};
    return world_await(keeps, &kept, HANG_MS);
}

TEST(a_trainer_that_comes_back_restores_from_memory_what_the_store_has_lost) {
    WORLD();
    CAIRN_AUTO(trainer) first = {0}, next = {0};
    struct trainer_save save;
    REQUIRE(saved(&world, &first, &save));
    EXPECT(await_kept(&world, 2 * SHARD_BYTES));
    trainer_hang_up(&first); /* as when it is killed */
    REQUIRE(lose_shards(&world, &save));
    REQUIRE(comes_back(&world, "job-2", 0, &next));
    EXPECT(read_both(&next, "resume") == CAIRN_OK);
    EXPECT(await_kept(&world, 2 * SHARD_BYTES));
}

TEST(a_trainer_reads_its_last_version_from_its_own_slab_until_the_next_save_takes_it) {
    WORLD();
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    REQUIRE(saved(&world, &trainer, &save));
    REQUIRE(lose_shards(&world, &save));
    EXPECT(read_both(&trainer, "1") == CAIRN_OK);
    BEGUN(next, &trainer, 2, 1);
    REQUIRE(trainer_stage(&trainer, &next, 1, 1, 1000));
    EXPECT(read_both(&trainer, "1") == CAIRN_OK); /* the other generation */
    SEAL_AND_COMMIT(next, &trainer);
    REQUIRE(trainer_begin(&trainer, 3, 1, &next));
    REQUIRE(trainer_stage(&trainer, &next, 0, 1, 1000));
    EXPECT(read_both(&trainer, "1") == CAIRN_CORRUPT); /* the store has lost it */
}

TEST(bytes_in_memory_that_are_not_those_of_the_version_are_read_from_the_store) {
    WORLD();
    CAIRN_AUTO(trainer) first = {0}, next = {0};
    struct trainer_save save;
    REQUIRE(saved(&world, &first, &save));
    trainer_hang_up(&first);
    first.slabs[0].data[save.shards[0].offset + 1500000] ^= 4;
    REQUIRE(comes_back(&world, "job-2", 0, &next));
    EXPECT(read_both(&next, "resume") == CAIRN_OK);
    EXPECT(cairn_daemon_logged(&world.uploader, "kept.differs"));
    EXPECT(await_kept(&world, 0));
}

TEST(what_a_node_does_not_hold_comes_from_the_store_and_the_rest_from_memory) {
    WORLD();
    CAIRN_AUTO(trainer) next = {0};
    struct cairn_trainer ranks[2] = {{0}};
    struct trainer_save saves[2], other;
    for (uint32_t i = 0; i < 2; i++) {
        struct trainer_options options = {.socket = world.socket_path,
                                          .job = "job-1",
                                          .rank = i,
                                          .world_size = 2,
                                          .local_world_size = 2};
        REQUIRE(trainer_open(&ranks[i], &options));
    }
    for (uint32_t i = 0; i < 2; i++)
        REQUIRE(trainer_save(&ranks[i], 1, 0, 1, SHARD_BYTES, &saves[i]));
    for (uint32_t i = 0; i < 2; i++) EXPECT_VERDICT(&ranks[i], saves[i].number, "committed");
    REQUIRE(trainer_begin(&ranks[1], 2, 1, &other)); /* takes what rank 1 had in memory */
    REQUIRE(trainer_stage(&ranks[1], &other, 0, 1, 1000));
    const char *path = TEXT("%s/llm/seven/%012d/%s/data/rank-00000/part-0.bin", world.store_path, 1,
                            saves[0].version);
    REQUIRE(unlink(path) == 0); /* what rank 0 has in memory */
    REQUIRE(comes_back(&world, NULL, 0, &next));
    RESTORED(restored, &next, "1");
    REQUIRE(open_window(&next, 8 * CAIRN_MIB));
    REQUIRE(read_ranges(&next, &restored, both, 2) == CAIRN_OK);
    EXPECT(holds(&next, &both[0]));
    for (uint64_t i = 0; i < SHARD_BYTES; i++)
        if (!EXPECT(next.window.data[both[1].at + i] == trainer_byte(16, i))) break;
    for (uint32_t i = 0; i < 2; i++) cairn_trainer_release(&ranks[i]);
}

TEST(what_is_kept_goes_before_a_rank_that_needs_memory_and_before_a_window) { /* Q13 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) first = {0};
    REQUIRE(world_open(&world, &(struct world_options){0})); /* 96 MiB */
    REQUIRE(comes_back(&world, "job-1", 34 * CAIRN_MIB, &first));
    REQUIRE(first.slab_count == 2);
    COMMITTED(save, &first, 1, 0, 2, SHARD_BYTES);
    leave(&first);
    EXPECT(await_kept(&world, 2 * SHARD_BYTES));
    TRAINER(other, .run = "llm/other", .job = "job-1", .bytes = 34 * CAIRN_MIB,
            .slabs_wait_ms = HANG_MS);
    EXPECT_EQ_U64(other.slab_count, 2);
    EXPECT(await_kept(&world, 0));
    COMMIT(save, &other, 1, 0, 2, SHARD_BYTES);
    leave(&other);
    EXPECT(await_kept(&world, 2 * SHARD_BYTES));
    CAIRN_AUTO(trainer) reader = {0};
    REQUIRE(comes_back(&world, NULL, 0, &reader));
    EXPECT(open_window(&reader, 64 * CAIRN_MIB));
    EXPECT(await_kept(&world, 0));
}

TEST(of_a_run_without_trainers_the_newest_version_is_kept_and_no_other) {
    WORLD();
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    REQUIRE(saved(&world, &trainer, &save));
    COMMIT(save, &trainer, 2, 1, 1, 1000);
    EXPECT(await_kept(&world, 2 * SHARD_BYTES + 1000));
    trainer_hang_up(&trainer);
    EXPECT(await_kept(&world, 1000));
}

TEST(a_save_that_does_not_become_committed_leaves_nothing_in_memory) {
    WORLD();
    TRAINER(trainer, .job = "job-1", .world_size = 2, .bytes = 6 * CAIRN_MIB);
    SAVE(save, &trainer, 1, 0, 2, SHARD_BYTES);
    EXPECT(await_kept(&world, 2 * SHARD_BYTES)); /* durable: it may become committed */
    (void)trainer_fail(&trainer, save.number, "enough");
    EXPECT_VERDICT(&trainer, save.number, "failed");
    EXPECT(await_kept(&world, 0));
}

/* What is kept of a trainer that is here, and of one that is gone. */
static void expect_kept(const char *setting, uint64_t here, uint64_t gone) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    const char *const settings[] = {setting, NULL};
    REQUIRE(world_open(&world, &(struct world_options){.uploader_args = settings}));
    REQUIRE(saved(&world, &trainer, &save));
    EXPECT(await_kept(&world, here));
    trainer_hang_up(&trainer);
    EXPECT(await_kept(&world, gone));
}

CASE(memory_tier_0_keeps_nothing, expect_kept("--memory-tier=0", 0, 0));
CASE(what_is_larger_than_memory_tier_is_not_kept,
     expect_kept("--memory-tier=6143KiB", 2 * SHARD_BYTES, 0));
CASE(what_memory_tier_holds_is_kept,
     expect_kept("--memory-tier=6MiB", 2 * SHARD_BYTES, 2 * SHARD_BYTES));
CASE(what_is_kept_goes_after_memory_tier_time,
     expect_kept("--memory-tier-time=1s", 2 * SHARD_BYTES, 0));

/* A version of which the store says another length than what was saved: its bytes are not those. */
TEST(memory_of_another_length_than_the_version_says_is_not_read) {
    struct cairn_up up = {.settings.memory_tier_bytes = CAIRN_GIB};
    struct cairn_up_attempt attempt = {.run_text = "llm/seven", .grant.attempt = 1};
    struct cairn_up_shard shard = {.name = (char[]){"rank-00000/x"}, .size_bytes = 100};
    struct cairn_up_shard *shards[] = {&shard};
    struct cairn_up_save save = {.attempt = &attempt, .shards = shards, .stage_count = 1};
    struct cairn_up_slab slab = {.conn = 1};
    struct cairn_up_kept_bytes bytes;
    uint8_t memory[100] = {0};
    cairn_lock_init(&up.lock, CAIRN_LOCK_uploader_state);
    snprintf(save.place.id.text, sizeof(save.place.id.text), "ckpt_x");
    save.state.owner = 7;
    save.state.phase = CAIRN_UP_PHASE_OVER;
    save.end = CAIRN_UP_COMMITTED;
    REQUIRE(cairn_up_slab_state_take(&slab.state, save.state.owner));
    slab.memory.data = memory;
    up.locked.slabs = &slab;
    {
        CAIRN_HOLD(&up.lock);
        cairn_up_kept_give_locked(&up, &save, &slab);
    }
    EXPECT(!cairn_up_kept_pin(&up, "ckpt_x", "rank-00000/x", 99, &bytes));
    EXPECT(!cairn_up_kept_pin(&up, "ckpt_x", "rank-00000/x", 101, &bytes));
    REQUIRE(cairn_up_kept_pin(&up, "ckpt_x", "rank-00000/x", 100, &bytes));
    EXPECT(bytes.data == memory);
    cairn_up_kept_unpin(&up, &bytes, true);
    {
        CAIRN_HOLD(&up.lock);
        cairn_up_kept_forget_locked(&slab);
    }
    cairn_lock_release(&up.lock);
}
