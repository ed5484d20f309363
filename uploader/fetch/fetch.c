/* SPDX-License-Identifier: Apache-2.0 */
/* Windows, readings and the life of the threads that read (reader.c). */
#include "uploader/fetch/fetch.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/memory.h"
#include "uploader/fetch/inside.h"
#include "uploader/saves/attempt.h"
#include "uploader/saves/slabs.h"

/* ---- windows ---- */

static uint64_t pool_bytes(const struct cairn_up_fetch *fetch) {
    return fetch->reader_count * CAIRN_UP_BOUNCES_PER_READER * CAIRN_BLOCK_BYTES;
}

enum cairn_code cairn_up_window_new(struct cairn_up *up, uint64_t bytes,
                                    struct cairn_up_window **ret, struct cairn_error *err) {
    if (!bytes || bytes > UINT64_C(1) << 46)
        return cairn_fail(err, CAIRN_INVALID, "a window of %" PRIu64 " bytes", bytes);
    cairn_up_slabs_make_room(up, pool_bytes(up->fetch));
    CAIRN_TRY(cairn_up_fetch_run(up->fetch, err));
    struct cairn_up_window *window = calloc(1, sizeof(*window));
    if (!window) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a window");
    window->up = up;
    window->users = 1;
    uint64_t size = cairn_round_up(bytes, CAIRN_SLAB_UNIT_BYTES);
    cairn_up_slabs_make_room(up, size);
    enum cairn_code code = cairn_budget_take(&up->budget, size, "a restore window", err);
    if (code == CAIRN_OK) {
        code = cairn_slab_create("cairn-window", size, true, &window->memory, err);
        if (code != CAIRN_OK) cairn_budget_give(&up->budget, size);
    }
    if (code != CAIRN_OK) {
        free(window);
        return code;
    }
    *ret = window;
    return CAIRN_OK;
}

void cairn_up_window_leave(struct cairn_up_window *window) {
    if (!window) return;
    struct cairn_up *up = window->up;
    cairn_lock_take(&up->fetch->lock);
    bool last = --window->users == 0;
    cairn_lock_give(&up->fetch->lock);
    if (!last) return;
    uint64_t bytes = window->memory.size_bytes;
    cairn_slab_release(&window->memory);
    cairn_budget_give(&up->budget, bytes);
    free(window);
}

static void reading_free(struct cairn_up_reading *reading) {
    cairn_up_version_unuse(reading->version);
    cairn_up_window_leave(reading->window);
    free(reading->pieces);
    free(reading->fragments);
    free(reading);
}

static void reading_end(struct cairn_up_reading *reading) {
    reading->done(reading->owner, reading->code, &reading->error);
    reading_free(reading);
}

/* ---- asking ---- */

/* How many sessions of this node hold the run's attempts: its ranks, which mostly restore the same,
 * though not at the same moment. */
static uint32_t ranks_of(struct cairn_up *up, const struct cairn_run_name *run) {
    uint32_t count = 0;
    CAIRN_HOLD(&up->lock);
    for (const struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next)
        if (!strcmp(at->grant.name.run, run->run) && !strcmp(at->grant.name.project, run->project))
            count += at->users;
    return count;
}

void cairn_up_fetch_expect(struct cairn_up_fetch *fetch, struct cairn_up_version *version) {
    uint32_t ranks = ranks_of(fetch->up, &version->place.name);
    CAIRN_HOLD(&fetch->lock);
    version->expected = ranks > version->holders ? ranks : version->holders;
}

enum cairn_code cairn_up_fetch_read(struct cairn_up_fetch *fetch, struct cairn_up_version *version,
                                    struct cairn_up_window *window,
                                    const struct cairn_up_range *ranges, size_t count,
                                    void (*done)(void *owner, enum cairn_code code,
                                                 const struct cairn_error *why),
                                    void *owner, struct cairn_error *err) {
    struct cairn_up_reading *reading = calloc(1, sizeof(*reading));
    if (!reading) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    reading->version = version;
    reading->window = window;
    reading->done = done;
    reading->end = reading_end;
    reading->owner = owner;
    enum cairn_code code = cairn_up_fetch_plan(reading, ranges, count, err);
    if (code != CAIRN_OK) {
        free(reading->pieces);
        free(reading->fragments);
        free(reading);
        return code;
    }
    cairn_up_fetch_expect(fetch, version);
    cairn_lock_take(&fetch->lock);
    version->users++;
    window->users++;
    bool empty = !reading->piece_count || fetch->locked.stopping;
    if (!empty) {
        *fetch->locked.last = reading;
        fetch->locked.last = &reading->next;
    }
    cairn_lock_give(&fetch->lock);
    if (empty) {
        done(owner, CAIRN_OK, &reading->error);
        reading_free(reading);
        return CAIRN_OK;
    }
    cairn_up_readers_wake(fetch);
    return CAIRN_OK;
}

/* ---- life ---- */

enum cairn_code cairn_up_fetch_new(struct cairn_up *up, struct cairn_up_fetch **ret,
                                   struct cairn_error *err) {
    struct cairn_up_fetch *fetch = calloc(1, sizeof(*fetch));
    if (!fetch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the readers");
    fetch->up = up;
    cairn_lock_init(&fetch->lock, CAIRN_LOCK_uploader_fetch);
    cairn_condition_init(&fetch->changed);
    fetch->locked.last = &fetch->locked.first;
    fetch->locked.ready_last = &fetch->locked.ready;
    cairn_up_cells_init(&fetch->locked.cells, &up->budget, up->settings.restore_cache_bytes);
    fetch->reader_count = (size_t)up->settings.restore_workers;
    enum cairn_code code = cairn_up_leases_start(fetch, err);
    if (code) {
        cairn_up_cells_release(&fetch->locked.cells);
        cairn_condition_release(&fetch->changed);
        cairn_lock_release(&fetch->lock);
        free(fetch);
        return code;
    }
    *ret = fetch;
    return CAIRN_OK;
}

static enum cairn_code make_pool(struct cairn_up_fetch *fetch, struct cairn_error *err) {
    size_t count = fetch->reader_count * CAIRN_UP_BOUNCES_PER_READER;
    uint64_t bytes = pool_bytes(fetch);
    CAIRN_TRY(cairn_budget_take(&fetch->up->budget, bytes, "buffers for restores", err));
    void *pool = cairn_pages_map((size_t)bytes);
    fetch->locked.bounces = calloc(count, sizeof(*fetch->locked.bounces));
    if (!pool || !fetch->locked.bounces) {
        cairn_pages_unmap(pool, (size_t)bytes);
        cairn_budget_give(&fetch->up->budget, bytes);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the buffers of restores");
    }
    fetch->locked.pool = pool;
    for (size_t i = 0; i < count; i++) {
        struct cairn_up_bounce *bounce = &fetch->locked.bounces[i];
        bounce->data = fetch->locked.pool + i * CAIRN_BLOCK_BYTES;
        bounce->next = fetch->locked.free_bounces;
        fetch->locked.free_bounces = bounce;
    }
    return CAIRN_OK;
}

static enum cairn_code start_readers(struct cairn_up_fetch *fetch, struct cairn_error *err) {
    fetch->readers = calloc(fetch->reader_count, sizeof(*fetch->readers));
    if (!fetch->readers) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the readers");
    for (size_t i = 0; i < fetch->reader_count; i++) {
        fetch->readers[i].fetch = fetch;
        for (size_t at = 0; at < fetch->up->read_count; at++)
            CAIRN_TRY(cairn_store_worker_new(fetch->up->reads[at], &fetch->readers[i].stores[at],
                                             err));
    }
    CAIRN_TRY(make_pool(fetch, err));
    for (size_t i = 0; i < fetch->reader_count; i++) {
        struct cairn_up_reader *reader = &fetch->readers[i];
        if (pthread_create(&reader->thread, NULL, cairn_up_reader_main, reader))
            return cairn_fail(err, CAIRN_INTERNAL, "no thread for a reader");
        fetch->readers[i].started = true;
    }
    return CAIRN_OK;
}

/* All end before any worker goes: a reader that ends its last request wakes the others. */
static void drop_readers(struct cairn_up_fetch *fetch) {
    for (size_t i = 0; fetch->readers && i < fetch->reader_count; i++)
        if (fetch->readers[i].started) pthread_join(fetch->readers[i].thread, NULL);
    for (size_t i = 0; fetch->readers && i < fetch->reader_count; i++)
        for (size_t at = 0; at < CAIRN_STORES_MAX; at++)
            cairn_store_worker_free(fetch->readers[i].stores[at]);
    free(fetch->readers);
    fetch->readers = NULL;
    uint64_t bytes = pool_bytes(fetch);
    if (fetch->locked.pool) {
        cairn_pages_unmap(fetch->locked.pool, (size_t)bytes);
        cairn_budget_give(&fetch->up->budget, bytes);
    }
    free(fetch->locked.bounces);
    fetch->locked.pool = NULL;
    fetch->locked.bounces = fetch->locked.free_bounces = NULL;
}

/* Under uploader_state, which only serialises the first windows of several sessions. */
enum cairn_code cairn_up_fetch_run(struct cairn_up_fetch *fetch, struct cairn_error *err) {
    CAIRN_HOLD(&fetch->up->lock);
    cairn_lock_take(&fetch->lock);
    bool running = fetch->locked.running;
    cairn_lock_give(&fetch->lock);
    if (running) return CAIRN_OK;
    enum cairn_code code = start_readers(fetch, err);
    if (code != CAIRN_OK) {
        cairn_lock_take(&fetch->lock);
        fetch->locked.stopping = true;
        cairn_lock_give(&fetch->lock);
        drop_readers(fetch);
    }
    cairn_lock_take(&fetch->lock);
    fetch->locked.stopping = false;
    fetch->locked.running = code == CAIRN_OK;
    cairn_lock_give(&fetch->lock);
    return code;
}

/* Nobody reads any more, here or from other nodes. */
static void drop_wants(struct cairn_up_fetch *fetch) {
    struct cairn_error why = {0};
    cairn_fail(&why, CAIRN_CANCELLED, "the uploader is stopping");
    for (;;) {
        cairn_lock_take(&fetch->lock);
        struct cairn_up_get *get = fetch->locked.orders;
        struct cairn_up_want *want = fetch->locked.ready;
        if (get)
            fetch->locked.orders = get->next;
        else if (want)
            fetch->locked.ready = want->next;
        if (!fetch->locked.ready) fetch->locked.ready_last = &fetch->locked.ready;
        cairn_lock_give(&fetch->lock);
        if (!get && !want) return;
        if (get)
            cairn_up_run_over(fetch, get, CAIRN_CANCELLED, &why);
        else
            cairn_up_want_fail(fetch, want, CAIRN_CANCELLED, &why);
    }
}

void cairn_up_fetch_stop(struct cairn_up_fetch *fetch) {
    if (!fetch) return;
    cairn_lock_take(&fetch->lock);
    fetch->locked.stopping = true;
    struct cairn_up_reading *left = NULL;
    for (struct cairn_up_reading *at = fetch->locked.first; at; at = at->next) {
        if (at->code == CAIRN_OK) {
            at->code = CAIRN_CANCELLED;
            cairn_fail(&at->error, CAIRN_CANCELLED, "the uploader is stopping");
        }
    }
    cairn_lock_give(&fetch->lock);
    cairn_up_readers_wake(fetch);
    drop_readers(fetch);
    drop_wants(fetch);
    /* Readings of which no piece was under way. */
    cairn_lock_take(&fetch->lock);
    left = fetch->locked.first;
    fetch->locked.first = NULL;
    fetch->locked.last = &fetch->locked.first;
    cairn_lock_give(&fetch->lock);
    while (left) {
        struct cairn_up_reading *reading = left;
        left = left->next;
        reading->done(reading->owner, reading->code, &reading->error);
        reading_free(reading);
    }
}

void cairn_up_fetch_free(struct cairn_up_fetch *fetch) {
    if (!fetch) return;
    cairn_up_fetch_stop(fetch);
    cairn_up_version_tick(fetch, true);
    cairn_up_leases_stop(fetch);
    cairn_up_cells_release(&fetch->locked.cells);
    cairn_condition_release(&fetch->changed);
    cairn_lock_release(&fetch->lock);
    free(fetch);
}
