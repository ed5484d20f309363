/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of policies, and versions as items of a plan; see policies.h. */
#include "server/ledger/policies.h"

#include <math.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/text.h"
#include "server/ledger/events.h"

/* The text of the policy that stands there itself; empty where none does. */
static enum cairn_code text_before(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                   struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(policy_get), SQL_T(name->project),
                                 SQL_T(name->run)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
    const char *text = found ? cairn_srv_rows_text(&rows, 0) : "";
    return cairn_buf_append(ret, text, strlen(text) + 1, err);
}

enum cairn_code cairn_srv_policy_put(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                     const struct cairn_policy *policy, struct cairn_error *err) {
    CAIRN_AUTO(buf) before = {0};
    CAIRN_TRY(text_before(tx, name, &before, err));
    const char *was = before.data;
    if (!policy && !was[0]) return CAIRN_OK;
    if (!policy) {
        CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(policy_drop), SQL_T(name->project),
                                    SQL_T(name->run)));
        return cairn_srv_event_of_change(tx, CAIRN_SRV_EVENT_POLICY_REMOVED, name, NULL, was, "",
                                         err);
    }
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_policy_json(policy, &json, err));
    CAIRN_TRY(cairn_json_dump(json, &text, err));
    if (!strcmp(was, text.data)) return CAIRN_OK; /* a repeat: no event */
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(policy_put), SQL_T(name->project),
                                SQL_T(name->run), SQL_T(text.data)));
    return cairn_srv_event_of_change(tx, CAIRN_SRV_EVENT_POLICY_SET, name, text.data, was,
                                     text.data, err);
}

static enum cairn_code look(struct cairn_srv_tx *tx, const char *project, const char *run,
                            struct cairn_policy *ret, bool *ret_found, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(policy_get), SQL_T(project), SQL_T(run)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, ret_found, err));
    if (!*ret_found) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_view text = cairn_view_of(cairn_srv_rows_text(&rows, 0));
    CAIRN_TRY(cairn_json_parse(text, (struct cairn_json_limits){0}, &json, err));
    return cairn_policy_read_stored(json, ret, err);
}

enum cairn_code cairn_srv_policy_get(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                     struct cairn_policy *ret, enum cairn_srv_scope *ret_scope,
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
    *ret_scope = CAIRN_SRV_SCOPE_NONE;
    for (size_t i = 0; i < CAIRN_COUNT(scopes); i++) {
        bool found = false;
        if (!scopes[i].asked) continue;
        CAIRN_TRY(look(tx, scopes[i].project, scopes[i].run, ret, &found, err));
        if (found) *ret_scope = (enum cairn_srv_scope)i;
        if (found) return CAIRN_OK;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_policy_digest(const struct cairn_policy *policy,
                                        uint8_t ret[CAIRN_SHA256_BYTES], struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_AUTO(buf) text = {0};
    struct cairn_sha256 sha;
    CAIRN_TRY(cairn_policy_json(policy, &json, err));
    CAIRN_TRY(cairn_json_dump(json, &text, err));
    cairn_sha256_init(&sha);
    cairn_sha256_update(&sha, text.data, text.size);
    cairn_sha256_final(&sha, ret);
    cairn_sha256_release(&sha);
    return CAIRN_OK;
}

/* ---- candidates ---- */

void cairn_srv_candidates_release(struct cairn_srv_candidates *candidates) {
    free(candidates->ids);
    free(candidates->items);
    *candidates = (struct cairn_srv_candidates){0};
}

enum cairn_code cairn_srv_candidates_add(struct cairn_srv_candidates *candidates,
                                         const struct cairn_version_id *id,
                                         const struct cairn_plan_item *item,
                                         struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(candidates->ids, candidates->count, candidates->id_capacity,
                               CAIRN_PLAN_ITEMS_MAX, "versions of a retention plan", err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(candidates->items, candidates->count, candidates->item_capacity,
                               CAIRN_PLAN_ITEMS_MAX, "versions of a retention plan", err));
    candidates->ids[candidates->count] = *id;
    candidates->items[candidates->count++] = *item;
    return CAIRN_OK;
}

void cairn_srv_candidate_judge(const struct cairn_policy *policy, const json_t *labels,
                               const json_t *metrics, struct cairn_plan_item *item) {
    for (uint32_t i = 0; i < policy->labels_count; i++)
        if (cairn_selector_matches(&policy->labels[i], labels)) item->labels |= 1u << i;
    for (uint32_t i = 0; i < policy->best_count; i++) {
        const json_t *value = json_object_get(metrics, policy->best[i].metric);
        item->metrics[i] = json_is_number(value) ? json_number_value(value) : (double)NAN;
    }
}

/* The columns of versions_to_retain. */
static enum cairn_code read_item(const struct cairn_srv_rows *rows,
                                 const struct cairn_policy *policy, const char *resumed,
                                 struct cairn_srv_candidates *ret, struct cairn_error *err) {
    struct cairn_version_id id;
    (void)cairn_text_copy(id.text, sizeof(id.text), cairn_srv_rows_text(rows, 0));
    bool recorded = cairn_srv_rows_i64(rows, 4) == CAIRN_STATE_COMMITTED &&
                    cairn_srv_rows_i64(rows, 5); /* Q24: the others are in flight */
    struct cairn_plan_item item = {.attempt = cairn_srv_rows_u64(rows, 1),
                                   .step = cairn_srv_rows_u64(rows, 2),
                                   .n = cairn_srv_rows_u64(rows, 3),
                                   .line = cairn_srv_rows_u64(rows, 14),
                                   .bytes = cairn_srv_rows_u64(rows, 8),
                                   .committed_ms = cairn_srv_rows_i64(rows, 9)};
    if (!recorded) item.marks |= CAIRN_PLAN_IN_FLIGHT;
    if (cairn_srv_rows_i64(rows, 6)) item.marks |= CAIRN_PLAN_SUPERSEDED;
    if (cairn_srv_rows_i64(rows, 7)) item.marks |= CAIRN_PLAN_PINNED;
    if (!cairn_srv_rows_null(rows, 12)) item.marks |= CAIRN_PLAN_ALIASED;
    if (!cairn_srv_rows_null(rows, 13)) item.marks |= CAIRN_PLAN_LEASED;
    if (!strcmp(id.text, resumed)) item.marks |= CAIRN_PLAN_RESUMED;
    CAIRN_AUTO_JSON json_t *labels = NULL, *metrics = NULL;
    if (policy->labels_count) labels = json_loads(cairn_srv_rows_text(rows, 10), 0, NULL);
    if (policy->best_count) metrics = json_loads(cairn_srv_rows_text(rows, 11), 0, NULL);
    if ((policy->labels_count && !labels) || (policy->best_count && !metrics))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a retention plan");
    cairn_srv_candidate_judge(policy, labels, metrics, &item);
    return cairn_srv_candidates_add(ret, &id, &item, err);
}

static enum cairn_code find_resumed(struct cairn_srv_tx *tx, int64_t run_id, char *ret,
                                    size_t capacity, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(run_needed_version), SQL_I(run_id)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
    (void)cairn_text_copy(ret, capacity, found ? cairn_srv_rows_text(&rows, 0) : "");
    return CAIRN_OK;
}

static enum cairn_code read_items(struct cairn_srv_rows *rows, const struct cairn_policy *policy,
                                  const char *resumed, struct cairn_srv_candidates *ret,
                                  struct cairn_error *err) {
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(rows, &more, err));
        if (!more) return CAIRN_OK;
        CAIRN_TRY(read_item(rows, policy, resumed, ret, err));
    }
}

/* Two looks, since an index ends at the first column that is no equality. */
enum cairn_code cairn_srv_candidates_load(struct cairn_srv_tx *tx, int64_t run_id,
                                          const struct cairn_policy *policy,
                                          const struct cairn_plan_item *after,
                                          struct cairn_srv_candidates *ret,
                                          struct cairn_error *err) {
    const uint64_t line = after ? cairn_plan_line(after) : 0;
    char resumed[CAIRN_VERSION_ID_BYTES];
    CAIRN_TRY(find_resumed(tx, run_id, resumed, sizeof(resumed), err));
    if (after) {
        CAIRN_AUTO(srv_rows) rows = {0};
        CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_to_retain_of_line), SQL_I(run_id),
                                     SQL_I(cairn_srv_tick(tx)), SQL_I(line), SQL_I(after->step),
                                     SQL_I(after->attempt), SQL_I(after->n)));
        CAIRN_TRY(read_items(&rows, policy, resumed, ret, err));
    }
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_to_retain), SQL_I(run_id),
                                 SQL_I(cairn_srv_tick(tx)), SQL_I(line)));
    return read_items(&rows, policy, resumed, ret, err);
}
