/* SPDX-License-Identifier: Apache-2.0 */
/*
 * above: the functions of higher rooms that http/ calls.
 *
 * Why:     rooms include downwards, but requests arrive here and are handled in higher rooms.
 * Promise: 1   http/ calls no other function of a higher room.
 * Limits:  those of the route.
 * Threads: handle: a pool thread; judge: that or an event loop; housekeep: the deadlines thread.
 * Next:    server/handle.c, server/access/limits.c.
 */
#pragma once

#include "server/http/request.h"

/* server/handle.c: runs the handler of request->route; touches no HTTP state. *reply is zeroed or
 * from the previous run. A grant with a higher attempt than the catalog's freezes its run (Q6). */
enum cairn_code srv_handle(struct srv_request *request, struct srv_reply *reply,
                           struct cairn_error *err) CAIRN_MUST_USE;
/* server/handle.c: the deadlines thread calls this several times a second. */
void srv_housekeep(struct srv *server);
/* server/handle.c: ends flows of unknown size and refuses new ones. */
void srv_end_flows(struct srv *server);
/* server/access/limits.c: authorizes the call and sets request->caller. */
enum cairn_code srv_judge(struct srv_request *request, struct cairn_error *err) CAIRN_MUST_USE;
/* Call once per request, with srv_judge's result. CAIRN_RATE_LIMITED sets *ret_wait_ms. */
enum cairn_code srv_judge_rate(const struct srv_request *request, enum cairn_code judged,
                               uint64_t *ret_wait_ms, struct cairn_error *err) CAIRN_MUST_USE;
