/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multipart: decides the next request for one shard, until the shard is durable.
 *
 * Why:     a wrong order of intent, create, parts, complete and proof loses checkpoints; without
 *          I/O every fault can be tested in microseconds.
 * Promise: 1    CREATE or PUT is requested once; the caller journals the intent (with token) before
 *               it, the upload id after CREATE, the block checksums before COMPLETE.
 *          2    HEAD settles an ambiguous outcome: matching token, length and checksum mean
 *               durable. Otherwise parts are listed and COMPLETE is repeated; the shard is sent
 *               again only when nothing is there. "Something exists" proves nothing.
 *          3    every part is requested until acknowledged; no part is in flight twice unless
 *               hedged; part boundaries and bytes never change.
 *          4    no action follows DURABLE or FAILED; a shard takes a bounded number of actions,
 *               whatever the store answers (reading back: one for each 4 MiB). An unclear PUT or
 *               COMPLETE is checked again after growing pauses, for CAIRN_MULTIPART_PATIENCE_MS.
 *          5    a foreign object is never replaced: the shard is FAILED, by name.
 *          6    a refused HEAD (403) proves nothing: without list permission 403 also means absent.
 *               Where an object must exist 403 is final, else ListParts decides.
 * Limits:  sizes fixed at init; bytes become ready in order, from the front.
 * Threads: none of its own: the caller's lock. No I/O, no allocation after init.
 * Next:    uploader/send/send.h runs it; store/README.md has the drawing of its states.
 */
#pragma once

#include "common/clock.h"
#include "store/store.h"

enum cairn_multipart_kind {
    CAIRN_MULTIPART_WAIT, /* nothing to do until a result or bytes arrive */
    CAIRN_MULTIPART_PUT,  /* whole shard in one request */
    CAIRN_MULTIPART_CREATE,
    CAIRN_MULTIPART_PART,
    CAIRN_MULTIPART_COMPLETE,
    CAIRN_MULTIPART_HEAD,
    CAIRN_MULTIPART_LIST_PARTS,
    CAIRN_MULTIPART_READ, /* offset, length, crc32c: GET with wants_crc32c */
    CAIRN_MULTIPART_ABORT,
    CAIRN_MULTIPART_NEED_SOURCE, /* recovery: the bytes are needed and not staged */
    CAIRN_MULTIPART_DURABLE,
    CAIRN_MULTIPART_FAILED,
};
struct cairn_multipart_action {
    enum cairn_multipart_kind kind;
    uint32_t part_number;    /* from 1 */
    uint64_t offset, length; /* LIST_PARTS: length is the part size; CREATE: of the shard */
    uint32_t crc32c;
};
struct cairn_multipart_part {
    enum { CAIRN_PART_TODO, CAIRN_PART_SENDING, CAIRN_PART_ACKED } state;
    uint32_t tries, put_offs;
    struct cairn_store_part sent; /* set once acknowledged, also to an earlier process */
};
struct cairn_multipart {
    uint64_t size_bytes, part_bytes, ready_bytes;
    bool has_source; /* its bytes are staged and readable */
    uint32_t part_count, parts_acked, parts_sending;
    struct cairn_multipart_part *parts; /* owned; NULL for a single PUT */
    uint32_t *blocks;                   /* owned: CRC32C of each block */
    uint32_t crc32c;                    /* of the whole shard, once all blocks are known */
    char token[CAIRN_UUID_TEXT_BYTES];
    char upload_id[CAIRN_UPLOAD_ID_BYTES_MAX];
    uint32_t rounds; /* restarts of the whole shard */
    bool give_up;
    bool misstated;                  /* DURABLE, though the store stated a wrong checksum */
    uint64_t pause_ms;               /* delay before the next action; set by each result */
    struct cairn_error error;        /* FAILED */
    const struct cairn_clock *clock; /* real, unless a test replaces it after init */
    /* Private to multipart.c. */
    uint32_t waits, looks;     /* pauses so far; consecutive pauses before a HEAD */
    uint64_t waiting_since_ms; /* start of the first pause */
    bool perhaps;              /* a PUT or COMPLETE of this round may have been applied */
    bool taken;                /* the last PUT or COMPLETE got 412: an object exists */
    bool head_refused;         /* HEAD got 403: existence is unknown */
    char refusal[160];         /* why the last PUT or COMPLETE failed */
    unsigned state;
    bool busy;      /* an action other than a part is under way */
    bool certain;   /* PUT or COMPLETE was answered with OK */
    bool proven;    /* the journal says that the shard was durable */
    bool recovered; /* an earlier process began it and may have finished it */
    bool reads;     /* the object is read back and compared by its bytes */
    bool disputed;  /* store and memory disagree on the checksum, so the bytes decide */
    uint64_t read_bytes;
    bool upload_gone; /* the store no longer knows upload_id */
    bool parts_doubted, parts_resent;
    bool crc32c_known, found_has_crc32c, found_token; /* found_*: from HEAD */
    uint32_t found_crc32c, tries, put_offs;
    uint32_t attempts, refusals; /* in this round: of PUT or COMPLETE; of parts */
    uint64_t blocks_known;
};

/* How long an unclear PUT or COMPLETE is followed. Stores take minutes to join many parts, and
 * report the upload gone, busy or failed meanwhile. */
#define CAIRN_MULTIPART_PATIENCE_MS (5 * 60 * 1000)
#define CAIRN_MULTIPART_READ_BYTES (4 * CAIRN_MIB) /* bound of one READ */

/* Part size for a shard: a multiple of 1 MiB that gives every connection (0 counts as 1) a part,
 * between CAIRN_MULTIPART_LEAST_BYTES and most_bytes. The profile's limits and part count take
 * precedence. A shard of up to two least parts is one part. */
#define CAIRN_MULTIPART_LEAST_BYTES (8 * CAIRN_MIB)
uint64_t cairn_multipart_part_bytes(const struct cairn_store_profile *profile, uint64_t size_bytes,
                                    uint64_t most_bytes, uint32_t connections);

/* CAIRN_INVALID or CAIRN_TOO_LARGE: no such parts can carry the shard. */
enum cairn_code cairn_multipart_check(uint64_t size_bytes, uint64_t part_bytes,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_multipart_init(struct cairn_multipart *mp, uint64_t size_bytes,
                                     uint64_t part_bytes, const char *token,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Restores the journal's state after a restart and begins with HEAD. upload_id may be NULL. blocks
 * may be NULL (unknown: the source must be staged again). */
enum cairn_code cairn_multipart_recover(struct cairn_multipart *mp, const char *upload_id,
                                        const uint32_t *blocks,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Call after recover: adds a part that the store acknowledged to an earlier process (number, size,
 * crc32c, etag). It is kept if ETag and source still match. */
void cairn_multipart_remember(struct cairn_multipart *mp, const struct cairn_store_part *part);
/* Call after recover: the journal's "durable" replaces a token that the store lacks (Q46). */
void cairn_multipart_proven(struct cairn_multipart *mp);
void cairn_multipart_release(struct cairn_multipart *mp);

/* Bytes [0, ready_bytes) are staged; blocks[] holds the checksums of the newly complete blocks from
 * first_block on (with the short last block when ready_bytes == size_bytes). */
enum cairn_code cairn_multipart_ready(struct cairn_multipart *mp, uint64_t ready_bytes,
                                      const uint32_t *blocks, uint64_t first_block,
                                      uint64_t block_count, struct cairn_error *err) CAIRN_MUST_USE;
/* After a recovery without source: the whole source is staged again. */
void cairn_multipart_source(struct cairn_multipart *mp);
/* After a recovery without source: staging starts again from the front, with the same checksums. */
void cairn_multipart_restage(struct cairn_multipart *mp);
/* Lists the parts first: the store's mount was away, and acknowledged parts may be lost. */
void cairn_multipart_doubt(struct cairn_multipart *mp);
/* Aborts the open upload, then becomes FAILED with this code and message. */
void cairn_multipart_give_up(struct cairn_multipart *mp, const struct cairn_error *why);

/* The next action, under way until its result arrives. WAIT and NEED_SOURCE have no result and may
 * be returned again. A HEAD request must carry the token, so that a folder store syncs the object
 * before it answers; a LIST_PARTS request needs room for part_count parts and action->length. */
void cairn_multipart_next(struct cairn_multipart *mp, struct cairn_multipart_action *ret);
/* The result, from the store request (code, ambiguous, etag, upload_id, object_*, parts). */
void cairn_multipart_result(struct cairn_multipart *mp, const struct cairn_multipart_action *action,
                            const struct cairn_store_request *request);
/* Takes back an action that was not sent (for instance because the worker is stopping). */
void cairn_multipart_unsent(struct cairn_multipart *mp,
                            const struct cairn_multipart_action *action);
