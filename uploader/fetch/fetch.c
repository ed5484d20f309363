/* SPDX-License-Identifier: Apache-2.0 */
/* Windows and reads: checks ranges, plans pieces and queues them for the readers; cells. */
#include "uploader/fetch/fetch.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/array.h"
#include "common/clock.h"
#include "common/pages.h"
#include "plan/ranges.h"
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

/* ---- the plan: ranges, sorted and joined, become pieces ---- */

#define PIECES_MAX (1 << 24)

static int by_place(const void *a, const void *b) {
    const struct cairn_up_range *x = a, *y = b;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int by_block(const void *a, const void *b) {
    const struct cairn_up_fragment *x = a, *y = b;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    if (x->block != y->block) return x->block < y->block ? -1 : 1;
    return 0;
}

static enum cairn_code check(const struct cairn_up_reading *reading,
                             const struct cairn_up_range *range, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &reading->version->manifest;
    if (range->shard >= manifest->shard_count)
        return cairn_fail(err, CAIRN_INVALID, "shard %u of %zu", range->shard,
                          manifest->shard_count);
    uint64_t size = manifest->shards[range->shard].size_bytes;
    uint64_t window = reading->window->memory.size_bytes;
    if (range->bytes > size || range->offset > size - range->bytes)
        return cairn_fail(err, CAIRN_RANGE,
                          "%" PRIu64 " bytes from %" PRIu64 " of a shard of %" PRIu64, range->bytes,
                          range->offset, size);
    if (range->bytes > window || range->at > window - range->bytes)
        return cairn_fail(err, CAIRN_INVALID,
                          "%" PRIu64 " bytes at %" PRIu64 " of a window of %" PRIu64, range->bytes,
                          range->at, window);
    return CAIRN_OK;
}

/* Neighbours in the shard that are neighbours in the window become one. */
static size_t join(struct cairn_up_range *ranges, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (!ranges[i].bytes) continue;
        struct cairn_up_range *last = kept ? &ranges[kept - 1] : NULL;
        if (last && last->shard == ranges[i].shard &&
            last->offset + last->bytes == ranges[i].offset &&
            last->at + last->bytes == ranges[i].at)
            last->bytes += ranges[i].bytes;
        else
            ranges[kept++] = ranges[i];
    }
    return kept;
}

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
}

static enum cairn_code add_piece(struct cairn_up_reading *reading, size_t *capacity,
                                 const struct cairn_up_piece *piece, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(reading->pieces, reading->piece_count, *capacity, PIECES_MAX,
                               "requests for one read", err));
    reading->pieces[reading->piece_count++] = *piece;
    return CAIRN_OK;
}

static void add_fragment(struct cairn_up_reading *reading, const struct cairn_up_range *range,
                         uint64_t from, uint64_t end) {
    if (from >= end) return;
    reading->fragments[reading->fragment_count++] = (struct cairn_up_fragment){
        .shard = range->shard,
        .block = from / CAIRN_BLOCK_BYTES,
        .from = (uint32_t)(from % CAIRN_BLOCK_BYTES),
        .bytes = (uint32_t)(end - from),
        .at = range->at + (from - range->offset),
    };
}

static enum cairn_code cut(struct cairn_up_reading *reading, const struct cairn_up_range *range,
                           size_t *capacity, struct cairn_error *err) {
    uint64_t size = reading->version->manifest.shards[range->shard].size_bytes;
    uint64_t end = range->offset + range->bytes;
    struct cairn_plan_range whole =
        cairn_plan_range_within((struct cairn_plan_range){range->offset, end}, size);
    uint64_t first = whole.begin, last = whole.end;
    add_fragment(reading, range, range->offset, first); /* without a whole block: up to a border */
    add_fragment(reading, range, last, end);
    for (uint64_t at = first, border; at < last; at = border) {
        border = at - at % CAIRN_UP_PIECE_BYTES + CAIRN_UP_PIECE_BYTES; /* the cell's end */
        struct cairn_up_piece piece = {
            .shard = range->shard,
            .offset = at,
            .bytes = cairn_min_u64(border, last) - at,
            .at = range->at + (at - range->offset),
        };
        CAIRN_TRY(add_piece(reading, capacity, &piece, err));
    }
    return CAIRN_OK;
}

static enum cairn_code gather_fragments(struct cairn_up_reading *reading, size_t *capacity,
                                        struct cairn_error *err) {
    qsort(reading->fragments, reading->fragment_count, sizeof(*reading->fragments), by_block);
    for (size_t i = 0; i < reading->fragment_count;) {
        size_t first = i;
        const struct cairn_up_fragment *fragment = &reading->fragments[first];
        while (i < reading->fragment_count && !by_block(&reading->fragments[i], fragment)) i++;
        uint64_t size = reading->version->manifest.shards[fragment->shard].size_bytes;
        uint64_t offset = fragment->block * CAIRN_BLOCK_BYTES;
        struct cairn_up_piece piece = {
            .shard = fragment->shard,
            .offset = offset,
            .bytes = cairn_min_u64(CAIRN_BLOCK_BYTES, size - offset),
            .bounced = true,
            .fragment_first = first,
            .fragment_count = i - first,
        };
        CAIRN_TRY(add_piece(reading, capacity, &piece, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_up_fetch_plan(struct cairn_up_reading *reading,
                                    const struct cairn_up_range *ranges, size_t count,
                                    struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_up_range *sorted = calloc(count + 1, sizeof(*sorted));
    reading->fragments = calloc(2 * count + 1, sizeof(*reading->fragments));
    if (!sorted || !reading->fragments) return no_memory(err);
    for (size_t i = 0; i < count; i++) {
        CAIRN_TRY(check(reading, &ranges[i], err));
        sorted[i] = ranges[i];
    }
    qsort(sorted, count, sizeof(*sorted), by_place);
    count = join(sorted, count);
    size_t capacity = 0;
    for (size_t i = 0; i < count; i++) CAIRN_TRY(cut(reading, &sorted[i], &capacity, err));
    return gather_fragments(reading, &capacity, err);
}

/* ---- cells ---- */

void cairn_up_cells_init(struct cairn_up_cells *cells, struct cairn_budget *budget,
                         uint64_t bytes_max) {
    size_t capacity =
        (size_t)(cairn_min_u64(bytes_max, budget->total_bytes / 4) / CAIRN_UP_CELL_BYTES);
    *cells = (struct cairn_up_cells){.budget = budget};
    if (capacity < CAIRN_UP_CELLS_MIN) return;
    cells->items = calloc(capacity, sizeof(*cells->items));
    if (cells->items) cells->capacity = capacity;
}

void cairn_up_cells_release(struct cairn_up_cells *cells) {
    cairn_up_cells_shrink(cells);
    free(cells->items);
    *cells = (struct cairn_up_cells){0};
}

/* ---- blocks ---- */

uint8_t cairn_up_cell_mask(uint64_t offset, uint64_t bytes) {
    uint64_t first = offset % CAIRN_UP_CELL_BYTES / CAIRN_BLOCK_BYTES;
    uint64_t count = (bytes + CAIRN_BLOCK_BYTES - 1) / CAIRN_BLOCK_BYTES;
    CAIRN_ASSERT(count > 0);
    CAIRN_ASSERT(first + count <= 8);
    return (uint8_t)(((1u << count) - 1) << first);
}

uint8_t cairn_up_cell_run(uint8_t mask) {
    unsigned first = 0, end = 0;
    CAIRN_ASSERT(mask != 0);
    while (!(mask >> first & 1)) first++;
    for (end = first; end < 8 && (mask >> end & 1);) end++;
    return (uint8_t)((1u << end) - (1u << first));
}

uint64_t cairn_up_cell_run_offset(const struct cairn_up_cell *cell, uint8_t run) {
    CAIRN_ASSERT(run != 0);
    return cell->offset + (uint64_t)__builtin_ctz(run) * CAIRN_BLOCK_BYTES;
}

/* The last block of a shard, of that size, may be a short one. */
uint64_t cairn_up_cell_run_bytes(const struct cairn_up_cell *cell, uint8_t run, uint64_t size) {
    uint64_t offset = cairn_up_cell_run_offset(cell, run);
    uint64_t bytes = (uint64_t)__builtin_popcount(run) * CAIRN_BLOCK_BYTES;
    CAIRN_ASSERT(offset < size);
    return cairn_min_u64(bytes, size - offset);
}

/* ---- cells ---- */

struct cairn_up_cell *cairn_up_cells_find(struct cairn_up_cells *cells,
                                          const struct cairn_up_version *version, uint32_t shard,
                                          uint64_t offset) {
    for (size_t i = 0; i < cells->count; i++) {
        struct cairn_up_cell *cell = &cells->items[i];
        if (cell->version == version && cell->offset == offset && cell->shard == shard)
            return cell;
    }
    return NULL;
}

static bool is_idle(const struct cairn_up_cell *cell) {
    return !cell->users && !cell->flying && !cell->waiters;
}

/* inside.h#4: the smaller the sooner. */
static int rank_of(const struct cairn_up_cell *cell) {
    return !cell->version ? 0 : cell->had >= cell->expected ? 1 : 2;
}

static struct cairn_up_cell *least_wanted(struct cairn_up_cells *cells) {
    struct cairn_up_cell *found = NULL;
    for (size_t i = 0; i < cells->count; i++) {
        struct cairn_up_cell *cell = &cells->items[i];
        if (!is_idle(cell)) continue;
        bool sooner = found && (rank_of(cell) < rank_of(found) ||
                                (rank_of(cell) == rank_of(found) && cell->used < found->used));
        if (!found || sooner) found = cell;
    }
    return found;
}

/* One more with memory; NULL: there is none, of its own kind or in the budget. */
static struct cairn_up_cell *grow(struct cairn_up_cells *cells) {
    if (cells->count == cells->capacity) return NULL;
    if (cairn_budget_take(cells->budget, CAIRN_UP_CELL_BYTES, "cells of restores", NULL))
        return NULL;
    struct cairn_up_cell *cell = &cells->items[cells->count];
    cell->data = cairn_pages_map(CAIRN_UP_CELL_BYTES);
    if (!cell->data) {
        cairn_budget_give(cells->budget, CAIRN_UP_CELL_BYTES);
        return NULL;
    }
    cells->count++;
    return cell;
}

static void clear(struct cairn_up_cell *cell) {
    CAIRN_ASSERT(is_idle(cell));
    *cell = (struct cairn_up_cell){.data = cell->data};
}

struct cairn_up_cell *cairn_up_cells_claim(struct cairn_up_cells *cells,
                                           struct cairn_up_version *version, uint32_t shard,
                                           uint64_t offset, bool careful) {
    struct cairn_up_cell *cell = cairn_up_cells_find(cells, version, shard, offset);
    CAIRN_ASSERT(offset % CAIRN_UP_CELL_BYTES == 0);
    if (cell) return cell;
    cell = least_wanted(cells);
    if (!cell || rank_of(cell) == 2) {
        struct cairn_up_cell *fresh = grow(cells);
        if (fresh) cell = fresh;
    }
    if (!cell) return NULL;
    if (careful && rank_of(cell) == 2 && cairn_mono_ms() < cell->used_ms + CAIRN_UP_CELL_HELD_MS)
        return NULL;
    clear(cell);
    cell->version = version;
    cell->shard = shard;
    cell->offset = offset;
    cairn_up_cells_used(cells, cell);
    return cell;
}

void cairn_up_cells_used(struct cairn_up_cells *cells, struct cairn_up_cell *cell) {
    cell->used = ++cells->uses;
    cell->used_ms = cairn_mono_ms();
}

void cairn_up_cells_forget(struct cairn_up_cells *cells, const struct cairn_up_version *version) {
    for (size_t i = 0; i < cells->count; i++)
        if (cells->items[i].version == version) clear(&cells->items[i]);
}

void cairn_up_cells_shrink(struct cairn_up_cells *cells) {
    while (cells->count) {
        struct cairn_up_cell *cell = &cells->items[--cells->count];
        clear(cell);
        cairn_pages_unmap(CAIRN_TAKE(cell->data), CAIRN_UP_CELL_BYTES);
        cairn_budget_give(cells->budget, CAIRN_UP_CELL_BYTES);
    }
}
