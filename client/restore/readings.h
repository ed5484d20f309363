/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readings: reads in the background, by a thread of the session that begins with the first one.
 *
 * Why:     include/cairn/reads.h.
 * Promise: 1   those that wait for one restore are run as one call; where that fails, each alone,
 *              so that each has its own error.
 *          2   a reading is done once, and nothing writes to its destinations after that.
 *          3   one that cairn_close ends is cancelled, by whatever it saw of the end: a call that
 *              is refused, a connection that is gone.
 * Limits:  65,536 of a session, 256 in one call.
 * Threads: locked by the session's lock.
 * Next:    client/restore/reads.h.
 */
#pragma once

#include "client/session/session.h"

/* The session ends: what is not done ends as CAIRN_CANCELLED, and handles stay. No call is under
 * way. */
void cairn_client_readings_stop(struct cairn_session *session);
