/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io: the session's thread.
 *
 * Why:     events come, and an uploader dies or comes back, while no call of the trainer is under
 *          way.
 * Promise: 1    the thread connects again and hands the new link to the sink's `offer`.
 *          K05  a refusal that is not retryable ends the session: every later call returns it.
 * Limits:  one thread a session.
 * Threads: started and stopped by the thread that opens and closes the session.
 * Next:    client/session/dispatch.h.
 */
#pragma once

#include "client/session/session.h"

enum cairn_code cairn_client_thread_start(struct cairn_session *session,
                                          struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_thread_stop(struct cairn_session *session);
/* Its descriptors, once no call may wake it. */
void cairn_client_thread_release(struct cairn_session *session);
