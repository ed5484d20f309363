/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies: retention policies and quotas of runs, projects and the server.
 *
 * Why:     the policy of a run and the versions that it covers are decided in one place, for
 *          previews, applies, and each commit. Groups share one store, and none may fill it.
 * Promise: 1   a run's own policy applies, else its project's, else the server's, else one without
 *              rules.
 *          2   after every transaction a project's row equals a recount: each change of a version's
 *              usage is between _leave and _enter, which subtract and add what its row says.
 *          3   a version counts as one while it is open, committed (in the trash, too) or being
 *              deleted. Its bytes count until they are gone; of an open or aborted version, its
 *              sealed bytes.
 *          4   a project's own quota applies, else the default; without either there is no limit.
 *          5   a project's usage is noted for each day, the last note of a day stays, and days
 *              before the last SRV_USAGE_DAYS are dropped.
 *          6   a quota is checked when a version is opened; a save that has begun may end.
 * Limits:  api/wire/policy.h; CAIRN_PLAN_ITEMS_MAX versions; an uncommitted version counts at most
 *          SRV_SEALED_BYTES_MAX.
 * Threads: inside a transaction; structs belong to their caller.
 * Next:    plan/retention.h, server/retention/retain.h, server/intake/begin.c,
 *          server/access/limits.c.
 */
#pragma once

#include "plan/retention.h"
#include "server/ledger/versions.h"

/* Level of a policy, the most specific first. */
enum srv_scope {
    SRV_SCOPE_RUN,
    SRV_SCOPE_PROJECT,
    SRV_SCOPE_SERVER,
    SRV_SCOPE_NONE,
};
/* name: run "" is the project, both "" the server. policy NULL: deletes it. */
enum cairn_code srv_policy_put(struct srv_tx *tx, const struct cairn_run_name *name,
                               const struct cairn_policy *policy,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* The policy that applies to name, which is as above. */
enum cairn_code srv_policy_get(struct srv_tx *tx, const struct cairn_run_name *name,
                               struct cairn_policy *ret, enum srv_scope *ret_scope,
                               struct cairn_error *err) CAIRN_MUST_USE;

/* Digest of its JSON: equal digests mean equal policies. */
enum cairn_code srv_policy_digest(const struct cairn_policy *policy,
                                  uint8_t ret[CAIRN_SHA256_BYTES],
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* A run's open and committed versions outside the trash. */
struct srv_candidates {
    struct cairn_version_id *ids;  /* owned */
    struct cairn_plan_item *items; /* owned */
    size_t count, id_capacity, item_capacity;
};
void srv_candidates_release(struct srv_candidates *candidates);
/* In Q25 order; after: only versions after this one, NULL: all. Attempts and n count from 1: an
 * item of a line and a step alone comes before all saves of that step. */
enum cairn_code srv_candidates_load(struct srv_tx *tx, int64_t run_id,
                                    const struct cairn_policy *policy,
                                    const struct cairn_plan_item *after, struct srv_candidates *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Adds a hypothetical version. */
enum cairn_code srv_candidates_add(struct srv_candidates *candidates,
                                   const struct cairn_version_id *id,
                                   const struct cairn_plan_item *item,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Evaluates the policy's conditions on labels and metrics, objects or NULL. */
void srv_candidate_judge(const struct cairn_policy *policy, const json_t *labels,
                         const json_t *metrics, struct cairn_plan_item *item);

/* Sizes come from ranks; their sums must not overflow. */
#define SRV_SEALED_BYTES_MAX (UINT64_C(1) << 50)

struct srv_usage {
    uint64_t versions, bytes;
};
#define SRV_USAGE_DAYS 30

struct srv_usage_day {
    int64_t at_ms; /* start of the day, in UTC */
    struct srv_usage used;
};
struct srv_quota {
    uint64_t versions, bytes; /* CAIRN_QUOTA_NONE: no limit */
};

/* Call around a change of the version's state or bytes. An unknown version counts nothing. */
SRV_RUNS(usage_leave, (const char *version), usage_count, SQL_T(version), SQL_I(-1));
SRV_RUNS(usage_enter, (const char *version), usage_count, SQL_T(version), SQL_I(1));
enum cairn_code srv_usage_get(struct srv_tx *tx, const char *project, struct srv_usage *ret,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* Recounts all versions of the project. *ret_before: the row before. */
SRV_WORD srv_usage_recount(struct srv_tx *tx, const char *project, struct srv_usage *ret_before,
                           struct srv_usage *ret, struct cairn_error *err) {
    CAIRN_TRY(srv_usage_get(tx, project, ret_before, err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(usage_recount), SQL_T(project)));
    return srv_usage_get(tx, project, ret, err);
}

/* Notes today's usage of all projects. */
enum cairn_code srv_usage_note(struct srv_tx *tx, int64_t wall_ms,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Oldest first; days without a running server are missing. */
enum cairn_code srv_usage_days(struct srv_tx *tx, const char *project,
                               struct srv_usage_day ret[SRV_USAGE_DAYS], size_t *ret_count,
                               struct cairn_error *err) CAIRN_MUST_USE;

/* project "": the default. quota NULL: deletes the project's own. */
enum cairn_code srv_quota_put(struct srv_tx *tx, const char *project, const struct srv_quota *quota,
                              struct cairn_error *err) CAIRN_MUST_USE;
SRV_EXPECTS(quota_expect, (const char *project), quota_get, SQL_T(project));
enum cairn_code srv_quota_get(struct srv_tx *tx, const char *project, struct srv_quota *ret,
                              enum srv_scope *ret_scope, struct cairn_error *err) CAIRN_MUST_USE;
/* For a version just opened, which is counted already: *ret_over false when it fits. */
enum cairn_code srv_quota_judge(struct srv_tx *tx, const char *project,
                                struct cairn_quota_excess *ret, bool *ret_over,
                                struct cairn_error *err) CAIRN_MUST_USE;

struct srv_project {
    char name[CAIRN_NAME_BYTES_MAX + 1];
    struct srv_usage used;
    struct srv_quota quota;
    enum srv_scope scope;
};
typedef enum cairn_code srv_project_each(const struct srv_project *one, void *owner,
                                         struct cairn_error *err);
/* Projects after `after`, by name, that have versions or a quota of their own. */
enum cairn_code srv_projects_each(struct srv_tx *tx, const char *after, uint64_t limit,
                                  srv_project_each *each, void *owner,
                                  struct cairn_error *err) CAIRN_MUST_USE;
