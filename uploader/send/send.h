/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send: moves the bytes of shards to the store, many parts at once, oldest shard first.
 *
 * Why:     store/multipart.h says what comes next for one shard; this runs it for all of them on a
 *          few threads and writes into the journal what must be remembered before each step.
 * Promise: E1  intent and token are in the journal before CREATE or PUT, the upload id before any
 *              part, all block checksums before COMPLETE (and before PUT), "durable" after HEAD
 *              and before anybody hears of it (R2, Q16).
 *          E2  bytes are sent from the slab itself; a file's bytes from a bounded pool that is
 *              reserved at start, so a file larger than the memory budget can be saved.
 *          E3  checksums come from staging (slab) or from the one first read (file). Bytes that no
 *              longer match them are never sent on: CAIRN_SOURCE_CHANGED names shard and range.
 *          E4  after a shard ended, no request of this process carries its bytes (Q20); a shard
 *              that is given up is cancelled on the wire first, then its upload is aborted.
 *          E6  nothing is picked before the store was met, nor after a gap until it was met again
 *              (Q55): its path names another folder, or a request found it away.
 * Limits:  requests in flight as the store's appetite allows; the pool as reserved.
 * Threads: `queue` of a shard is locked by upload_queue; worker threads of its own. The callbacks
 *          of uploader/save.h are called on them with no lock held.
 * Next:    store/multipart.h, uploader/send/source.c, uploader/journal/journal.h.
 */
#pragma once

#include "store/multipart.h"
#include "uploader/daemon.h"
#include "uploader/state/save.h"

struct cairn_up_buffer;

struct cairn_up_shard {
    /* fixed before it is queued */
    uint64_t entry; /* the save it belongs to */
    uint32_t index; /* in that save */
    char *name;     /* owned */
    char key[CAIRN_KEY_BYTES_MAX + 1];
    bool tensors;
    uint64_t slab_offset, size_bytes;
    bool is_file;
    /* of the save, locked by uploader_state */
    enum cairn_up_shard_phase phase;
    /* locked by upload_queue */
    struct {
        struct cairn_up_shard *next, *previous;
        bool queued;
        struct cairn_multipart mp;
        const uint8_t *data;            /* the slab's bytes, or NULL */
        int fd;                         /* the file, or -1 */
        int64_t file_changed_ns;        /* its change time when it was handed over */
        struct cairn_up_buffer *filled; /* bytes of filled_part, ready to be sent */
        uint32_t filled_part;
        uint64_t refill; /* part number that must be read again, 0: none */
        bool filling;
        bool blocks_journaled, intent_journaled;
        bool giving_up, ended, durable;
        bool needs_source;        /* recovery: the bytes are wanted */
        uint64_t source_until_ms; /* mono clock; 0 = for ever */
        uint32_t in_flight, bodies_in_flight, failures;
        uint64_t not_before_ms;
    } queue;
};

enum cairn_code cairn_up_send_new(struct cairn_up *up, struct cairn_up_send **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_send_start(struct cairn_up_send *send,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_send_stop(struct cairn_up_send *send);
void cairn_up_send_free(struct cairn_up_send *send);

/* The store is the one of the grants: send. Until then, and after a gap, nothing is picked. Uploads
 * that were under way on a mount are listed before they go on. */
void cairn_up_send_admit(struct cairn_up_send *send);
bool cairn_up_send_is_admitted(struct cairn_up_send *send);
/* No request of any shard is under way, also none that was picked before a gap. */
bool cairn_up_send_is_still(struct cairn_up_send *send);

/* fd (taken also on failure) for a file, else -1; data for a slab. part sizes are chosen here. */
struct cairn_up_shard_options {
    uint64_t entry;
    uint32_t index;
    const char *name;
    const char *key;
    bool tensors;
    uint64_t slab_offset, size_bytes;
    const uint8_t *data;
    int take_fd;
    const char *token;   /* NULL: a new one */
    uint64_t part_bytes; /* 0: chosen here; a recovered shard keeps its own */
};
enum cairn_code cairn_up_shard_new(struct cairn_up_send *send,
                                   const struct cairn_up_shard_options *options,
                                   struct cairn_up_shard **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* It must have ended or never have been queued. */
void cairn_up_shard_free(struct cairn_up_send *send, struct cairn_up_shard *shard);

void cairn_up_send_add(struct cairn_up_send *send, struct cairn_up_shard *shard);
enum cairn_code cairn_up_send_ready(struct cairn_up_send *send, struct cairn_up_shard *shard,
                                    uint64_t ready_bytes, const uint8_t *crcs_le,
                                    uint64_t crc_count, struct cairn_error *err) CAIRN_MUST_USE;
uint64_t cairn_up_send_ready_bytes(struct cairn_up_send *send, const struct cairn_up_shard *shard);
void cairn_up_send_source(struct cairn_up_send *send, struct cairn_up_shard *shard,
                          const uint8_t *data);
/* After a recovery, before the seal: the trainer is back and will stage the shard once more, so its
 * bytes are waited for without an end; and then it does, from `data`. */
void cairn_up_send_await(struct cairn_up_send *send, struct cairn_up_shard *shard);
void cairn_up_send_restage(struct cairn_up_send *send, struct cairn_up_shard *shard,
                           const uint8_t *data);
/* Before it is queued: what the journal holds of it (Q17). */
struct cairn_up_shard_past {
    bool intent, durable;
    const char *upload_id;                /* NULL: none */
    const uint32_t *blocks;               /* NULL: unknown */
    uint64_t source_until_ms;             /* how long its bytes are waited for; mono clock */
    const struct cairn_store_part *parts; /* acknowledged before, of that upload */
    size_t part_count;
};
enum cairn_code cairn_up_send_recover(struct cairn_up_send *send, struct cairn_up_shard *shard,
                                      const struct cairn_up_shard_past *past,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* A durable shard is looked at once more (HEAD); it ends again. False: it is not to be trusted with
 * that now (no memory), and stays durable. */
bool cairn_up_send_again(struct cairn_up_send *send, struct cairn_up_shard *shard);
void cairn_up_send_give_up(struct cairn_up_send *send, struct cairn_up_shard *shard,
                           const struct cairn_error *why);
/* No request carries its bytes and none will (Q20). */
bool cairn_up_send_is_quiet(struct cairn_up_send *send, const struct cairn_up_shard *shard);
bool cairn_up_send_has_ended(struct cairn_up_send *send, const struct cairn_up_shard *shard);
void cairn_up_send_wake(struct cairn_up_send *send);
/* For the seal: the checksums of all blocks, if the journal must still hear them (then it counts as
 * told). The shard must be wholly staged. */
enum cairn_code cairn_up_send_seal(struct cairn_up_send *send, struct cairn_up_shard *shard,
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
enum cairn_code cairn_up_send_proof(struct cairn_up_send *send, const struct cairn_up_shard *shard,
                                    struct cairn_up_shard_proof *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
uint64_t cairn_up_send_acked_bytes(struct cairn_up_send *send, const struct cairn_up_shard *shard);
