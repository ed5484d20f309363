/* SPDX-License-Identifier: Apache-2.0 */
/*
 * awaited: is a version what `?for=` asks for, or can it no longer become that?
 *
 * Why:     a call that waits is held for as long as the answer may still change, and no longer.
 * Promise: 1   a state that is not one, and a store that this server does not have, is
 *              CAIRN_INVALID.
 *          2   REACHED also where a later state has been reached; NEVER where none of them can be.
 *          3   whatever turns NOT_YET into another outcome wakes who is parked by the key.
 * Limits:  none of its own.
 * Threads: that of the handler.
 * Next:    api/awaited.def, server/versions/checkpoints.c.
 */
#pragma once

#include "api/wire/words.h"
#include "server/http/request.h"
#include "server/ledger/versions.h"

struct cairn_srv_awaited {
    bool asked;
    struct cairn_awaited what;
    bool decided; /* rank 0 has sealed; looked up where that is awaited */
};
enum cairn_code cairn_srv_awaited_read(const struct cairn_srv_request *request,
                                       struct cairn_srv_awaited *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_awaited_look(struct cairn_srv_tx *tx, struct cairn_srv_awaited *awaited,
                                       const struct cairn_srv_version *version,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* shown: its row of messages.def. */
enum cairn_code cairn_srv_awaited_judge(const struct cairn_srv_awaited *awaited,
                                        const struct cairn_srv_version *version,
                                        const json_t *shown, enum cairn_outcome *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* For the waiters. */
uint64_t cairn_srv_awaited_key(const struct cairn_awaited *what,
                               const struct cairn_version_id *version);
