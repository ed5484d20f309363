/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: leases, cells, and the structs shared by planner, readers and answers to other nodes.
 *
 * Why:     retention continues during a restore, so the server leases what is restored. Ranks of a
 *          node, and nodes of an attempt, want the same bytes at nearly the same time, so a cell
 *          holds each byte, read and compared once, for all copies.
 * Promise: Q29  a version that the server named is leased before any part of it is returned; the
 *               version that the attempt resumes as soon as the server answers (it is protected
 *               until the attempt's first commit, and a restore does not wait for an unreachable
 *               server). A lease is renewed three times in its life and given back when the node's
 *               last restore of the version ends, without a waiting caller. A missing lease fails
 *               no read: a deleted object fails by itself, and is named.
 *          1    a plan's pieces are whole blocks of one cell's range; a wanted part of a block is
 *               copied from a bounce or a cell, never read into the window.
 *          2    each accepted want ends once: with its bytes in place, or with a code.
 *          3    a cell is one aligned piece of one shard; each of its blocks is absent, in flight,
 *               or present and compared. A present block is never written.
 *          4    a cell is kept until every expected rank used it, or its memory is needed: first
 *               fully used cells, then the least recently used. A cell with users is never taken.
 *          5    a reader that shares with other nodes (careful) takes no cell that is still
 *               expected and was used within CAIRN_UP_CELL_HELD_MS: it waits for slower readers,
 *               which would otherwise read the cell again.
 *          6    cells' memory comes from the node's budget on first use and returns when no version
 *               is loaded; without memory there are fewer cells, and none takes what a rank of this
 *               node needs for its window.
 * Limits:  one lease for each loaded version; 1,000 to be given back, more expire. Cells:
 *          restore_cache, at most a quarter of the budget; none below CAIRN_UP_CELLS_MIN.
 * Threads: uploader_fetch locks `locked`, a reading's counters, leases and cells; a piece belongs
 *          to its taker, a block in flight to its request. Only the lease thread calls the server.
 * Next:    fetch.c, pieces.c, reader.c, divide.c.
 */
#pragma once

#include "api/wire/rest.h"
#include "common/process.h"
#include "plan/divide.h"
#include "uploader/fetch/fetch.h"
#include "uploader/port/ask.h"
#include "uploader/port/port.h"

struct cairn_up_fetch;

struct cairn_up_lease {
    struct cairn_up_lease *next;
    struct cairn_read_lease lease; /* once listed, only the lease thread writes its id */
    uint64_t due_ms;               /* mono clock */
    bool over;                     /* due to be given back */
    bool logged;                   /* the failure to get it */
};
struct cairn_up_leases {
    struct cairn_thread thread;
    struct cairn_rest *rest;      /* the lease thread's */
    struct cairn_up_lease *first; /* locked by uploader_fetch */
    size_t over_count;
    uint64_t count; /* leases ever made; part of their names */
};

#define CAIRN_UP_CELL_BYTES (8 * CAIRN_MIB) /* eight blocks, one bit each in masks */
#define CAIRN_UP_CELLS_MIN 4
#define CAIRN_UP_CELL_HELD_MS 2000

struct cairn_up_version;
struct cairn_up_want;

struct cairn_up_cell {
    struct cairn_up_version *version; /* NULL: free */
    uint32_t shard;
    uint64_t offset;                /* in the shard; a multiple of the cell's size */
    uint8_t present, flying, asked; /* bits of blocks; asked: in flight from another node */
    uint32_t users;                 /* requests, copies and answers using its memory */
    uint32_t had, expected;         /* ranks that used it, ranks that may */
    bool elsewhere;                 /* other nodes get it from a node's memory */
    uint64_t used, used_ms;         /* number and time (mono clock) of the last use */
    uint8_t *data;                  /* NULL: no memory yet */
    struct cairn_up_want *waiters;  /* for blocks in flight */
};
struct cairn_up_cells {
    struct cairn_budget *budget;
    _Atomic uint64_t *restoring_bytes; /* counts their memory, too; NULL: nothing does */
    struct cairn_up_cell *items;
    size_t count, capacity; /* with memory; the maximum */
    uint64_t uses;
};
/* Without memory for the list of cells, readers work without cells. */
void cairn_up_cells_init(struct cairn_up_cells *cells, struct cairn_budget *budget,
                         uint64_t bytes_max);
void cairn_up_cells_release(struct cairn_up_cells *cells);

/* The mask of the blocks in a range within one cell. */
uint8_t cairn_up_cell_mask(uint64_t offset, uint64_t bytes);
/* The first run of adjacent blocks in the mask. */
uint8_t cairn_up_cell_run(uint8_t mask);
uint64_t cairn_up_cell_run_offset(const struct cairn_up_cell *cell, uint8_t run);
uint64_t cairn_up_cell_run_bytes(const struct cairn_up_cell *cell, uint8_t run, uint64_t size);

struct cairn_up_cell *cairn_up_cells_find(struct cairn_up_cells *cells,
                                          const struct cairn_up_version *version, uint32_t shard,
                                          uint64_t offset);
/* Finds the cell or claims another for it; NULL: all are in use or (careful) still expected. */
struct cairn_up_cell *cairn_up_cells_claim(struct cairn_up_cells *cells,
                                           struct cairn_up_version *version, uint32_t shard,
                                           uint64_t offset, bool careful);
void cairn_up_cells_used(struct cairn_up_cells *cells, struct cairn_up_cell *cell);
/* Frees all cells of the version; none is in use. */
void cairn_up_cells_forget(struct cairn_up_cells *cells, const struct cairn_up_version *version);
/* Releases the memory of all cells; no version is loaded. */
void cairn_up_cells_shrink(struct cairn_up_cells *cells);

#define CAIRN_UP_PIECE_BYTES CAIRN_UP_CELL_BYTES /* the maximum of one request */
#define CAIRN_UP_BOUNCES_PER_READER 4            /* one block each */
#define CAIRN_UP_ASKING_MAX 32                   /* requests in flight to other nodes */
/* How long a version without ranks of this node is kept after another node's request, and after the
 * last rank that divided it: other nodes may be late. */
#define CAIRN_UP_VERSION_KEPT_MS 10000

/* A requested part of one block. */
struct cairn_up_fragment {
    uint32_t shard;
    uint64_t block;
    uint32_t from, bytes;
    uint64_t at; /* offset in the window */
};
/* Whole blocks of one shard (its last block may be short), within one cell's range. */
struct cairn_up_piece {
    uint32_t shard;
    uint64_t offset, bytes;
    bool bounced; /* one block, from which fragments are copied */
    uint64_t at;  /* offset in the window, unless bounced */
    size_t fragment_first, fragment_count;
};
struct cairn_up_reading {
    struct cairn_up_reading *next;
    struct cairn_up_version *version;
    struct cairn_up_window *window;
    struct cairn_up_piece *pieces;
    struct cairn_up_fragment *fragments;
    size_t piece_count, fragment_count;
    void (*done)(void *owner, enum cairn_code code, const struct cairn_error *why);
    void *owner;
    void (*end)(struct cairn_up_reading *reading); /* calls done() and frees */
    /* locked by uploader_fetch */
    size_t taken, finished;
    enum cairn_code code;
    struct cairn_error error;
};
/* Logs wrong bytes that are read once more (S17). */
void cairn_up_fetch_tell_again(const char *key, const struct cairn_error *why);

/* Sorts and joins ranges; fills pieces and fragments. */
enum cairn_code cairn_up_fetch_plan(struct cairn_up_reading *reading,
                                    const struct cairn_up_range *ranges, size_t count,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* A request of another node; locked by uploader_fetch. */
struct cairn_up_serve {
    struct cairn_up_piece piece;
    struct cairn_up_version *version;
    bool over, abandoned; /* abandoned: the thread that ends it frees it */
    bool shared;          /* other readers use the same bytes */
    enum cairn_code code;
    struct cairn_up_cell *cell; /* on success: holds one use */
};
/* A piece in progress. */
struct cairn_up_want {
    struct cairn_up_want *next;
    struct cairn_up_version *version;
    const struct cairn_up_piece *piece;
    struct cairn_up_reading *reading; /* or `serve` */
    struct cairn_up_serve *serve;
    bool looked;      /* blocks found in cells were counted */
    bool looked_kept; /* this node's slabs were looked at */
};
struct cairn_up_bounce {
    struct cairn_up_bounce *next;
    uint8_t *data;
};
/* One request to the store or (ask) another node. */
struct cairn_up_get {
    struct cairn_store_range range;
    struct cairn_up_get *next;
    struct cairn_up_version *version;
    uint32_t shard;
    uint64_t offset, bytes;
    struct cairn_up_cell *cell; /* the target, or: */
    uint8_t run;                /* the blocks in the cell */
    struct cairn_up_want *want; /* the target: its window or the bounce; owned */
    struct cairn_up_bounce *bounce;
    struct cairn_key key;
    size_t store, tried; /* index in up->reads; stores tried */
    struct cairn_up_ask ask;
    bool of_keeper;                   /* the asked node reports the shard in memory */
    bool keeper_failed, owner_failed; /* these nodes failed before */
    bool kept;                        /* copied from this node's memory */
    uint64_t submitted_us;            /* mono clock */
    bool finished, unwanted;
};
struct cairn_up_reader {
    struct cairn_up_fetch *fetch;
    struct cairn_up_thread thread;
    struct cairn_store_worker *stores[CAIRN_STORES_MAX]; /* of up->reads; [0] gets the wakes */
    uint32_t flying_at[CAIRN_STORES_MAX];
    struct cairn_up_get *flying;
    uint32_t flying_count;
    struct cairn_late late;
};
/* Throughput while at least one request is in flight. */
struct cairn_up_meter {
    uint32_t flying;
    uint64_t since_us, us, bytes;
};
struct cairn_up_fetch {
    struct cairn_up *up;
    struct cairn_up_reader *readers;
    size_t reader_count;
    struct cairn_up_leases leases;
    struct cairn_late_bell bell;
    struct cairn_lock lock;         /* uploader_fetch */
    struct cairn_condition changed; /* a version was loaded, or a serve ended */
    struct {
        bool running; /* threads and pool exist */
        struct cairn_up_reading *first, **last;
        struct cairn_up_version *versions;
        uint8_t *pool;
        struct cairn_up_bounce *bounces, *free_bounces;
        struct cairn_up_cells cells;
        struct cairn_up_want *ready, **ready_last; /* to be checked (again) before new pieces */
        struct cairn_up_want *held;                /* wants that wait for expected cells */
        size_t held_count;
        uint64_t held_look_ms;       /* mono clock */
        struct cairn_up_get *orders; /* failed peer requests, for the store */
        size_t asking, serving;
        size_t loading; /* versions for other nodes */
        struct cairn_up_meter store_meter, peer_meter;
        bool stopping;
    } locked;
};
/* Starts threads and pool, with the first window or the first request of another node. */
enum cairn_code cairn_up_fetch_run(struct cairn_up_fetch *fetch,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* Counts the ranks of this node that may want the version, before the first want, also before an
 * answer to another node, which may come while all ranks are late. */
void cairn_up_fetch_expect(struct cairn_up_fetch *fetch, struct cairn_up_version *version);

void *cairn_up_reader_main(void *reader);

void cairn_up_readers_wake(struct cairn_up_fetch *fetch);
/* Ends a request into a cell and frees get. */
void cairn_up_run_over(struct cairn_up_fetch *fetch, struct cairn_up_get *get, enum cairn_code code,
                       const struct cairn_error *why);
void cairn_up_want_fail(struct cairn_up_fetch *fetch, struct cairn_up_want *want,
                        enum cairn_code code, const struct cairn_error *why);
/* The lock is held. */
void cairn_up_want_add_locked(struct cairn_up_fetch *fetch, struct cairn_up_want *want);
void cairn_up_meter_begin(struct cairn_up_meter *meter);
void cairn_up_meter_end(struct cairn_up_meter *meter, uint64_t bytes);

/* ---- divide.c; the lock is held for the first two ---- */
/* Updates the division from the list of nodes and the measured throughput, at intervals. */
void cairn_up_division_look_locked(struct cairn_up_fetch *fetch, struct cairn_up_version *version);
/* Notes that a want of the version starts or ends its wait for a cell. */
void cairn_up_division_waits_locked(struct cairn_up_version *version, bool waits);
/* Fills get->ask when another node is to serve it: with it in memory, or with the share. */
bool cairn_up_division_owner_locked(struct cairn_up_fetch *fetch, struct cairn_up_get *get);
/* True when another node reports that it has the shard in memory. */
bool cairn_up_division_keeps_locked(const struct cairn_up_version *version, uint32_t shard);
/* Sends get->ask; on failure readers send the request to the store. */
void cairn_up_division_ask(struct cairn_up_fetch *fetch, struct cairn_up_get *get);

/* Adds the route for other nodes, before the port starts; none without peers. */
void cairn_up_serve_route(struct cairn_up *up, struct cairn_up_fetch *fetch);
#define CAIRN_UP_SERVE_PATH "/v1/restore/" /* STEP/VERSION/SHARD */
