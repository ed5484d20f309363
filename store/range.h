/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range: reads a range of a committed object by rule S17, or from the page cache without waiting.
 *
 * Why:     server, uploader and command must agree on what is damage, what deserves a second read
 *          and what the error says. A thread that must never wait can serve page-cache data itself:
 *          handing chunks over from a reading thread costs more than the reading.
 * Promise: P3  a read is CAIRN_OK, or true, only if every block equals its checksum.
 *          1   later ranges require the ETag of an object's first range (If-Match); a replaced
 *              object is reported as replaced and not read again.
 *          2   every block is compared with its checksum. A wrong reply (bytes, length, ETag) is
 *              read once more, over a fresh connection; then CAIRN_CORRUPT names the first bad
 *              block.
 *          3   an object that is missing, too short or too long is CAIRN_CORRUPT: a committed
 *              object was whole. CAIRN_FORBIDDEN stays: the object may be whole (S18).
 *          4   a ready read touches no device and no other machine. On a tmpfs all bytes are ready,
 *              swapped out or not. Bytes that are not ready, too few or wrong are no error: the
 *              usual read reports the cause. An opened object outlives its name.
 * Limits:  ranges begin with a block. Weak ETags are not kept: If-Match never matches them. Ready
 *          reads need a folder store and a descriptor each.
 * Threads: tags any; a range is its caller's; ready: open() any, one owner.
 * Next:    server/reads/stream.c, server/reads/source.c, uploader/fetch/fetch.c,
 *          cli/bucket/source.c.
 */
#pragma once

#include "store/store.h"

/* The first ETag of each object of one version, by shard number. */
struct cairn_store_tags;
enum cairn_code cairn_store_tags_new(size_t count, struct cairn_store_tags **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_store_tags_free(struct cairn_store_tags *tags);

struct cairn_store_range {
    struct cairn_store_request request; /* the caller sets key, offset, length, into and done */
    struct cairn_store_tags *tags;
    size_t object;         /* its index in tags */
    uint64_t object_bytes; /* size in the manifest */
    const void *checksums; /* CRC32C of the range's blocks, 4 bytes each, little-endian */
    uint32_t wait_ms;      /* per try; 0 = the store's own default */
    uint32_t tries;        /* tries begun */
};

/* For callers that submit the request themselves: call before each submit. */
void cairn_store_range_begin(struct cairn_store_range *range);
/* Judges a finished request: CAIRN_OK means that the bytes are there and right. The error names the
 * range only. */
enum cairn_code cairn_store_range_judge(struct cairn_store_range *range,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Whether to try again after judge returned code. */
bool cairn_store_range_again(const struct cairn_store_range *range, enum cairn_code code);

/* Blocking form. again (or NULL) receives the first read's error if the second was right. */
enum cairn_code cairn_store_range_read(struct cairn_store_range *range,
                                       struct cairn_store_worker *worker,
                                       void (*again)(void *owner, const struct cairn_error *why),
                                       void *owner, struct cairn_error *err) CAIRN_MUST_USE;
/* Checks bytes that arrived another way and lie at `offset` of their object. */
enum cairn_code cairn_store_blocks_check(const void *checksums, uint64_t offset,
                                         struct cairn_view bytes,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- bytes in the page cache ---- */

struct cairn_store_ready {
    int fd;
    int flags; /* for preadv2() */
    bool open;
};
/* True if the first and the last byte of the non-empty range are ready now. */
bool cairn_store_ready_open(struct cairn_store *store, const char *key, uint64_t begin,
                            uint64_t end, struct cairn_store_ready *ret) CAIRN_MUST_USE;
void cairn_store_ready_release(struct cairn_store_ready *ready);
/* checksums: CRC32C of the range's blocks, 4 bytes each, little-endian. */
bool cairn_store_ready_read(const struct cairn_store_ready *ready, uint64_t offset, void *into,
                            size_t size, const void *checksums) CAIRN_MUST_USE;
