/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard: one object on its way to the store.
 *
 * Why:     a trainer brings its bytes, a sender sends them, a save gives it up, the outbox tells of
 *          it: each of them touches it here, under one lock, and none of them calls another for it.
 * Promise: 1   what is given up before it was begun has ended at once; any other shard ends when a
 *              sender says so.
 *          2   blocks and token of a shard outlive every look at it: it is never sent as another
 *              object.
 * Limits:  checksums of CAIRN_UP_BLOCKS_BYTES_MAX.
 * Threads: `queue` is locked by upload_queue, the phase by uploader_state, the rest is fixed before
 *          it is queued. Any thread.
 * Next:    uploader/shards/queue.h; uploader/send/send.h.
 */
#pragma once

#include "store/multipart.h"
#include "uploader/shards/queue.h"
#include "uploader/state/save.h"
#include "uploader/state/upload.h"

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
        bool unread;                    /* a file that waits for a reader (queue.h#3) */
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
    char *take_path; /* take_fd is closed, and the file opened by this name when it is read */
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
