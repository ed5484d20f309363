/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operations_json: an operation as the API shows it.
 *
 * Why:     whoever begins one, looks at it, lists or cancels it gets the same object.
 * Promise: 1   the status is 202 until it is over, then 200.
 * Limits:  those of its row.
 * Threads: stateless.
 * Next:    server/ledger/operations.h.
 */
#pragma once

#include "server/http/request.h"
#include "server/ledger/operations.h"

/* NULL: no memory. */
json_t *cairn_srv_operation_json(const struct cairn_srv_request *asked,
                                 const struct cairn_srv_operation *operation);
/* One that was just begun: as it stands, with its Location. */
enum cairn_code cairn_srv_reply_begun(struct cairn_srv_request *request, const char *id,
                                      struct cairn_srv_reply *reply,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_reply_operation(const struct cairn_srv_request *request,
                                          const struct cairn_srv_operation *operation,
                                          struct cairn_srv_reply *reply,
                                          struct cairn_error *err) CAIRN_MUST_USE;
