/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies: retention policies and quotas: of runs, projects and the server.
 *
 * Why:     which policy holds for a run, and what of its versions a plan is made of, is decided
 *          once, for previews, for those who apply one, and after each commit. Groups share one
 *          store, and none may fill it for the others.
 * Promise: 1   a run's own policy holds, else its project's, else the server's; where there is
 *              none, that is one without a rule, which removes nothing.
 *          2   a project's row holds what a recount of its versions would find, at the end of every
 *              transaction: whatever changes what a version counts for is between _leave and
 *              _enter, which take from the row and add to it what the version's own row says.
 *          3   a version counts as one while it is open, committed (in the trash, too) or being
 *              deleted. Its bytes count until they are gone: of an open one those that its ranks
 *              have sealed, of an aborted one these until it is swept.
 *          4   a project's own quota holds, else the default of all; without either all fits.
 *          5   what a project takes up is noted for each day, the last note of a day stays, and of
 *              days before the last CAIRN_SRV_USAGE_DAYS there is none.
 *          6   a quota is judged when a version is opened. A save that has begun ends, whatever it
 *              grows to.
 * Limits:  api/wire/policy.h; CAIRN_PLAN_ITEMS_MAX versions; a version that is not committed counts
 *          for CAIRN_SRV_SEALED_BYTES_MAX at most.
 * Threads: inside a transaction; structs belong to their caller.
 * Next:    plan/retention.h, server/retention/retain.h, api/wire/words.h, server/intake/begin.c,
 *          server/access/limits.c.
 */
#pragma once

#include "api/wire/words.h"
#include "common/hash/hash.h"
#include "plan/retention.h"
#include "server/db/sql.h"
#include "server/ledger/versions.h"

/* Where a policy stands; in the order in which they give way. */
enum cairn_srv_scope {
    CAIRN_SRV_SCOPE_RUN,
    CAIRN_SRV_SCOPE_PROJECT,
    CAIRN_SRV_SCOPE_SERVER,
    CAIRN_SRV_SCOPE_NONE,
};
/* name: run "" is the project, both "" the server. policy NULL: there is none any more. */
enum cairn_code cairn_srv_policy_put(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                     const struct cairn_policy *policy,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* The one that holds there; name as above. */
enum cairn_code cairn_srv_policy_get(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                     struct cairn_policy *ret, enum cairn_srv_scope *ret_scope,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* Of its JSON: equal ones mean the same. */
enum cairn_code cairn_srv_policy_digest(const struct cairn_policy *policy,
                                        uint8_t ret[CAIRN_SHA256_BYTES],
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* Of a run: what is open or committed and not in the trash, one item each. */
struct cairn_srv_candidates {
    struct cairn_version_id *ids;  /* owned */
    struct cairn_plan_item *items; /* owned */
    size_t count, id_capacity, item_capacity;
};
void cairn_srv_candidates_release(struct cairn_srv_candidates *candidates);
/* In the order of Q25; after: those after this one alone, NULL: all. */
enum cairn_code cairn_srv_candidates_load(struct cairn_srv_tx *tx, int64_t run_id,
                                          const struct cairn_policy *policy,
                                          const struct cairn_plan_item *after,
                                          struct cairn_srv_candidates *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* One more, that nobody has saved. */
enum cairn_code cairn_srv_candidates_add(struct cairn_srv_candidates *candidates,
                                         const struct cairn_version_id *id,
                                         const struct cairn_plan_item *item,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* What the policy asks of labels and metrics, both objects or NULL. */
void cairn_srv_candidate_judge(const struct cairn_policy *policy, const json_t *labels,
                               const json_t *metrics, struct cairn_plan_item *item);

/* ---- quotas ---- */

/* Sizes are what a rank says; sums of them must stay numbers. */
#define CAIRN_SRV_SEALED_BYTES_MAX (UINT64_C(1) << 50)

struct cairn_srv_usage {
    uint64_t versions, bytes;
};
#define CAIRN_SRV_USAGE_DAYS 30

struct cairn_srv_usage_day {
    int64_t at_ms; /* its begin, in UTC */
    struct cairn_srv_usage used;
};
struct cairn_srv_quota {
    uint64_t versions, bytes; /* CAIRN_QUOTA_NONE: no bound */
};

/* Around what changes its state or its bytes. Of a version that is not there: nothing. */
enum cairn_code cairn_srv_usage_leave(struct cairn_srv_tx *tx, const char *version,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_usage_enter(struct cairn_srv_tx *tx, const char *version,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_usage_get(struct cairn_srv_tx *tx, const char *project,
                                    struct cairn_srv_usage *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* From the versions themselves; looks at each of the project. *ret_before: as it stood. */
enum cairn_code cairn_srv_usage_recount(struct cairn_srv_tx *tx, const char *project,
                                        struct cairn_srv_usage *ret_before,
                                        struct cairn_srv_usage *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* Of all projects, as of now. */
enum cairn_code cairn_srv_usage_note(struct cairn_srv_tx *tx, int64_t wall_ms,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* The oldest first; a day on which no server ran is not there. */
enum cairn_code cairn_srv_usage_days(struct cairn_srv_tx *tx, const char *project,
                                     struct cairn_srv_usage_day ret[CAIRN_SRV_USAGE_DAYS],
                                     size_t *ret_count, struct cairn_error *err) CAIRN_MUST_USE;

/* project "": the default of all. quota NULL: there is none of its own any more. */
enum cairn_code cairn_srv_quota_put(struct cairn_srv_tx *tx, const char *project,
                                    const struct cairn_srv_quota *quota,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* The one that holds there; it will be got soon (sql.h, expect). */
CAIRN_SRV_WORD cairn_srv_quota_expect(struct cairn_srv_tx *tx, const char *project,
                                      struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(quota_get), SQL_T(project));
}
enum cairn_code cairn_srv_quota_get(struct cairn_srv_tx *tx, const char *project,
                                    struct cairn_srv_quota *ret, enum cairn_srv_scope *ret_scope,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Of a version that was just opened and counts already: *ret_over is false where it fits. */
enum cairn_code cairn_srv_quota_judge(struct cairn_srv_tx *tx, const char *project,
                                      struct cairn_quota_excess *ret, bool *ret_over,
                                      struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_srv_project {
    char name[CAIRN_NAME_BYTES_MAX + 1];
    struct cairn_srv_usage used;
    struct cairn_srv_quota quota;
    enum cairn_srv_scope scope;
};
typedef enum cairn_code cairn_srv_project_each(const struct cairn_srv_project *one, void *owner,
                                               struct cairn_error *err);
/* Those behind `after`, by name, that have versions or a quota of their own. */
enum cairn_code cairn_srv_projects_each(struct cairn_srv_tx *tx, const char *after, uint64_t limit,
                                        cairn_srv_project_each *each, void *owner,
                                        struct cairn_error *err) CAIRN_MUST_USE;
