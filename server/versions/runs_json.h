/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs_json: a run as the REST interface shows it.
 *
 * Why:     lists, single runs and changes show one form.
 * Promise: 1   a run's tag stands for what people say of it, which is what PATCH changes: totals
 *              and heartbeats change by themselves and would make every change fail.
 * Limits:  those of a run.
 * Threads: inside a transaction where one is passed.
 * Next:    api/openapi.yaml (Run), server/versions/annotate.c.
 */
#pragma once

#include "server/http/request.h"
#include "server/ledger/runs.h"

enum cairn_code cairn_srv_run_json(struct cairn_srv_tx *tx, const struct cairn_srv_request *request,
                                   const struct cairn_srv_run *run, json_t **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_NOT_FOUND for one that was removed. */
enum cairn_code cairn_srv_run_there(const struct cairn_srv_run *run,
                                    struct cairn_error *err) CAIRN_MUST_USE;
#define CAIRN_SRV_RUN_TAG_BYTES 24
enum cairn_code cairn_srv_run_tag(const json_t *shown, char ret[CAIRN_SRV_RUN_TAG_BYTES],
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* With its tag; take_shown is dropped, also on failure. */
enum cairn_code cairn_srv_reply_run(struct cairn_srv_reply *reply, int status, json_t *take_shown,
                                    struct cairn_error *err) CAIRN_MUST_USE;
