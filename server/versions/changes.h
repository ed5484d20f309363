/* SPDX-License-Identifier: Apache-2.0 */
/*
 * changes: what was read before is told again only when it has changed, and who asks may wait.
 *
 * Why:     who follows a version, a list, an alias or a policy would ask again and again, and be
 *          late all the same. With the tag of what he has and `wait` he is answered at once when it
 *          is another, or 304 at the end of that time.
 *          Which routes: those with EVENT or LOOK in api/routes.def.
 * Promise: 1   an answer of these routes has an ETag: the handler's, else a weak one of its body.
 *              Of those that are looked at, what moves with the clock alone (how long ago, how much
 *              longer) is not in it.
 *          2   where If-None-Match lists it there is no body: 304, after the time of `?wait=`, or
 *              of `Prefer: wait=` where no `wait` is in the query.
 *          3   who waits is told of each change that has an event of the run, or, of
 *              what belongs to a project or to all, an event at all (server/events/feed.h).
 *          4   of LOOK, of each other change within a second.
 * Limits:  CAIRN_WAIT_MS_MAX; of EVENT, what changes without one is seen at the end of the wait.
 *          Who waits for a LOOK is answered anew each second, and told when it is another answer.
 * Threads: that of the handler.
 * Next:    server/handle.c, which calls these; server/http/waiters.h.
 */
#pragma once

#include "server/http/request.h"

/* Before the handler: a wait that nothing can end is refused with what is missing. */
enum cairn_code cairn_srv_changes_check(const struct cairn_srv_request *request,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* After it, where it has answered: makes a 304 of the reply, or parks it. */
enum cairn_code cairn_srv_changes_judge(const struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply,
                                        struct cairn_error *err) CAIRN_MUST_USE;
