/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what the files of the sender share among themselves.
 *
 * Why:     choosing requests, reading files and handling results work on one queue.
 * Promise: 1   a request has one worker until finished; a shard with requests is never freed.
 * Limits:  as in uploader/send/send.h.
 * Threads: upload_queue locks every shard's `queue`; struct cairn_up_sender is its thread's.
 * Next:    send.c (threads, results), pick.c (what next), source.c (files).
 */
#pragma once

#include "uploader/send/send.h"

/* One action in progress. */
struct cairn_up_sending {
    struct cairn_store_request request; /* request.owner points back here */
    struct cairn_multipart_action action;
    struct cairn_up_shard *shard;
    struct cairn_up_sender *sender;
    struct cairn_up_buffer *buffer; /* holds the file's bytes, at `bytes` */
    const uint8_t *bytes;
    void *read_into;                /* READ: the sender's, until finished */
    struct cairn_store_part *parts; /* COMPLETE, LIST_PARTS */
    struct cairn_up_sending *next;
    uint64_t submitted_us; /* mono clock */
    bool carries;          /* carries the shard's bytes */
    bool finished;
    bool small;                      /* counts only in flying_small */
    bool notes_intent, notes_blocks; /* journaled before the request (send.h#1) */
};

/* A part of a file being read, a few MiB at a time. */
struct cairn_up_fill {
    struct cairn_up_shard *shard; /* NULL: no part */
    struct cairn_up_buffer *buffer;
    uint32_t part_number;
    uint64_t offset, length, done;
    uint32_t *crcs; /* of its blocks */
    bool verify;    /* reread: compare checksums, make none */
    int fd;
    const char *path;              /* of the shard: opened for this part; NULL: fd is open */
    struct cairn_up_shard **small; /* owned: several files in the buffer; NULL: one */
    size_t small_count;
};

/* A thread that reads files: a hanging network file system blocks no sender. */
struct cairn_up_reader {
    struct cairn_up_send *send;
    struct cairn_up_thread thread;
    struct cairn_up_fill fill; /* its shard is set and cleared under the lock */
};

struct cairn_up_sender {
    struct cairn_up_send *send;
    struct cairn_up_thread thread;
    struct cairn_store_worker *store;
    struct cairn_up_sending *flying;     /* submitted */
    uint32_t flying_count, flying_small; /* of these, requests of small objects */
    void *read_buffer;                   /* CAIRN_MULTIPART_READ_BYTES; made on first use */
    bool reading;                        /* read_buffer is in use */
    struct cairn_late late;
};

struct cairn_up_send {
    struct cairn_up *up;
    struct cairn_up_queue *queue;     /* of shards; its lock is upload_queue */
    struct cairn_log_limit log_limit; /* of failed requests; locked by upload_queue */
    struct cairn_up_sender *senders;
    size_t sender_count;
    struct cairn_up_reader *readers; /* as many as the pool has buffers */
    size_t reader_count;
    struct cairn_condition to_read, was_read; /* of upload_queue */
    uint32_t cores;                           /* shared by senders and copying ranks */
    struct {
        uint64_t since_ms; /* 0: no hold */
        uint64_t rests_until_ms;
        uint64_t left_bytes; /* bytes still to copy when the last hold ended */
    } hold;                  /* of pick.c; locked by upload_queue */
};

/* Picks this worker's next requests as a list, under the lock; NULL: none. */
struct cairn_up_sending *cairn_up_send_pick(struct cairn_up_sender *sender, uint64_t *ret_again_ms);
/* pick.c, under the lock; true: ranks copy and need the cores, retry then. */
bool cairn_up_send_holds(struct cairn_up_send *send, uint64_t now_ms, uint64_t *ret_again_ms);
/* Journals what the picked requests need, submits them, and reports ended shards. */
void cairn_up_send_launch(struct cairn_up_sender *sender, struct cairn_up_sending *picked);
void cairn_up_sending_free(struct cairn_up_sending *sending);

/* True for objects of which a folder takes many at once (store.h, together_max). */
bool cairn_up_send_is_small(const struct cairn_up_send *send, const struct cairn_up_shard *shard);
/* source.c, under the lock: reads files while buffers and readers are free, and queues them. */
void cairn_up_fill_unread(struct cairn_up_send *send);
/* Under the lock: reads part_number when a buffer and a reader are free, then wakes senders. */
bool cairn_up_fill_begin(struct cairn_up_send *send, struct cairn_up_shard *shard,
                         uint32_t part_number, bool verify);
enum cairn_code cairn_up_readers_new(struct cairn_up_send *send,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_readers_start(struct cairn_up_send *send,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Called once `stopping` is set. False: a file does not answer, and its thread remains. */
bool cairn_up_readers_stop(struct cairn_up_send *send);
void cairn_up_readers_free(struct cairn_up_send *send);
