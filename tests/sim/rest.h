/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rest: what uploaders and sessions still hold when nothing is under way any more.
 *
 * Why:     memory that is lent for ever, or a grant that nobody uses and every heartbeat names,
 *          harms no save of a seed; on a node that runs for months it is the end of it.
 * Promise: 1   when the last rank has gone, an uploader has no slab, no request for one and no call
 *              for an attempt, and its budget holds the buffers of its senders alone.
 *          2   it names no grant for anybody but ranks that it watches, of the newest attempt.
 *          3   a session knows no save whose end its rank was told and whose handle it gave back,
 *              and has lent no memory.
 * Limits:  nothing of the server.
 * Threads: one (tests/sim/kernel.h).
 * Next:    check.h for what was promised to the ranks.
 */
#pragma once

#include <cairn/cairn.h>

#include "common/base.h"

bool sim_rest_is_reached(void);
void sim_rest_check(void);
/* Before a rank closes its session. */
void sim_rest_check_session(uint32_t rank, struct cairn_session *session);
