/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle: one request to its handler, and what holds before and after every handler.
 *
 * Why:     a run must be compared with its store before the first answer about it, over HTTP and in
 *          a test without it.
 * Promise: Q35  no handler of a run's route runs before that run was compared with its store.
 *          Q36  a frozen run answers reconciles and reads by version id, nothing else.
 * Limits:  those of the route.
 * Threads: one pool thread at a time.
 * Next:    server/http/request.h for what a handler is given.
 */
#pragma once

#include "server/http/request.h"

/* Runs the handler of request->route and nothing of HTTP. *reply is zeroed or from the run before.
 * A grant of a higher attempt than the catalog knows freezes its run (Q6). */
enum cairn_code cairn_srv_handle(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                                 struct cairn_error *err) CAIRN_MUST_USE;
