/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a read: ranges are sorted, joined and cut; whole blocks go directly into the window,
 * partial ones become fragments, gathered per block. And cells, searched linearly: they are few. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/memory.h"
#include "plan/reads.h"
#include "uploader/fetch/inside.h"
#include "uploader/saves/slabs.h"

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

static enum cairn_code check_range(const struct cairn_up_reading *reading,
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

/* Joins ranges that are adjacent both in the shard and in the window. */
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

static enum cairn_code cut_range(struct cairn_up_reading *reading,
                                 const struct cairn_up_range *range, size_t *capacity,
                                 struct cairn_error *err) {
    uint64_t size = reading->version->manifest.shards[range->shard].size_bytes;
    uint64_t end = range->offset + range->bytes;
    struct cairn_plan_range whole =
        cairn_plan_range_within((struct cairn_plan_range){range->offset, end}, size);
    uint64_t first = whole.begin, last = whole.end;
    add_fragment(reading, range, range->offset, first); /* no whole block: up to a block border */
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

enum cairn_code cairn_up_fetch_plan(struct cairn_up_reading *reading,
                                    const struct cairn_up_range *ranges, size_t count,
                                    struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_up_range *sorted = calloc(count + 1, sizeof(*sorted));
    reading->fragments = calloc(2 * count + 1, sizeof(*reading->fragments));
    if (!sorted || !reading->fragments)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    for (size_t i = 0; i < count; i++) {
        CAIRN_TRY(check_range(reading, &ranges[i], err));
        sorted[i] = ranges[i];
    }
    qsort(sorted, count, sizeof(*sorted), by_place);
    count = join(sorted, count);
    size_t capacity = 0;
    for (size_t i = 0; i < count; i++) CAIRN_TRY(cut_range(reading, &sorted[i], &capacity, err));
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
        CAIRN_TRY(add_piece(reading, &capacity, &piece, err));
    }
    return CAIRN_OK;
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

/* The last block of a shard of `size` bytes may be short. */
uint64_t cairn_up_cell_run_bytes(const struct cairn_up_cell *cell, uint8_t run, uint64_t size) {
    uint64_t offset = cairn_up_cell_run_offset(cell, run);
    uint64_t bytes = (uint64_t)__builtin_popcount(run) * CAIRN_BLOCK_BYTES;
    CAIRN_ASSERT(offset < size);
    return cairn_min_u64(bytes, size - offset);
}

struct cairn_up_cell *cairn_up_cells_find(struct cairn_up_cells *cells,
                                          const struct cairn_up_version *version, uint32_t shard,
                                          uint64_t offset) {
    for (size_t i = 0; i < cells->count; i++) {
        struct cairn_up_cell *cell = &cells->items[i];
        if (cell->version == version && cell->offset == offset && cell->shard == shard) return cell;
    }
    return NULL;
}

static bool is_idle(const struct cairn_up_cell *cell) {
    return !cell->users && !cell->flying && !cell->waiters;
}

/* The order of inside.h#4: the lowest rank is reused first. */
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

/* Adds a cell with memory; NULL: no free cell, or no budget beside a window for each rank. */
static struct cairn_up_cell *grow(struct cairn_up_cells *cells, uint32_t ranks) {
    uint64_t windows_bytes = ranks * CAIRN_UP_WINDOW_BYTES_MIN;
    if (cells->count == cells->capacity) return NULL;
    if (cairn_budget_free_bytes(cells->budget) < CAIRN_UP_CELL_BYTES + windows_bytes) return NULL;
    if (cairn_budget_take(cells->budget, CAIRN_UP_CELL_BYTES, "cells of restores", NULL))
        return NULL;
    struct cairn_up_cell *cell = &cells->items[cells->count];
    cell->data = cairn_pages_map(CAIRN_UP_CELL_BYTES);
    if (!cell->data) {
        cairn_budget_give(cells->budget, CAIRN_UP_CELL_BYTES);
        return NULL;
    }
    cells->count++;
    if (cells->restoring_bytes) atomic_fetch_add(cells->restoring_bytes, CAIRN_UP_CELL_BYTES);
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
        struct cairn_up_cell *fresh = grow(cells, version->expected);
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
        if (cells->restoring_bytes) atomic_fetch_sub(cells->restoring_bytes, CAIRN_UP_CELL_BYTES);
    }
}
