/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: leases, cells, and what the planner, the readers and the answers to other nodes share.
 *
 * Why:     retention goes on while ranks read, so what is restored is leased from the server. Ranks
 *          of a node, and nodes of an attempt, want the same bytes at nearly the same time, so each
 *          byte is read and compared once and copied from a cell.
 * Promise: Q29  a version that the server named is leased before anything of it is handed out; one
 *               that the attempt resumes as soon as the server answers (it is protected till its
 *               first commit anyway, and a restore does not wait for a server that is away). A
 *               lease is renewed three times in its life and given back when the node's last
 *               restore of the version ends; nobody waits for either. Want of a lease fails no
 *               read: what is gone fails by itself, and is named.
 *          1    a plan's pieces are whole blocks of one cell's range; what somebody wants of a
 *               block in part is copied out of a bounce or a cell and never read into the window.
 *          2    each want that was taken ends once: with its bytes in place, or with a code.
 *          3    a cell is one aligned piece of one shard; each of its blocks is absent, on its way,
 *               or present and compared. Nobody writes a block that is present.
 *          4    a cell is kept until all that are expected to want it have had it, or until its
 *               memory is needed: first those that all have had, then the one that was used the
 *               longest time ago. One with users is never taken.
 *          5    who reads together with other nodes (careful) takes no cell that is still expected
 *               and was used within CAIRN_UP_CELL_HELD_MS: it waits for those behind it instead of
 *               having them read again.
 *          6    cells' memory is taken from the node's budget when one is first used and given back
 *               when no version is loaded; without it fewer cells do.
 * Limits:  one lease for each version that is loaded; 1,000 that are still to be given back, the
 *          others end by themselves. Cells: restore_cache, at most a quarter of the budget; none
 *          below CAIRN_UP_CELLS_MIN.
 * Threads: `locked`, a reading's counters, leases and cells by uploader_fetch; a piece belongs to
 *          whoever took it, a block on its way to its request. The thread of leases alone talks to
 *          the server.
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
    struct cairn_read_lease lease; /* its id by the thread alone, once it is in the list */
    uint64_t due_ms;               /* mono clock */
    bool over;                     /* to be given back */
    bool logged;                   /* that it could not be had */
};
struct cairn_up_leases {
    struct cairn_thread thread;
    struct cairn_rest *rest;      /* the thread's */
    struct cairn_up_lease *first; /* locked by uploader_fetch */
    size_t over_count;
    uint64_t count; /* of all that ever were; in their names */
};

#define CAIRN_UP_CELL_BYTES (8 * CAIRN_MIB) /* eight blocks: a bit each */
#define CAIRN_UP_CELLS_MIN 4
#define CAIRN_UP_CELL_HELD_MS 2000

struct cairn_up_version;
struct cairn_up_want;

struct cairn_up_cell {
    struct cairn_up_version *version; /* NULL: free */
    uint32_t shard;
    uint64_t offset;                /* in it; a multiple of the cell's size */
    uint8_t present, flying, asked; /* a bit a block; asked: flying, from another node */
    uint32_t users;                 /* requests, copies and answers that need its memory */
    uint32_t had, expected;         /* by how many, and how many may come */
    bool elsewhere;                 /* other nodes ask one that has it in memory */
    uint64_t used, used_ms;         /* the number of its last use, and when (mono clock) */
    uint8_t *data;                  /* NULL: no memory yet */
    struct cairn_up_want *waiters;  /* for blocks on their way */
};
struct cairn_up_cells {
    struct cairn_budget *budget;
    struct cairn_up_cell *items;
    size_t count, capacity; /* with memory; at most */
    uint64_t uses;
};
/* Without memory for the list of cells the reader works without cells. */
void cairn_up_cells_init(struct cairn_up_cells *cells, struct cairn_budget *budget,
                         uint64_t bytes_max);
void cairn_up_cells_release(struct cairn_up_cells *cells);

/* The bit mask of the blocks of a range within one cell. */
uint8_t cairn_up_cell_mask(uint64_t offset, uint64_t bytes);
/* The first run of adjacent blocks in the mask. */
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
/* Frees all cells of the version, none of which is in use. */
void cairn_up_cells_forget(struct cairn_up_cells *cells, const struct cairn_up_version *version);
/* Returns the memory of all cells; no version may be loaded. */
void cairn_up_cells_shrink(struct cairn_up_cells *cells);

#define CAIRN_UP_PIECE_BYTES CAIRN_UP_CELL_BYTES /* one request */
#define CAIRN_UP_BOUNCES_PER_READER 4            /* one block each */
#define CAIRN_UP_ASKING_MAX 32                   /* requests to other nodes under way */
/* A version that no rank of this node restores, after another node asked for it, and after the last
 * rank left that divided it with others: they may not have asked yet. */
#define CAIRN_UP_VERSION_KEPT_MS 10000

/* A requested part of one block. */
struct cairn_up_fragment {
    uint32_t shard;
    uint64_t block;
    uint32_t from, bytes;
    uint64_t at; /* in the window */
};
/* Whole blocks of one shard (the last may be the shard's short one), within one cell's range. */
struct cairn_up_piece {
    uint32_t shard;
    uint64_t offset, bytes;
    bool bounced; /* one block, then fragments are copied */
    uint64_t at;  /* in the window, when not bounced */
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
    void (*end)(struct cairn_up_reading *reading); /* done() and free */
    /* locked by uploader_fetch */
    size_t taken, finished;
    enum cairn_code code;
    struct cairn_error error;
};
/* What came wrong is read once more (S17). */
void cairn_up_fetch_tell_again(const char *key, const struct cairn_error *why);

/* Fills pieces and fragments. Ranges are sorted and joined here. */
enum cairn_code cairn_up_fetch_plan(struct cairn_up_reading *reading,
                                    const struct cairn_up_range *ranges, size_t count,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* A request of another node; locked by uploader_fetch. */
struct cairn_up_serve {
    struct cairn_up_piece piece;
    struct cairn_up_version *version;
    bool over, abandoned; /* abandoned: whoever ends it frees it */
    bool shared;          /* others want it, too */
    enum cairn_code code;
    struct cairn_up_cell *cell; /* when it is over and well: one of its users */
};
/* A piece under way. */
struct cairn_up_want {
    struct cairn_up_want *next;
    struct cairn_up_version *version;
    const struct cairn_up_piece *piece;
    struct cairn_up_reading *reading; /* or */
    struct cairn_up_serve *serve;
    bool looked; /* what it found in cells was counted */
};
struct cairn_up_bounce {
    struct cairn_up_bounce *next;
    uint8_t *data;
};
/* One request, to the store or (ask) another node. */
struct cairn_up_get {
    struct cairn_store_range range;
    struct cairn_up_get *next;
    struct cairn_up_version *version;
    uint32_t shard;
    uint64_t offset, bytes;
    struct cairn_up_cell *cell; /* into it, or: */
    uint8_t run;                /* of its blocks */
    struct cairn_up_want *want; /* into its window or the bounce; owned */
    struct cairn_up_bounce *bounce;
    struct cairn_key key;
    size_t store, tried; /* in up->reads; how many of them were asked */
    struct cairn_up_ask ask;
    bool of_keeper;                   /* the node that is asked says that it has it in memory */
    bool keeper_failed, owner_failed; /* asked before, without getting it */
    bool kept;                        /* it came out of this node's memory */
    uint64_t submitted_us;            /* mono clock */
    bool finished, unwanted;
};
struct cairn_up_reader {
    struct cairn_up_fetch *fetch;
    struct cairn_up_thread thread;
    struct cairn_store_worker *stores[CAIRN_STORES_MAX]; /* of up->reads; [0] is woken */
    uint32_t flying_at[CAIRN_STORES_MAX];
    struct cairn_up_get *flying;
    uint32_t flying_count;
    struct cairn_late late;
};
/* Throughput, measured while at least one request is under way. */
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
    struct cairn_condition changed; /* a version was loaded, a serve has ended */
    struct {
        bool running; /* threads and pool exist */
        struct cairn_up_reading *first, **last;
        struct cairn_up_version *versions;
        uint8_t *pool;
        struct cairn_up_bounce *bounces, *free_bounces;
        struct cairn_up_cells cells;
        struct cairn_up_want *ready, **ready_last; /* to be looked at (again), before new pieces */
        struct cairn_up_want *held;                /* until the cells of others are had */
        size_t held_count;
        uint64_t held_look_ms;       /* mono clock */
        struct cairn_up_get *orders; /* for the store, after a peer has failed */
        size_t asking, serving;
        size_t loading; /* versions, for other nodes */
        struct cairn_up_meter store_meter, peer_meter;
        bool stopping;
    } locked;
};
/* Threads and pool, with the first window or the first other node that asks. */
enum cairn_code cairn_up_fetch_run(struct cairn_up_fetch *fetch,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* Counts the ranks of this node that may want the version, before anybody wants a piece of it: also
 * before an answer to another node, which may come while all of them are late. */
void cairn_up_fetch_expect(struct cairn_up_fetch *fetch, struct cairn_up_version *version);

/* ---- reader.c ---- */
void *cairn_up_reader_main(void *reader);

/* ---- how pieces and wants end ---- */
void cairn_up_readers_wake(struct cairn_up_fetch *fetch);
/* Ends a request into a cell and frees get. */
void cairn_up_run_over(struct cairn_up_fetch *fetch, struct cairn_up_get *get, enum cairn_code code,
                       const struct cairn_error *why);
/* Ends a want without its bytes. */
void cairn_up_want_fail(struct cairn_up_fetch *fetch, struct cairn_up_want *want,
                        enum cairn_code code, const struct cairn_error *why);
/* Called with the lock held. */
void cairn_up_want_add_locked(struct cairn_up_fetch *fetch, struct cairn_up_want *want);
void cairn_up_meter_begin(struct cairn_up_meter *meter);
void cairn_up_meter_end(struct cairn_up_meter *meter, uint64_t bytes);

/* ---- divide.c; the lock is held for the first two ---- */
/* Updates the division from the list of nodes and the measured throughput, at intervals. */
void cairn_up_division_look_locked(struct cairn_up_fetch *fetch, struct cairn_up_version *version);
/* Records that a want of the version waits for a cell, or has got one. */
void cairn_up_division_waits_locked(struct cairn_up_version *version, bool waits);
/* Fills get->ask when another node is to be asked for it: first one that has it in memory, then the
 * one whose share it is. */
bool cairn_up_division_owner_locked(struct cairn_up_fetch *fetch, struct cairn_up_get *get);
/* True when another node reports that it has the shard in memory. */
bool cairn_up_division_keeps_locked(const struct cairn_up_version *version, uint32_t shard);
/* Sends get->ask; on failure the readers send the request to the store. */
void cairn_up_division_ask(struct cairn_up_fetch *fetch, struct cairn_up_get *get);

/* Adds the route by which other nodes ask; before the port starts. Without peers there is none. */
void cairn_up_serve_route(struct cairn_up *up, struct cairn_up_fetch *fetch);
#define CAIRN_UP_SERVE_PATH "/v1/restore/" /* STEP/VERSION/SHARD */
