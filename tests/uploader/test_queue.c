/* SPDX-License-Identifier: Apache-2.0 */
/* When senders are woken: a worker of a real store is one of them, and its wait says whether it
 * was. */
#include "uploader/send/shards.h"

#include "store/open.h"
#include "tests/harness.h"

#define ASLEEP_MS 50

static struct cairn_error err; /* of the last call */

struct scene {
    struct cairn_up up;
    struct cairn_store_worker *worker;
    struct cairn_up_shard *shards[2];
};
static void scene_release(struct scene **scene) {
    struct cairn_up *up = &(*scene)->up;
    if (up->queue) up->queue->locked.stopping = true;
    for (size_t i = 0; i < 2; i++) cairn_up_shard_free(up->queue, (*scene)->shards[i]);
    cairn_up_queue_free(up->queue);
    cairn_store_worker_free((*scene)->worker);
    cairn_store_free(up->store);
    cairn_budget_release(&up->budget);
    free(*scene);
}
#define SCENE(name)                                                                                \
    __attribute__((cleanup(scene_release))) struct scene *name = calloc(1, sizeof(*name))

static bool start(struct scene *scene) {
    struct cairn_up *up = &scene->up;
    struct cairn_store_options options = {.url = cairn_test_folder()};
    cairn_budget_init(&up->budget, CAIRN_GIB);
    up->settings.workers = 1;
    up->settings.part_size_bytes = 16 * CAIRN_MIB;
    if (!EXPECT(!cairn_store_open(&options, &up->store, &err)) ||
        !EXPECT(!cairn_store_worker_new(up->store, &scene->worker, &err)) ||
        !EXPECT(!cairn_up_queue_new(up, &up->queue, &err)))
        return false;
    cairn_up_queue_add_worker(up->queue, scene->worker);
    return true;
}

static bool make(struct scene *scene, size_t index, uint64_t bytes) {
    static const uint8_t data[1000];
    struct cairn_up_shard_options options = {.entry = 1,
                                             .index = (uint32_t)index,
                                             .name = "rank-00000/x",
                                             .key = "p/r/000000000001/v/data/rank-00000/x",
                                             .size_bytes = bytes,
                                             .data = data,
                                             .take_fd = -1};
    return EXPECT(!cairn_up_shard_new(scene->up.queue, &options, &scene->shards[index], &err));
}

static bool is_woken(struct scene *scene, uint32_t wait_ms) {
    uint64_t since_ms = cairn_mono_ms();
    EXPECT(!cairn_store_poll(scene->worker, wait_ms, &err));
    return cairn_mono_ms() < since_ms + wait_ms;
}

TEST(what_frames_make_ready_wakes_the_senders_once_behind_the_last_of_them) { /* shards.h#4 */
    SCENE(scene);
    REQUIRE(scene != NULL);
    REQUIRE(start(scene) && make(scene, 0, 1000));
    struct cairn_up_queue *queue = scene->up.queue;
    uint8_t crc[4];
    cairn_store_u32le(crc, 7);
    cairn_up_queue_add_unstaged(queue, scene->shards[0]);
    cairn_up_queue_wake_due(queue);
    EXPECT(!is_woken(scene, ASLEEP_MS)); /* nothing of it is staged */
    REQUIRE(!cairn_up_shard_ready(queue, scene->shards[0], 1000, crc, 1, &err));
    EXPECT(!is_woken(scene, ASLEEP_MS)); /* a seal may be the next frame */
    cairn_up_queue_wake_due(queue);
    EXPECT(is_woken(scene, HANG_MS));
    cairn_up_queue_wake_due(queue);
    EXPECT(!is_woken(scene, ASLEEP_MS));
}

TEST(an_empty_shard_is_due_as_soon_as_it_is_described) {
    SCENE(scene);
    REQUIRE(scene != NULL);
    REQUIRE(start(scene) && make(scene, 0, 0));
    cairn_up_queue_add_unstaged(scene->up.queue, scene->shards[0]);
    EXPECT(!is_woken(scene, ASLEEP_MS));
    cairn_up_queue_wake_due(scene->up.queue);
    EXPECT(is_woken(scene, HANG_MS));
}

TEST(what_no_frame_did_wakes_the_senders_at_once) {
    SCENE(scene);
    REQUIRE(scene != NULL);
    REQUIRE(start(scene) && make(scene, 0, 1000));
    cairn_up_queue_add(scene->up.queue, scene->shards[0]);
    EXPECT(is_woken(scene, HANG_MS));
    cairn_up_queue_admit(scene->up.queue);
    EXPECT(is_woken(scene, HANG_MS));
}
