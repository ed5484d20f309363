/* SPDX-License-Identifier: Apache-2.0 */
/*
 * above: what operations/ calls of a room above it.
 *
 * Why:     a promotion is an operation that copies/ begins, and its wish is a row of copies.
 * Promise: none but the one below.
 * Limits:  -
 * Threads: those of a transaction.
 * Next:    server/copies/copies_job.c.
 */
#pragma once

#include "server/ledger/operations.h"
#include "server/server.h"

/* In the change that ends an operation which nobody has begun to work
 * on. Its wish goes with it, or the next sweep would begin it again; an operation of another kind
 * than a promotion has none. */
enum cairn_code cairn_srv_copies_unwish(struct cairn_srv_tx *tx, struct cairn_srv *server,
                                        const struct cairn_srv_operation *operation,
                                        struct cairn_error *err) CAIRN_MUST_USE;
