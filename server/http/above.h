/* SPDX-License-Identifier: Apache-2.0 */
/*
 * above: what http/ calls of rooms above it.
 *
 * Why:     rooms include downwards; a request comes in below and is judged and handled above.
 * Promise: 1   nothing else of the server's is called from below.
 * Limits:  those of the route.
 * Threads: handle: a pool thread; judge: that, or an event loop; housekeep: that of deadlines.
 * Next:    server/handle.c, server/access/limits.c.
 */
#pragma once

#include "server/http/request.h"

/* server/handle.c: runs the handler of request->route and nothing of HTTP. *reply is zeroed or from
 * the run before. A grant of a higher attempt than the catalog knows freezes its run (Q6). */
enum cairn_code cairn_srv_handle(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* server/handle.c: the thread of deadlines calls it several times a second. */
void cairn_srv_housekeep(struct cairn_srv *server);
/* server/handle.c: flows whose size is not known end, and none begins from here on. */
void cairn_srv_end_flows(struct cairn_srv *server);
/* server/access/limits.c: may this caller make this call? Sets request->caller. */
enum cairn_code cairn_srv_judge(struct cairn_srv_request *request,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Once a request, which was judged as `judged`. CAIRN_RATE_LIMITED comes with *ret_wait_ms. */
enum cairn_code cairn_srv_judge_rate(const struct cairn_srv_request *request,
                                     enum cairn_code judged, uint64_t *ret_wait_ms,
                                     struct cairn_error *err) CAIRN_MUST_USE;
