/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what the planner, the threads of fetch and the answers to other nodes share.
 *
 * Why:     cutting ranges into requests is pure; running them is not.
 * Promise: 1   a plan's pieces are whole blocks of one cell's range; what somebody wants of a block
 *              in part is copied out of a bounce or a cell and never read into the window.
 *          2   each want that was taken ends once: with its bytes in place, or with a code.
 * Limits:  see uploader/fetch/fetch.h.
 * Threads: `locked` and a reading's counters by uploader_fetch; a piece belongs to whoever took it.
 * Next:    fetch.c, plan.c, reader.c, kept.c, serve.c, divide.c.
 */
#pragma once

#include "plan/divide.h"
#include "uploader/fetch/cells.h"
#include "uploader/fetch/fetch.h"
#include "uploader/fetch/leases.h"
#include "uploader/peers/peers.h"

#define CAIRN_UP_PIECE_BYTES CAIRN_UP_CELL_BYTES /* one request */
#define CAIRN_UP_BOUNCES_PER_READER 4            /* one block each */
#define CAIRN_UP_ASKING_MAX 32                   /* requests to other nodes under way */
/* A version that no rank of this node restores, after another node asked for it, and after the last
 * rank left that divided it with others: they may not have asked yet. */
#define CAIRN_UP_VERSION_KEPT_MS 10000

/* A part of one block that somebody wants. */
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

/* What another node asks for (serve.c); locked by uploader_fetch. */
struct cairn_up_serve {
    struct cairn_up_piece piece;
    struct cairn_up_version *version;
    bool over, abandoned; /* abandoned: whoever ends it frees it */
    bool shared;          /* others want it, too */
    enum cairn_code code;
    struct cairn_up_cell *cell; /* when it is over and well: one of its users */
};
/* A piece that was taken and has not ended. */
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
    uint64_t submitted_us; /* mono clock */
    bool finished, unwanted;
};
struct cairn_up_reader {
    struct cairn_up_fetch *fetch;
    pthread_t thread;
    bool started;
    struct cairn_store_worker *stores[CAIRN_STORES_MAX]; /* of up->reads; [0] is woken */
    uint32_t flying_at[CAIRN_STORES_MAX];
    struct cairn_up_get *flying;
    uint32_t flying_count;
    struct cairn_late late;
};
/* How fast something is while at least one of it is under way. */
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
    struct cairn_lock lock; /* uploader_fetch */
    struct cairn_condition changed; /* a version was loaded, a serve has ended */
    struct {
        bool running; /* threads and pool exist */
        struct cairn_up_reading *first, **last;
        struct cairn_up_version *versions;
        uint8_t *pool;
        struct cairn_up_bounce *bounces, *free_bounces;
        struct cairn_up_cells cells;
        struct cairn_up_want *ready, **ready_last; /* to be looked at (again), before new pieces */
        struct cairn_up_want *held; /* until the cells of others are had */
        size_t held_count;
        uint64_t held_look_ms; /* mono clock */
        struct cairn_up_get *orders;               /* for the store, after a peer has failed */
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

/* True: its bytes are there and right, out of a slab of this node (uploader/saves/kept.h). */
bool cairn_up_fetch_kept(struct cairn_up *up, const struct cairn_up_get *get, uint8_t *into);

/* ---- reader.c ---- */
void *cairn_up_reader_main(void *reader);

/* ---- ends.c ---- */
void cairn_up_readers_wake(struct cairn_up_fetch *fetch);
/* One piece of a reading is over; the last one ends it. The lock is not held. */
void cairn_up_piece_over(struct cairn_up_fetch *fetch, struct cairn_up_reading *reading,
                         enum cairn_code code, const struct cairn_error *why);
/* A request into a cell has ended; get is freed. */
void cairn_up_run_over(struct cairn_up_fetch *fetch, struct cairn_up_get *get, enum cairn_code code,
                       const struct cairn_error *why);
/* Without its bytes. */
void cairn_up_want_fail(struct cairn_up_fetch *fetch, struct cairn_up_want *want,
                        enum cairn_code code, const struct cairn_error *why);
/* The lock is held for these. */
void cairn_up_want_add_locked(struct cairn_up_fetch *fetch, struct cairn_up_want *want);
void cairn_up_serve_over_locked(struct cairn_up_fetch *fetch, struct cairn_up_want *want,
                                struct cairn_up_cell *cell, enum cairn_code code);
void cairn_up_meter_begin(struct cairn_up_meter *meter);
void cairn_up_meter_end(struct cairn_up_meter *meter, uint64_t bytes);

/* ---- divide.c; the lock is held for the first two ---- */
/* Looks at who is there and what was measured, now and then. */
void cairn_up_division_look_locked(struct cairn_up_fetch *fetch, struct cairn_up_version *version);
/* A want of it was held since there is no cell for it, or has got one. */
void cairn_up_division_waits_locked(struct cairn_up_version *version, bool waits);
/* Fills get->ask when another node is to be asked for it: first one that has it in memory, then the
 * one whose share it is. */
bool cairn_up_division_owner_locked(struct cairn_up_fetch *fetch, struct cairn_up_get *get);
/* Another node says that it has the shard in memory. */
bool cairn_up_division_keeps_locked(const struct cairn_up_version *version, uint32_t shard);
/* Asks; where that fails the store is asked instead. */
void cairn_up_division_ask(struct cairn_up_fetch *fetch, struct cairn_up_get *get);

#define CAIRN_UP_SERVE_PATH "/v1/restore/" /* STEP/VERSION/SHARD */
