/* SPDX-License-Identifier: Apache-2.0 */
/*
 * renew: a session that goes on as another rank of another attempt.
 *
 * Why:     an elastic job loses or gets ranks and goes on in the same processes, which keep one
 *          handle of Cairn.
 * Promise: 1   wrong options change nothing: they are read into a session of their own first.
 *          2   nothing of the former attempt is left when the next one is opened: no link, slab,
 *              window, page-lock or count of waiting calls.
 * Limits:  run, socket and rights stay.
 * Threads: the caller's, between the end of the session's thread and its next start; `leaving`
 *          keeps other calls out.
 * Next:    client/cairn.c has the order of the calls.
 */
#pragma once

#include "client/session/session.h"

/* A session that is not open, with the options that `session` is to have: those that are 0 or NULL
 * are kept, run, socket and rights must be the same, the job another. */
enum cairn_code cairn_client_session_renewal(const struct cairn_session *session,
                                             const struct cairn_open_options *options,
                                             struct cairn_session **ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* A stopped session gets the options of take_made and may be opened. */
void cairn_client_session_take(struct cairn_session *session, struct cairn_session *take_made);
/* It was opened: calls are let in. */
void cairn_client_session_ready(struct cairn_session *session);
/* It was not: every call returns why, until it is renewed or closed. */
void cairn_client_session_refuse(struct cairn_session *session, const struct cairn_error *why);
