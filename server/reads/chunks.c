/* SPDX-License-Identifier: Apache-2.0 */
/* A stack of idle chunks: the one that was given back last is still in the cache. */
#include "server/reads/chunks.h"

#include <stdlib.h>

#include "common/lock.h"
#include "common/pages.h"

#define IDLE_MAX 16

struct cairn_srv_chunks {
    struct cairn_lock lock;
    size_t bytes, capacity;
    struct {
        size_t used, idle_count;
        size_t spare; /* how many were idle all the time since the last look */
        void *idle[IDLE_MAX];
    } locked;
};

enum cairn_code cairn_srv_chunks_new(size_t bytes, size_t capacity, struct cairn_srv_chunks **ret,
                                     struct cairn_error *err) {
    struct cairn_srv_chunks *chunks = calloc(1, sizeof(*chunks));
    if (!chunks) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the chunks of reads");
    cairn_lock_init(&chunks->lock, CAIRN_LOCK_server_chunks);
    chunks->bytes = bytes;
    chunks->capacity = capacity;
    *ret = chunks;
    return CAIRN_OK;
}

/* An idle one, or NULL; the lock is held. */
static void *pop(struct cairn_srv_chunks *chunks) {
    size_t count = chunks->locked.idle_count;
    if (!count) return NULL;
    chunks->locked.idle_count = count - 1;
    chunks->locked.spare = cairn_min_u64(chunks->locked.spare, count - 1);
    return chunks->locked.idle[count - 1];
}

void cairn_srv_chunks_free(struct cairn_srv_chunks *chunks) {
    if (!chunks) return;
    CAIRN_ASSERT(!chunks->locked.used);
    for (void *data; (data = pop(chunks));) cairn_pages_unmap(data, chunks->bytes);
    cairn_lock_release(&chunks->lock);
    free(chunks);
}

void *cairn_srv_chunks_take(struct cairn_srv_chunks *chunks) {
    cairn_lock_take(&chunks->lock);
    void *data = pop(chunks);
    chunks->locked.used++;
    cairn_lock_give(&chunks->lock);
    if (data) return data;
    data = cairn_pages_map(chunks->bytes);
    if (data) return data;
    CAIRN_HOLD(&chunks->lock);
    chunks->locked.used--;
    return NULL;
}

void cairn_srv_chunks_give(struct cairn_srv_chunks *chunks, void *data) {
    if (!data) return;
    cairn_lock_take(&chunks->lock);
    chunks->locked.used--;
    bool keep = chunks->locked.idle_count < IDLE_MAX &&
                chunks->locked.used + chunks->locked.idle_count < chunks->capacity;
    if (keep) chunks->locked.idle[chunks->locked.idle_count++] = data;
    cairn_lock_give(&chunks->lock);
    if (!keep) cairn_pages_unmap(data, chunks->bytes);
}

void cairn_srv_chunks_look(struct cairn_srv_chunks *chunks) {
    void *spare[IDLE_MAX];
    size_t count = 0;
    {
        CAIRN_HOLD(&chunks->lock);
        for (size_t left = chunks->locked.spare; left; left--) spare[count++] = pop(chunks);
        chunks->locked.spare = chunks->locked.idle_count;
    }
    while (count) cairn_pages_unmap(spare[--count], chunks->bytes);
}

size_t cairn_srv_chunks_idle(struct cairn_srv_chunks *chunks) {
    CAIRN_HOLD(&chunks->lock);
    return chunks->locked.idle_count;
}
