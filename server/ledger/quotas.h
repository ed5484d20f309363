/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quotas: what the versions of a project take up, and how much they may.
 *
 * Why:     groups share one store, and none may fill it for the others.
 * Promise: 1   a project's row holds what a recount of its versions would find, at the end of every
 *              transaction: whatever changes what a version counts for is between _leave and
 *              _enter, which take from the row and add to it what the version's own row says.
 *          2   a version counts as one while it is open, committed (in the trash, too) or being
 *              deleted. Its bytes count until they are gone: of an open one those that its ranks
 *              have sealed, of an aborted one these until it is swept.
 *          3   a project's own quota holds, else the default of all; without either all fits.
 *          4   what a project takes up is noted for each day, the last note of a day stays, and of
 *              days before the last CAIRN_SRV_USAGE_DAYS there is none.
 *          5   a quota is judged when a version is opened. A save that has begun ends, whatever it
 *              grows to.
 * Limits:  a version that is not committed counts for CAIRN_SRV_SEALED_BYTES_MAX at most.
 * Threads: inside a transaction; structs belong to their caller.
 * Next:    api/wire/words.h, server/intake/begin.c, server/access/quota_calls.c.
 */
#pragma once

#include "api/wire/words.h"
#include "server/ledger/policies.h"

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
enum cairn_code cairn_srv_quota_expect(struct cairn_srv_tx *tx, const char *project,
                                       struct cairn_error *err) CAIRN_MUST_USE;
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
