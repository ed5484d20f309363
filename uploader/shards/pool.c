/* SPDX-License-Identifier: Apache-2.0 */
/* One mapping, cut into buffers; a list of those that are free. */
#include "uploader/shards/pool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Two buffers a worker: one is sent while the next is read. */
#define BUFFERS_PER_WORKER 2

/* The pool takes at most a quarter of the budget; a small budget gets smaller file parts. */
enum cairn_code cairn_up_pool_init(struct cairn_up_pool *pool, struct cairn_up *up,
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

void cairn_up_pool_release(struct cairn_up_pool *pool, struct cairn_up *up) {
    if (pool->data) {
        munmap(pool->data, (size_t)pool->bytes);
        cairn_budget_give(&up->budget, pool->bytes);
    }
    free(pool->buffers);
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
