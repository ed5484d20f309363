/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrange: where every byte of one rank's save will stand, before any is copied; and what a save
 * consists of, kept for the saves that come.
 *
 * Why:     header, rank table and offsets depend on the descriptions alone; so the copy goes
 *          straight to its final place and the uploader can send parts while later ones are staged.
 *          Most saves of a job have the layout of the one before and describe the same pieces, at
 *          the same or at other addresses; to check, sort and name them again is time for which
 *          training stands still.
 * Promise: 1   shards lie in the slab in ascending offsets, each at a multiple of 4 KiB; the
 *              tensors shard comes first and is a valid safetensors file.
 *          2   the same descriptions give the same table and header, in whatever order they came.
 *          3   pieces of one name agree about dtype, shape and kind, or it fails and names it.
 *          4   an arrangement of an earlier save is taken over whole where this one describes the
 *              same layout: header, table and the place of every byte are the same. Sources,
 *              strides and devices may change from save to save.
 *          5   what is known never changes, so that any thread may use it. A save that is described
 *              by known pieces first takes an array of pieces that an earlier one has given back:
 *              nothing but addresses is written.
 *          6   a save whose handle is there keeps what it consisted of, for cairn_save_again,
 *              unless it had files or streams, or was described by known pieces and more.
 * Limits:  as formats/safetensors.h and api/table/table.h. One arrangement is kept between the
 *          saves of a session, with about 150 bytes for each piece, and two arrays of known pieces.
 * Threads: known pieces are any thread's; an arrangement belongs to its caller.
 * Next:    client/save/stage.c; include/cairn/pieces.h.
 */
#pragma once

#include <cairn/pieces.h>

#include "client/save/save.h"

#define CAIRN_CLIENT_NO_PIECE UINT32_MAX

struct cairn_client_run { /* bytes that go into a shard, in the order of their offsets */
    const void *source;
    uint64_t offset, bytes;           /* in the shard */
    struct cairn_client_piece *piece; /* NULL: header or raw bytes */
};
struct cairn_client_shard {
    const char *name; /* borrowed from the save, or tensors_name or more_name */
    bool tensors, late;
    uint64_t offset, bytes; /* in the slab */
    size_t first_run, run_count;
};
struct cairn_client_arrangement {
    char tensors_name[32]; /* "rank-00003.safetensors" */
    char more_name[40];    /* "rank-00003.more.safetensors": tensors that came late */
    struct cairn_buf header;
    struct cairn_buf table;             /* empty: the rank has no tensors */
    struct cairn_client_shard *shards;  /* staged ones only; owned */
    struct cairn_client_run *runs;      /* of the shards that were placed last; owned */
    struct cairn_client_piece **sorted; /* all pieces by name, then place; while it is made */
    size_t shard_count, run_count;
    bool placed;          /* all but what came late ... */
    size_t placed_raws;   /* ... of which this many are raws and files */
    uint64_t slab_bytes;  /* end of the last shard */
    uint64_t total_bytes; /* staged shards and files together */
    /* for the saves that come */
    struct cairn_buf described; /* client/save/arrange.h; empty: it is good for this save alone */
    uint64_t number;            /* of what was described last so */
    uint32_t *pieces;           /* by run: number of its piece, or CAIRN_CLIENT_NO_PIECE; owned */
    char table_name[65];        /* by which the uploader of a link ... */
    uint32_t told_epoch;        /* ... of this epoch has the table; 0: none */
};
void cairn_client_arrangement_release(struct cairn_client_arrangement *arrangement);
/* Places what has no place yet behind what has: all at first, then what came late. in_arrangement
 * is at first that of an earlier save, which is taken over where the same was described, or empty.
 * The result points into the save's pieces until further ones are described, but for its shards;
 * after an error it is empty. */
enum cairn_code cairn_client_arrange(struct cairn_save *save, uint32_t rank,
                                     struct cairn_client_arrangement *in_arrangement,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Take the session's last arrangement, or an empty one; give it back for the next save. */
void cairn_client_arrangement_take(struct cairn_session *session,
                                   struct cairn_client_arrangement *ret);
void cairn_client_arrangement_keep(struct cairn_session *session,
                                   struct cairn_client_arrangement *take_arrangement);

/* ---- known pieces: what a save consists of, described once for many saves ---- */

#define CAIRN_CLIENT_SPARES 2

struct cairn_pieces {
    _Atomic uint32_t users;
    uint64_t number;                   /* of the process, from 1 */
    struct cairn_client_piece *pieces; /* as described; owned, and their strides */
    size_t count;
    struct cairn_client_texts texts; /* their names, and `described` */
    struct cairn_client_raw *raws;   /* owned; of cairn_save_again alone */
    size_t raw_count;
    uint32_t source_count;             /* described pieces and raws */
    bool early_only;                   /* some of it can be described before the copy alone */
    struct cairn_client_shares shares; /* its splits are held; owned */
    uint64_t bytes;                    /* where the last shard of a save of it ends; 0: not known */
    struct cairn_tensor_piece *described; /* in texts, by source; NULL: of cairn_save_again */
    struct cairn_client_piece *_Atomic spares[CAIRN_CLIENT_SPARES];
};
/* A new number, unique in the process, for a description of a save. */
uint64_t cairn_client_known_number(void);
void cairn_client_known_hold(struct cairn_pieces *known);
/* An array of pieces for a save that known pieces describe first; NULL: no memory. */
struct cairn_client_piece *cairn_client_known_take(struct cairn_pieces *known);
/* Gives the array back for a later save. */
void cairn_client_known_give(struct cairn_pieces *known, struct cairn_client_piece *take_pieces);
/* Turns the pieces and raws of a save that needs them no more into known pieces; NULL: it had files
 * or streams, or there is no memory. */
struct cairn_pieces *cairn_client_known_of(struct cairn_save *save);
