/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window: the slab that the uploader writes verified bytes into and a restore reads from.
 *
 * Why:     bytes are checked before anybody sees them, so they cannot land in the caller's memory
 *          directly; a window of bounded size, reused in slots, keeps the copy behind the reads.
 * Promise: 1   one window a session, made at the first read; after the uploader was restarted a new
 *              one.
 *          2   one read call uses it at a time; others wait for their turn, up to their deadline.
 * Limits:  64 MiB, 256 MiB for large versions; halved down to 8 MiB where the node's memory is
 *          short.
 * Threads: `window` belongs to whoever holds `taken`, which the session's lock guards.
 * Next:    client/restore/reads.c.
 */
#pragma once

#include "client/session/session.h"

void cairn_client_window_init(struct cairn_session *session);
void cairn_client_window_release(struct cairn_session *session);
/* Wait for the turn. */
enum cairn_code cairn_client_window_take(struct cairn_session *session, uint64_t deadline_ms,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_window_give(struct cairn_session *session);
/* While taken: a window of the link `epoch`. wanted_bytes: it may get less. */
enum cairn_code cairn_client_window_open(struct cairn_session *session, uint32_t epoch,
                                         uint64_t wanted_bytes, uint64_t deadline_ms,
                                         struct cairn_error *err) CAIRN_MUST_USE;
