/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards: one object's upload, the queue of all shards, and buffers for files.
 *
 * Why:     a trainer brings a shard's bytes, a sender sends them, a save gives it up, the outbox
 *          reports it: each works on it here, under one lock, without calling another.
 * Promise: 1   a shard given up before its first request ends at once; a sender ends any other.
 *          2   a new state machine keeps blocks and token, so a shard remains the same object.
 *          3   a shard is in the queue from add until the sender that ends it removes it.
 *          4   a change that allows requests wakes all senders: at once, or, on the socket's
 *              thread, after all arrived frames are handled. So a seal that comes with the last
 *              `staged` is journaled before the senders' notes.
 *          5   unread files are listed apart, by save, so a scan for requests skips 65,536 of them.
 *          6   all buffers are reserved in the budget at start.
 *          7   a stream's memory stays mapped until its save takes it, once no request carries its
 *              bytes: senders, and the copy for the partner, read it without a lock.
 * Limits:  checksums of CAIRN_UP_BLOCKS_BYTES_MAX; a save has CAIRN_UP_SHARDS_MAX shards. Two
 *          buffers a sender, a quarter of the budget at most.
 * Threads: upload_queue locks `queue` of a shard and the pool's free buffers, uploader_state a
 *          shard's phase; other fields are fixed before it is queued; pool and workers before a
 *          sender runs; `due` is the socket's thread's.
 * Next:    uploader/send/send.h.
 */
#pragma once

#include "common/memory.h"
#include "common/process.h"
#include "store/multipart.h"
#include "uploader/state/save.h"
#include "uploader/up.h"

struct cairn_up_buffer {
    struct cairn_up_buffer *next;
    uint8_t *data;
    uint32_t users; /* pieces in use: a part, or each of several small files */
};
struct cairn_up_pool {
    uint8_t *data;
    uint64_t bytes, buffer_bytes; /* bytes: reserved in the budget */
    struct cairn_up_buffer *buffers;
    size_t buffer_count;
    struct cairn_up_buffer *free;
};
/* Takes a buffer with one user, under the lock; NULL: all are in use. The last give frees it. */
struct cairn_up_buffer *cairn_up_pool_take(struct cairn_up_pool *pool);
void cairn_up_pool_give(struct cairn_up_pool *pool, struct cairn_up_buffer *buffer);

struct cairn_up_shard;

/* Unread files of one save, in the order of adding. */
struct cairn_up_unread {
    uint64_t entry;
    struct cairn_up_shard *first, *last;
};

struct cairn_up_queue {
    struct cairn_up *up;
    struct cairn_up_pool pool;           /* upload_queue locks its free buffers */
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
        bool offers_over; /* offers of an earlier process are no longer awaited (Q17) */
        bool admitted;    /* the store was checked, without a gap since */
        struct {
            uint32_t in_flight;
            uint64_t since_us;       /* mono clock: at least one is in flight since */
            uint64_t us, sent_bytes; /* how long there was one, but for since_us; acknowledged */
        } bodies;                    /* requests that carry bytes of shards */
    } locked;
};

enum cairn_code cairn_up_queue_new(struct cairn_up *up, struct cairn_up_queue **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Frees all shards. NULL is allowed. */
void cairn_up_queue_free(struct cairn_up_queue *queue);
/* Adds a sender's worker, to be woken; at most `workers`, before any sender runs. */
void cairn_up_queue_add_worker(struct cairn_up_queue *queue, struct cairn_store_worker *worker);
void cairn_up_queue_wake(struct cairn_up_queue *queue);
/* Wakes senders if handled frames set `due`. The socket's thread. */
void cairn_up_queue_wake_due(struct cairn_up_queue *queue);

/* A request that carries bytes of this shard is picked; it is over, and the store acknowledged so
 * many. With upload_queue held. */
void cairn_up_queue_body_begins(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
void cairn_up_queue_body_ends(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                              uint64_t sent_bytes);
/* How long such requests were in flight until now, those at once counted once, and what the store
 * acknowledged of them: the quotient is this node's upload rate, however short its saves are. */
struct cairn_up_sent {
    uint64_t us, bytes;
    bool sending; /* one is in flight now */
};
struct cairn_up_sent cairn_up_queue_sent(struct cairn_up_queue *queue);

/* Allows picking: the store is the one of the grants. Called at start and after each gap. Uploads
 * in flight on a mount are listed before they continue. */
void cairn_up_queue_admit(struct cairn_up_queue *queue);
bool cairn_up_queue_is_admitted(struct cairn_up_queue *queue);
/* True when no shard has requests in flight, even from before a gap. */
bool cairn_up_queue_is_still(struct cairn_up_queue *queue);

/* Q17: gives up shards that waited for an offer, unless their trainer is back. */
void cairn_up_queue_end_offers(struct cairn_up_queue *queue);

void cairn_up_queue_add(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
/* Adds a shard without staged bytes: wakes nobody. The socket's thread. */
void cairn_up_queue_add_unstaged(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
/* Adds a file, which waits for a reader; senders are woken as by `due`. The socket's thread. */
void cairn_up_queue_add_file(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
/* Under the lock: moves a file, being read or given up, to the senders' queue. */
void cairn_up_queue_join(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
/* The lock is held. */
void cairn_up_queue_remove(struct cairn_up_queue *queue, struct cairn_up_shard *shard);

#define CAIRN_UP_BLOCKS_BYTES_MAX (64 * CAIRN_MIB) /* checksums of a shard of 16 TiB */

/* How long to wait for bytes that only a trainer has. */
enum cairn_up_source_wait {
    CAIRN_UP_SOURCE_FOREVER, /* the trainer is connected */
    CAIRN_UP_SOURCE_OFFERED, /* while offers are awaited (Q17) */
    CAIRN_UP_SOURCE_GONE,
    CAIRN_UP_SOURCE_GIVEN_BACK /* it was durable; its memory may be another save's (Q19) */
};

/* Tells versions of a file's content apart. */
struct cairn_up_file {
    uint64_t device, inode, links;
    int64_t changed_ns, modified_ns;
    uint32_t mode, user, group;
    uint64_t name; /* a hash of its name */
};
enum cairn_code cairn_up_file_look(int fd, struct cairn_up_file *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_up_shard {
    /* fixed before it is queued */
    uint64_t entry; /* the save's */
    uint32_t index; /* in the save */
    char *name;     /* owned */
    char *key;      /* owned */
    bool tensors;
    uint64_t slab_offset, size_bytes;
    bool is_file;
    bool is_stream; /* in memory of its own, which the trainer made and sealed */
    /* of the save, locked by uploader_state */
    enum cairn_up_shard_phase phase;
    /* locked by upload_queue */
    struct {
        struct cairn_up_shard *next, *previous;
        enum cairn_up_upload_phase upload;
        struct cairn_multipart mp;
        const uint8_t *data;            /* the slab's or the stream's bytes, or NULL */
        struct cairn_slab stream;       /* of a stream, mapped; data NULL: not (again) here */
        int fd;                         /* the file, or -1 */
        char *path;                     /* opened for each read; NULL: fd is open */
        struct cairn_up_file file;      /* as at its handover */
        bool unread;                    /* waits for a reader (shards.h#5) */
        struct cairn_up_buffer *filled; /* holds filled_part, ready to send */
        const uint8_t *filled_bytes;    /* their place in it */
        uint32_t filled_part;
        bool filling;
        bool blocks_journaled, intent_journaled;
        bool needs_source; /* recovery: bytes are needed */
        enum cairn_up_source_wait source_wait;
        uint32_t in_flight, bodies_in_flight, failures;
        uint64_t not_before_ms;
    } queue;
};

/* fd and path (taken also on failure) for a file, or -1; data for a slab; a stream's memory.
 * Chooses part sizes. */
struct cairn_up_shard_options {
    uint64_t entry;
    uint32_t index;
    const char *name;
    const char *key;
    bool tensors;
    uint64_t slab_offset, size_bytes;
    const uint8_t *data;
    int take_fd;
    char *take_path; /* closes take_fd, and opens this path for each read */
    bool is_stream;
    struct cairn_slab take_stream; /* taken also on failure; data NULL: not here */
    const char *token;             /* NULL: a new token */
    uint64_t part_bytes;           /* 0: chosen here; a recovered shard keeps its size */
};
enum cairn_code cairn_up_shard_new(struct cairn_up_queue *queue,
                                   const struct cairn_up_shard_options *options,
                                   struct cairn_up_shard **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* The shard has ended or was never queued. */
void cairn_up_shard_free(struct cairn_up_queue *queue, struct cairn_up_shard *shard);

/* Wakes senders by cairn_up_queue_wake_due. The socket's thread. */
enum cairn_code cairn_up_shard_ready(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                     uint64_t ready_bytes, const uint8_t *crcs_le,
                                     uint64_t crc_count, struct cairn_error *err) CAIRN_MUST_USE;
/* True when it waits for bytes that are not here. */
bool cairn_up_shard_lacks_source(struct cairn_up_queue *queue, const struct cairn_up_shard *shard);
uint64_t cairn_up_shard_ready_bytes(struct cairn_up_queue *queue,
                                    const struct cairn_up_shard *shard);
void cairn_up_shard_source(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                           const uint8_t *data);
/* After a recovery, before the seal: await waits for the returned trainer's bytes without a
 * deadline; then they are staged again, from `data`. */
void cairn_up_shard_await(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
void cairn_up_shard_restage(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                            const uint8_t *data);
/* A stream's memory came, once more after a restart; crcs_le: of all blocks. Takes take_memory,
 * also on failure. CAIRN_SOURCE_CHANGED: other checksums than before. The socket's thread. */
enum cairn_code cairn_up_shard_stream(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                      struct cairn_slab *take_memory, struct cairn_view crcs_le,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Its checksums are in the journal. */
void cairn_up_shard_journaled(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
/* The stream's bytes, valid until take_stream; NULL: not here. */
const uint8_t *cairn_up_shard_stream_bytes(struct cairn_up_queue *queue,
                                           const struct cairn_up_shard *shard);
/* Moves the stream's memory out of a shard that is quiet, and needs no bytes again. */
struct cairn_slab cairn_up_shard_take_stream(struct cairn_up_queue *queue,
                                             struct cairn_up_shard *shard);
/* The trainer that was awaited for a stream's bytes left without bringing them. */
void cairn_up_shard_unawait(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
/* A shard's journal records, before it is queued (Q17). */
struct cairn_up_shard_past {
    bool intent, durable;
    const char *upload_id;  /* NULL: none */
    const uint32_t *blocks; /* NULL: unknown */
    enum cairn_up_source_wait source_wait;
    const struct cairn_store_part *parts; /* acknowledged under that upload */
    size_t part_count;
};
enum cairn_code cairn_up_shard_recover(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                       const struct cairn_up_shard_past *past,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Checks a durable shard by HEAD, after which it ends again. False: no memory; it stays durable. */
bool cairn_up_shard_again(struct cairn_up_queue *queue, struct cairn_up_shard *shard);
void cairn_up_shard_give_up(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                            const struct cairn_error *why);
/* Like give_up, with upload_queue held; wakes no sender. */
void cairn_up_shard_give_up_locked(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                   const struct cairn_error *why);
/* No request carries its bytes, or will (Q20). */
bool cairn_up_shard_is_quiet(struct cairn_up_queue *queue, const struct cairn_up_shard *shard);
bool cairn_up_shard_has_ended(struct cairn_up_queue *queue, const struct cairn_up_shard *shard);
/* Returns all block checksums for the seal, unless journaled before. Staging is complete. */
enum cairn_code cairn_up_shard_seal(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                    struct cairn_buf *ret_le, bool *ret_needed,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* The contents of a registration. */
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
/* The same before it is durable, for another node that may send it under the token; part_bytes is
 * never 0. CAIRN_NOT_FOUND: a file, or not fully staged. */
enum cairn_code cairn_up_shard_describe(struct cairn_up_queue *queue,
                                        const struct cairn_up_shard *shard,
                                        struct cairn_up_shard_proof *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* The journal's record of its token, shared with `partner`; NULL: no partner yet. */
json_t *cairn_up_shard_intent(struct cairn_up_queue *queue, const struct cairn_up_shard *shard,
                              const char *partner);
/* Acknowledged amounts, added to present values. A shard sent in one piece is one part. */
struct cairn_up_progress {
    uint64_t bytes, shards, parts_done, parts_total;
};
void cairn_up_shard_progress(struct cairn_up_queue *queue, const struct cairn_up_shard *shard,
                             struct cairn_up_progress *sum);
