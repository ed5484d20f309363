/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detached: a thread of the library that ends by itself.
 *
 * Why:     what goes on while the trainer does needs a thread for as long as it takes.
 * Promise: K21  it takes no signals.
 *          1    the session counts it as a call from before it starts until cairn_client_leave,
 *               which is its last step: cairn_close awaits it.
 * Limits:  none of its own.
 * Threads: any.
 * Next:    client/save/behind.c, client/save/reserve.c.
 */
#pragma once

#include "client/session/session.h"

/* False: there is none, and the call is not counted. */
bool cairn_client_detached(struct cairn_session *session, void *(*run)(void *owner), void *owner);
