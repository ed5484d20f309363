/* SPDX-License-Identifier: Apache-2.0 */
/* A list in the order of adding. */
#include "uploader/shards/queue.h"

#include <stdlib.h>

#include "common/buf.h"
#include "common/hooks.h"
#include "uploader/shards/shard.h"

#define SAVES_MAX (1 << 20)

enum cairn_code cairn_up_queue_new(struct cairn_up *up, struct cairn_up_queue **ret,
                                   struct cairn_error *err) {
    struct cairn_up_queue *queue = calloc(1, sizeof(*queue));
    if (!queue) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the queue of shards");
    cairn_lock_init(&queue->lock, CAIRN_LOCK_upload_queue);
    queue->up = up;
    enum cairn_code code = cairn_up_pool_init(&queue->pool, up, err);
    queue->workers = calloc((size_t)up->settings.workers, sizeof(*queue->workers));
    if (code == CAIRN_OK && !queue->workers)
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the queue of shards");
    if (code != CAIRN_OK) {
        cairn_up_queue_free(queue);
        return code;
    }
    *ret = queue;
    return CAIRN_OK;
}

void cairn_up_queue_free(struct cairn_up_queue *queue) {
    if (!queue) return;
    cairn_up_pool_release(&queue->pool, queue->up);
    free(queue->locked.unread);
    free(queue->workers);
    cairn_lock_release(&queue->lock);
    free(queue);
}

void cairn_up_queue_add_worker(struct cairn_up_queue *queue, struct cairn_store_worker *worker) {
    CAIRN_ASSERT(queue->worker_count < queue->up->settings.workers);
    queue->workers[queue->worker_count++] = worker;
}

void cairn_up_queue_drop_workers(struct cairn_up_queue *queue) {
    queue->worker_count = 0;
}

void cairn_up_queue_wake(struct cairn_up_queue *queue) {
    cairn_late_ring(&queue->bell);
    for (size_t i = 0; i < queue->worker_count; i++) cairn_store_wake(queue->workers[i]);
}

void cairn_up_queue_wake_due(struct cairn_up_queue *queue) {
    if (queue->due) cairn_up_queue_wake(queue);
    queue->due = false;
}

void cairn_up_queue_admit(struct cairn_up_queue *queue) {
    cairn_lock_take(&queue->lock);
    bool doubted = cairn_store_may_move(queue->up->store) && CAIRN_RULE(Q55);
    for (struct cairn_up_shard *at = queue->locked.first; at && doubted; at = at->queue.next)
        cairn_multipart_doubt(&at->queue.mp);
    queue->locked.admitted = true;
    cairn_lock_give(&queue->lock);
    cairn_up_queue_wake(queue);
}

bool cairn_up_queue_is_admitted(struct cairn_up_queue *queue) {
    CAIRN_HOLD(&queue->lock);
    return queue->locked.admitted;
}

bool cairn_up_queue_is_still(struct cairn_up_queue *queue) {
    CAIRN_HOLD(&queue->lock);
    for (const struct cairn_up_shard *at = queue->locked.first; at; at = at->queue.next)
        if (at->queue.in_flight) return false;
    return true;
}

void cairn_up_queue_end_offers(struct cairn_up_queue *queue) {
    cairn_lock_take(&queue->lock);
    queue->locked.offers_over = true;
    cairn_lock_give(&queue->lock);
    cairn_up_queue_wake(queue);
}

/* The list that a shard of this save stands in, or would. */
static struct cairn_up_unread *unread_of(struct cairn_up_queue *queue, uint64_t entry) {
    for (size_t i = 0; i < queue->locked.unread_count; i++)
        if (queue->locked.unread[i].entry == entry) return &queue->locked.unread[i];
    return NULL;
}

static void link_last(struct cairn_up_shard **first, struct cairn_up_shard **last,
                      struct cairn_up_shard *shard) {
    shard->queue.previous = *last;
    *(*last ? &(*last)->queue.next : first) = shard;
    *last = shard;
}

static void unlink_from(struct cairn_up_shard **first, struct cairn_up_shard **last,
                        struct cairn_up_shard *shard) {
    *(shard->queue.previous ? &shard->queue.previous->queue.next : first) = shard->queue.next;
    *(shard->queue.next ? &shard->queue.next->queue.previous : last) = shard->queue.previous;
    shard->queue.next = shard->queue.previous = NULL;
}

void cairn_up_queue_remove(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    queue->locked.depth--;
    if (!shard->queue.unread) {
        unlink_from(&queue->locked.first, &queue->locked.last, shard);
        return;
    }
    struct cairn_up_unread *unread = unread_of(queue, shard->entry);
    CAIRN_ASSERT(unread != NULL);
    shard->queue.unread = false;
    unlink_from(&unread->first, &unread->last, shard);
    if (unread->first) return;
    size_t behind = (size_t)(queue->locked.unread + --queue->locked.unread_count - unread);
    memmove(unread, unread + 1, behind * sizeof *unread);
}

void cairn_up_queue_join(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    if (!shard->queue.unread) return;
    cairn_up_queue_remove(queue, shard);
    queue->locked.depth++;
    link_last(&queue->locked.first, &queue->locked.last, shard);
}

static void move_in(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    enum cairn_up_upload_due due =
        cairn_up_upload_state_move(&shard->queue.upload, CAIRN_UP_UPLOAD_EVENT_QUEUE);
    CAIRN_ASSERT(due == CAIRN_UP_UPLOAD_DUE_JOIN);
    queue->locked.depth++;
}

static void append(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    move_in(queue, shard);
    link_last(&queue->locked.first, &queue->locked.last, shard);
}

/* False: no memory for a save more, and then it stands among the others. */
static bool append_unread(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    struct cairn_up_unread *unread = unread_of(queue, shard->entry);
    if (!unread) {
        if (CAIRN_ARRAY_ROOM(queue->locked.unread, queue->locked.unread_count,
                             queue->locked.unread_capacity, SAVES_MAX, "saves", NULL) != CAIRN_OK)
            return false;
        unread = &queue->locked.unread[queue->locked.unread_count++];
        *unread = (struct cairn_up_unread){.entry = shard->entry};
    }
    link_last(&unread->first, &unread->last, shard);
    shard->queue.unread = true;
    return true;
}

void cairn_up_queue_add_file(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    move_in(queue, shard);
    if (!shard->size_bytes || !append_unread(queue, shard))
        link_last(&queue->locked.first, &queue->locked.last, shard);
    queue->due = true;
}

void cairn_up_queue_add(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    append(queue, shard);
    cairn_up_queue_wake(queue);
}

void cairn_up_queue_add_unstaged(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    append(queue, shard);
    if (!shard->size_bytes) queue->due = true; /* nothing more comes of it */
}
