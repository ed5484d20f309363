/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known: what a save consists of, described once for many saves.
 *
 * Why:     most saves of a job describe the same pieces, at the same or at other addresses; to
 *          check, sort and name them again is time for which training stands still.
 * Promise: 1   what is known never changes, so that any thread may use it.
 *          2   a save that is described by known pieces first takes an array of pieces that an
 *              earlier one has given back: nothing but addresses is written.
 *          3   a save whose handle is there keeps what it consisted of, for cairn_save_again,
 *              unless it had files or streams, or was described by known pieces and more.
 * Limits:  as a save; two arrays are kept.
 * Threads: any.
 * Next:    include/cairn/pieces.h; client/save/arrange.h, which knows them again by their number.
 */
#pragma once

#include <cairn/pieces.h>

#include "client/save/save.h"

#define CAIRN_CLIENT_SPARES 2

struct cairn_pieces {
    _Atomic uint32_t users;
    uint64_t number;                   /* of the process, from 1 */
    struct cairn_client_piece *pieces; /* as described; owned, and their strides */
    size_t count;
    struct cairn_client_texts texts; /* their names, and `described` */
    struct cairn_client_raw *raws;   /* owned; of cairn_save_again alone */
    size_t raw_count;
    uint32_t source_count; /* described pieces and raws */
    bool early_only;       /* some of it can be described before the copy alone */
    struct cairn_client_shares shares; /* its splits are held; owned */
    uint64_t bytes;                    /* where the last shard of a save of it ends; 0: not known */
    struct cairn_tensor_piece *described; /* in texts, by source; NULL: of cairn_save_again */
    struct cairn_client_piece *_Atomic spares[CAIRN_CLIENT_SPARES];
};
/* A number for what a save consists of. */
uint64_t cairn_client_known_number(void);
void cairn_client_known_hold(struct cairn_pieces *known);
/* An array for a save that they describe first; NULL: no memory. */
struct cairn_client_piece *cairn_client_known_take(struct cairn_pieces *known);
/* It is given back; taken. */
void cairn_client_known_give(struct cairn_pieces *known, struct cairn_client_piece *take_pieces);
/* Its pieces and raws, which it needs no more, as known pieces; NULL: they are dropped. */
struct cairn_pieces *cairn_client_known_of(struct cairn_save *save);
