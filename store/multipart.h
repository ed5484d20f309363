/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multipart: decides what the next request for one shard is, until the shard is durable.
 *
 * Why:     the order of intent, create, parts, complete and proof is where checkpoints are lost;
 *          kept apart from all I/O it can be run through every fault in microseconds.
 * Promise: 1    CREATE or PUT is asked for only once; the caller journals the intent (with token)
 *               before it runs them, the upload id after CREATE, the block checksums before
 *               COMPLETE.
 *          2    an ambiguous outcome is settled by HEAD: token, length and checksum all match =
 *               durable; otherwise parts are listed and Complete is repeated; otherwise, and only
 *               when nothing is there, the shard is sent again. "Something exists" proves nothing.
 *          3    every part is asked for until it was acknowledged; none is in flight twice unless
 *               it was hedged; part boundaries and bytes never change.
 *          4    after DURABLE or FAILED no action follows; a shard takes a bounded number of
 *               actions, whatever the store answers (reading back: one for each 4 MiB). A PUT or
 *               COMPLETE that may still be under way is asked about again after pauses that grow,
 *               for CAIRN_MULTIPART_PATIENCE_MS.
 *          5    an object that is not ours is never replaced: it makes the shard FAILED by name.
 *          6    a refused HEAD (403) is no proof: keys that may not list get it for what is not
 *               there. Where something must be there it is final, else ListParts decides.
 * Limits:  sizes fixed at init; bytes become ready in order, from the front.
 * Threads: none of its own: the caller's lock. No I/O, no allocation after init.
 * Next:    uploader/send/send.h runs it; store/README.md has the drawing of its states.
 */
#pragma once

#include "common/clock.h"
#include "store/store.h"

enum cairn_multipart_kind {
    CAIRN_MULTIPART_WAIT, /* nothing to do now: results or bytes are awaited      */
    CAIRN_MULTIPART_PUT,  /* whole shard in one request                           */
    CAIRN_MULTIPART_CREATE,
    CAIRN_MULTIPART_PART, /* part_number, offset, length                          */
    CAIRN_MULTIPART_COMPLETE,
    CAIRN_MULTIPART_HEAD,
    CAIRN_MULTIPART_LIST_PARTS,
    CAIRN_MULTIPART_READ, /* offset, length, crc32c: GET with wants_crc32c          */
    CAIRN_MULTIPART_ABORT,
    CAIRN_MULTIPART_NEED_SOURCE, /* recovery: bytes are needed and no slab is there      */
    CAIRN_MULTIPART_DURABLE,     /* the end: the object is checked                       */
    CAIRN_MULTIPART_FAILED,      /* the end: see error                                   */
};
struct cairn_multipart_action {
    enum cairn_multipart_kind kind;
    uint32_t part_number;    /* from 1 */
    uint64_t offset, length; /* LIST_PARTS: length is the part size; CREATE: of the whole */
    uint32_t crc32c;
};
struct cairn_multipart_part {
    enum { CAIRN_PART_TODO, CAIRN_PART_SENDING, CAIRN_PART_ACKED } state;
    uint32_t tries, put_offs;
    struct cairn_store_part sent; /* once acknowledged, also to an earlier process */
};
struct cairn_multipart {
    uint64_t size_bytes, part_bytes, ready_bytes;
    bool has_source; /* the bytes can be read (again) */
    uint32_t part_count, parts_acked, parts_sending;
    struct cairn_multipart_part *parts; /* owned; NULL when sent by one PUT */
    uint32_t *blocks;                   /* owned: CRC32C of each block */
    uint32_t crc32c;                    /* of the whole, once all blocks are known */
    char token[CAIRN_UUID_TEXT_BYTES];
    char upload_id[CAIRN_UPLOAD_ID_BYTES_MAX];
    uint32_t rounds; /* times the whole shard was begun anew */
    bool give_up;
    bool misstated;                  /* DURABLE, though the store stated another checksum */
    uint64_t pause_ms;               /* to be waited before the next action; set by each result */
    struct cairn_error error;        /* FAILED */
    const struct cairn_clock *clock; /* the real one, unless a test sets another after init */
    /* Private to multipart.c. */
    uint32_t waits, looks;     /* pauses so far; of them in a row for another look */
    uint64_t waiting_since_ms; /* the first of them */
    bool perhaps;              /* a PUT or COMPLETE of this round may have been applied */
    bool taken;                /* the last one was refused because something is there (412) */
    bool head_refused;         /* by 403: the object may be there or not */
    char refusal[160];         /* why the last one did not do */
    unsigned state;
    bool busy;      /* an action other than a part is under way */
    bool certain;   /* PUT or COMPLETE was answered with OK */
    bool proven;    /* it was durable once, says the journal */
    bool recovered; /* by a process before this one, perhaps to the end */
    bool reads;     /* what is there proves itself by its bytes */
    bool disputed;  /* the store stated another checksum than ours, so its bytes decide */
    uint64_t read_bytes;
    bool upload_gone; /* the upload of upload_id is no longer there */
    bool parts_doubted, parts_resent;
    bool crc32c_known, found_has_crc32c, found_token; /* found: by HEAD */
    uint32_t found_crc32c, tries, put_offs;
    uint32_t attempts, refusals; /* in this round: PUT or COMPLETE, and refused parts */
    uint64_t blocks_known;       /* blocks[] is valid below this */
};

/* How long a PUT or COMPLETE without a clear outcome is followed. Stores take minutes to join many
 * parts, and call the upload gone, busy or failed meanwhile. */
#define CAIRN_MULTIPART_PATIENCE_MS (5 * 60 * 1000)
#define CAIRN_MULTIPART_READ_BYTES (4 * CAIRN_MIB) /* at most, of one READ */

/* Part size for a shard: a multiple of 1 MiB, such that all connections (0 counts as 1) carry a
 * part of it, but at least CAIRN_MULTIPART_LEAST_BYTES and at most most_bytes; the profile's limits
 * and its part count come first. A shard of up to two such least parts is one. */
#define CAIRN_MULTIPART_LEAST_BYTES (8 * CAIRN_MIB)
uint64_t cairn_multipart_part_bytes(const struct cairn_store_profile *profile, uint64_t size_bytes,
                                    uint64_t most_bytes, uint32_t connections);

/* CAIRN_INVALID or CAIRN_TOO_LARGE: a shard cannot be sent in such parts. */
enum cairn_code cairn_multipart_check(uint64_t size_bytes, uint64_t part_bytes,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_multipart_init(struct cairn_multipart *mp, uint64_t size_bytes,
                                     uint64_t part_bytes, const char *token,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* After a restart: what the journal holds. upload_id may be NULL. blocks may be NULL (unknown: the
 * source must come again). Begins with HEAD. */
enum cairn_code cairn_multipart_recover(struct cairn_multipart *mp, const char *upload_id,
                                        const uint32_t *blocks,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* After that: a part that an earlier process had acknowledged (number, size, crc32c, etag). It is
 * kept if the store lists the same ETag and the source still has that checksum. */
void cairn_multipart_remember(struct cairn_multipart *mp, const struct cairn_store_part *part);
/* After recover: the journal says that it was durable. That stands for a token where the store
 * keeps none (Q46). */
void cairn_multipart_proven(struct cairn_multipart *mp);
void cairn_multipart_release(struct cairn_multipart *mp);

/* Bytes [0, ready_bytes) are in place; checksums of the blocks that became whole (the last, shorter
 * block when ready_bytes == size_bytes). first_block is where blocks[] begins. */
enum cairn_code cairn_multipart_ready(struct cairn_multipart *mp, uint64_t ready_bytes,
                                      const uint32_t *blocks, uint64_t first_block,
                                      uint64_t block_count, struct cairn_error *err) CAIRN_MUST_USE;
/* The source is there (again), wholly staged. After a recovery without one. */
void cairn_multipart_source(struct cairn_multipart *mp);
/* After a recovery without one: the source is there and is staged once more, so its bytes become
 * ready from the front again, with the checksums that they had. */
void cairn_multipart_restage(struct cairn_multipart *mp);
/* The store was away, and what was acknowledged may be lost with it: the parts are listed before
 * the upload goes on. */
void cairn_multipart_doubt(struct cairn_multipart *mp);
/* Abort what was begun, then FAILED with this code and message. */
void cairn_multipart_give_up(struct cairn_multipart *mp, const struct cairn_error *why);

/* The next action; it counts as under way until its result comes. WAIT and NEED_SOURCE may be asked
 * again, they have no result. The request of a HEAD must carry the token, so that a folder store
 * makes durable what it answers about; that of LIST_PARTS needs room for part_count parts and
 * action->length. */
void cairn_multipart_next(struct cairn_multipart *mp, struct cairn_multipart_action *ret);
/* Its result, copied from the finished store request (code, ambiguous, etag, upload_id, object_*,
 * parts). */
void cairn_multipart_result(struct cairn_multipart *mp, const struct cairn_multipart_action *action,
                            const struct cairn_store_request *request);
/* May be taken back unsent (for instance the worker is stopping). */
void cairn_multipart_unsent(struct cairn_multipart *mp,
                            const struct cairn_multipart_action *action);
