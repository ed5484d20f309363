/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_json: retention policies and plans as the REST interface shows them.
 *
 * Why:     who sets a policy, previews one or applies it is shown the same words.
 * Promise: 1   each version of a plan is there, newest first, with what becomes of it and all its
 *              reasons; one that is removed has none.
 *          2   a plan takes no memory but its own and that of its text, however many versions.
 * Limits:  those of plan/retention.h; 64 MiB of text.
 * Threads: stateless.
 * Next:    api/openapi.yaml (Retention, RetentionPlan), server/retention/retain_calls.c.
 */
#pragma once

#include "server/http/request.h"
#include "server/retention/retain.h"

enum cairn_code cairn_srv_policy_json(const struct cairn_policy *policy, enum cairn_srv_scope scope,
                                      json_t **ret, struct cairn_error *err) CAIRN_MUST_USE;
/* The answer to a preview. assumed: saves to come are among the versions, so there is nothing to
 * apply. */
enum cairn_code cairn_srv_reply_plan(struct cairn_srv_reply *reply, const struct cairn_srv *server,
                                     const struct cairn_srv_retain *retain, bool assumed,
                                     struct cairn_error *err) CAIRN_MUST_USE;
