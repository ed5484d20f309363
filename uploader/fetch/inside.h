/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what the planner and the threads of fetch share.
 *
 * Why:     cutting ranges into requests is pure; running them is not.
 * Promise: 1   a plan's pieces are whole blocks; what somebody wants of a block in part is copied
 *              out of a bounce and never read into the window.
 * Limits:  see uploader/fetch/fetch.h.
 * Threads: `locked` and a reading's counters by uploader_fetch; a piece belongs to whoever took it.
 * Next:    fetch.c, plan.c.
 */
#pragma once

#include "uploader/fetch/fetch.h"
#include "uploader/fetch/leases.h"

#define CAIRN_UP_PIECE_BYTES (8 * CAIRN_MIB) /* one request; a multiple of the block */
#define CAIRN_UP_BOUNCES_PER_READER 4        /* one block each */

/* A part of one block that somebody wants. */
struct cairn_up_fragment {
    uint32_t shard;
    uint64_t block;
    uint32_t from, bytes;
    uint64_t at; /* in the window */
};
/* One request: whole blocks of one shard (the last may be the shard's short one). */
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

struct cairn_up_bounce {
    struct cairn_up_bounce *next;
    uint8_t *data;
};
struct cairn_up_reader {
    struct cairn_up_fetch *fetch;
    pthread_t thread;
    bool started;
    struct cairn_store_worker *store;
    struct cairn_up_get *flying;
    uint32_t flying_count;
};
struct cairn_up_fetch {
    struct cairn_up *up;
    struct cairn_up_reader *readers;
    size_t reader_count;
    struct cairn_up_leases leases;
    struct cairn_lock lock; /* uploader_fetch */
    struct {
        bool running; /* threads and pool exist */
        struct cairn_up_reading *first, **last;
        struct cairn_up_version *versions;
        uint8_t *pool;
        struct cairn_up_bounce *bounces, *free_bounces;
        bool stopping;
    } locked;
};
/* Threads and pool, with the first window. */
enum cairn_code cairn_up_fetch_run(struct cairn_up_fetch *fetch,
                                   struct cairn_error *err) CAIRN_MUST_USE;
