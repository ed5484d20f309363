/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliases: names that point at versions of a run, and the version that is best by a metric.
 *
 * Why:     people and scripts say "prod" or "best", and what such a name means must be there.
 * Promise: 1    an alias points at a committed version that is not in the trash; that version goes
 *               there by nobody while it does.
 *          2    of equal metrics the newer version is the best (plan/retention.h#6); only versions
 *               that are shown (Q25) are.
 * Limits:  CAIRN_SRV_ALIAS_BYTES_MAX, CAIRN_SRV_ALIASES_MAX of a run.
 * Threads: inside a transaction.
 * Next:    server/versions/alias_calls.c, server/ledger/versions.c.
 */
#pragma once

#include "api/wire/policy.h"
#include "server/ledger/lists.h"

#define CAIRN_SRV_ALIAS_BYTES_MAX 63
#define CAIRN_SRV_ALIASES_MAX 1000

/* "" where there is none. */
enum cairn_code cairn_srv_alias_get(struct cairn_srv_tx *tx, int64_t run_id, const char *alias,
                                    struct cairn_version_id *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_alias_put(struct cairn_srv_tx *tx, int64_t run_id, const char *alias,
                                    const char *version, int64_t wall_ms,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_alias_drop(struct cairn_srv_tx *tx, int64_t run_id, const char *alias,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* A JSON array of {alias, version, step, changed_at}, by name. */
enum cairn_code cairn_srv_aliases_of_run(struct cairn_srv_tx *tx, int64_t run_id, json_t **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* A JSON array of names. */
enum cairn_code cairn_srv_aliases_of_version(struct cairn_srv_tx *tx, const char *version,
                                             json_t **ret, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_version_aliased(struct cairn_srv_tx *tx, const char *version, bool *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;

/* Of a version: its metrics, an object of numbers, in place of those of before. */
struct cairn_srv_version;
enum cairn_code cairn_srv_metrics_put(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_version *version,
                                      const json_t *metrics,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_metrics_drop(struct cairn_srv_tx *tx, const char *version,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* By the first metric of the policy that holds for the run. "" where there is no such version;
 * CAIRN_NOT_FOUND where no policy names a metric. */
enum cairn_code cairn_srv_best(struct cairn_srv_tx *tx, int64_t run_id,
                               const struct cairn_policy *policy, struct cairn_version_id *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
