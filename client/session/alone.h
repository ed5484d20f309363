/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alone: calls over a link that one thread has for itself.
 *
 * Why:     while a session is opened, and while `offer` goes to a new uploader, no other message
 *          may come in between.
 * Promise: 1   a call ends with its answer, its deadline or the session's end.
 * Limits:  one call at a time.
 * Threads: the thread that opens the session, later the session's own.
 * Next:    client/session/io.c for the link that all share.
 */
#pragma once

#include "client/session/session.h"

/* Takes request->take_message. Events that come before the answer are dispatched. */
enum cairn_code cairn_client_call_alone(struct cairn_session *session,
                                        const struct cairn_client_request *request,
                                        struct cairn_frame *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* hello and welcome. */
enum cairn_code cairn_client_hello(struct cairn_session *session, uint64_t deadline_ms,
                                   struct cairn_error *err) CAIRN_MUST_USE;
