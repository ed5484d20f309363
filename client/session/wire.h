/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire: turns at reading and writing the session's socket, and the session's own thread.
 *
 * Why:     handing a frame to the session's thread and being woken for the answer costs two thread
 *          switches, each longer than a small save needs of the processor. So a call writes its own
 *          frame, and reads while it waits. The thread reads while no call does, and reconnects
 *          after an uploader died.
 * Promise: 1   at most one thread reads the socket and one writes it: the session's thread, or a
 *              call that has the turn.
 *          K32 while no call reads, the session's thread does, so that unsolicited frames (the end
 *              of a save, free memory, a problem) are received at any time: a call that takes the
 *              read turn removes the socket from that thread's epoll set, and restores it with the
 *              turn; data that arrived meanwhile then wakes the thread.
 *          2   a reading call handles all frames in order as the session's thread would: events,
 *              and other calls' answers, whose callers it wakes.
 *          K33 a call returns the turn with its answer, and after CAIRN_CLIENT_SELF_MS in any case;
 *              it then waits like a call without the turn. A signal handler on its thread delays
 *              the session's other calls only while it runs.
 *          3   frames are written whole and in queue order, by whichever thread, or the link ends.
 *          4   only the session's thread, or the thread that ends the session, closes the link,
 *              when no thread has a turn; a call that finds it broken leaves it to them.
 *          5   a call over an exclusive link ends with its answer, its deadline or the session's
 *              end.
 *          K05 a non-retryable refusal ends the session: every later call returns it.
 * Limits:  calls that can be stopped from outside (cairn_client_stoppable) never read. One thread
 *          per session.
 * Threads: the session's lock guards the turns; it is not held during reads, writes or waits on the
 *          socket.
 * Next:    client/session/session.c makes calls; client/save/sink.c handles events.
 */
#pragma once

#include "client/session/session.h"

#define CAIRN_CLIENT_SELF_MS 50

/* Sends the queue, unless another thread is sending. True: the socket did not take all; the
 * session's thread must send the rest. */
bool cairn_client_wire_send(struct cairn_session *session);
/* Reads until the answer arrives, unless another thread reads. The lock is held. CAIRN_OK: it is
 * there, or the caller must wait without the turn. CAIRN_INTERRUPTED: a signal was handled. */
enum cairn_code cairn_client_wire_await(struct cairn_session *session,
                                        const struct cairn_client_pending *pending,
                                        uint64_t deadline_ms,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* ---- calls over a link that this thread has exclusively ---- */

/* Takes request->take_message. Dispatches events that precede the answer. */
enum cairn_code cairn_client_call_alone(struct cairn_session *session,
                                        const struct cairn_client_request *request,
                                        struct cairn_frame *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_client_hello(struct cairn_session *session, uint64_t deadline_ms,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the session's thread ---- */

enum cairn_code cairn_client_thread_start(struct cairn_session *session,
                                          struct cairn_error *err) CAIRN_MUST_USE;
