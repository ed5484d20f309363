/* SPDX-License-Identifier: Apache-2.0 */
/*
 * over: rows of jobs and runs that are over, which nobody asks for any more.
 *
 * Why:     a site restarts its jobs for years; ranks of attempts, ids that a dead job could begin
 *          again, and all that was ever known of removed runs grew without an end.
 * Promise: 1   the ranks of a run's two newest attempts stay.
 *          2   an attempt of which each rank has ended has no tombstone. One of a newest attempt
 *              that lives stays (Q31): a process of it may have been cut off for any time.
 *          3   of a run that was removed for so long, and whose versions are all forgotten, one row
 *              stays: its name with the number and the nonce of its newest attempt (Q1, Q6).
 * Limits:  CAIRN_SRV_OVER_ROUND removed runs in a round.
 * Threads: inside a change.
 * Next:    server/sweep/sweep.c, server/ledger/attempts.c, server/ledger/members.c.
 */
#pragma once

#include "server/db/sql.h"

#define CAIRN_SRV_OVER_ROUND 1000

/* After an attempt was opened; and after the end of a rank. */
enum cairn_code cairn_srv_over_attempt(struct cairn_srv_tx *tx, int64_t run_id, uint64_t newest,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_over_ended(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* before: a catalog tick; rows of what was over by then are not kept any more. */
enum cairn_code cairn_srv_over_forget(struct cairn_srv_tx *tx, uint64_t before,
                                      struct cairn_error *err) CAIRN_MUST_USE;
