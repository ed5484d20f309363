/* SPDX-License-Identifier: Apache-2.0 */
/*
 * above: functions of higher rooms that operations call.
 *
 * Why:     cancelling a queued operation also cancels the copy that requested it, in another room.
 * Promise: 1   each function names its source.
 * Limits:  -
 * Threads: as stated.
 * Next:    server/operations/run.c.
 */
#pragma once

#include "server/ledger/operations.h"

/* server/copies/copying.c: in the transaction that ends a queued operation, withdraws the requested
 * copy, or the next sweep would begin it again; only promotions have one. */
enum cairn_code srv_copies_unwish(struct srv_tx *tx, struct srv *server,
                                  const struct srv_operation *operation,
                                  struct cairn_error *err) CAIRN_MUST_USE;
