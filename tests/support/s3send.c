/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3send: sends one shard with the uploader's own senders (uploader/send) and their journal, on
 * threads of their own. The three functions of uploader/saves/save.h that the senders call are
 * here, so that nothing else of the uploader is linked.
 */
#include <sched.h>
#include <sys/mman.h>

#include "tests/harness.h"
#include "tests/support/s3world.h"
#include "uploader/journal/journal.h"
#include "uploader/saves/save.h"
#include "uploader/send/send.h"

struct ending {
    pthread_mutex_t lock;
    bool told, durable;
    struct cairn_error why;
};
static struct ending ending = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- what the senders tell ---- */

void cairn_up_save_part_acked(struct cairn_up *up, uint64_t entry, uint32_t index,
                              const struct cairn_up_acked *acked) {
    (void)up, (void)entry, (void)index, (void)acked;
}

void cairn_up_save_store_error(struct cairn_up *up, uint64_t entry, const char *shard,
                               uint32_t part, const struct cairn_error *why) {
    (void)up, (void)entry, (void)shard, (void)part, (void)why;
}

void cairn_up_save_settle(struct cairn_up *up, uint64_t entry) {
    (void)up, (void)entry;
}

void cairn_up_save_shard_ended(struct cairn_up *up, uint64_t entry, uint32_t index,
                               const struct cairn_error *why) {
    (void)up, (void)entry, (void)index;
    pthread_mutex_lock(&ending.lock);
    ending.told = true;
    ending.durable = !why;
    if (why) ending.why = *why;
    pthread_mutex_unlock(&ending.lock);
}

/* ---- one shard ---- */

static enum cairn_code replay(void *owner, const struct cairn_up_replayed *record,
                              struct cairn_error *err) {
    (void)owner, (void)record;
    return cairn_fail(err, CAIRN_CONFLICT, "a journal of this test is not empty");
}

static enum cairn_code open_uploader(struct cairn_s3world *world, struct cairn_up *up,
                                     struct cairn_error *err) {
    static unsigned journals;
    char path[600];
    snprintf(path, sizeof path, "%.500s/journal-%u", cairn_test_folder(), ++journals);
    struct cairn_up_journal_options journal = {.path = path, .node = "test", .replay = replay};
    up->store = world->store;
    up->settings.workers = 1;
    up->settings.part_size_bytes = CAIRN_S3WORLD_PART;
    cairn_lock_init(&up->lock, CAIRN_LOCK_uploader_state);
    cairn_budget_init(&up->budget, CAIRN_GIB);
    CAIRN_TRY(cairn_up_journal_open(&journal, &up->journal, err));
    CAIRN_TRY(cairn_up_queue_new(up, &up->queue, err));
    CAIRN_TRY(cairn_up_send_new(up, &up->send, err));
    cairn_up_queue_admit(up->queue); /* there are no grants that could name another store */
    return cairn_up_send_start(up->send, err);
}

static void close_uploader(struct cairn_up *up) {
    cairn_up_send_free(up->send);
    cairn_up_queue_free(up->queue);
    cairn_up_journal_free(up->journal);
    cairn_lock_release(&up->lock);
}

/* The bytes lie in memory of their own, which is gone when the shard has ended: a request that
 * still carries them ends the test (Q20). */
static enum cairn_code queue(struct cairn_up *up, struct cairn_s3run *run, const uint32_t *blocks,
                             const uint8_t *slab, struct cairn_up_shard **ret,
                             struct cairn_error *err) {
    struct cairn_up_shard_options options = {.entry = cairn_up_journal_entry_new(up->journal),
                                             .name = run->key,
                                             .key = run->key,
                                             .size_bytes = run->size_bytes,
                                             .data = run->recover ? NULL : slab,
                                             .take_fd = -1,
                                             .token = run->used_token,
                                             .part_bytes = run->part_bytes ? run->part_bytes
                                                                           : CAIRN_S3WORLD_PART};
    struct cairn_up_shard_past past = {.intent = true,
                                       .upload_id = run->recover,
                                       .blocks = run->recover_blocks ? blocks : NULL,
                                       .source_wait = CAIRN_UP_SOURCE_GONE};
    uint64_t count = cairn_div_up(run->size_bytes, CAIRN_BLOCK_BYTES);
    CAIRN_TRY(cairn_up_shard_new(up->queue, &options, ret, err));
    if (run->recover) CAIRN_TRY(cairn_up_shard_recover(up->queue, *ret, &past, err));
    cairn_up_queue_add(up->queue, *ret);
    if (run->recover) return CAIRN_OK;
    CAIRN_AUTO_HEAP uint8_t *crcs_le = malloc(4 * count + 1);
    if (!crcs_le) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for checksums");
    for (uint64_t i = 0; i < count; i++) cairn_store_u32le(crcs_le + 4 * i, blocks[i]);
    CAIRN_TRY(cairn_up_shard_ready(up->queue, *ret, run->size_bytes, crcs_le, count, err));
    cairn_up_queue_wake_due(up->queue);
    return CAIRN_OK;
}

/* A failure ends the admission, and the store is checked again (uploader/send/send.c);
 * here it is the same one each time. */
static bool wait_told(struct cairn_up *up) {
    uint64_t until_ms = cairn_mono_ms() + cairn_test_hang_ms();
    for (;;) {
        pthread_mutex_lock(&ending.lock);
        bool told = ending.told;
        pthread_mutex_unlock(&ending.lock);
        if (told || cairn_mono_ms() >= until_ms) return told;
        if (!cairn_up_queue_is_admitted(up->queue) && cairn_up_queue_is_still(up->queue))
            cairn_up_queue_admit(up->queue);
        cairn_test_pause_ms(2); /* step of a poll */
    }
}

static enum cairn_code wait_ended(struct cairn_up *up, struct cairn_up_shard *shard,
                                  struct cairn_s3run *run) {
    bool in_time = wait_told(up);
    struct cairn_error late = {0};
    cairn_fail(&late, CAIRN_TIMEOUT, "the shard had no end");
    if (!in_time) cairn_up_shard_give_up(up->queue, shard, &late);
    if (!in_time) (void)wait_told(up);
    /* It is told just before the sender lets go of the shard. */
    while (in_time && !cairn_up_shard_has_ended(up->queue, shard)) sched_yield();
    run->durable = in_time && ending.durable;
    run->error = run->durable ? (struct cairn_error){0} : in_time ? ending.why : late;
    return run->error.code;
}

enum cairn_code cairn_s3run_by_uploader(struct cairn_s3world *world, struct cairn_s3run *run,
                                        const uint32_t *blocks) {
    struct cairn_up up = {0};
    struct cairn_up_shard *shard = NULL;
    uint8_t *slab =
        mmap(NULL, run->size_bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slab == MAP_FAILED) return cairn_fail_errno(&run->error, "memory for a slab");
    memcpy(slab, run->bytes, run->size_bytes);
    ending.told = ending.durable = false;
    ending.why = (struct cairn_error){0};
    enum cairn_code code = open_uploader(world, &up, &run->error);
    if (code == CAIRN_OK) code = queue(&up, run, blocks, slab, &shard, &run->error);
    if (code == CAIRN_OK) code = wait_ended(&up, shard, run);
    munmap(slab, run->size_bytes + 1);
    (void)cairn_up_send_stop(up.send);
    if (shard) {
        run->rounds = shard->queue.mp.rounds;
        snprintf(run->upload_id, sizeof run->upload_id, "%s", shard->queue.mp.upload_id);
    }
    if (up.queue) cairn_up_shard_free(up.queue, shard);
    close_uploader(&up);
    return code;
}
