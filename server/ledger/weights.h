/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights: how much of what replicas hold alike each rank of a new attempt should save.
 *
 * Why:     a save is as slow as its slowest node; all ranks of a group compute with the same
 *          weights, so these are made once and stand in every answer of an attempt.
 * Promise: 1   a digit from 1 to 8 for each rank, by the upload rate of its node in the attempt
 *              before, divided by the node's ranks. Rates within a quarter of the best are 8, so
 *              that noise changes no share.
 *          2   "" (equal) where a rank's node or a rate is not known, the world has another size,
 *              or all are alike.
 * Limits:  CAIRN_SRV_RANKS_MAX ranks.
 * Threads: inside a transaction.
 * Next:    server/intake/attempt_calls.c; cairn_session_weights in include/cairn/cairn.h.
 */
#pragma once

#include "server/db/sql.h"

/* By what is known of `attempt`, for the next one. The caller frees *ret. */
enum cairn_code cairn_srv_weights(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                  uint64_t world_size, char **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
