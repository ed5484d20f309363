/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files as shards: parts are read into pool buffers a few MiB at a time, so that a slow disk does
 * not keep this worker's connections waiting. The first read makes the checksums; any later read
 * must find the same ones.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "uploader/saves/save.h"
#include "uploader/send/inside.h"

#define STEP_BYTES (4 * CAIRN_MIB)

bool cairn_up_fill_begin(struct cairn_up_sender *sender, struct cairn_up_shard *shard,
                         uint32_t part_number, bool verify) {
    struct cairn_up_send *send = sender->send;
    struct cairn_up_fill *fill = &sender->fill;
    if (fill->shard || shard->queue.filling || !send->queue->pool.free) return false;
    const struct cairn_multipart *mp = &shard->queue.mp;
    uint64_t part_bytes = mp->parts ? mp->part_bytes : mp->size_bytes; /* no parts: one PUT */
    uint64_t offset = verify ? (part_number - 1) * part_bytes : mp->ready_bytes;
    uint64_t length = cairn_min_u64(part_bytes, mp->size_bytes - offset);
    uint32_t *crcs = malloc((size_t)(length / CAIRN_BLOCK_BYTES + 1) * sizeof(*crcs));
    if (!crcs) return false;
    *fill = (struct cairn_up_fill){
        .shard = shard,
        .buffer = cairn_up_pool_take(&send->queue->pool),
        .part_number = (uint32_t)(offset / cairn_max_u64(part_bytes, 1)) + 1,
        .offset = offset,
        .length = length,
        .crcs = crcs,
        .verify = verify,
        .fd = shard->queue.fd,
        .changed_ns = shard->queue.file_changed_ns,
    };
    shard->queue.filling = true;
    return true;
}

static void end(struct cairn_up_sender *sender, bool keep_buffer) {
    struct cairn_up_fill *fill = &sender->fill;
    uint64_t entry = fill->shard->entry;
    cairn_lock_take(&sender->send->queue->lock);
    if (!keep_buffer) cairn_up_pool_give(&sender->send->queue->pool, fill->buffer);
    fill->shard->queue.filling = false;
    bool giving_up = fill->shard->queue.giving_up;
    cairn_lock_give(&sender->send->queue->lock);
    free(fill->crcs);
    *fill = (struct cairn_up_fill){0};
    if (giving_up) cairn_up_save_settle(sender->send->up, entry);
}

void cairn_up_fill_drop(struct cairn_up_sender *sender) {
    if (sender->fill.shard) end(sender, false);
}

static enum cairn_code read_some(struct cairn_up_fill *fill, struct cairn_error *err) {
    uint64_t wanted = cairn_min_u64(STEP_BYTES, fill->length - fill->done), got = 0;
    uint8_t *to = fill->buffer->data + fill->done;
    while (got < wanted) {
        ssize_t size = pread(fill->fd, to + got, (size_t)(wanted - got),
                             (off_t)(fill->offset + fill->done + got));
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) {
            struct cairn_error cause = {0};
            cairn_fail_errno(&cause, "read");
            return cairn_fail(err, CAIRN_SOURCE_GONE, "file %s at %" PRIu64 ": %s",
                              fill->shard->name, fill->offset + fill->done + got, cause.message);
        }
        if (!size)
            return cairn_fail(
                err, CAIRN_SOURCE_CHANGED,
                "file %s ends at %" PRIu64 ", it was handed over with %" PRIu64 " bytes",
                fill->shard->name, fill->offset + fill->done + got, fill->shard->size_bytes);
        got += (uint64_t)size;
    }
    for (uint64_t at = 0; at < wanted; at += CAIRN_BLOCK_BYTES) {
        size_t size = (size_t)cairn_min_u64(CAIRN_BLOCK_BYTES, wanted - at);
        fill->crcs[(fill->done + at) / CAIRN_BLOCK_BYTES] = cairn_crc32c(0, to + at, size);
    }
    fill->done += wanted;
    return CAIRN_OK;
}

static enum cairn_code check_unchanged(const struct cairn_up_fill *fill, struct cairn_error *err) {
    struct stat status;
    if (fstat(fill->fd, &status)) return cairn_fail_errno(err, "file %s", fill->shard->name);
    int64_t changed_ns = (int64_t)status.st_ctim.tv_sec * 1000000000 + status.st_ctim.tv_nsec;
    if ((uint64_t)status.st_size != fill->shard->size_bytes)
        return cairn_fail(err, CAIRN_SOURCE_CHANGED,
                          "file %s has %" PRIu64 " bytes, it was handed over with %" PRIu64,
                          fill->shard->name, (uint64_t)status.st_size, fill->shard->size_bytes);
    /* Links and renames move the change time too, so it alone convicts nobody: then the
     * modification time decides. */
    int64_t modified_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
    if (changed_ns != fill->changed_ns && modified_ns > fill->changed_ns)
        return cairn_fail(err, CAIRN_SOURCE_CHANGED, "file %s was written to while it was sent",
                          fill->shard->name);
    return CAIRN_OK;
}

static enum cairn_code compare(const struct cairn_up_fill *fill, struct cairn_error *err) {
    const uint32_t *expected = fill->shard->queue.mp.blocks + fill->offset / CAIRN_BLOCK_BYTES;
    for (uint64_t i = 0; i * CAIRN_BLOCK_BYTES < fill->length; i++) {
        if (fill->crcs[i] == expected[i]) continue;
        uint64_t from = fill->offset + i * CAIRN_BLOCK_BYTES;
        return cairn_fail(err, CAIRN_SOURCE_CHANGED,
                          "file %s: bytes from %" PRIu64 " changed: expected %08x, found %08x",
                          fill->shard->name, from, expected[i], fill->crcs[i]);
    }
    return CAIRN_OK;
}

/* The part is whole: hand it to the shard. */
static enum cairn_code deliver(struct cairn_up_sender *sender, struct cairn_error *err) {
    struct cairn_up_fill *fill = &sender->fill;
    struct cairn_up_shard *shard = fill->shard;
    cairn_lock_take(&sender->send->queue->lock);
    enum cairn_code code = CAIRN_OK;
    if (!fill->verify)
        code = cairn_multipart_ready(&shard->queue.mp, fill->offset + fill->length, fill->crcs,
                                     fill->offset / CAIRN_BLOCK_BYTES,
                                     cairn_div_up(fill->length, CAIRN_BLOCK_BYTES), err);
    if (code == CAIRN_OK) {
        CAIRN_ASSERT(!shard->queue.filled);
        shard->queue.filled = fill->buffer;
        shard->queue.filled_part = fill->part_number;
    }
    cairn_lock_give(&sender->send->queue->lock);
    return code;
}

void cairn_up_fill_step(struct cairn_up_sender *sender) {
    struct cairn_up_fill *fill = &sender->fill;
    struct cairn_error error = {0};
    cairn_lock_take(&sender->send->queue->lock);
    bool giving_up = fill->shard->queue.giving_up;
    cairn_lock_give(&sender->send->queue->lock);
    enum cairn_code code = giving_up ? CAIRN_CANCELLED : read_some(fill, &error);
    if (code == CAIRN_OK && fill->done < fill->length) return;
    if (code == CAIRN_OK) code = check_unchanged(fill, &error);
    if (code == CAIRN_OK && fill->verify) code = compare(fill, &error);
    if (code == CAIRN_OK) code = deliver(sender, &error);
    if (code != CAIRN_OK && code != CAIRN_CANCELLED)
        cairn_up_shard_give_up(sender->send->queue, fill->shard, &error);
    end(sender, code == CAIRN_OK);
}
