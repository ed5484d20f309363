/* SPDX-License-Identifier: Apache-2.0 */
/* Rule S17 for all readers; see range.h. */
#include "store/range.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/crc.h"

#define TRIES_MAX 2

/* A text is set once and stays until the end, so readers need no lock. */
struct cairn_store_tags {
    size_t count;
    _Atomic(char *) texts[];
};

enum cairn_code cairn_store_tags_new(size_t count, struct cairn_store_tags **ret,
                                     struct cairn_error *err) {
    struct cairn_store_tags *tags = calloc(1, sizeof(*tags) + count * sizeof(tags->texts[0]));
    if (!tags) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the ETags of a version");
    tags->count = count;
    *ret = tags;
    return CAIRN_OK;
}

void cairn_store_tags_free(struct cairn_store_tags *tags) {
    for (size_t i = 0; tags && i < tags->count; i++) free(atomic_load(&tags->texts[i]));
    free(tags);
}

/* Keeps the first ETag; without memory for it the next one. */
static void keep_tag(struct cairn_store_tags *tags, size_t object, const char *etag) {
    CAIRN_ASSERT(object < tags->count);
    if (!etag[0] || !strncmp(etag, "W/", 2) || atomic_load(&tags->texts[object])) return;
    char *nobody = NULL, *text = strdup(etag);
    if (text && !atomic_compare_exchange_strong(&tags->texts[object], &nobody, text)) free(text);
}

void cairn_store_range_begin(struct cairn_store_range *range) {
    struct cairn_store_request *get = &range->request;
    const char *etag = atomic_load(&range->tags->texts[range->object]);
    CAIRN_ASSERT(get->offset % CAIRN_BLOCK_BYTES == 0);
    get->op = CAIRN_STORE_GET;
    get->wants_crc32c = true;
    get->etag[0] = '\0';
    if (etag) memcpy(get->etag, etag, strlen(etag) + 1);
    get->fresh_connection = range->tries > 0;
    get->deadline_ms = range->wait_ms ? cairn_mono_ms() + range->wait_ms : 0;
    range->tries++;
}

enum cairn_code cairn_store_blocks_check(const void *checksums, uint64_t offset,
                                         struct cairn_view bytes, struct cairn_error *err) {
    const uint8_t *data = bytes.data, *wanted = checksums;
    for (uint64_t at = 0; at < bytes.size; at += CAIRN_BLOCK_BYTES, wanted += 4) {
        size_t size = (size_t)cairn_min_u64(CAIRN_BLOCK_BYTES, bytes.size - at);
        uint32_t expected = cairn_load_u32le(wanted), found = cairn_crc32c(0, data + at, size);
        if (expected != found)
            return cairn_fail(err, CAIRN_CORRUPT,
                              "bytes %" PRIu64 "-%" PRIu64 ": expected CRC32C %08" PRIx32
                              ", found %08" PRIx32,
                              offset + at, offset + at + size - 1, expected, found);
    }
    return CAIRN_OK;
}

/* Compares the transfer's checksum with all blocks' together; only a mismatch reads the bytes. */
static enum cairn_code check_bytes(const struct cairn_store_range *range, struct cairn_error *err) {
    const struct cairn_store_request *get = &range->request;
    const uint8_t *wanted = range->checksums;
    uint32_t whole = 0;
    for (uint64_t at = 0; at < get->length; at += CAIRN_BLOCK_BYTES, wanted += 4)
        whole = cairn_crc32c_combine(whole, cairn_load_u32le(wanted),
                                     cairn_min_u64(CAIRN_BLOCK_BYTES, get->length - at));
    if (whole == get->got_crc32c) return CAIRN_OK;
    struct cairn_view bytes = {get->into, get->length};
    CAIRN_TRY(cairn_store_blocks_check(range->checksums, get->offset, bytes, err));
    return cairn_fail(err, CAIRN_CORRUPT, "the bytes changed in memory while they were checked");
}

static enum cairn_code judge_answer(struct cairn_store_range *range, struct cairn_error *err) {
    const struct cairn_store_request *get = &range->request;
    switch (get->code) {
    case CAIRN_OK:
        break;
    case CAIRN_NOT_FOUND:
        return cairn_fail(err, CAIRN_CORRUPT,
                          "the object is missing: expected %" PRIu64 " bytes, found none",
                          range->object_bytes);
    case CAIRN_PRECONDITION:
        return cairn_fail(err, CAIRN_CORRUPT, "the object was replaced while it was read");
    case CAIRN_RANGE:
        return cairn_fail(err, CAIRN_CORRUPT,
                          "the object is too short: expected %" PRIu64 " bytes, found fewer (%s)",
                          range->object_bytes, get->error.message);
    default:
        return cairn_pass(err, get->code, &get->error);
    }
    if (get->object_bytes != range->object_bytes)
        return cairn_fail(err, CAIRN_CORRUPT,
                          "expected an object of %" PRIu64 " bytes, found one of %" PRIu64,
                          range->object_bytes, get->object_bytes);
    keep_tag(range->tags, range->object, get->etag);
    return CAIRN_OK;
}

enum cairn_code cairn_store_range_judge(struct cairn_store_range *range, struct cairn_error *err) {
    const struct cairn_store_request *get = &range->request;
    enum cairn_code code = judge_answer(range, err);
    if (code == CAIRN_OK) return check_bytes(range, err);
    return cairn_within(err, code, "bytes %" PRIu64 "-%" PRIu64, get->offset,
                        get->offset + get->length - 1);
}

/* "Missing" and "replaced" (412) are final; bytes, and their ETag, may be damaged in transit. */
bool cairn_store_range_again(const struct cairn_store_range *range, enum cairn_code code) {
    const struct cairn_store_request *get = &range->request;
    bool other_tag = get->code == CAIRN_PRECONDITION && get->error.http_status == 206;
    bool came = get->code == CAIRN_OK || other_tag;
    return code == CAIRN_CORRUPT && came && range->tries < TRIES_MAX;
}

enum cairn_code cairn_store_range_read(struct cairn_store_range *range,
                                       struct cairn_store_worker *worker,
                                       void (*again)(void *owner, const struct cairn_error *why),
                                       void *owner, struct cairn_error *err) {
    struct cairn_error why = {0}, first = {0};
    enum cairn_code code = CAIRN_OK;
    do {
        if (code) first = why;
        cairn_store_range_begin(range);
        code = cairn_store_perform(worker, &range->request, &why);
        if (code == range->request.code) code = cairn_store_range_judge(range, &why);
    } while (cairn_store_range_again(range, code));
    if (!code && first.code && again) again(owner, &first);
    return cairn_pass(err, code, &why);
}

/* ---- bytes in the page cache ---- */

#ifndef __GLIBC__ /* musl has it from 1.2.5 on; a 64-bit offset is the lower one of two words */
static ssize_t preadv2(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    return syscall(SYS_preadv2, fd, pieces, (long)count, offset, 0L, (long)flags);
}
#endif

/* A read cut short by a signal counts as not ready. */
static bool read_ready(const struct cairn_store_ready *ready, uint64_t offset, void *into,
                       size_t size) {
    struct iovec piece = {.iov_base = into, .iov_len = size};
    return preadv2(ready->fd, &piece, 1, (off_t)offset, ready->flags) == (ssize_t)size;
}

bool cairn_store_ready_open(struct cairn_store *store, const char *key, uint64_t begin,
                            uint64_t end, struct cairn_store_ready *ret) {
    struct cairn_store_ready ready = {0};
    uint8_t first, last;
    if (!store->vtable->ready_open || !store->vtable->ready_open(store, key, &ready)) return false;
    if (read_ready(&ready, begin, &first, 1) && read_ready(&ready, end - 1, &last, 1))
        *ret = ready;
    else
        cairn_store_ready_release(&ready);
    return ret->open;
}

void cairn_store_ready_release(struct cairn_store_ready *ready) {
    if (ready->open) close(ready->fd);
    *ready = (struct cairn_store_ready){0};
}

bool cairn_store_ready_read(const struct cairn_store_ready *ready, uint64_t offset, void *into,
                            size_t size, const void *checksums) {
    uint8_t *to = into;
    const uint8_t *wanted = checksums;
    for (size_t at = 0; at < size; at += CAIRN_BLOCK_BYTES, wanted += 4) {
        size_t bytes = (size_t)cairn_min_u64(CAIRN_BLOCK_BYTES, size - at);
        if (!read_ready(ready, offset + at, to + at, bytes)) return false;
        if (cairn_crc32c(0, to + at, bytes) != cairn_load_u32le(wanted)) return false;
    }
    return true;
}
