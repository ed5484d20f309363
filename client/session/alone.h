/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alone: questions over a link that one thread has for itself.
 *
 * Why:     while a session is opened, or offers itself to a new uploader, nobody else may use
 *          its link.
 * Promise: 1   a question waits for its answer, its deadline or the session's end.
 * Limits:  one question at a time.
 * Threads: the thread that opens the session, later the session's own.
 * Next:    client/session/io.c for the link that all share.
 */
#pragma once

#include "client/session/session.h"

/* Takes request->take_message. Events that come in between are taken in. */
enum cairn_code cairn_client_call_alone(struct cairn_session *session,
                                        const struct cairn_client_request *request,
                                        struct cairn_frame *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* hello and welcome. */
enum cairn_code cairn_client_hello(struct cairn_session *session, uint64_t deadline_ms,
                                   struct cairn_error *err) CAIRN_MUST_USE;
