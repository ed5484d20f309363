/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies first: a trainer stands still while it copies into its slab, and what is sent meanwhile
 * only ends a little earlier. Where cores are scarce senders take them from the copy, so for a
 * moment nothing new is sent. Where each rank has two and a sender one, what is staged goes out
 * while the rest is copied.
 */
#include "uploader/send/inside.h"

#define CORES_A_RANK 2
#define WORTH_BYTES (64 * CAIRN_MIB) /* less than that is copied before anybody could hold */
#define REST 4                       /* after a hold, as many times its length without one */

struct copying {
    uint32_t ranks;
    uint64_t bytes; /* still to be copied by them */
};

static void add_rank(struct copying *copying, uint64_t ready_bytes, uint64_t left_bytes) {
    if (!ready_bytes || !left_bytes) return; /* it has not begun, or stands still no more */
    copying->ranks++;
    copying->bytes += left_bytes;
}

/* The lock is held. A save's shards, which are one rank's, stand together. */
static struct copying look(const struct cairn_up_queue *queue) {
    struct copying found = {0};
    uint64_t entry = 0, ready_bytes = 0, left_bytes = 0;
    for (const struct cairn_up_shard *shard = queue->locked.first; shard;
         shard = shard->queue.next) {
        if (shard->is_file || !shard->queue.data) continue;
        if (shard->queue.upload == CAIRN_UP_UPLOAD_ENDING) continue;
        if (shard->entry != entry) {
            add_rank(&found, ready_bytes, left_bytes);
            entry = shard->entry;
            ready_bytes = left_bytes = 0;
        }
        ready_bytes += shard->queue.mp.ready_bytes;
        left_bytes += shard->size_bytes - shard->queue.mp.ready_bytes;
    }
    add_rank(&found, ready_bytes, left_bytes);
    return found;
}

/* Who has copied nothing since the last hold is busy with something else. */
static bool should_begin(const struct cairn_up_send *send, const struct copying *copying,
                         uint64_t now_ms) {
    return copying->bytes >= WORTH_BYTES && copying->bytes != send->hold.left_bytes &&
           send->cores <= CORES_A_RANK * copying->ranks && now_ms >= send->hold.rests_until_ms;
}

bool cairn_up_send_holds(struct cairn_up_send *send, uint64_t now_ms, uint64_t *ret_again_ms) {
    uint64_t most_ms = send->up->settings.copy_first_ms;
    if (!most_ms) return false;
    struct copying copying = look(send->queue);
    if (!send->hold.since_ms && !should_begin(send, &copying, now_ms)) return false;
    if (!send->hold.since_ms) send->hold.since_ms = now_ms;
    uint64_t over_ms = send->hold.since_ms + most_ms;
    if (copying.ranks && now_ms < over_ms) {
        *ret_again_ms = cairn_min_u64(*ret_again_ms, over_ms - now_ms);
        return true;
    }
    send->hold.rests_until_ms = now_ms + REST * (now_ms - send->hold.since_ms);
    send->hold.left_bytes = copying.bytes;
    send->hold.since_ms = 0;
    return false;
}
