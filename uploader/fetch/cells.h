/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cells: memory in which what several want of a version is read once.
 *
 * Why:     ranks of a node, and nodes of an attempt, want the same bytes at nearly the same time;
 *          each byte is read and compared once, and copied from here.
 * Promise: 1   a cell is one aligned piece of one shard; each of its blocks is absent, on its way,
 *              or present and compared. Nobody writes a block that is present.
 *          2   a cell is kept until all that are expected to want it have had it, or until its
 *              memory is needed: first those that all have had, then the one that was used the
 *              longest time ago. One with users is never taken.
 *          3   who reads together with other nodes (careful) takes no cell that is still expected
 *              and was used within CAIRN_UP_CELL_HELD_MS: it waits for those behind it instead of
 *              having them read again.
 *          4   memory is taken from the node's budget when a cell is first used and given back when
 *              no version is loaded; without it fewer cells do.
 * Limits:  restore_cache, at most a quarter of the budget; none below CAIRN_UP_CELLS_MIN.
 * Threads: all of it by uploader_fetch, but for the bytes: a block on its way belongs to its
 *          request, a present one is read by users.
 * Next:    uploader/fetch/reader.c.
 */
#pragma once

#include "common/process.h"

#define CAIRN_UP_CELL_BYTES (8 * CAIRN_MIB) /* eight blocks: a bit each */
#define CAIRN_UP_CELLS_MIN 4
#define CAIRN_UP_CELL_HELD_MS 2000

struct cairn_up_version;
struct cairn_up_want;

struct cairn_up_cell {
    struct cairn_up_version *version; /* NULL: free */
    uint32_t shard;
    uint64_t offset;                 /* in it; a multiple of the cell's size */
    uint8_t present, flying, asked;  /* a bit a block; asked: flying, from another node */
    uint32_t users;                  /* requests, copies and answers that need its memory */
    uint32_t had, expected;          /* by how many, and how many may come */
    bool elsewhere;                  /* other nodes ask one that has it in memory */
    uint64_t used, used_ms;          /* the number of its last use, and when (mono clock) */
    uint8_t *data;                   /* NULL: no memory yet */
    struct cairn_up_want *waiters;   /* for blocks on their way */
};
struct cairn_up_cells {
    struct cairn_budget *budget;
    struct cairn_up_cell *items;
    size_t count, capacity; /* with memory; at most */
    uint64_t uses;
};
/* Without memory for the list there are no cells. */
void cairn_up_cells_init(struct cairn_up_cells *cells, struct cairn_budget *budget,
                         uint64_t bytes_max);
void cairn_up_cells_release(struct cairn_up_cells *cells);

/* The bits of these blocks, which lie in the cell. */
uint8_t cairn_up_cell_mask(uint64_t offset, uint64_t bytes);
/* The first run of these blocks. */
uint8_t cairn_up_cell_run(uint8_t mask);
uint64_t cairn_up_cell_run_offset(const struct cairn_up_cell *cell, uint8_t run);
uint64_t cairn_up_cell_run_bytes(const struct cairn_up_cell *cell, uint8_t run, uint64_t size);

struct cairn_up_cell *cairn_up_cells_find(struct cairn_up_cells *cells,
                                          const struct cairn_up_version *version, uint32_t shard,
                                          uint64_t offset);
/* That one, or another that becomes it; NULL: all are in use, or (careful) are to be kept now. */
struct cairn_up_cell *cairn_up_cells_claim(struct cairn_up_cells *cells,
                                           struct cairn_up_version *version, uint32_t shard,
                                           uint64_t offset, bool careful);
void cairn_up_cells_used(struct cairn_up_cells *cells, struct cairn_up_cell *cell);
/* Nobody uses any of them. */
void cairn_up_cells_forget(struct cairn_up_cells *cells, const struct cairn_up_version *version);
/* The memory of all; no version is loaded. */
void cairn_up_cells_shrink(struct cairn_up_cells *cells);
