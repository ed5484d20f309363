/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what the files of the sender share among themselves.
 *
 * Why:     choosing what to send, reading files and dealing with results are three pages of code
 *          over the same queue.
 * Promise: 1   a request belongs to one worker from pick to finish; a shard that has requests
 *              anywhere is never freed.
 * Limits:  as in uploader/send/send.h.
 * Threads: every shard's `queue` is locked by upload_queue; struct cairn_up_sender belongs to
 *          its thread.
 * Next:    send.c (threads, results), pick.c (what next), source.c (files).
 */
#pragma once

#include "uploader/send/send.h"

/* One action under way. */
struct cairn_up_sending {
    struct cairn_store_request request; /* request.owner points back here */
    struct cairn_multipart_action action;
    struct cairn_up_shard *shard;
    struct cairn_up_sender *sender;
    struct cairn_up_buffer *buffer; /* a file's bytes, at `bytes` */
    const uint8_t *bytes;
    void *read_into;                /* READ: the sender's, until this is finished */
    struct cairn_store_part *parts; /* COMPLETE, LIST_PARTS */
    struct cairn_up_sending *next;
    uint64_t submitted_us; /* mono clock */
    bool carries;          /* the shard's bytes */
    bool finished;
    bool small;                      /* it counts among flying_small alone */
    bool notes_intent, notes_blocks; /* what the journal must hear first (send.h#1) */
};

/* A part of a file that is being read, a few MiB at a time. */
struct cairn_up_fill {
    struct cairn_up_shard *shard; /* NULL: none */
    struct cairn_up_buffer *buffer;
    uint32_t part_number;
    uint64_t offset, length, done;
    uint32_t *crcs; /* of its blocks */
    bool verify;    /* read again: compare, do not make new ones */
    int fd;
    const char *path; /* of the shard: its file is opened for this part alone; NULL: fd is open */
    struct cairn_up_shard **small; /* owned: several files, which lie in the buffer one after the
                                    * other, `shard` the first; NULL: a part of one */
    size_t small_count;
};

/* A thread that reads files: one that does not answer (a network file system that is away) holds up
 * this one and no sender. */
struct cairn_up_reader {
    struct cairn_up_send *send;
    struct cairn_up_thread thread;
    struct cairn_up_fill fill; /* its shard is set and cleared with the lock held */
};

struct cairn_up_sender {
    struct cairn_up_send *send;
    struct cairn_up_thread thread;
    struct cairn_store_worker *store;
    struct cairn_up_sending *flying;     /* submitted */
    uint32_t flying_count, flying_small; /* of them those of small objects */
    void *read_buffer;                   /* CAIRN_MULTIPART_READ_BYTES; made when first needed */
    bool reading;                        /* it is in use */
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
    uint32_t cores;                           /* that senders share with who copies */
    struct {
        uint64_t since_ms; /* 0: none */
        uint64_t rests_until_ms;
        uint64_t left_bytes; /* to be copied when the last one ended */
    } hold;                  /* of hold.c; locked by upload_queue */
};

/* Under the lock: what this worker shall do next, as a list; NULL: nothing. */
struct cairn_up_sending *cairn_up_send_pick(struct cairn_up_sender *sender, uint64_t *ret_again_ms);
/* hold.c: under the lock; true: ranks copy and need the cores, look again then. */
bool cairn_up_send_holds(struct cairn_up_send *send, uint64_t now_ms, uint64_t *ret_again_ms);
/* Journal what the picked ones need, then submit them; ends of shards are told at once. */
void cairn_up_send_launch(struct cairn_up_sender *sender, struct cairn_up_sending *picked);
void cairn_up_sending_free(struct cairn_up_sending *sending);

/* Is it one of those that a folder takes many of at once (store.h, together_max)? */
bool cairn_up_send_is_small(const struct cairn_up_send *send, const struct cairn_up_shard *shard);
/* source.c: with the lock held, have files of which nothing was read yet read as long as buffers
 * and readers are free; they join what senders look at. */
void cairn_up_fill_unread(struct cairn_up_send *send);
/* With the lock held, have part_number read when a buffer and a reader are free. Senders
 * are woken when it was. */
bool cairn_up_fill_begin(struct cairn_up_send *send, struct cairn_up_shard *shard,
                         uint32_t part_number, bool verify);
enum cairn_code cairn_up_readers_new(struct cairn_up_send *send,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_readers_start(struct cairn_up_send *send,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Once `stopping` is set. False: some file does not answer, and its thread stays. */
bool cairn_up_readers_stop(struct cairn_up_send *send);
void cairn_up_readers_free(struct cairn_up_send *send);
