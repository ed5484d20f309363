/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue: the shards that are to be sent, oldest first, and whether anything is sent now.
 *
 * Why:     senders empty it, saves fill it and take things back: it stands below both and calls
 *          neither.
 * Promise: 1   a shard is in the queue from add until the sender that ends it removes it.
 *          2   whoever changes what a sender could do next wakes all of them: at once, or, where a
 *              trainer's frames did it, when all that have come are dealt with. So a seal that
 *              comes with the last `staged` goes to the journal before what senders note there.
 *          3   files of which nothing was read yet stand apart, by save, so that a look at what can
 *              be sent now passes none of 65,536 that wait for a buffer.
 * Limits:  none of its own: a save has CAIRN_UP_SHARDS_MAX shards.
 * Threads: locked by upload_queue; pool and workers are fixed before a sender runs; `due` is the
 *          socket's thread's.
 * Next:    uploader/shards/shard.h; uploader/send/send.h.
 */
#pragma once

#include "common/process.h"
#include "uploader/shards/pool.h"
#include "uploader/up.h"

struct cairn_up_shard;

/* Files of one save that wait to be read, in the order of adding. */
struct cairn_up_unread {
    uint64_t entry;
    struct cairn_up_shard *first, *last;
};

struct cairn_up_queue {
    struct cairn_up *up;
    struct cairn_up_pool pool;           /* its free buffers are locked by upload_queue */
    struct cairn_store_worker **workers; /* of the senders */
    size_t worker_count;
    bool due;               /* cairn_up_queue_wake_due */
    struct cairn_late_bell bell;
    struct cairn_lock lock; /* upload_queue */
    struct {
        struct cairn_up_shard *first, *last; /* oldest first */
        struct cairn_up_unread *unread;      /* oldest save first */
        size_t unread_count, unread_capacity;
        size_t depth; /* shards of both kinds */
        bool stopping;
        bool offers_over; /* nobody brings bytes of a process before this one any more (Q17) */
        bool admitted;    /* the store was checked and there was no gap since */
    } locked;
};

enum cairn_code cairn_up_queue_new(struct cairn_up *up, struct cairn_up_queue **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* All shards are freed. NULL is allowed. */
void cairn_up_queue_free(struct cairn_up_queue *queue);
/* A sender's, which wake then wakes; at most `workers` of them, before any sender runs. */
void cairn_up_queue_add_worker(struct cairn_up_queue *queue, struct cairn_store_worker *worker);
/* No sender runs any more, and their workers go. */
void cairn_up_queue_drop_workers(struct cairn_up_queue *queue);
void cairn_up_queue_wake(struct cairn_up_queue *queue);
/* The socket's thread: wake them if frames that were dealt with have set `due`. */
void cairn_up_queue_wake_due(struct cairn_up_queue *queue);

/* The store is the one of the grants: send. Until then, and after a gap, nothing is picked. Uploads
 * that were under way on a mount are listed before they go on. */
void cairn_up_queue_admit(struct cairn_up_queue *queue);
bool cairn_up_queue_is_admitted(struct cairn_up_queue *queue);
/* No request of any shard is under way, also none that was picked before a gap. */
bool cairn_up_queue_is_still(struct cairn_up_queue *queue);

/* Q17: shards that waited for an offer are given up, unless their trainer is back. */
void cairn_up_queue_end_offers(struct cairn_up_queue *queue);

void cairn_up_queue_add(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
/* The same for a shard of which nothing is staged yet: wakes nobody. The socket's thread. */
void cairn_up_queue_add_unstaged(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
/* A file: it waits until a reader takes it. The socket's thread; senders are woken as by `due`. */
void cairn_up_queue_add_file(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
/* With the lock held: a file that is read now, or given up, joins what senders look at. */
void cairn_up_queue_join(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
/* With the lock held. */
void cairn_up_queue_remove(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
