/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of project_usage and project_quotas; see quotas.h. */
#include "server/ledger/quotas.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/text.h"
#include "server/ledger/events.h"

#define QUOTA_JSON_BYTES 120

/* ---- what is used ---- */

static enum cairn_code count_version(struct cairn_srv_tx *tx, const char *version, int times,
                                     struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(usage_count), SQL_T(version), SQL_I(times));
}

enum cairn_code cairn_srv_usage_leave(struct cairn_srv_tx *tx, const char *version,
                                      struct cairn_error *err) {
    return count_version(tx, version, -1, err);
}

enum cairn_code cairn_srv_usage_enter(struct cairn_srv_tx *tx, const char *version,
                                      struct cairn_error *err) {
    return count_version(tx, version, 1, err);
}

/* Below 0 only where somebody changed the database by hand; a recount mends it. */
static uint64_t counted(const struct cairn_srv_rows *rows, int column) {
    int64_t number = cairn_srv_rows_i64(rows, column);
    return number > 0 ? (uint64_t)number : 0;
}

enum cairn_code cairn_srv_usage_get(struct cairn_srv_tx *tx, const char *project,
                                    struct cairn_srv_usage *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(usage_get), SQL_T(project)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
    *ret = (struct cairn_srv_usage){0};
    if (found) *ret = (struct cairn_srv_usage){counted(&rows, 0), counted(&rows, 1)};
    return CAIRN_OK;
}

enum cairn_code cairn_srv_usage_recount(struct cairn_srv_tx *tx, const char *project,
                                        struct cairn_srv_usage *ret_before,
                                        struct cairn_srv_usage *ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_usage_get(tx, project, ret_before, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(usage_recount), SQL_T(project)));
    return cairn_srv_usage_get(tx, project, ret, err);
}

/* ---- what is allowed ---- */

static int64_t to_column(uint64_t bound) {
    return bound == CAIRN_QUOTA_NONE ? -1 : (int64_t)bound;
}

#define DAY_MS INT64_C(86400000)

enum cairn_code cairn_srv_usage_note(struct cairn_srv_tx *tx, int64_t wall_ms,
                                     struct cairn_error *err) {
    int64_t day = wall_ms / DAY_MS;
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(usage_days_note), SQL_I(day)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(usage_days_drop),
                             SQL_I(day - CAIRN_SRV_USAGE_DAYS + 1));
}

enum cairn_code cairn_srv_usage_days(struct cairn_srv_tx *tx, const char *project,
                                     struct cairn_srv_usage_day ret[CAIRN_SRV_USAGE_DAYS],
                                     size_t *ret_count, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(usage_days_get), SQL_T(project)));
    *ret_count = 0;
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        /* A clock that was set back leaves days of its future. */
        if (!more || *ret_count == CAIRN_SRV_USAGE_DAYS) return CAIRN_OK;
        ret[(*ret_count)++] = (struct cairn_srv_usage_day){
            cairn_srv_rows_i64(&rows, 0) * DAY_MS, {counted(&rows, 1), counted(&rows, 2)}};
    }
}

static uint64_t of_column(const struct cairn_srv_rows *rows, int column) {
    int64_t bound = cairn_srv_rows_i64(rows, column);
    return bound < 0 ? CAIRN_QUOTA_NONE : (uint64_t)bound;
}

/* A bound that there is none of is left out. */
static void quota_json(uint64_t versions, uint64_t bytes, char ret[QUOTA_JSON_BYTES]) {
    char one[48] = "", other[48] = "";
    if (versions != CAIRN_QUOTA_NONE) snprintf(one, sizeof(one), "\"versions\":%" PRIu64, versions);
    if (bytes != CAIRN_QUOTA_NONE) snprintf(other, sizeof(other), "\"bytes\":%" PRIu64, bytes);
    snprintf(ret, QUOTA_JSON_BYTES, "{%s%s%s}", one, one[0] && other[0] ? "," : "", other);
}

/* The quota that stands there itself; "" where none does. */
static enum cairn_code quota_before(struct cairn_srv_tx *tx, const char *project,
                                    char ret[QUOTA_JSON_BYTES], struct cairn_error *err) {
    struct cairn_srv_quota quota = {0};
    enum cairn_srv_scope scope = CAIRN_SRV_SCOPE_NONE;
    CAIRN_TRY(cairn_srv_quota_get(tx, project, &quota, &scope, err));
    bool own = scope == (project[0] ? CAIRN_SRV_SCOPE_PROJECT : CAIRN_SRV_SCOPE_SERVER);
    ret[0] = '\0';
    if (own) quota_json(quota.versions, quota.bytes, ret);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_quota_put(struct cairn_srv_tx *tx, const char *project,
                                    const struct cairn_srv_quota *quota, struct cairn_error *err) {
    struct cairn_run_name name = {0};
    char reason[100], was[QUOTA_JSON_BYTES], is[QUOTA_JSON_BYTES];
    CAIRN_TRY(quota_before(tx, project, was, err));
    (void)cairn_text_copy(name.project, sizeof(name.project), project);
    if (!quota && !was[0]) return CAIRN_OK;
    if (!quota) {
        CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(quota_drop), SQL_T(project)));
        return cairn_srv_event_of_change(tx, CAIRN_SRV_EVENT_QUOTA_REMOVED, &name, NULL, was, "",
                                         err);
    }
    quota_json(quota->versions, quota->bytes, is);
    if (!strcmp(was, is)) return CAIRN_OK; /* a repeat: no event */
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(quota_put), SQL_T(project),
                                SQL_I(to_column(quota->versions)),
                                SQL_I(to_column(quota->bytes))));
    if (project[0]) CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(usage_make), SQL_T(project)));
    cairn_quota_text(quota->versions, quota->bytes, reason, sizeof(reason));
    return cairn_srv_event_of_change(tx, CAIRN_SRV_EVENT_QUOTA_SET, &name, reason, was, is, err);
}

enum cairn_code cairn_srv_quota_expect(struct cairn_srv_tx *tx, const char *project,
                                       struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(quota_get), SQL_T(project));
}

enum cairn_code cairn_srv_quota_get(struct cairn_srv_tx *tx, const char *project,
                                    struct cairn_srv_quota *ret, enum cairn_srv_scope *ret_scope,
                                    struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(quota_get), SQL_T(project)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
    *ret = (struct cairn_srv_quota){CAIRN_QUOTA_NONE, CAIRN_QUOTA_NONE};
    *ret_scope = CAIRN_SRV_SCOPE_NONE;
    if (!found) return CAIRN_OK;
    *ret = (struct cairn_srv_quota){of_column(&rows, 1), of_column(&rows, 2)};
    bool own = cairn_srv_rows_text(&rows, 0)[0] != '\0';
    *ret_scope = own ? CAIRN_SRV_SCOPE_PROJECT : CAIRN_SRV_SCOPE_SERVER;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_quota_judge(struct cairn_srv_tx *tx, const char *project,
                                      struct cairn_quota_excess *ret, bool *ret_over,
                                      struct cairn_error *err) {
    struct cairn_srv_quota quota = {0};
    struct cairn_srv_usage used = {0};
    enum cairn_srv_scope scope = CAIRN_SRV_SCOPE_NONE;
    *ret_over = false;
    CAIRN_TRY(cairn_srv_quota_get(tx, project, &quota, &scope, err));
    if (quota.versions == CAIRN_QUOTA_NONE && quota.bytes == CAIRN_QUOTA_NONE) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_usage_get(tx, project, &used, err));
    if (used.versions) used.versions--; /* itself */
    bool versions = used.versions >= quota.versions, bytes = used.bytes >= quota.bytes;
    *ret_over = versions || bytes;
    if (versions)
        *ret = (struct cairn_quota_excess){"versions", quota.versions, used.versions, 1};
    else if (bytes)
        *ret = (struct cairn_quota_excess){"bytes", quota.bytes, used.bytes, 0};
    return CAIRN_OK;
}

/* ---- lists ---- */

enum cairn_code cairn_srv_projects_each(struct cairn_srv_tx *tx, const char *after, uint64_t limit,
                                        cairn_srv_project_each *each, void *owner,
                                        struct cairn_error *err) {
    struct cairn_srv_quota others = {0};
    enum cairn_srv_scope of_others = CAIRN_SRV_SCOPE_NONE;
    CAIRN_TRY(cairn_srv_quota_get(tx, "", &others, &of_others, err));
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(projects_page), SQL_T(after), SQL_I(limit)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        struct cairn_srv_project one = {.used = {counted(&rows, 1), counted(&rows, 2)},
                                        .quota = others,
                                        .scope = of_others};
        (void)cairn_text_copy(one.name, sizeof(one.name), cairn_srv_rows_text(&rows, 0));
        if (!cairn_srv_rows_null(&rows, 3)) {
            one.quota = (struct cairn_srv_quota){of_column(&rows, 3), of_column(&rows, 4)};
            one.scope = CAIRN_SRV_SCOPE_PROJECT;
        }
        CAIRN_TRY(each(&one, owner, err));
    }
}
