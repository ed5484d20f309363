/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what session.c calls in the other files of this room, one handler a request.
 *
 * Why:     a session finds the handler of a frame; each file holds those of one subject.
 * Promise: 1   an error is answered to the request; CAIRN_PROTOCOL ends the session.
 * Limits:  see docs/socket.md.
 * Threads: the socket's thread alone.
 * Next:    attempt_call.c, slabs.c, offer.c, operator.c, problems.c, warmup.c, why.c,
 *          restore.c.
 */
#pragma once

#include "uploader/trainers/session.h"

/* Now and then: tells what its rank should know and has not heard. */
void cairn_up_session_tick(struct cairn_up_session *session);

struct cairn_up_request {
    int64_t id;
    struct cairn_frame *frame;
};
enum cairn_code cairn_up_on_attempt(struct cairn_up_session *session,
                                    const struct cairn_up_request *request,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_slabs(struct cairn_up_session *session,
                                  const struct cairn_up_request *request,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_offer(struct cairn_up_session *session,
                                  const struct cairn_up_request *request,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_list(struct cairn_up_session *session,
                                 const struct cairn_up_request *request,
                                 struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_warmup(struct cairn_up_session *session,
                                   const struct cairn_up_request *request,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_remove(struct cairn_up_session *session,
                                   const struct cairn_up_request *request,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_annotate(struct cairn_up_session *session,
                                     const struct cairn_up_request *request,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_alias(struct cairn_up_session *session,
                                  const struct cairn_up_request *request,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_restore(struct cairn_up_session *session,
                                    const struct cairn_up_request *request,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_window(struct cairn_up_session *session,
                                   const struct cairn_up_request *request,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_read(struct cairn_up_session *session,
                                 const struct cairn_up_request *request,
                                 struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_release(struct cairn_up_session *session,
                                    const struct cairn_up_request *request,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_status(struct cairn_up_session *session,
                                   const struct cairn_up_request *request,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_drain(struct cairn_up_session *session,
                                  const struct cairn_up_request *request,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_on_why(struct cairn_up_session *session,
                                const struct cairn_up_request *request,
                                struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_session_drop_restores(struct cairn_up_session *session);
