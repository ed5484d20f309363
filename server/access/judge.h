/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge: may this caller make this call?
 *
 * Why:     it is asked before the body of a request is there, and again before its handler runs,
 *          also when that was parked.
 * Promise: P16  outside of a token's projects, and where it may not read, a call is 404 in the
 *               words of a run that is not there; 403 is for who may see and not change.
 *          1    who comes with a grant needs no token for the calls of a save that is under way
 *               (routes.def), so that uploaders finish while tokens change.
 *          2    it is judged from memory: nobody waits for the catalog.
 *          3    a call costs its token one request of its rate, one without a good token its
 *               address; a call that shows a good grant, a heartbeat and the life of a reader's
 *               lease cost nothing, so no save and no restore starves; nor do those that need
 *               nothing, /livez and the like.
 * Limits:  -
 * Threads: the event loop's, or one pool thread.
 * Next:    server/access/access.h, api/routes.def.
 */
#pragma once

#include "server/http/request.h"

/* Sets request->caller. */
enum cairn_code cairn_srv_judge(struct cairn_srv_request *request,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Once a request, which was judged as `judged`. CAIRN_RATE_LIMITED comes with *ret_wait_ms. */
enum cairn_code cairn_srv_judge_rate(const struct cairn_srv_request *request,
                                     enum cairn_code judged, uint64_t *ret_wait_ms,
                                     struct cairn_error *err) CAIRN_MUST_USE;
