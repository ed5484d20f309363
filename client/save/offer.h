/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offer: the message `offer` with slabs and unfinished saves, sent over every new link.
 *
 * Why:     staged bytes are in the trainer's memory, so an uploader that was restarted can send
 *          them from there.
 * Promise: Q40  a save that was sealed, and whose version ended while the uploader was away, hears
 *               how from the one that comes back.
 *          Q41  a slab is offered for the save that owns it and for no other.
 * Limits:  one offer a link, as its first message after hello.
 * Threads: the session's thread; the offer over a link that it alone uses.
 * Next:    client/session/io.c.
 */
#pragma once

#include "client/save/save.h"

/* Send `offer`, then stage and seal what was handed over. Not CAIRN_OK: the link ended, and the
 * rest waits for the next one; or the uploader refused the offer. */
enum cairn_code cairn_client_offer(struct cairn_session *session, uint64_t deadline_ms,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Stage and seal what was handed over after cairn_client_offer had looked for it and before the
 * session was up; other threads use the link by now. */
void cairn_client_finish(struct cairn_session *session);
