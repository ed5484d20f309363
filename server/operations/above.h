/* SPDX-License-Identifier: Apache-2.0 */
/*
 * above: what operations call in rooms above theirs.
 *
 * Why:     the end of an operation takes back a wish that another room keeps.
 * Promise: 1   each function says which source has it.
 * Limits:  -
 * Threads: as said.
 * Next:    server/operations/run.c.
 */
#pragma once

#include "server/ledger/operations.h"

/* server/copies/copying.c: in the change that ends an operation which has not begun to work. Its
 * wish goes with it, or the next sweep would begin it again; only promotions have one. */
enum cairn_code cairn_srv_copies_unwish(struct cairn_srv_tx *tx, struct cairn_srv *server,
                                        const struct cairn_srv_operation *operation,
                                        struct cairn_error *err) CAIRN_MUST_USE;
