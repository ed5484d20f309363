/* SPDX-License-Identifier: Apache-2.0 */
/* An array that is searched from end to end: cells are few, and each is 8 MiB of copying. */
#include "uploader/fetch/cells.h"

#include <stdlib.h>

#include "common/clock.h"
#include "common/memory.h"

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

/* cells.h#2: the smaller the sooner. */
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
