/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_copies: what a heartbeat says of the copies that its node keeps for others, and which of
 *              them it is to send (Q57).
 *
 * Why:     a node that was lost with what it had staged cannot say so; the server, which hears all
 *          of them, knows who is silent and who has a copy.
 * Promise: Q57  a copy is to be finished once its node is silent for partner_finish, has no row, or
 *               is a process that knows nothing of it. Told with each heartbeat as long as
 *               the version is open; being told twice, or of a node that comes back, harms nothing,
 *               since both send the same object under the same token.
 *          Q3   a copy of a rank whose seal is not known here counts as unsent.
 *          1    its version's state is answered like that of any version that the node names.
 * Limits:  CAIRN_SRV_COPIES_MAX a heartbeat; further ones are not looked at.
 * Threads: inside a transaction.
 * Next:    server/nodes/node_calls.c; docs/partner.md.
 */
#pragma once

#include "server/http/request.h"

#define CAIRN_SRV_COPIES_MAX 4096

struct cairn_srv_copies {
    struct cairn_srv *server;
    const struct cairn_run_name *name; /* of the right under which they are told */
    const json_t *said;                /* of the item of `attempts`, or NULL */
    json_t *states, *finish;           /* of the answer: by version id; a list */
};
/* *ret_unsent: how many of them count so. */
enum cairn_code cairn_srv_copies_answer(struct cairn_srv_tx *tx, struct cairn_srv_copies *copies,
                                        uint64_t *ret_unsent,
                                        struct cairn_error *err) CAIRN_MUST_USE;
