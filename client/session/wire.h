/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire: who reads and writes the session's socket, and the session's own thread.
 *
 * Why:     a call that hands its frame to the session's thread and is woken by it for the answer
 *          changes threads twice, each time for longer than a small save needs of the processor. So
 *          a call writes its frame itself, and reads while it waits. The thread takes in what comes
 *          while no call reads, and connects again when the uploader dies or comes back.
 * Promise: 1    one thread at a time reads the socket, and one writes it: the session's thread, or
 *               a call that has the turn.
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
 *          3    frames leave whole and in the order in which they were queued, whoever writes them,
 *               or the link ends.
 *          4    the link is closed by the session's thread, or by the one that ends the session,
 *               when nobody has a turn; a call that finds it broken leaves it to them.
 *          5    a call over a link that one thread has for itself ends with its answer, its
 *               deadline or the session's end.
 *          K05  a refusal that is not retryable ends the session: every later call returns it.
 * Limits:  calls that a stop may end from outside (cairn_client_stoppable) never read. One thread a
 *          session.
 * Threads: the turns are guarded by the session's lock, which is held neither while the socket is
 *          read or written nor while it is waited for.
 * Next:    client/session/session.c calls; client/save/sink.c takes events.
 */
#pragma once

#include "client/session/session.h"

#define CAIRN_CLIENT_SELF_MS 50

/* Sends what is queued, unless another thread is sending it. True: the socket took not all of it,
 * and the session's thread must send the rest. */
bool cairn_client_wire_send(struct cairn_session *session);
/* Reads until the answer is there, unless another thread reads. The lock is held. CAIRN_OK: the
 * answer is there, or the caller must wait for it without the turn. CAIRN_INTERRUPTED. */
enum cairn_code cairn_client_wire_await(struct cairn_session *session,
                                        const struct cairn_client_pending *pending,
                                        uint64_t deadline_ms,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* ---- calls over a link that this thread has for itself ---- */

/* Takes request->take_message. Events that come before the answer are dispatched. */
enum cairn_code cairn_client_call_alone(struct cairn_session *session,
                                        const struct cairn_client_request *request,
                                        struct cairn_frame *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Sends `hello` and takes `welcome`. */
enum cairn_code cairn_client_hello(struct cairn_session *session, uint64_t deadline_ms,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the session's thread ---- */

enum cairn_code cairn_client_thread_start(struct cairn_session *session,
                                          struct cairn_error *err) CAIRN_MUST_USE;
