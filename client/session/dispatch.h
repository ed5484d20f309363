/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dispatch: gives a received frame to the call that waits for it, or to the sink.
 *
 * Why:     the session's thread and the calls of client/session/alone.h read the same frames.
 * Promise: 1   events of another session's uuid are dropped (K11).
 * Limits:  as api/wire/frame.h.
 * Threads: the caller holds the session's lock.
 * Next:    client/save/sink.c for events.
 */
#pragma once

#include "client/session/session.h"

/* False: the uploader broke the protocol. */
bool cairn_client_dispatch(struct cairn_session *session, struct cairn_frame *frame);
/* The link ended: pending calls end with CAIRN_UPLOADER_GONE, the state is AWAY. */
void cairn_client_link_ended(struct cairn_session *session);
