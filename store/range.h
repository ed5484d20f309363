/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range: one range of one committed object, read and judged under the rule of S17; and blocks that
 * this machine's memory holds already, read without waiting.
 *
 * Why:     server, uploader and command read the same objects, and what is damage, what is worth a
 *          second look and what is said about it may not differ between them. A thread that may
 *          never wait for a store can serve by itself what the page cache has: handing each chunk
 *          over from a thread that reads it costs more than the reading.
 * Promise: P3  what is read is CAIRN_OK, or true, only where each block that came is equal to its
 *              checksum.
 *          1   the ETag that the first range of an object answered is asked for (If-Match) with
 *              every range that is sent later; another object is told as replaced, and not read
 *              again.
 *          2   every block is compared with its checksum. What came and is wrong (bytes, length,
 *              ETag) is read once more, over a connection of its own; wrong again is CAIRN_CORRUPT,
 *              which names the first bad block.
 *          3   an object that is missing, too short or too long is CAIRN_CORRUPT: a committed one
 *              was whole. What is forbidden stays CAIRN_FORBIDDEN: it may be whole (S18).
 *          4   what is ready needs no device and no other machine: what is not there at once is not
 *              ready. Of a tmpfs all is ready, also what was swapped out, as any memory may be.
 *              What is not ready, shorter than wanted or wrong is no error: the caller reads it in
 *              the usual way, which tells what is the matter. An object that was opened is read to
 *              the end, whatever becomes of its name.
 * Limits:  ranges begin with a block. Weak ETags are not kept: If-Match never holds for them.
 *          Ready are a folder's objects alone, and each costs a descriptor.
 * Threads: tags any; a range is its caller's; ready: open() any, one owner.
 * Next:    server/reads/stream.c, server/reads/source.c, uploader/fetch/fetch.c,
 *          cli/bucket/source.c.
 */
#pragma once

#include "store/store.h"

/* What the objects of one version answered first, by the numbers of their shards. */
struct cairn_store_tags;
enum cairn_code cairn_store_tags_new(size_t count, struct cairn_store_tags **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_store_tags_free(struct cairn_store_tags *tags); /* NULL is fine */

struct cairn_store_range {
    struct cairn_store_request request; /* key, offset, length, into and done are the caller's */
    struct cairn_store_tags *tags;
    size_t object;         /* its number in tags */
    uint64_t object_bytes; /* what its manifest says */
    const void *checksums; /* CRC32C of the range's blocks, 4 bytes each, little-endian */
    uint32_t wait_ms;      /* for each try; 0 = the store's own default */
    uint32_t tries;        /* begun */
};

/* For callers that submit themselves: before each submit, and after each done(). */
void cairn_store_range_begin(struct cairn_store_range *range);
/* CAIRN_OK: the bytes are there and right. The error names the range; which object it is of the
 * caller adds. */
enum cairn_code cairn_store_range_judge(struct cairn_store_range *range,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Is it worth another try, now that judge said code? */
bool cairn_store_range_again(const struct cairn_store_range *range, enum cairn_code code);

/* All of that, blocking. again, which may be NULL, hears what was wrong with the first reading
 * where the second was right; where both were wrong *err says it. */
enum cairn_code cairn_store_range_read(struct cairn_store_range *range,
                                       struct cairn_store_worker *worker,
                                       void (*again)(void *owner, const struct cairn_error *why),
                                       void *owner, struct cairn_error *err) CAIRN_MUST_USE;
/* Bytes that came another way, and lie at `offset` of their object. */
enum cairn_code cairn_store_blocks_check(const void *checksums, uint64_t offset,
                                         struct cairn_view bytes,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- what this machine's memory holds already ---- */

struct cairn_store_ready {
    int fd;
    int flags; /* of preadv2() */
    bool open;
};
/* Where the first and the last byte of that range, which is not empty, are ready now. */
bool cairn_store_ready_open(struct cairn_store *store, const char *key, uint64_t begin,
                            uint64_t end, struct cairn_store_ready *ret) CAIRN_MUST_USE;
void cairn_store_ready_release(struct cairn_store_ready *ready);
/* checksums: CRC32C of the range's blocks, 4 bytes each, little-endian. */
bool cairn_store_ready_read(const struct cairn_store_ready *ready, uint64_t offset, void *into,
                            size_t size, const void *checksums) CAIRN_MUST_USE;
