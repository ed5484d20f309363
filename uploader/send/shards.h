/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards: one object on its way to the store, the queue of all of them, and buffers for files.
 *
 * Why:     a trainer brings a shard's bytes, a sender sends them, a save gives it up, the outbox
 *          tells of it: each touches it here, under one lock, and none calls another for it.
 * Promise: 1   what is given up before it was begun has ended at once; any other shard ends when a
 *              sender says so.
 *          2   blocks and token of a shard outlive every look at it: it is never sent as another
 *              object.
 *          3   a shard is in the queue from add until the sender that ends it removes it.
 *          4   whoever changes what a sender could do next wakes all of them: at once, or, where a
 *              trainer's frames did it, when all that have come are dealt with. So a seal that
 *              comes with the last `staged` goes to the journal before what senders note there.
 *          5   files of which nothing was read yet stand apart, by save, so that a look at what can
 *              be sent now passes none of 65,536 that wait for a buffer.
 *          6   all buffers are reserved in the budget at start; none is made later.
 * Limits:  checksums of CAIRN_UP_BLOCKS_BYTES_MAX; a save has CAIRN_UP_SHARDS_MAX shards. Two
 *          buffers a sender, a quarter of the budget at most.
 * Threads: `queue` of a shard and the pool's free buffers are locked by upload_queue, a shard's
 *          phase by uploader_state, the rest is fixed before it is queued; pool and workers before
 *          a sender runs; `due` is the socket's thread's.
 * Next:    uploader/send/send.h.
 */
#pragma once

#include "common/process.h"
#include "store/multipart.h"
#include "uploader/state/save.h"
#include "uploader/state/upload.h"
#include "uploader/up.h"

struct cairn_up_buffer {
    struct cairn_up_buffer *next;
    uint8_t *data;
    uint32_t users; /* pieces of it that are in use: a part, or each of several small files */
};
struct cairn_up_pool {
    uint8_t *data;
    uint64_t bytes, buffer_bytes; /* bytes: reserved in the budget */
    struct cairn_up_buffer *buffers;
    size_t buffer_count;
    struct cairn_up_buffer *free;
};
/* With the lock held; NULL: all are in use. It has one user; give takes one away, and with the last
 * one the buffer is free. */
struct cairn_up_buffer *cairn_up_pool_take(struct cairn_up_pool *pool);
void cairn_up_pool_give(struct cairn_up_pool *pool, struct cairn_up_buffer *buffer);

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
    bool due; /* cairn_up_queue_wake_due */
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

#define CAIRN_UP_BLOCKS_BYTES_MAX (64 * CAIRN_MIB) /* checksums of a shard of 16 TiB */

/* How long bytes are waited for that only a trainer has. */
enum cairn_up_source_wait {
    CAIRN_UP_SOURCE_FOREVER, /* it is connected and brings them */
    CAIRN_UP_SOURCE_OFFERED, /* until offers are awaited no longer (Q17) */
    CAIRN_UP_SOURCE_GONE,
    CAIRN_UP_SOURCE_GIVEN_BACK /* it was durable, so its memory is another save's by now (Q19) */
};

/* What tells one content of a file from another. */
struct cairn_up_file {
    uint64_t device, inode, links;
    int64_t changed_ns, modified_ns;
    uint32_t mode, user, group;
    uint64_t name; /* a hash of what it is called */
};
enum cairn_code cairn_up_file_look(int fd, struct cairn_up_file *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_up_shard {
    /* fixed before it is queued */
    uint64_t entry; /* the save it belongs to */
    uint32_t index; /* in that save */
    char *name;     /* owned */
    char *key;      /* owned */
    bool tensors;
    uint64_t slab_offset, size_bytes;
    bool is_file;
    /* of the save, locked by uploader_state */
    enum cairn_up_shard_phase phase;
    /* locked by upload_queue */
    struct {
        struct cairn_up_shard *next, *previous;
        enum cairn_up_upload_phase upload;
        struct cairn_multipart mp;
        const uint8_t *data;            /* the slab's bytes, or NULL */
        int fd;                         /* the file, or -1 */
        char *path;                     /* by which it is opened when it is read; NULL: fd is */
        struct cairn_up_file file;      /* as it was handed over */
        bool unread;                    /* a file that waits for a reader (shards.h#5) */
        struct cairn_up_buffer *filled; /* bytes of filled_part, ready to be sent */
        const uint8_t *filled_bytes;    /* where in it they are */
        uint32_t filled_part;
        bool filling;
        bool blocks_journaled, intent_journaled;
        bool needs_source; /* recovery: the bytes are wanted */
        enum cairn_up_source_wait source_wait;
        uint32_t in_flight, bodies_in_flight, failures;
        uint64_t not_before_ms;
    } queue;
};

/* fd and path (taken also on failure) for a file, else -1; data for a slab. part sizes are chosen
 * here. */
struct cairn_up_shard_options {
    uint64_t entry;
    uint32_t index;
    const char *name;
    const char *key;
    bool tensors;
    uint64_t slab_offset, size_bytes;
    const uint8_t *data;
    int take_fd;
    char *take_path;     /* take_fd is closed, and the file opened by this name when it is read */
    const char *token;   /* NULL: a new one */
    uint64_t part_bytes; /* 0: chosen here; a recovered shard keeps its own */
};
enum cairn_code cairn_up_shard_new(struct cairn_up_queue *queue,
                                   const struct cairn_up_shard_options *options,
                                   struct cairn_up_shard **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* It must have ended or never have been queued. */
void cairn_up_shard_free(struct cairn_up_queue *queue, struct cairn_up_shard *shard);

/* Senders are woken by cairn_up_queue_wake_due. The socket's thread. */
enum cairn_code cairn_up_shard_ready(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                     uint64_t ready_bytes, const uint8_t *crcs_le,
                                     uint64_t crc_count, struct cairn_error *err) CAIRN_MUST_USE;
/* Is it stopped by that its bytes are not here? */
bool cairn_up_shard_lacks_source(struct cairn_up_queue *queue, const struct cairn_up_shard *shard);
uint64_t cairn_up_shard_ready_bytes(struct cairn_up_queue *queue,
                                    const struct cairn_up_shard *shard);
void cairn_up_shard_source(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                           const uint8_t *data);
/* After a recovery, before the seal: the trainer is back and will stage the shard once more, so its
 * bytes are waited for without an end; and then it does, from `data`. */
void cairn_up_shard_await(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
void cairn_up_shard_restage(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                            const uint8_t *data);
/* Before it is queued: what the journal holds of it (Q17). */
struct cairn_up_shard_past {
    bool intent, durable;
    const char *upload_id;  /* NULL: none */
    const uint32_t *blocks; /* NULL: unknown */
    enum cairn_up_source_wait source_wait;
    const struct cairn_store_part *parts; /* acknowledged before, of that upload */
    size_t part_count;
};
enum cairn_code cairn_up_shard_recover(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                       const struct cairn_up_shard_past *past,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* A durable shard is looked at once more (HEAD); it ends again. False: it is not to be trusted with
 * that now (no memory), and stays durable. */
bool cairn_up_shard_again(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
void cairn_up_shard_give_up(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                            const struct cairn_error *why);
/* The same with upload_queue held; no sender is woken. */
void cairn_up_shard_give_up_locked(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                   const struct cairn_error *why);
/* No request carries its bytes and none will (Q20). */
bool cairn_up_shard_is_quiet(struct cairn_up_queue *queue, const struct cairn_up_shard *shard);
bool cairn_up_shard_has_ended(struct cairn_up_queue *queue, const struct cairn_up_shard *shard);
/* For the seal: the checksums of all blocks, if the journal must still hear them (then it counts as
 * told). The shard must be wholly staged. */
enum cairn_code cairn_up_shard_seal(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                    struct cairn_buf *ret_le, bool *ret_needed,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* What a registration says. */
struct cairn_up_shard_proof {
    uint32_t crc32c;
    uint64_t part_bytes; /* 0: one piece */
    char token[CAIRN_UUID_TEXT_BYTES];
    struct cairn_buf blocks_le;
};
void cairn_up_shard_proof_release(struct cairn_up_shard_proof *proof);
enum cairn_code cairn_up_shard_prove(struct cairn_up_queue *queue,
                                     const struct cairn_up_shard *shard,
                                     struct cairn_up_shard_proof *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* The same before it is durable, for another node that may send it under the same token;
 * part_bytes is never 0. CAIRN_NOT_FOUND: it is a file's, or its bytes are not all here. */
enum cairn_code cairn_up_shard_describe(struct cairn_up_queue *queue,
                                        const struct cairn_up_shard *shard,
                                        struct cairn_up_shard_proof *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* The journal's record of its token, which `partner` has, too; NULL: nobody has yet. */
json_t *cairn_up_shard_intent(struct cairn_up_queue *queue, const struct cairn_up_shard *shard,
                              const char *partner);
/* How much of shards the store has acknowledged; each is added to what is there. A shard that is
 * sent in one piece is one part. */
struct cairn_up_progress {
    uint64_t bytes, shards, parts_done, parts_total;
};
void cairn_up_shard_progress(struct cairn_up_queue *queue, const struct cairn_up_shard *shard,
                             struct cairn_up_progress *sum);
