/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offer: the slabs and the unfinished saves, for an uploader that came back.
 *
 * Why:     what was staged is in the trainer's memory; the next uploader sends it from there.
 * Promise: Q40  a save that was sealed, and whose version ended while the uploader was away, hears
 *               how from the one that comes back.
 *          Q41  a slab is offered for the save that owns it and for no other.
 * Limits:  one offer a link, as its first message after hello.
 * Threads: the session's thread, over a link that it alone uses.
 * Next:    client/session/io.c.
 */
#pragma once

#include "client/save/save.h"

/* Offer, then tell what is owed. Not CAIRN_OK: the link ended, what is left stays owed; or the
 * uploader refused the offer. */
enum cairn_code cairn_client_offer(struct cairn_session *session, uint64_t deadline_ms,
                                   struct cairn_error *err) CAIRN_MUST_USE;
