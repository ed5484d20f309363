/* SPDX-License-Identifier: Apache-2.0 */
/* One shard's upload, the queue of all shards, and buffers for files. */
#include "uploader/send/shards.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/buf.h"
#include "common/hooks.h"
#include "common/text.h"
#include "common/trace.h"

/* Two buffers a worker: one is sent while the next is read. */
#define BUFFERS_PER_WORKER 2

/* The pool takes at most a quarter of the budget; a small budget gets smaller file parts. */
static enum cairn_code pool_init(struct cairn_up_pool *pool, struct cairn_up *up,
                                 struct cairn_error *err) {
    uint64_t share = up->budget.total_bytes / 4;
    uint64_t wanted = up->settings.workers * BUFFERS_PER_WORKER;
    pool->buffer_bytes = cairn_min_u64(up->settings.part_size_bytes, share) / CAIRN_MIB * CAIRN_MIB;
    if (pool->buffer_bytes < CAIRN_MIB)
        return cairn_fail(err, CAIRN_INVALID,
                          "memory_budget is %" PRIu64 " bytes; at least 4 MiB are needed",
                          up->budget.total_bytes);
    pool->buffer_count =
        (size_t)cairn_max_u64(1, cairn_min_u64(wanted, share / pool->buffer_bytes));
    pool->bytes = pool->buffer_count * pool->buffer_bytes;
    CAIRN_TRY(cairn_budget_take(&up->budget, pool->bytes, "buffers for files", err));
    pool->data =
        mmap(NULL, (size_t)pool->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pool->buffers = calloc(pool->buffer_count, sizeof(*pool->buffers));
    if (pool->data == MAP_FAILED || !pool->buffers) {
        if (pool->data == MAP_FAILED) pool->data = NULL;
        if (!pool->data) cairn_budget_give(&up->budget, pool->bytes);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the buffers of files");
    }
    for (size_t i = 0; i < pool->buffer_count; i++) {
        pool->buffers[i].data = pool->data + i * pool->buffer_bytes;
        pool->buffers[i].next = pool->free;
        pool->free = &pool->buffers[i];
    }
    return CAIRN_OK;
}

struct cairn_up_buffer *cairn_up_pool_take(struct cairn_up_pool *pool) {
    struct cairn_up_buffer *buffer = pool->free;
    if (!buffer) return NULL;
    pool->free = buffer->next;
    buffer->users = 1;
    return buffer;
}

void cairn_up_pool_give(struct cairn_up_pool *pool, struct cairn_up_buffer *buffer) {
    CAIRN_ASSERT(buffer->users > 0);
    if (--buffer->users) return;
    buffer->next = pool->free;
    pool->free = buffer;
}

/* How many parts may be in flight; a folder gains nothing from more. */
static uint32_t connections(const struct cairn_up_queue *queue) {
    const struct cairn_up_settings *settings = &queue->up->settings;
    if (!cairn_store_profile(queue->up->store)->over_network) return 1;
    return (uint32_t)cairn_min_u64(settings->workers * settings->store_connections,
                                   settings->store_requests);
}

static enum cairn_code choose_part(struct cairn_up_queue *queue,
                                   const struct cairn_up_shard_options *options,
                                   uint64_t *ret_bytes, struct cairn_error *err) {
    const struct cairn_store_profile *profile = cairn_store_profile(queue->up->store);
    if (options->size_bytes > profile->object_bytes_max)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "shard %s has %" PRIu64 " bytes, the store takes %" PRIu64, options->name,
                          options->size_bytes, profile->object_bytes_max);
    bool is_file = options->take_fd >= 0;
    uint64_t most = queue->up->settings.part_size_bytes;
    if (is_file) most = cairn_min_u64(most, queue->pool.buffer_bytes);
    uint64_t bytes = options->part_bytes;
    if (!bytes)
        bytes = cairn_multipart_part_bytes(profile, options->size_bytes, most, connections(queue));
    if (is_file && bytes > queue->pool.buffer_bytes &&
        options->size_bytes > queue->pool.buffer_bytes)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "file %s of %" PRIu64 " bytes needs parts of %" PRIu64
                          ", but part_size and memory_budget give buffers of %" PRIu64,
                          options->name, options->size_bytes, bytes, queue->pool.buffer_bytes);
    *ret_bytes = bytes;
    return CAIRN_OK;
}

/* FNV-1a of the file's name; 0: unknown. */
static uint64_t name_of(int fd) {
    char link[64], path[PATH_MAX];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path);
    for (ssize_t i = 0; i < size; i++) hash = (hash ^ (uint8_t)path[i]) * UINT64_C(0x100000001b3);
    return size < 0 ? 0 : hash;
}

static int64_t ns_of(const struct timespec *time) {
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

enum cairn_code cairn_up_file_look(int fd, struct cairn_up_file *ret, struct cairn_error *err) {
    struct stat status;
    if (fstat(fd, &status)) return cairn_fail_errno(err, "look at a file");
    *ret = (struct cairn_up_file){.device = status.st_dev,
                                  .inode = status.st_ino,
                                  .links = status.st_nlink,
                                  .changed_ns = ns_of(&status.st_ctim),
                                  .modified_ns = ns_of(&status.st_mtim),
                                  .mode = status.st_mode,
                                  .user = status.st_uid,
                                  .group = status.st_gid,
                                  .name = name_of(fd)};
    return CAIRN_OK;
}

static enum cairn_code shard_fill(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                  const struct cairn_up_shard_options *options,
                                  struct cairn_error *err) {
    shard->queue.fd = options->take_fd;
    shard->queue.path = options->take_path;
    shard->is_file = options->take_fd >= 0;
    shard->is_stream = options->is_stream;
    shard->queue.stream = options->take_stream;
    shard->queue.data = options->is_stream ? options->take_stream.data : options->data;
    shard->entry = options->entry;
    shard->index = options->index;
    shard->tensors = options->tensors;
    shard->slab_offset = options->slab_offset;
    shard->size_bytes = options->size_bytes;
    shard->name = strdup(options->name);
    shard->key = strdup(options->key);
    if (!shard->name || !shard->key)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a shard");
    if (shard->is_file) {
        enum cairn_code code = cairn_up_file_look(shard->queue.fd, &shard->queue.file, err);
        if (code) return cairn_within(err, code, "shard %s", shard->name);
    }
    if (shard->queue.path) {
        close(shard->queue.fd);
        shard->queue.fd = -1;
    }
    char token[CAIRN_UUID_TEXT_BYTES];
    if (!options->token) cairn_uuid_random(token);
    uint64_t part_bytes = 0;
    CAIRN_TRY(choose_part(queue, options, &part_bytes, err));
    return cairn_multipart_init(&shard->queue.mp, shard->size_bytes, part_bytes,
                                options->token ? options->token : token, err);
}

enum cairn_code cairn_up_shard_new(struct cairn_up_queue *queue,
                                   const struct cairn_up_shard_options *options,
                                   struct cairn_up_shard **ret, struct cairn_error *err) {
    struct cairn_up_shard *shard = calloc(1, sizeof(*shard));
    if (!shard) {
        struct cairn_slab stream = options->take_stream;
        cairn_slab_release(&stream);
        if (options->take_fd >= 0) close(options->take_fd);
        free(options->take_path);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a shard");
    }
    enum cairn_code code = shard_fill(queue, shard, options, err);
    if (code != CAIRN_OK) {
        cairn_up_shard_free(queue, shard);
        return code;
    }
    *ret = shard;
    return CAIRN_OK;
}

void cairn_up_shard_free(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    if (!shard) return;
    cairn_lock_take(&queue->lock);
    if (cairn_up_upload_state_is_queued(shard->queue.upload)) {
        CAIRN_ASSERT(queue->locked.stopping); /* only the end of the process interrupts it */
        cairn_up_queue_remove(queue, shard);
    }
    CAIRN_ASSERT(!shard->queue.in_flight);
    if (shard->queue.filled) cairn_up_pool_give(&queue->pool, shard->queue.filled);
    cairn_lock_give(&queue->lock);
    cairn_multipart_release(&shard->queue.mp);
    if (shard->queue.fd >= 0) close(shard->queue.fd);
    cairn_slab_release(&shard->queue.stream);
    free(shard->queue.path);
    free(shard->name);
    free(shard->key);
    free(shard);
}

static enum cairn_code load_crcs(struct cairn_view crcs_le, uint32_t **ret,
                                 struct cairn_error *err) {
    size_t count = crcs_le.size / 4;
    uint32_t *crcs = malloc((count + 1) * sizeof(*crcs));
    if (!crcs) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for checksums");
    for (size_t i = 0; i < count; i++)
        crcs[i] = cairn_load_u32le((const uint8_t *)crcs_le.data + 4 * i);
    *ret = crcs;
    return CAIRN_OK;
}

static bool is_wanted(const struct cairn_up_shard *shard) {
    return shard->queue.upload == CAIRN_UP_UPLOAD_MADE ||
           shard->queue.upload == CAIRN_UP_UPLOAD_SENDING;
}

enum cairn_code cairn_up_shard_ready(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                     uint64_t ready_bytes, const uint8_t *crcs_le,
                                     uint64_t crc_count, struct cairn_error *err) {
    CAIRN_AUTO_HEAP uint32_t *crcs = NULL;
    const struct cairn_view view = {crcs_le, (size_t)crc_count * 4};
    CAIRN_TRY(load_crcs(view, &crcs, err));
    cairn_lock_take(&queue->lock);
    struct cairn_multipart *mp = &shard->queue.mp;
    uint64_t before = mp->ready_bytes / CAIRN_BLOCK_BYTES;
    uint64_t after = ready_bytes == mp->size_bytes ? cairn_div_up(ready_bytes, CAIRN_BLOCK_BYTES)
                                                   : ready_bytes / CAIRN_BLOCK_BYTES;
    enum cairn_code code = CAIRN_OK;
    if (ready_bytes > mp->size_bytes || ready_bytes < mp->ready_bytes ||
        after - before != crc_count)
        code = cairn_fail(err, CAIRN_PROTOCOL,
                          "shard %s: %" PRIu64 " checksums for bytes %" PRIu64 " to %" PRIu64
                          " of %" PRIu64,
                          shard->name, crc_count, mp->ready_bytes, ready_bytes, mp->size_bytes);
    else /* also for an ended shard: a seal covers staged bytes, sent or not */
        code = cairn_multipart_ready(mp, ready_bytes, crcs, before, crc_count, err);
    cairn_lock_give(&queue->lock);
    queue->due = true;
    return code;
}

uint64_t cairn_up_shard_ready_bytes(struct cairn_up_queue *queue,
                                    const struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    return shard->queue.mp.ready_bytes;
}

bool cairn_up_shard_lacks_source(struct cairn_up_queue *queue, const struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    return shard->queue.needs_source;
}

void cairn_up_shard_source(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                           const uint8_t *data) {
    cairn_lock_take(&queue->lock);
    if (is_wanted(shard) && !shard->queue.data) {
        shard->queue.data = data;
        shard->queue.needs_source = false;
        cairn_multipart_source(&shard->queue.mp);
    }
    cairn_lock_give(&queue->lock);
    cairn_up_queue_wake(queue);
}

void cairn_up_shard_await(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    shard->queue.source_wait = CAIRN_UP_SOURCE_FOREVER;
}

void cairn_up_shard_restage(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                            const uint8_t *data) {
    cairn_lock_take(&queue->lock);
    shard->queue.data = data;
    shard->queue.needs_source = false;
    shard->queue.source_wait = CAIRN_UP_SOURCE_FOREVER;
    cairn_multipart_restage(&shard->queue.mp);
    bool idle = shard->queue.upload == CAIRN_UP_UPLOAD_MADE;
    cairn_lock_give(&queue->lock);
    if (idle)
        cairn_up_queue_add(queue, shard);
    else
        cairn_up_queue_wake(queue);
}

/* Under the lock. Also of a shard that needs no bytes any more: a seal covers what is here. */
static enum cairn_code take_stream(struct cairn_up_shard *shard, const uint8_t *data,
                                   const uint32_t *crcs, uint64_t count, struct cairn_error *err) {
    struct cairn_multipart *mp = &shard->queue.mp;
    CAIRN_TRY(cairn_multipart_ready(mp, mp->size_bytes, crcs, 0, count, err));
    if (!is_wanted(shard) || shard->queue.data) return CAIRN_OK;
    shard->queue.data = data;
    shard->queue.needs_source = false;
    shard->queue.source_wait = CAIRN_UP_SOURCE_FOREVER;
    cairn_multipart_source(mp);
    return CAIRN_OK;
}

enum cairn_code cairn_up_shard_stream(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                      struct cairn_slab *take_memory, struct cairn_view crcs_le,
                                      struct cairn_error *err) {
    CAIRN_AUTO_HEAP uint32_t *crcs = NULL;
    CAIRN_ASSERT(shard->is_stream);
    CAIRN_ASSERT(take_memory->size_bytes == shard->size_bytes);
    enum cairn_code code = load_crcs(crcs_le, &crcs, err);
    cairn_lock_take(&queue->lock);
    const struct cairn_slab had = shard->queue.stream;
    const struct cairn_slab *from = had.data ? &had : take_memory;
    if (!code) code = take_stream(shard, from->data, crcs, crcs_le.size / 4, err);
    bool kept = !code && !had.data;
    if (kept) shard->queue.stream = *take_memory;
    bool idle = !code && shard->queue.upload == CAIRN_UP_UPLOAD_MADE;
    cairn_lock_give(&queue->lock);
    if (!kept) cairn_slab_release(take_memory);
    if (code) return cairn_within(err, code, "stream %s", shard->name);
    if (idle) cairn_up_queue_add_unstaged(queue, shard);
    queue->due = true;
    return CAIRN_OK;
}

void cairn_up_shard_journaled(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    shard->queue.blocks_journaled = true;
}

const uint8_t *cairn_up_shard_stream_bytes(struct cairn_up_queue *queue,
                                           const struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    return shard->queue.stream.data;
}

struct cairn_slab cairn_up_shard_take_stream(struct cairn_up_queue *queue,
                                             struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    CAIRN_ASSERT(!shard->queue.bodies_in_flight);
    struct cairn_slab taken = shard->queue.stream;
    shard->queue.stream = (struct cairn_slab){0};
    if (shard->is_stream) shard->queue.data = NULL;
    return taken;
}

void cairn_up_shard_unawait(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    cairn_lock_take(&queue->lock);
    if (shard->is_stream && !shard->queue.data &&
        shard->queue.source_wait == CAIRN_UP_SOURCE_FOREVER)
        shard->queue.source_wait = CAIRN_UP_SOURCE_OFFERED;
    cairn_lock_give(&queue->lock);
    cairn_up_queue_wake(queue);
}

/* Makes a new state machine for the shard, with its blocks and token, without its source. */
static enum cairn_code renew(struct cairn_up_shard *shard, struct cairn_error *err) {
    struct cairn_multipart fresh = {0}, *old = &shard->queue.mp;
    CAIRN_TRY(cairn_multipart_init(&fresh, old->size_bytes, old->part_bytes, old->token, err));
    enum cairn_code code = cairn_multipart_recover(
        &fresh, old->upload_id[0] ? old->upload_id : NULL, old->blocks, err);
    if (code != CAIRN_OK) {
        cairn_multipart_release(&fresh);
        return code;
    }
    cairn_multipart_proven(&fresh); /* it was durable */
    cairn_multipart_release(old);
    *old = fresh;
    return CAIRN_OK;
}

enum cairn_code cairn_up_shard_recover(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                       const struct cairn_up_shard_past *past,
                                       struct cairn_error *err) {
    CAIRN_HOLD(&queue->lock);
    CAIRN_TRY(cairn_multipart_recover(&shard->queue.mp, past->upload_id, past->blocks, err));
    if (past->durable) cairn_multipart_proven(&shard->queue.mp);
    for (size_t i = 0; i < past->part_count; i++)
        cairn_multipart_remember(&shard->queue.mp, &past->parts[i]);
    shard->queue.blocks_journaled = past->blocks != NULL;
    shard->queue.intent_journaled = past->intent;
    shard->queue.source_wait = past->source_wait;
    return CAIRN_OK;
}

bool cairn_up_shard_again(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    cairn_lock_take(&queue->lock);
    bool possible = cairn_up_upload_state_admits(shard->queue.upload, CAIRN_UP_UPLOAD_EVENT_LOOK) &&
                    !shard->queue.in_flight && renew(shard, NULL) == CAIRN_OK;
    if (possible) {
        (void)cairn_up_upload_state_move(&shard->queue.upload, CAIRN_UP_UPLOAD_EVENT_LOOK);
        shard->queue.data = shard->queue.stream.data; /* a slab may hold other bytes by now */
        shard->queue.source_wait = CAIRN_UP_SOURCE_GIVEN_BACK;
        if (shard->queue.data) cairn_multipart_source(&shard->queue.mp);
    }
    cairn_lock_give(&queue->lock);
    if (possible) cairn_up_queue_add(queue, shard);
    return possible;
}

void cairn_up_shard_give_up_locked(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                   const struct cairn_error *why) {
    if (cairn_up_upload_state_move(&shard->queue.upload, CAIRN_UP_UPLOAD_EVENT_GIVE_UP) !=
        CAIRN_UP_UPLOAD_DUE_ABORT)
        return;
    shard->queue.not_before_ms = 0;
    cairn_up_queue_join(queue, shard);
    cairn_multipart_give_up(&shard->queue.mp, why);
}

void cairn_up_shard_give_up(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                            const struct cairn_error *why) {
    cairn_lock_take(&queue->lock);
    cairn_up_shard_give_up_locked(queue, shard, why);
    cairn_lock_give(&queue->lock);
    cairn_up_queue_wake(queue);
}

bool cairn_up_shard_is_quiet(struct cairn_up_queue *queue, const struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    return !shard->queue.bodies_in_flight && (shard->queue.upload == CAIRN_UP_UPLOAD_ENDING ||
                                              cairn_up_upload_state_has_ended(shard->queue.upload));
}

bool cairn_up_shard_has_ended(struct cairn_up_queue *queue, const struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    return cairn_up_upload_state_has_ended(shard->queue.upload) && !shard->queue.in_flight &&
           !shard->queue.filling;
}

static enum cairn_code append_blocks(const struct cairn_multipart *mp, struct cairn_buf *ret_le,
                                     struct cairn_error *err) {
    uint64_t count = cairn_div_up(mp->size_bytes, CAIRN_BLOCK_BYTES);
    ret_le->limit = CAIRN_UP_BLOCKS_BYTES_MAX;
    for (uint64_t i = 0; i < count; i++)
        CAIRN_TRY(cairn_buf_append_u32le(ret_le, mp->blocks[i], err));
    return CAIRN_OK;
}

enum cairn_code cairn_up_shard_seal(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                                    struct cairn_buf *ret_le, bool *ret_needed,
                                    struct cairn_error *err) {
    CAIRN_HOLD(&queue->lock);
    const struct cairn_multipart *mp = &shard->queue.mp;
    *ret_needed = !shard->is_file && !shard->is_stream; /* a stream's came with its record */
    if (!*ret_needed) return CAIRN_OK;
    CAIRN_ASSERT(mp->ready_bytes == mp->size_bytes);
    /* Also when a worker is about to journal them: its record may not be posted yet, and a durable
     * seal without checksums would leave a shard that no restart can finish. */
    return append_blocks(mp, ret_le, err);
}

void cairn_up_shard_proof_release(struct cairn_up_shard_proof *proof) {
    cairn_buf_release(&proof->blocks_le);
}

enum cairn_code cairn_up_shard_prove(struct cairn_up_queue *queue,
                                     const struct cairn_up_shard *shard,
                                     struct cairn_up_shard_proof *ret, struct cairn_error *err) {
    CAIRN_HOLD(&queue->lock);
    const struct cairn_multipart *mp = &shard->queue.mp;
    CAIRN_ASSERT(shard->queue.upload == CAIRN_UP_UPLOAD_DURABLE);
    CAIRN_ASSERT(mp->blocks || !mp->size_bytes);
    ret->crc32c = mp->crc32c;
    ret->part_bytes = mp->parts ? mp->part_bytes : 0;
    memcpy(ret->token, mp->token, sizeof(ret->token));
    return append_blocks(mp, &ret->blocks_le, err);
}

enum cairn_code cairn_up_shard_describe(struct cairn_up_queue *queue,
                                        const struct cairn_up_shard *shard,
                                        struct cairn_up_shard_proof *ret, struct cairn_error *err) {
    CAIRN_HOLD(&queue->lock);
    const struct cairn_multipart *mp = &shard->queue.mp;
    if (shard->is_file || mp->ready_bytes != mp->size_bytes)
        return cairn_fail(err, CAIRN_NOT_FOUND, "shard %s is not all here", shard->name);
    ret->crc32c = mp->crc32c;
    ret->part_bytes = mp->part_bytes;
    memcpy(ret->token, mp->token, sizeof(ret->token));
    return append_blocks(mp, &ret->blocks_le, err);
}

json_t *cairn_up_shard_intent(struct cairn_up_queue *queue, const struct cairn_up_shard *shard,
                              const char *partner) {
    CAIRN_HOLD(&queue->lock);
    const struct cairn_multipart *mp = &shard->queue.mp;
    return CAIRN_PACK(record_intent, .s = shard->index, .token = mp->token,
                      .part_bytes = mp->part_bytes, .partner = partner);
}

void cairn_up_shard_progress(struct cairn_up_queue *queue, const struct cairn_up_shard *shard,
                             struct cairn_up_progress *sum) {
    CAIRN_HOLD(&queue->lock);
    const struct cairn_multipart *mp = &shard->queue.mp;
    bool durable = shard->queue.upload == CAIRN_UP_UPLOAD_DURABLE;
    uint64_t parts = cairn_max_u64(mp->part_count, 1);
    sum->shards += durable;
    sum->bytes +=
        durable ? mp->size_bytes : cairn_min_u64(mp->size_bytes, mp->parts_acked * mp->part_bytes);
    sum->parts_done += durable ? parts : mp->parts_acked;
    sum->parts_total += parts;
}

#define SAVES_MAX (1 << 20)

enum cairn_code cairn_up_queue_new(struct cairn_up *up, struct cairn_up_queue **ret,
                                   struct cairn_error *err) {
    struct cairn_up_queue *queue = calloc(1, sizeof(*queue));
    if (!queue) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the queue of shards");
    cairn_lock_init(&queue->lock, CAIRN_LOCK_upload_queue);
    queue->up = up;
    enum cairn_code code = pool_init(&queue->pool, up, err);
    queue->workers = calloc((size_t)up->settings.workers, sizeof(*queue->workers));
    if (code == CAIRN_OK && !queue->workers)
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the queue of shards");
    if (code != CAIRN_OK) {
        cairn_up_queue_free(queue);
        return code;
    }
    *ret = queue;
    return CAIRN_OK;
}

void cairn_up_queue_free(struct cairn_up_queue *queue) {
    if (!queue) return;
    if (queue->pool.data) {
        munmap(queue->pool.data, (size_t)queue->pool.bytes);
        cairn_budget_give(&queue->up->budget, queue->pool.bytes);
    }
    free(queue->pool.buffers);
    free(queue->locked.unread);
    free(queue->workers);
    cairn_lock_release(&queue->lock);
    free(queue);
}

void cairn_up_queue_add_worker(struct cairn_up_queue *queue, struct cairn_store_worker *worker) {
    CAIRN_ASSERT(queue->worker_count < queue->up->settings.workers);
    queue->workers[queue->worker_count++] = worker;
}

void cairn_up_queue_wake(struct cairn_up_queue *queue) {
    cairn_late_ring(&queue->bell);
    for (size_t i = 0; i < queue->worker_count; i++) cairn_store_wake(queue->workers[i]);
}

void cairn_up_queue_wake_due(struct cairn_up_queue *queue) {
    if (queue->due) cairn_up_queue_wake(queue);
    queue->due = false;
}

void cairn_up_queue_body_begins(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    shard->queue.bodies_in_flight++;
    if (!queue->locked.bodies.in_flight++) queue->locked.bodies.since_us = cairn_mono_us();
}

void cairn_up_queue_body_ends(struct cairn_up_queue *queue, struct cairn_up_shard *shard,
                              uint64_t sent_bytes) {
    CAIRN_ASSERT(shard->queue.bodies_in_flight > 0);
    CAIRN_ASSERT(queue->locked.bodies.in_flight > 0);
    shard->queue.bodies_in_flight--;
    queue->locked.bodies.sent_bytes += sent_bytes;
    if (--queue->locked.bodies.in_flight) return;
    queue->locked.bodies.us += cairn_mono_us() - queue->locked.bodies.since_us;
}

struct cairn_up_sent cairn_up_queue_sent(struct cairn_up_queue *queue) {
    CAIRN_HOLD(&queue->lock);
    struct cairn_up_sent ret = {.us = queue->locked.bodies.us,
                                .bytes = queue->locked.bodies.sent_bytes,
                                .sending = queue->locked.bodies.in_flight > 0};
    if (ret.sending) ret.us += cairn_mono_us() - queue->locked.bodies.since_us;
    return ret;
}

void cairn_up_queue_admit(struct cairn_up_queue *queue) {
    cairn_lock_take(&queue->lock);
    bool doubted = cairn_store_may_move(queue->up->store) && CAIRN_RULE(Q55);
    for (struct cairn_up_shard *at = queue->locked.first; at && doubted; at = at->queue.next)
        cairn_multipart_doubt(&at->queue.mp);
    queue->locked.admitted = true;
    cairn_lock_give(&queue->lock);
    cairn_up_queue_wake(queue);
}

bool cairn_up_queue_is_admitted(struct cairn_up_queue *queue) {
    CAIRN_HOLD(&queue->lock);
    return queue->locked.admitted;
}

bool cairn_up_queue_is_still(struct cairn_up_queue *queue) {
    CAIRN_HOLD(&queue->lock);
    for (const struct cairn_up_shard *at = queue->locked.first; at; at = at->queue.next)
        if (at->queue.in_flight) return false;
    return true;
}

void cairn_up_queue_end_offers(struct cairn_up_queue *queue) {
    cairn_lock_take(&queue->lock);
    queue->locked.offers_over = true;
    cairn_lock_give(&queue->lock);
    cairn_up_queue_wake(queue);
}

/* Returns the place of the save's list of unread files, or its place of insertion. */
static struct cairn_up_unread *unread_of(struct cairn_up_queue *queue, uint64_t entry) {
    for (size_t i = 0; i < queue->locked.unread_count; i++)
        if (queue->locked.unread[i].entry == entry) return &queue->locked.unread[i];
    return NULL;
}

static void link_last(struct cairn_up_shard **first, struct cairn_up_shard **last,
                      struct cairn_up_shard *shard) {
    shard->queue.previous = *last;
    *(*last ? &(*last)->queue.next : first) = shard;
    *last = shard;
}

static void unlink_from(struct cairn_up_shard **first, struct cairn_up_shard **last,
                        struct cairn_up_shard *shard) {
    *(shard->queue.previous ? &shard->queue.previous->queue.next : first) = shard->queue.next;
    *(shard->queue.next ? &shard->queue.next->queue.previous : last) = shard->queue.previous;
    shard->queue.next = shard->queue.previous = NULL;
}

void cairn_up_queue_remove(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    queue->locked.depth--;
    if (!shard->queue.unread) {
        unlink_from(&queue->locked.first, &queue->locked.last, shard);
        return;
    }
    struct cairn_up_unread *unread = unread_of(queue, shard->entry);
    CAIRN_ASSERT(unread != NULL);
    shard->queue.unread = false;
    unlink_from(&unread->first, &unread->last, shard);
    if (unread->first) return;
    size_t behind = (size_t)(queue->locked.unread + --queue->locked.unread_count - unread);
    memmove(unread, unread + 1, behind * sizeof *unread);
}

void cairn_up_queue_join(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    if (!shard->queue.unread) return;
    cairn_up_queue_remove(queue, shard);
    queue->locked.depth++;
    link_last(&queue->locked.first, &queue->locked.last, shard);
}

static void move_in(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    enum cairn_up_upload_due due =
        cairn_up_upload_state_move(&shard->queue.upload, CAIRN_UP_UPLOAD_EVENT_QUEUE);
    CAIRN_ASSERT(due == CAIRN_UP_UPLOAD_DUE_JOIN);
    queue->locked.depth++;
}

static void append(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    move_in(queue, shard);
    link_last(&queue->locked.first, &queue->locked.last, shard);
}

/* False: no memory for a list; the shard then joins the main queue. */
static bool append_unread(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    struct cairn_up_unread *unread = unread_of(queue, shard->entry);
    if (!unread) {
        if (CAIRN_ARRAY_ROOM(queue->locked.unread, queue->locked.unread_count,
                             queue->locked.unread_capacity, SAVES_MAX, "saves", NULL) != CAIRN_OK)
            return false;
        unread = &queue->locked.unread[queue->locked.unread_count++];
        *unread = (struct cairn_up_unread){.entry = shard->entry};
    }
    link_last(&unread->first, &unread->last, shard);
    shard->queue.unread = true;
    return true;
}

void cairn_up_queue_add_file(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    CAIRN_HOLD(&queue->lock);
    move_in(queue, shard);
    if (!shard->size_bytes || !append_unread(queue, shard))
        link_last(&queue->locked.first, &queue->locked.last, shard);
    queue->due = true;
}

void cairn_up_queue_add(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    append(queue, shard);
    cairn_up_queue_wake(queue);
}

void cairn_up_queue_add_unstaged(struct cairn_up_queue *queue, struct cairn_up_shard *shard) {
    append(queue, shard);
    if (!shard->size_bytes) queue->due = true; /* an empty shard is complete */
}
