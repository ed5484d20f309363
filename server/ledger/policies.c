/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of policies, usage and quotas; see policies.h. */
#include "server/ledger/policies.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/ledger/events.h"

/* The text of the name's own policy; empty without one. */
static enum cairn_code text_before(struct srv_tx *tx, const struct cairn_run_name *name,
                                   struct cairn_buf *ret, struct cairn_error *err) {
    bool found = false;
    SQL_FIRST(rows, &found, tx, err, SQL(policy_get), SQL_T(name->project), SQL_T(name->run));
    const char *text = found ? srv_rows_text(&rows, 0) : "";
    return cairn_buf_append(ret, text, strlen(text) + 1, err);
}

enum cairn_code srv_policy_put(struct srv_tx *tx, const struct cairn_run_name *name,
                               const struct cairn_policy *policy, struct cairn_error *err) {
    CAIRN_AUTO(buf) before = {0};
    CAIRN_TRY(text_before(tx, name, &before, err));
    const char *was = before.data;
    if (!policy && !was[0]) return CAIRN_OK;
    if (!policy) {
        CAIRN_TRY(
            srv_sql_run(tx, NULL, err, SQL(policy_drop), SQL_T(name->project), SQL_T(name->run)));
        return srv_event_of_change(tx, SRV_EVENT_POLICY_REMOVED, name, NULL, was, "", err);
    }
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_policy_json(policy, &json, err));
    CAIRN_TRY(cairn_json_dump(json, &text, err));
    if (!strcmp(was, text.data)) return CAIRN_OK; /* a repeat: no event */
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(policy_put), SQL_T(name->project), SQL_T(name->run),
                          SQL_T(text.data)));
    return srv_event_of_change(tx, SRV_EVENT_POLICY_SET, name, text.data, was, text.data, err);
}

static enum cairn_code read_policy(struct srv_tx *tx, const char *project, const char *run,
                                   struct cairn_policy *ret, bool *ret_found,
                                   struct cairn_error *err) {
    SQL_FIRST(rows, ret_found, tx, err, SQL(policy_get), SQL_T(project), SQL_T(run));
    if (!*ret_found) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_view text = cairn_view_of(srv_rows_text(&rows, 0));
    CAIRN_TRY(cairn_json_parse(text, (struct cairn_json_limits){0}, &json, err));
    return cairn_policy_read_stored(json, ret, err);
}

enum cairn_code srv_policy_get(struct srv_tx *tx, const struct cairn_run_name *name,
                               struct cairn_policy *ret, enum srv_scope *ret_scope,
                               struct cairn_error *err) {
    const struct {
        const char *project, *run;
        bool asked;
    } scopes[] = {
        {name->project, name->run, name->run[0]},
        {name->project, "", name->project[0]},
        {"", "", true},
    };
    *ret = (struct cairn_policy){0};
    *ret_scope = SRV_SCOPE_NONE;
    for (size_t i = 0; i < CAIRN_COUNT(scopes); i++) {
        bool found = false;
        if (!scopes[i].asked) continue;
        CAIRN_TRY(read_policy(tx, scopes[i].project, scopes[i].run, ret, &found, err));
        if (found) *ret_scope = (enum srv_scope)i;
        if (found) return CAIRN_OK;
    }
    return CAIRN_OK;
}

enum cairn_code srv_policy_digest(const struct cairn_policy *policy,
                                  uint8_t ret[CAIRN_SHA256_BYTES], struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_policy_json(policy, &json, err));
    CAIRN_TRY(cairn_json_dump(json, &text, err));
    cairn_sha256_of(cairn_buf_view(&text), ret);
    return CAIRN_OK;
}

void srv_candidates_release(struct srv_candidates *candidates) {
    free(candidates->ids);
    free(candidates->items);
    *candidates = (struct srv_candidates){0};
}

enum cairn_code srv_candidates_add(struct srv_candidates *candidates,
                                   const struct cairn_version_id *id,
                                   const struct cairn_plan_item *item, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(candidates->ids, candidates->count, candidates->id_capacity,
                               CAIRN_PLAN_ITEMS_MAX, "versions of a retention plan", err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(candidates->items, candidates->count, candidates->item_capacity,
                               CAIRN_PLAN_ITEMS_MAX, "versions of a retention plan", err));
    candidates->ids[candidates->count] = *id;
    candidates->items[candidates->count++] = *item;
    return CAIRN_OK;
}

void srv_candidate_judge(const struct cairn_policy *policy, const json_t *labels,
                         const json_t *metrics, struct cairn_plan_item *item) {
    for (uint32_t i = 0; i < policy->labels_count; i++)
        if (cairn_selector_matches(&policy->labels[i], labels)) item->labels |= 1u << i;
    for (uint32_t i = 0; i < policy->best_count; i++) {
        const json_t *value = json_object_get(metrics, policy->best[i].metric);
        item->metrics[i] = json_is_number(value) ? json_number_value(value) : (double)NAN;
    }
}

/* Columns of versions_to_retain. */
static enum cairn_code read_item(const struct srv_rows *rows, const struct cairn_policy *policy,
                                 const char *resumed, struct srv_candidates *ret,
                                 struct cairn_error *err) {
    struct cairn_version_id id;
    SQL_COPY(id.text, rows, 0);
    bool recorded = srv_rows_i64(rows, 4) == CAIRN_STATE_COMMITTED &&
                    srv_rows_i64(rows, 5); /* Q24: unrecorded ones are in flight */
    struct cairn_plan_item item = {.attempt = srv_rows_u64(rows, 1),
                                   .step = srv_rows_u64(rows, 2),
                                   .n = srv_rows_u64(rows, 3),
                                   .line = srv_rows_u64(rows, 14),
                                   .bytes = srv_rows_u64(rows, 8),
                                   .committed_ms = srv_rows_i64(rows, 9)};
    if (!recorded) item.marks |= CAIRN_PLAN_IN_FLIGHT;
    if (srv_rows_i64(rows, 6)) item.marks |= CAIRN_PLAN_SUPERSEDED;
    if (srv_rows_i64(rows, 7)) item.marks |= CAIRN_PLAN_PINNED;
    if (!srv_rows_null(rows, 12)) item.marks |= CAIRN_PLAN_ALIASED;
    if (!srv_rows_null(rows, 13)) item.marks |= CAIRN_PLAN_LEASED;
    if (!strcmp(id.text, resumed)) item.marks |= CAIRN_PLAN_RESUMED;
    CAIRN_AUTO_JSON json_t *labels = NULL, *metrics = NULL;
    if (policy->labels_count) labels = json_loads(srv_rows_text(rows, 10), 0, NULL);
    if (policy->best_count) metrics = json_loads(srv_rows_text(rows, 11), 0, NULL);
    if ((policy->labels_count && !labels) || (policy->best_count && !metrics))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a retention plan");
    srv_candidate_judge(policy, labels, metrics, &item);
    return srv_candidates_add(ret, &id, &item, err);
}

#define PAGE_ROWS 4096

/* One page: what follows *last in its line, or what is in later lines. */
static enum cairn_code read_page(struct srv_tx *tx, int64_t run_id, bool within,
                                 const struct cairn_plan_item *last,
                                 const struct cairn_policy *policy, const char *resumed,
                                 struct srv_candidates *ret, struct cairn_error *err) {
    SRV_AUTO(rows) rows = {0};
    uint64_t line = cairn_plan_line(last);
    if (within)
        CAIRN_TRY(srv_sql_open(tx, &rows, err, SQL(versions_to_retain_of_line), SQL_I(run_id),
                               SQL_I(srv_tick(tx)), SQL_I(line), SQL_I(last->step),
                               SQL_I(last->attempt), SQL_I(last->n), SQL_I(PAGE_ROWS)));
    else
        CAIRN_TRY(srv_sql_open(tx, &rows, err, SQL(versions_to_retain), SQL_I(run_id),
                               SQL_I(srv_tick(tx)), SQL_I(line), SQL_I(PAGE_ROWS)));
    SQL_EACH(&rows, err) CAIRN_TRY(read_item(&rows, policy, resumed, ret, err));
    return CAIRN_OK;
}

/* Two statements, since an index serves no column after the first inequality; by pages, since an
 * engine may hold a whole result in memory. */
enum cairn_code srv_candidates_load(struct srv_tx *tx, int64_t run_id,
                                    const struct cairn_policy *policy,
                                    const struct cairn_plan_item *after, struct srv_candidates *ret,
                                    struct cairn_error *err) {
    char resumed[CAIRN_VERSION_ID_BYTES];
    CAIRN_TRY(srv_sql_text(tx, SQL_INTO(resumed), err, SQL(run_needed_version), SQL_I(run_id)));
    struct cairn_plan_item last = after ? *after : (struct cairn_plan_item){0};
    for (bool within = after != NULL;;) {
        size_t before = ret->count;
        CAIRN_TRY(read_page(tx, run_id, within, &last, policy, resumed, ret, err));
        bool full = ret->count - before == PAGE_ROWS;
        if (ret->count > before) last = ret->items[ret->count - 1];
        if (!full && !within) return CAIRN_OK;
        within = full;
    }
}

#define QUOTA_JSON_BYTES 120

/* Below 0 only if somebody edited the database; a recount repairs it. */
static uint64_t counted(const struct srv_rows *rows, int column) {
    int64_t number = srv_rows_i64(rows, column);
    return number > 0 ? (uint64_t)number : 0;
}

enum cairn_code srv_usage_get(struct srv_tx *tx, const char *project, struct srv_usage *ret,
                              struct cairn_error *err) {
    bool found = false;
    SQL_FIRST(rows, &found, tx, err, SQL(usage_get), SQL_T(project));
    *ret = (struct srv_usage){0};
    if (found) *ret = (struct srv_usage){counted(&rows, 0), counted(&rows, 1)};
    return CAIRN_OK;
}

static int64_t to_column(uint64_t bound) {
    return bound == CAIRN_QUOTA_NONE ? -1 : (int64_t)bound;
}

#define DAY_MS INT64_C(86400000)

enum cairn_code srv_usage_note(struct srv_tx *tx, int64_t wall_ms, struct cairn_error *err) {
    int64_t day = wall_ms / DAY_MS;
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(usage_days_note), SQL_I(day)));
    return srv_sql_run(tx, NULL, err, SQL(usage_days_drop), SQL_I(day - SRV_USAGE_DAYS + 1));
}

enum cairn_code srv_usage_days(struct srv_tx *tx, const char *project,
                               struct srv_usage_day ret[SRV_USAGE_DAYS], size_t *ret_count,
                               struct cairn_error *err) {
    SQL_OPEN(rows, tx, err, SQL(usage_days_get), SQL_T(project));
    *ret_count = 0;
    SQL_EACH(&rows, err) {
        if (*ret_count == SRV_USAGE_DAYS) break; /* a clock set back leaves future days */
        ret[(*ret_count)++] = (struct srv_usage_day){srv_rows_i64(&rows, 0) * DAY_MS,
                                                     {counted(&rows, 1), counted(&rows, 2)}};
    }
    return CAIRN_OK;
}

static uint64_t of_column(const struct srv_rows *rows, int column) {
    int64_t bound = srv_rows_i64(rows, column);
    return bound < 0 ? CAIRN_QUOTA_NONE : (uint64_t)bound;
}

/* Omits an unlimited bound. */
static void quota_json(uint64_t versions, uint64_t bytes, char ret[QUOTA_JSON_BYTES]) {
    char one[48] = "", other[48] = "";
    if (versions != CAIRN_QUOTA_NONE) snprintf(one, sizeof(one), "\"versions\":%" PRIu64, versions);
    if (bytes != CAIRN_QUOTA_NONE) snprintf(other, sizeof(other), "\"bytes\":%" PRIu64, bytes);
    snprintf(ret, QUOTA_JSON_BYTES, "{%s%s%s}", one, one[0] && other[0] ? "," : "", other);
}

/* The project's own quota as JSON; "": none. */
static enum cairn_code quota_before(struct srv_tx *tx, const char *project,
                                    char ret[QUOTA_JSON_BYTES], struct cairn_error *err) {
    struct srv_quota quota = {0};
    enum srv_scope scope = SRV_SCOPE_NONE;
    CAIRN_TRY(srv_quota_get(tx, project, &quota, &scope, err));
    bool own = scope == (project[0] ? SRV_SCOPE_PROJECT : SRV_SCOPE_SERVER);
    ret[0] = '\0';
    if (own) quota_json(quota.versions, quota.bytes, ret);
    return CAIRN_OK;
}

enum cairn_code srv_quota_put(struct srv_tx *tx, const char *project, const struct srv_quota *quota,
                              struct cairn_error *err) {
    struct cairn_run_name name = {0};
    char reason[100], was[QUOTA_JSON_BYTES], is[QUOTA_JSON_BYTES];
    CAIRN_TRY(quota_before(tx, project, was, err));
    (void)cairn_text_copy(name.project, sizeof(name.project), project);
    if (!quota && !was[0]) return CAIRN_OK;
    if (!quota) {
        CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(quota_drop), SQL_T(project)));
        return srv_event_of_change(tx, SRV_EVENT_QUOTA_REMOVED, &name, NULL, was, "", err);
    }
    quota_json(quota->versions, quota->bytes, is);
    if (!strcmp(was, is)) return CAIRN_OK; /* a repeat: no event */
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(quota_put), SQL_T(project),
                          SQL_I(to_column(quota->versions)), SQL_I(to_column(quota->bytes))));
    if (project[0]) CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(usage_make), SQL_T(project)));
    cairn_quota_text(quota->versions, quota->bytes, reason, sizeof(reason));
    return srv_event_of_change(tx, SRV_EVENT_QUOTA_SET, &name, reason, was, is, err);
}

enum cairn_code srv_quota_get(struct srv_tx *tx, const char *project, struct srv_quota *ret,
                              enum srv_scope *ret_scope, struct cairn_error *err) {
    bool found = false;
    SQL_FIRST(rows, &found, tx, err, SQL(quota_get), SQL_T(project));
    *ret = (struct srv_quota){CAIRN_QUOTA_NONE, CAIRN_QUOTA_NONE};
    *ret_scope = SRV_SCOPE_NONE;
    if (!found) return CAIRN_OK;
    *ret = (struct srv_quota){of_column(&rows, 1), of_column(&rows, 2)};
    bool own = srv_rows_text(&rows, 0)[0] != '\0';
    *ret_scope = own ? SRV_SCOPE_PROJECT : SRV_SCOPE_SERVER;
    return CAIRN_OK;
}

enum cairn_code srv_quota_judge(struct srv_tx *tx, const char *project,
                                struct cairn_quota_excess *ret, bool *ret_over,
                                struct cairn_error *err) {
    struct srv_quota quota = {0};
    struct srv_usage used = {0};
    enum srv_scope scope = SRV_SCOPE_NONE;
    *ret_over = false;
    CAIRN_TRY(srv_quota_get(tx, project, &quota, &scope, err));
    if (quota.versions == CAIRN_QUOTA_NONE && quota.bytes == CAIRN_QUOTA_NONE) return CAIRN_OK;
    CAIRN_TRY(srv_usage_get(tx, project, &used, err));
    if (used.versions) used.versions--; /* itself */
    bool versions = used.versions >= quota.versions, bytes = used.bytes >= quota.bytes;
    *ret_over = versions || bytes;
    if (versions)
        *ret = (struct cairn_quota_excess){"versions", quota.versions, used.versions, 1};
    else if (bytes)
        *ret = (struct cairn_quota_excess){"bytes", quota.bytes, used.bytes, 0};
    return CAIRN_OK;
}

enum cairn_code srv_projects_each(struct srv_tx *tx, const char *after, uint64_t limit,
                                  srv_project_each *each, void *owner, struct cairn_error *err) {
    struct srv_quota others = {0};
    enum srv_scope of_others = SRV_SCOPE_NONE;
    CAIRN_TRY(srv_quota_get(tx, "", &others, &of_others, err));
    SQL_OPEN(rows, tx, err, SQL(projects_page), SQL_T(after), SQL_I(limit));
    SQL_EACH(&rows, err) {
        struct srv_project one = {
            .used = {counted(&rows, 1), counted(&rows, 2)}, .quota = others, .scope = of_others};
        SQL_COPY(one.name, &rows, 0);
        if (!srv_rows_null(&rows, 3)) {
            one.quota = (struct srv_quota){of_column(&rows, 3), of_column(&rows, 4)};
            one.scope = SRV_SCOPE_PROJECT;
        }
        CAIRN_TRY(each(&one, owner, err));
    }
    return CAIRN_OK;
}
