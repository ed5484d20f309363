/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remove: a run with all that it has, for the route that deletes a run.
 *
 * Why:     a run that has versions is deleted only by who names it once more.
 * Promise: Q27  each version is judged as server/handlers/verdicts.h says, before the run goes.
 * Limits:  as a bulk call's.
 * Threads: the request's.
 * Next:    server/handlers/remove.c, server/handlers/runs.c.
 */
#pragma once

#include "server/handlers/request.h"

/* DELETE {R}?confirm=: a run with all that it has. */
enum cairn_code cairn_srv_run_delete_whole(struct cairn_srv_request *request, const char *confirm,
                                           struct cairn_srv_reply *reply,
                                           struct cairn_error *err) CAIRN_MUST_USE;
