/* SPDX-License-Identifier: Apache-2.0 */
/* send.h#7: when senders leave the cores to ranks that copy; by the test's clock, and of a whole
 * uploader on one core. */

#include "tests/uploader/trainer.h"
#include "uploader/send/inside.h"

#define SHARDS 4
#define MOST_MS 200

struct scene {
    struct cairn_up up;
    struct cairn_up_queue queue;
    struct cairn_up_send send;
    struct cairn_up_shard shards[SHARDS];
};

/* Shards of 256 MiB of different saves, each of which has copied its first 64 MiB. */
static void set(struct scene *scene, uint32_t cores, size_t shards) {
    static const uint8_t slab[1];
    *scene = (struct scene){.up.settings.copy_first_ms = MOST_MS};
    scene->send = (struct cairn_up_send){.up = &scene->up, .queue = &scene->queue, .cores = cores};
    for (size_t i = 0; i < shards; i++) {
        struct cairn_up_shard *shard = &scene->shards[i];
        *shard = (struct cairn_up_shard){.entry = i + 1, .size_bytes = 256 * CAIRN_MIB};
        shard->queue.data = slab;
        shard->queue.mp.ready_bytes = 64 * CAIRN_MIB;
        shard->queue.upload = CAIRN_UP_UPLOAD_SENDING;
        shard->queue.next = i + 1 < shards ? shard + 1 : NULL;
    }
    scene->queue.locked.first = shards ? scene->shards : NULL;
}

/* For how long nothing is picked from now on, if nobody copies on; 0: something is. */
static uint64_t held(struct scene *scene, uint64_t now_ms) {
    uint64_t again_ms = 100000;
    return cairn_up_send_holds(&scene->send, now_ms, &again_ms) ? again_ms : 0;
}

TEST(with_two_cores_a_rank_that_copies_has_them_for_a_while) {
    struct scene scene;
    set(&scene, 2, 1);
    EXPECT_ALL_U64(held(&scene, 1000), MOST_MS, held(&scene, 1150), MOST_MS - 150,
                   held(&scene, 1000 + MOST_MS), 0);
}

TEST(what_was_copied_is_sent_at_once) {
    struct scene scene;
    set(&scene, 2, 1);
    EXPECT_EQ_U64(held(&scene, 1000), MOST_MS);
    scene.shards[0].queue.mp.ready_bytes = scene.shards[0].size_bytes;
    EXPECT_EQ_U64(held(&scene, 1010), 0);
}

TEST(senders_have_four_times_as_long_as_they_were_held) {
    struct scene scene;
    set(&scene, 2, 1);
    EXPECT(held(&scene, 1000));
    EXPECT_EQ_U64(held(&scene, 1000 + MOST_MS), 0);
    scene.shards[0].queue.mp.ready_bytes += CAIRN_MIB;
    EXPECT_EQ_U64(held(&scene, 1000 + 5 * MOST_MS - 1), 0);
    EXPECT_EQ_U64(held(&scene, 1000 + 5 * MOST_MS), MOST_MS);
}

TEST(a_rank_that_copies_no_further_holds_nobody_up_again) {
    struct scene scene;
    set(&scene, 2, 1);
    EXPECT(held(&scene, 1000));
    EXPECT_ALL_U64(held(&scene, 1000 + MOST_MS), 0, held(&scene, 1000000), 0);
    scene.shards[0].queue.mp.ready_bytes += CAIRN_MIB;
    EXPECT(held(&scene, 2000000));
}

TEST(with_two_cores_for_each_rank_and_one_more_nobody_waits) {
    struct scene scene;
    set(&scene, 3, 1);
    EXPECT_EQ_U64(held(&scene, 1000), 0);
    set(&scene, 8, 4);
    EXPECT(held(&scene, 1000));
    set(&scene, 9, 4);
    EXPECT_EQ_U64(held(&scene, 1000), 0);
    set(&scene, 3, 2); /* both are of one rank */
    scene.shards[1].entry = scene.shards[0].entry;
    EXPECT_EQ_U64(held(&scene, 1000), 0);
}

TEST(only_who_copies_much_is_waited_for) {
    struct scene scene;
    set(&scene, 2, 1);
    scene.shards[0].queue.mp.ready_bytes = scene.shards[0].size_bytes - 64 * CAIRN_MIB + 1;
    EXPECT_EQ_U64(held(&scene, 1000), 0);
    scene.shards[0].queue.mp.ready_bytes--;
    EXPECT(held(&scene, 1000));
    set(&scene, 2, 1);
    scene.shards[0].queue.mp.ready_bytes = 0; /* it has not begun */
    EXPECT_EQ_U64(held(&scene, 1000), 0);
    set(&scene, 2, 0);
    EXPECT_EQ_U64(held(&scene, 1000), 0);
}

TEST(files_lost_bytes_and_what_was_given_up_are_not_waited_for) {
    struct scene scene;
    set(&scene, 2, 1);
    scene.shards[0].is_file = true;
    EXPECT_EQ_U64(held(&scene, 1000), 0);
    set(&scene, 2, 1);
    scene.shards[0].queue.data = NULL;
    EXPECT_EQ_U64(held(&scene, 1000), 0);
    set(&scene, 2, 1);
    scene.shards[0].queue.upload = CAIRN_UP_UPLOAD_ENDING;
    EXPECT_EQ_U64(held(&scene, 1000), 0);
}

TEST(neither_without_time_for_it_nor_with_cores_of_its_own) {
    struct scene scene;
    struct cairn_up_settings parted = {.cpu_list = (char[]){"0"}},
                             shared = {.cpu_list = (char[]){""}};
    set(&scene, 2, 1);
    scene.up.settings.copy_first_ms = 0;
    EXPECT_ALL_U64(held(&scene, 1000), 0, cairn_up_cores_shared(&parted), UINT32_MAX);
    EXPECT(cairn_up_cores_shared(&shared) >= 1 && cairn_up_cores_shared(&shared) < UINT32_MAX);
}

/* ---- an uploader ---- */

#define SHARD_BYTES (64 * CAIRN_MIB)
#define STILL_MS 500

static uint64_t sent_bytes(struct cairn_trainer *trainer) {
    CAIRN_AUTO_JSON json_t *report = trainer_call(trainer, json_pack("{s:s}", "t", "status"));
    return (uint64_t)json_integer_value(json_object_get(report, "sent_bytes"));
}
static bool a_shard_was_sent(void *trainer) {
    return sent_bytes(trainer) >= SHARD_BYTES;
}
static bool anything_was_sent(void *trainer) {
    return sent_bytes(trainer) > 0;
}

/* On the one core that its uploader has, a rank has copied the first of two shards. */
static bool copy_half(struct cairn_up_world *world, struct cairn_trainer *trainer,
                      struct trainer_save *save, const char *copy_first) {
    const char *args[] = {"--memory-budget=512MiB", copy_first, NULL};
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (!EXPECT(!sched_getaffinity(0, sizeof all, &all))) return false;
    for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    EXPECT(!sched_setaffinity(0, sizeof one, &one));
    bool open = world_open(world, &(struct world_options){.uploader_args = args});
    EXPECT(!sched_setaffinity(0, sizeof all, &all));
    trainer->copies_later = 1;
    return EXPECT(open) &&
           EXPECT(trainer_open(trainer, &(struct trainer_options){.socket = world->socket_path,
                                                                  .job = "job-1",
                                                                  .bytes = 2 * SHARD_BYTES})) &&
           EXPECT(trainer_begin(trainer, 1, 1, save)) &&
           EXPECT(trainer_stage(trainer, save, 0, 2, SHARD_BYTES));
}

TEST(an_uploader_on_one_core_sends_when_all_is_copied) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    REQUIRE(copy_half(&world, &trainer, &save, "--copy-first=10s"));
    EXPECT(!world_await(anything_was_sent, &trainer, STILL_MS));
    EXPECT(trainer_staged(&trainer, &save, 1));
    SEAL_AND_COMMIT(save, &trainer);
}

TEST(an_uploader_that_shall_not_wait_sends_what_is_copied) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    REQUIRE(copy_half(&world, &trainer, &save, "--copy-first=0ms"));
    AWAIT(a_shard_was_sent(&trainer));
    EXPECT(trainer_staged(&trainer, &save, 1));
    SEAL_AND_COMMIT(save, &trainer);
}
