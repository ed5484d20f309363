/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open: how a session is opened and closed.
 *
 * Why:     options, attempt and memory are settled once, before anything else can run.
 * Promise: Q2  when the uploader dies before the session is open, it is tried again; the same
 *              process gets the same attempt.
 * Limits:  as client/session/session.h.
 * Threads: one caller; the session's thread runs between open and stop.
 * Next:    client/cairn.c.
 */
#pragma once

#include "client/session/session.h"

/* Checks the options and connects to nothing. sink is called from open on. */
enum cairn_code cairn_client_session_new(const struct cairn_open_options *options,
                                         const struct cairn_client_sink *sink,
                                         struct cairn_session **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Connect, open the attempt, map the slabs, start the thread. */
enum cairn_code cairn_client_session_open(struct cairn_session *session,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* No thread and no link from here on; calls under way end. */
void cairn_client_session_stop(struct cairn_session *session);
void cairn_client_session_free(struct cairn_session *session);
