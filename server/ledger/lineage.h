/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lineage: from which version each attempt went on, and from which a run began.
 *
 * Why:     what a checkpoint was trained from is asked long after the rows of its ancestors went.
 * Promise: 1    the chain goes from a version to the one that its attempt resumed from, and so on;
 *               where the first attempt of a run resumed from nothing, to the version that the run
 *               says it began from (`from`), of whatever run.
 *          2    a version whose row was forgotten stands in it by id, run, attempt and step, and
 *               the chain goes on behind it.
 *          3    no version is met twice: runs that name each other end the chain.
 * Limits:  CAIRN_SRV_LINEAGE_MAX versions.
 * Threads: inside a transaction.
 * Next:    server/versions/run_calls.c.
 */
#pragma once

#include "common/json.h"
#include "server/ledger/versions.h"

#define CAIRN_SRV_LINEAGE_MAX 1000

/* A JSON array, the version itself first. *ret_more: it is longer than is given. */
enum cairn_code cairn_srv_lineage(struct cairn_srv_tx *tx, const struct cairn_srv_version *version,
                                  json_t **ret, bool *ret_more,
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* What a run says that it began from. */
struct cairn_srv_origin {
    struct cairn_run_name name; /* "" for none */
    struct cairn_version_id version;
    uint64_t attempt, step;
};
enum cairn_code cairn_srv_run_origin(struct cairn_srv_tx *tx, int64_t run_id,
                                     struct cairn_srv_origin *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* version NULL: none. */
enum cairn_code cairn_srv_run_set_origin(struct cairn_srv_tx *tx, int64_t run_id,
                                         const struct cairn_srv_version *version,
                                         struct cairn_error *err) CAIRN_MUST_USE;
