/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire: whose turn it is to read and to write the session's socket.
 *
 * Why:     a call that hands its frame to the session's thread and is woken by it for the answer
 *          changes threads twice, each time for longer than a small save needs of the processor. So
 *          a call writes its frame itself, and reads while it waits.
 * Promise: 1    one thread at a time reads the socket, and one writes it: the session's thread
 *               (client/session/io.c), or a call that has the turn.
 *          K32  while no call reads, the session's thread does, so that what nobody waits for (the
 *               end of a save, memory that is free, a problem) is taken in at any time: a call that
 *               takes the turn to read takes the socket out of what that thread sleeps on, and puts
 *               it back with the turn. What came in between wakes the thread then.
 *          2    a call that reads takes in all that comes, in its order, as the session's thread
 *               would: events, and the answers of other calls, which are woken.
 *          K33  it gives the turn back with its answer, and after CAIRN_CLIENT_SELF_MS in any case;
 *               then it waits as every call does that has no turn. A signal's handler that runs on
 *               its thread meanwhile holds up the other calls of the session, but not for longer
 *               than it runs.
 *          3    frames leave in the order in which they were queued, whoever writes them.
 *          4    the link is closed by the session's thread, or by the one that ends the session,
 *               when nobody has a turn; a call that finds it broken leaves it to them.
 * Limits:  calls that a stop may end from outside (cairn_client_stoppable) never read.
 * Threads: the turns are guarded by the session's lock, which is held neither while the socket is
 *          read or written nor while it is waited for.
 * Next:    client/session/session.c calls, client/session/io.c serves.
 */
#pragma once

#include "client/session/session.h"

#define CAIRN_CLIENT_SELF_MS 50

/* The link is there: the session's thread is to hear it. */
enum cairn_code cairn_client_wire_open(struct cairn_session *session,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Waits for the turns and closes the link. Until the session's state is another one, nobody gets a
 * turn. */
void cairn_client_wire_close(struct cairn_session *session);
/* The session's thread: what is there is taken in, what is queued is sent. *ret_more: the socket
 * took not all of it. False: the link is broken. */
bool cairn_client_wire_serve(struct cairn_session *session, bool *ret_more);
/* What is queued is sent, by this thread or by the one that is at it. True: the session's thread
 * must go on. */
bool cairn_client_wire_send(struct cairn_session *session);
/* Read until the answer is there, if nobody else does. The lock is held. CAIRN_OK: it is there, or
 * must be waited for without a turn. CAIRN_INTERRUPTED. */
enum cairn_code cairn_client_wire_await(struct cairn_session *session,
                                        const struct cairn_client_pending *pending,
                                        uint64_t deadline_ms,
                                        struct cairn_error *err) CAIRN_MUST_USE;
