/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep: the session's list of saves, from cairn_open to cairn_close.
 *
 * Why:     a handle may be freed while its save goes on, and a save may be over while its handle is
 *          kept; an entry is removed when neither needs it.
 * Promise: 1   a failed save is kept until some call has returned its problem.
 * Limits:  one entry for each save that is not over, or whose problem was not returned.
 * Threads: the session's lock guards the list.
 * Next:    client/save/save.h.
 */
#pragma once

#include "client/save/save.h"

/* Remove the saves whose handle was freed and that are committed, or failed with their problem
 * returned. The lock is held. */
void cairn_client_saves_sweep(struct cairn_session *session);
enum cairn_code cairn_client_saves_new(struct cairn_session *session,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_saves_free(struct cairn_session *session);
/* As if the session were new: none of its saves is known any more, and their handles say that it is
 * closed. It is stopped, so nobody has the lock. */
void cairn_client_saves_clear(struct cairn_session *session);
/* Before the session ends: wait until failures are told and, while the uploader is away, until one
 * is back that knows what was staged. False: a signal came over it. */
bool cairn_client_saves_settle(struct cairn_session *session, uint64_t deadline_ms);
/* The problem that no call has returned yet; else, where the uploader is gone, CAIRN_UPLOADER_GONE
 * for what is staged and not durable. */
enum cairn_code cairn_client_saves_last_problem(struct cairn_session *session, bool gone,
                                                struct cairn_error *err) CAIRN_MUST_USE;
