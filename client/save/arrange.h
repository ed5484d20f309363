/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrange: lay out one rank's save before the copy, and keep its pieces for later saves.
 *
 * Why:     header, rank table and offsets depend only on the descriptions; so bytes are copied
 *          straight to their final place, and the uploader sends parts while later ones are staged.
 *          Most saves repeat the previous layout and pieces, at the same or other addresses;
 *          checking, sorting and naming them again would stall training.
 * Promise: 1   shards lie in the slab at ascending offsets, multiples of 4 KiB; the tensors shard
 *              comes first and is a valid safetensors file.
 *          2   the same descriptions give the same table and header, in any order.
 *          3   pieces of one name agree on dtype, shape and kind; otherwise arranging fails and
 *              names it.
 *          4   an earlier save's arrangement is reused if the layout is the same: header, table and
 *              all offsets are equal. Sources, strides and devices may differ.
 *          5   known pieces never change, so any thread may use them. A save that begins with known
 *              pieces reuses a piece array that an earlier save returned: only addresses are
 *              written.
 *          6   a save keeps its pieces for cairn_save_again while its handle lives, unless it had
 *              files or streams, or mixed known pieces with others.
 * Limits:  as formats/safetensors.h and api/table/table.h. A session keeps one arrangement between
 *          saves, about 150 bytes per piece, and two arrays per known pieces.
 * Threads: any thread may use known pieces; an arrangement belongs to its caller.
 * Next:    client/save/stage.c; include/cairn/pieces.h.
 */
#pragma once

#include <cairn/pieces.h>

#include "client/save/save.h"

#define CAIRN_CLIENT_NO_PIECE UINT32_MAX

struct cairn_client_run { /* bytes of a shard, in order of offsets */
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
    char more_name[40];    /* "rank-00003.more.safetensors": late tensors */
    struct cairn_buf header;
    struct cairn_buf table;             /* empty: no tensors */
    struct cairn_client_shard *shards;  /* staged ones only; owned */
    struct cairn_client_run *runs;      /* runs of the shards placed last; owned */
    struct cairn_client_piece **sorted; /* all pieces by name, then place; only while arranging */
    size_t shard_count, run_count;
    bool placed;          /* all but late pieces are placed */
    size_t placed_raws;   /* raws and files already placed */
    uint64_t slab_bytes;  /* end of the last shard */
    uint64_t total_bytes; /* staged shards and files together */
    /* for later saves */
    struct cairn_buf described; /* the description; empty: not reusable */
    uint64_t number;            /* number of the last matching description */
    uint32_t *pieces;           /* per run: piece index, or CAIRN_CLIENT_NO_PIECE; owned */
    char table_name[65];        /* the table's name at the uploader */
    uint32_t told_epoch;        /* epoch of the link whose uploader has the table; 0: none */
};
void cairn_client_arrangement_release(struct cairn_client_arrangement *arrangement);
/* Places unplaced shards behind placed ones: everything at first, then late pieces. in_arrangement
 * is initially an earlier save's, reused for the same description, or empty. Apart from its shards
 * the result points into the save's pieces until more are described; an error empties it. */
enum cairn_code cairn_client_arrange(struct cairn_save *save, uint32_t rank,
                                     struct cairn_client_arrangement *in_arrangement,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Takes the session's last arrangement, or an empty one; keep returns it for the next save. */
void cairn_client_arrangement_take(struct cairn_session *session,
                                   struct cairn_client_arrangement *ret);
void cairn_client_arrangement_keep(struct cairn_session *session,
                                   struct cairn_client_arrangement *take_arrangement);

/* ---- known pieces: described once for many saves ---- */

#define CAIRN_CLIENT_SPARES 2

struct cairn_pieces {
    _Atomic uint32_t users;
    uint64_t number;                   /* unique in the process, from 1 */
    struct cairn_client_piece *pieces; /* as described; owned, with their strides */
    size_t count;
    struct cairn_client_texts texts; /* names, and `described` */
    struct cairn_client_raw *raws;   /* owned; of cairn_save_again only */
    size_t raw_count;
    uint32_t source_count;                /* described pieces and raws */
    bool early_only;                      /* some pieces must be described before the copy */
    struct cairn_client_shares shares;    /* holds its splits; owned */
    uint64_t bytes;                       /* slab bytes of such a save; 0: unknown */
    struct cairn_tensor_piece *described; /* in texts, per source; NULL: of cairn_save_again */
    struct cairn_client_piece *_Atomic spares[CAIRN_CLIENT_SPARES];
};
/* An array for so many pieces, perhaps that of an earlier save: fresh pages cost more than all else
 * that describing does. NULL: no memory. give takes one back, of this capacity; it keeps the
 * CAIRN_CLIENT_SPARES largest of the process until forget. */
struct cairn_client_piece *cairn_client_array_take(size_t count, size_t *ret_capacity);
void cairn_client_array_give(struct cairn_client_piece *take_array, size_t capacity);
void cairn_client_array_forget(void);
/* A process-wide unique number for a description. */
uint64_t cairn_client_known_number(void);
void cairn_client_known_hold(struct cairn_pieces *known);
/* A piece array for a save that begins with known pieces; NULL: no memory. */
struct cairn_client_piece *cairn_client_known_take(struct cairn_pieces *known);
/* Returns the array for a later save. */
void cairn_client_known_give(struct cairn_pieces *known, struct cairn_client_piece *take_pieces);
/* Moves a save's pieces and raws into known pieces; NULL: it had files or streams, or no memory. */
struct cairn_pieces *cairn_client_known_of(struct cairn_save *save);
