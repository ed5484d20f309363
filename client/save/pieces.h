/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces: what a save consists of, added to it.
 *
 * Why:     pieces come one by one, by the thousand, and from layouts, and are refused alike.
 * Promise: 1   a call adds all of what it is given, or nothing.
 * Limits:  2,097,152 pieces and as many raw shards and files.
 * Threads: the handle's caller.
 * Next:    client/save/describe.h, client/save/known.h.
 */
#pragma once

#include "client/save/save.h"

/* *ret_bad: which was refused. */
enum cairn_code cairn_client_pieces_add(struct cairn_save *save,
                                        const struct cairn_tensor_piece *pieces, size_t count,
                                        size_t *ret_bad, struct cairn_error *err) CAIRN_MUST_USE;
/* One that was checked; what it owns is copied. */
enum cairn_code cairn_client_pieces_append(struct cairn_save *save,
                                           const struct cairn_client_piece *piece,
                                           struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_client_raws_append(struct cairn_save *save,
                                         const struct cairn_client_raw *raw,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* May something be added? early_only: not after the copy. */
enum cairn_code cairn_client_save_extensible(struct cairn_save *save, bool early_only,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* Notes that a description was refused; returns code. */
enum cairn_code cairn_client_save_misused(struct cairn_save *save, enum cairn_code code);
