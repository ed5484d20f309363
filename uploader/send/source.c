/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files as shards: threads of their own read parts into pool buffers, so that no sender waits for a
 * file. The first read makes the checksums that later reads must match.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/crc.h"
#include "uploader/saves/save.h"
#include "uploader/send/inside.h"

#define STEP_BYTES (4 * CAIRN_MIB)
#define STOP_WAIT_MS 2000
#define SMALL_FILES_MAX 256 /* that one reader takes at once */

/* send.h#5: a save's files take at most half of the readers that other saves leave; a save without
 * a reader may take the last. With three, two hanging saves leave one. */
static struct cairn_up_reader *idle_reader(struct cairn_up_send *send,
                                           const struct cairn_up_shard *shard) {
    struct cairn_up_reader *idle = NULL;
    size_t own = 0, others = 0;
    for (size_t i = 0; i < send->reader_count; i++) {
        const struct cairn_up_shard *reads = send->readers[i].fill.shard;
        if (!reads)
            idle = &send->readers[i];
        else if (reads->entry == shard->entry)
            own++;
        else
            others++;
    }
    return own < cairn_max_u64(1, (send->reader_count - others) / 2) ? idle : NULL;
}

bool cairn_up_fill_begin(struct cairn_up_send *send, struct cairn_up_shard *shard,
                         uint32_t part_number, bool verify) {
    struct cairn_up_reader *reader = shard->queue.filling ? NULL : idle_reader(send, shard);
    if (!reader || !send->queue->pool.free) return false;
    const struct cairn_multipart *mp = &shard->queue.mp;
    uint64_t part_bytes = mp->parts ? mp->part_bytes : mp->size_bytes; /* no parts: one PUT */
    uint64_t offset = verify ? (part_number - 1) * part_bytes : mp->ready_bytes;
    CAIRN_ASSERT(offset < mp->size_bytes);
    CAIRN_ASSERT(offset % CAIRN_BLOCK_BYTES == 0); /* checksums cover whole blocks */
    uint64_t length = cairn_min_u64(part_bytes, mp->size_bytes - offset);
    CAIRN_ASSERT(length <= send->queue->pool.buffer_bytes);
    uint32_t *crcs = malloc((size_t)(length / CAIRN_BLOCK_BYTES + 1) * sizeof(*crcs));
    if (!crcs) return false;
    reader->fill = (struct cairn_up_fill){
        .shard = shard,
        .buffer = cairn_up_pool_take(&send->queue->pool),
        .part_number = (uint32_t)(offset / cairn_max_u64(part_bytes, 1)) + 1,
        .offset = offset,
        .length = length,
        .crcs = crcs,
        .verify = verify,
        .fd = shard->queue.fd,
        .path = shard->queue.path,
    };
    shard->queue.filling = true;
    cairn_condition_broadcast(&send->to_read);
    return true;
}

/* Takes small files of the save, as many as fit one buffer and one reader. */
static bool take_small(struct cairn_up_send *send, struct cairn_up_unread *unread) {
    struct cairn_up_reader *reader = idle_reader(send, unread->first);
    if (!reader || !send->queue->pool.free) return false;
    struct cairn_up_fill fill = {.fd = -1};
    fill.small = calloc(SMALL_FILES_MAX, sizeof *fill.small);
    fill.crcs = calloc(SMALL_FILES_MAX, sizeof *fill.crcs);
    if (!fill.small || !fill.crcs) {
        free(fill.small);
        free(fill.crcs);
        return false;
    }
    uint64_t room = send->queue->pool.buffer_bytes, entry = unread->entry;
    for (struct cairn_up_shard *at = unread->first, *next;
         at && fill.small_count < SMALL_FILES_MAX && at->size_bytes <= room &&
         cairn_up_send_is_small(send, at);
         at = next) {
        next = at->queue.next;
        room -= at->size_bytes;
        at->queue.filling = true;
        fill.small[fill.small_count++] = at;
        cairn_up_queue_join(send->queue, at); /* the last one frees `unread` */
    }
    CAIRN_ASSERT(fill.small_count > 0 && fill.small[0]->entry == entry);
    fill.shard = fill.small[0];
    fill.buffer = cairn_up_pool_take(&send->queue->pool);
    fill.buffer->users = (uint32_t)fill.small_count;
    reader->fill = fill;
    cairn_condition_broadcast(&send->to_read);
    return true;
}

/* True: a reader took the first file, and perhaps some after it. */
static bool take_first(struct cairn_up_send *send, struct cairn_up_unread *unread) {
    struct cairn_up_shard *shard = unread->first;
    if (cairn_up_send_is_small(send, shard)) return take_small(send, unread);
    if (!cairn_up_fill_begin(send, shard, 0, false)) return false;
    cairn_up_queue_join(send->queue, shard);
    return true;
}

void cairn_up_fill_unread(struct cairn_up_send *send) {
    struct cairn_up_queue *queue = send->queue;
    for (size_t i = 0; i < queue->locked.unread_count && queue->pool.free;) {
        uint64_t entry = queue->locked.unread[i].entry;
        bool taken = take_first(send, &queue->locked.unread[i]);
        bool gone = i >= queue->locked.unread_count || queue->locked.unread[i].entry != entry;
        if (!taken && !gone) i++; /* no reader; another save's file may have one */
    }
}

static bool end_one(struct cairn_up_shard *shard) {
    CAIRN_ASSERT(shard->queue.filling);
    shard->queue.filling = false;
    return shard->queue.upload == CAIRN_UP_UPLOAD_ENDING;
}

static void end_fill(struct cairn_up_reader *reader, bool keep_buffer) {
    struct cairn_up_send *send = reader->send;
    struct cairn_up_fill done = reader->fill;
    if (done.path && done.fd >= 0) close(done.fd);
    uint64_t entry = done.shard->entry;
    cairn_lock_take(&send->queue->lock);
    if (!keep_buffer) cairn_up_pool_give(&send->queue->pool, done.buffer);
    bool giving_up = !done.small && end_one(done.shard);
    for (size_t i = 0; i < done.small_count; i++) giving_up |= end_one(done.small[i]);
    reader->fill = (struct cairn_up_fill){0};
    cairn_condition_broadcast(&send->was_read);
    cairn_lock_give(&send->queue->lock);
    free(done.crcs);
    free(done.small);
    cairn_up_queue_wake(send->queue);
    if (giving_up) cairn_up_save_settle(send->up, entry);
}

/* Reopens the very file that was handed over, whatever its name is now. */
static enum cairn_code open_again(struct cairn_up_fill *fill, struct cairn_error *err) {
    const struct cairn_up_shard *shard = fill->shard;
    struct stat status;
    fill->fd = open(fill->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fill->fd < 0 || fstat(fill->fd, &status)) {
        struct cairn_error cause = {0};
        cairn_fail_errno(&cause, "open %s again", fill->path);
        return cairn_fail(err, CAIRN_SOURCE_GONE, "file %s: %s", shard->name, cause.message);
    }
    if (status.st_dev == shard->queue.file.device && status.st_ino == shard->queue.file.inode)
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_SOURCE_CHANGED,
                      "file %s: %s is another file than the one that was handed over", shard->name,
                      fill->path);
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

/* Each write moves the time of change, even if the time of writing was reset; so do links, renames,
 * mode and owner, which other fields show. */
static bool was_written(const struct cairn_up_file *then, const struct cairn_up_file *now) {
    if (now->changed_ns == then->changed_ns) return false;
    if (now->modified_ns > then->changed_ns) return true;
    return now->links == then->links && now->mode == then->mode && now->user == then->user &&
           now->group == then->group && now->name == then->name;
}

static enum cairn_code check_unchanged(const struct cairn_up_fill *fill, struct cairn_error *err) {
    struct stat status;
    if (fstat(fill->fd, &status)) return cairn_fail_errno(err, "file %s", fill->shard->name);
    if ((uint64_t)status.st_size != fill->shard->size_bytes)
        return cairn_fail(err, CAIRN_SOURCE_CHANGED,
                          "file %s has %" PRIu64 " bytes, it was handed over with %" PRIu64,
                          fill->shard->name, (uint64_t)status.st_size, fill->shard->size_bytes);
    struct cairn_up_file now;
    CAIRN_TRY(cairn_up_file_look(fill->fd, &now, err));
    if (was_written(&fill->shard->queue.file, &now))
        return cairn_fail(err, CAIRN_SOURCE_CHANGED, "file %s was written to while it was sent%s",
                          fill->shard->name,
                          now.modified_ns > fill->shard->queue.file.changed_ns
                              ? ""
                              : " (its time of change tells; that of writing was put back)");
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

/* Hands the buffer with the whole part to the shard. */
static enum cairn_code deliver(struct cairn_up_reader *reader, struct cairn_error *err) {
    struct cairn_up_fill *fill = &reader->fill;
    struct cairn_up_shard *shard = fill->shard;
    CAIRN_ASSERT(fill->done == fill->length);
    cairn_lock_take(&reader->send->queue->lock);
    enum cairn_code code = CAIRN_OK;
    if (!fill->verify)
        code = cairn_multipart_ready(&shard->queue.mp, fill->offset + fill->length, fill->crcs,
                                     fill->offset / CAIRN_BLOCK_BYTES,
                                     cairn_div_up(fill->length, CAIRN_BLOCK_BYTES), err);
    if (code == CAIRN_OK) {
        CAIRN_ASSERT(!shard->queue.filled);
        shard->queue.filled = fill->buffer;
        shard->queue.filled_bytes = fill->buffer->data;
        shard->queue.filled_part = fill->part_number;
    }
    cairn_lock_give(&reader->send->queue->lock);
    return code;
}

static bool is_unwanted(struct cairn_up_queue *queue, const struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    return shard->queue.upload == CAIRN_UP_UPLOAD_ENDING || queue->locked.stopping;
}

/* Reads some MiB; false: the part is complete, or was given up. */
static bool step(struct cairn_up_reader *reader) {
    struct cairn_up_fill *fill = &reader->fill;
    struct cairn_up_queue *queue = reader->send->queue;
    struct cairn_error error = {0};
    enum cairn_code code = is_unwanted(queue, fill->shard) ? CAIRN_CANCELLED : CAIRN_OK;
    if (!code && fill->fd < 0) code = open_again(fill, &error);
    if (!code) code = read_some(fill, &error);
    if (code == CAIRN_OK && fill->done < fill->length) return true;
    if (code == CAIRN_OK) code = check_unchanged(fill, &error);
    if (code == CAIRN_OK && fill->verify) code = compare(fill, &error);
    if (code == CAIRN_OK) code = deliver(reader, &error);
    if (code != CAIRN_OK && code != CAIRN_CANCELLED)
        cairn_up_shard_give_up(queue, fill->shard, &error);
    end_fill(reader, code == CAIRN_OK);
    return false;
}

/* Reads one small file into the buffer, after the previous files. */
static enum cairn_code read_small(struct cairn_up_shard *shard, uint8_t *into, uint32_t *ret_crc,
                                  struct cairn_error *err) {
    struct cairn_up_buffer part = {.data = into};
    struct cairn_up_fill one = {.shard = shard,
                                .buffer = &part,
                                .length = shard->size_bytes,
                                .crcs = ret_crc,
                                .fd = shard->queue.fd,
                                .path = shard->queue.path};
    enum cairn_code code = one.fd < 0 ? open_again(&one, err) : CAIRN_OK;
    if (!code) code = read_some(&one, err);
    if (!code) code = check_unchanged(&one, err);
    if (one.path && one.fd >= 0) close(one.fd);
    return code;
}

/* Hands a small file to its shard, or gives the shard up. The lock is held. */
static void deliver_small(struct cairn_up_reader *reader, struct cairn_up_shard *shard,
                          const uint8_t *bytes, uint32_t crc, enum cairn_code code,
                          struct cairn_error *why) {
    struct cairn_up_queue *queue = reader->send->queue;
    if (!code) code = cairn_multipart_ready(&shard->queue.mp, shard->size_bytes, &crc, 0, 1, why);
    if (!code) {
        CAIRN_ASSERT(!shard->queue.filled);
        shard->queue.filled = reader->fill.buffer;
        shard->queue.filled_bytes = bytes;
        shard->queue.filled_part = 1;
        return;
    }
    cairn_up_pool_give(&queue->pool, reader->fill.buffer);
    if (code != CAIRN_CANCELLED) cairn_up_shard_give_up_locked(queue, shard, why);
}

/* Hands all over together, so that senders journal them in one batch. */
static void read_batch(struct cairn_up_reader *reader) {
    const struct cairn_up_fill *fill = &reader->fill;
    struct cairn_up_queue *queue = reader->send->queue;
    uint8_t *into = fill->buffer->data;
    bool whole[SMALL_FILES_MAX] = {0};
    for (size_t i = 0; i < fill->small_count; into += fill->small[i++]->size_bytes) {
        struct cairn_up_shard *shard = fill->small[i];
        struct cairn_error why = {0};
        enum cairn_code code = is_unwanted(queue, shard) ? CAIRN_CANCELLED : CAIRN_OK;
        if (!code) code = read_small(shard, into, &fill->crcs[i], &why);
        whole[i] = code == CAIRN_OK;
        if (whole[i]) continue;
        CAIRN_HOLD(&queue->lock);
        deliver_small(reader, shard, into, 0, code, &why);
    }
    cairn_lock_take(&queue->lock);
    into = fill->buffer->data; /* valid until the last file has its part */
    for (size_t i = 0; i < fill->small_count; into += fill->small[i++]->size_bytes) {
        struct cairn_error why = {0};
        if (whole[i]) deliver_small(reader, fill->small[i], into, fill->crcs[i], CAIRN_OK, &why);
    }
    cairn_lock_give(&queue->lock);
    end_fill(reader, true); /* each file has its part of the buffer, or returned it */
}

/* False: stop. */
static bool wait_for_file(struct cairn_up_reader *reader) {
    struct cairn_up_queue *queue = reader->send->queue;
    CAIRN_HOLD(&queue->lock);
    while (!reader->fill.shard && !queue->locked.stopping)
        (void)cairn_condition_wait(&reader->send->to_read, &queue->lock, UINT64_MAX);
    return reader->fill.shard != NULL;
}

static void *reader_main(void *argument) {
    struct cairn_up_reader *reader = argument;
    while (wait_for_file(reader)) {
        if (reader->fill.small)
            read_batch(reader);
        else
            while (step(reader)) continue;
    }
    return NULL;
}

enum cairn_code cairn_up_readers_new(struct cairn_up_send *send, struct cairn_error *err) {
    cairn_condition_init(&send->to_read);
    cairn_condition_init(&send->was_read);
    send->readers = calloc(send->queue->pool.buffer_count, sizeof(*send->readers));
    if (!send->readers) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for readers of files");
    send->reader_count = send->queue->pool.buffer_count;
    for (size_t i = 0; i < send->reader_count; i++) send->readers[i].send = send;
    return CAIRN_OK;
}

enum cairn_code cairn_up_readers_start(struct cairn_up_send *send, struct cairn_error *err) {
    for (size_t i = 0; i < send->reader_count; i++) {
        struct cairn_up_reader *reader = &send->readers[i];
        CAIRN_TRY(
            cairn_up_thread_start(&reader->thread, reader_main, reader, "a reader of files", err));
    }
    return CAIRN_OK;
}

static bool some_read(const struct cairn_up_send *send) {
    for (size_t i = 0; i < send->reader_count; i++)
        if (send->readers[i].fill.shard) return true;
    return false;
}

bool cairn_up_readers_stop(struct cairn_up_send *send) {
    uint64_t until_ms = cairn_mono_ms() + STOP_WAIT_MS;
    cairn_lock_take(&send->queue->lock);
    cairn_condition_broadcast(&send->to_read);
    while (some_read(send) && cairn_condition_wait(&send->was_read, &send->queue->lock, until_ms))
        continue;
    bool stuck = some_read(send);
    cairn_lock_give(&send->queue->lock);
    for (size_t i = 0; i < send->reader_count && !stuck; i++)
        cairn_up_thread_join(&send->readers[i].thread);
    return !stuck;
}

void cairn_up_readers_free(struct cairn_up_send *send) {
    free(send->readers);
    cairn_condition_release(&send->to_read);
    cairn_condition_release(&send->was_read);
}
