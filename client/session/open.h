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
/* Release the link and what was received over it: slabs and the uploader's name of the session. */
void cairn_client_session_forget(struct cairn_session *session);
void cairn_client_session_free(struct cairn_session *session);

/* Memory to stage into, mapped. */
struct cairn_client_slabs {
    struct cairn_slab slabs[CAIRN_CLIENT_GENERATIONS_MAX];
    uint32_t count;
};
/* Out of the answer to `slabs`, for saves of so many bytes. After an error ret has what was mapped
 * until then. */
enum cairn_code cairn_client_slabs_map(struct cairn_frame *answer, uint64_t bytes,
                                       struct cairn_client_slabs *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_slabs_unmap(struct cairn_client_slabs *slabs);
/* The session's, and instead of none; once it has a thread, with the lock held. */
void cairn_client_slabs_take(struct cairn_session *session, struct cairn_client_slabs *ret);
void cairn_client_slabs_set(struct cairn_session *session, struct cairn_client_slabs *take_slabs);
/* Are these sizes possible? *node_bytes 0 becomes what all ranks of the node come to. */
enum cairn_code cairn_client_bytes_check(const struct cairn_session *session, uint64_t bytes,
                                         uint64_t *node_bytes,
                                         struct cairn_error *err) CAIRN_MUST_USE;
