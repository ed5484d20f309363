/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta: labels and meta of a save, as its caller gives them: with the begin, or until the seal.
 *
 * Why:     a loss or a framework's own description of a checkpoint is known when the ranks have
 *          written, not when they begin.
 * Promise: Q50  what is taken here is taken by the server (api/wire/messages.h).
 *          1    what a later call gives stands for what the begin or an earlier call gave; what it
 *               does not give stays. It travels with the seal.
 * Limits:  as api/wire/messages.h; rank 0's are kept, the others' are checked and dropped.
 * Threads: the handle's caller.
 * Next:    client/save/begun.c, client/save/stager.c.
 */
#pragma once

#include "client/save/save.h"

struct cairn_client_meta_text {
    const char *labels, *meta; /* JSON objects; NULL: none */
};
/* NULL where there is none. */
enum cairn_code cairn_client_meta_read(const struct cairn_client_meta_text *text,
                                       json_t **ret_labels, json_t **ret_meta,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNSUPPORTED: this uploader would not hear of them. */
enum cairn_code cairn_client_meta_can_be_sealed(struct cairn_session *session,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* With the member "origin", where the session has one and it fits. */
enum cairn_code cairn_client_meta_origin(const struct cairn_session *session, json_t **meta,
                                         struct cairn_error *err) CAIRN_MUST_USE;
