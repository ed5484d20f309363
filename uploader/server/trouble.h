/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trouble: saves that the server answers with a failure of its own, or a proxy does not let
 *          through (a body that is too large for it), again and again.
 *
 * Why:     one save that the server cannot digest must neither hold up the others nor be tried in
 *          silence for ever; and it must not be failed either, since that is no word of the API
 *          about it (Q6, Q48).
 * Promise: 1   a request that ends in such an answer is split until each save was told alone; the
 *              ones that the server takes go on.
 *          2   the others are tried again after pauses of their own, 200 ms to 30 s.
 *          3   from CAIRN_UP_TROUBLE_TRIES failures in a row on, the log has said it once, its rank
 *              is told (docs/socket.md, `problem`), and later saves of other steps of its rank no
 *              longer wait for it.
 * Limits:  502, 503 and 504 say that a server is away: they count as no answer.
 * Threads: uploader_state is held.
 * Next:    uploader/server/outbox.c, uploader/trainers/problems.c.
 */
#pragma once

#include "uploader/saves/save.h"

#define CAIRN_UP_TROUBLE_TRIES 5

/* Is that answer the server's own failure, or that of a proxy which will say the same again? */
bool cairn_up_is_trouble(const struct cairn_error *why);
/* The save alone was answered so. */
void cairn_up_trouble_add_locked(struct cairn_up_save *save, const struct cairn_error *why);
/* It was answered otherwise. */
void cairn_up_trouble_end_locked(struct cairn_up_save *save);
/* It is not its turn yet. */
bool cairn_up_trouble_pauses_locked(const struct cairn_up_save *save);
/* trouble.h#3 holds for it. */
bool cairn_up_trouble_is_long_locked(const struct cairn_up_save *save);
/* A server that gives no answer is seen by the heartbeat and by the outbox: true for the first of
 * them, until it answers either. Takes uploader_state. */
bool cairn_up_server_fails(struct cairn_up *up, const struct cairn_error *why);
void cairn_up_server_answers(struct cairn_up *up);
