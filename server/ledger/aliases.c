/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of aliases and of metrics; see aliases.h. */
#include "server/ledger/aliases.h"

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/text.h"
#include "server/ledger/events.h"
#include "server/ledger/versions.h"

static enum cairn_code only_id(struct cairn_srv_rows *rows, struct cairn_version_id *ret,
                               struct cairn_error *err) {
    bool found = false;
    CAIRN_TRY(cairn_srv_rows_next(rows, &found, err));
    (void)cairn_text_copy(ret->text, sizeof(ret->text), found ? cairn_srv_rows_text(rows, 0) : "");
    return CAIRN_OK;
}

enum cairn_code cairn_srv_alias_get(struct cairn_srv_tx *tx, int64_t run_id, const char *alias,
                                    struct cairn_version_id *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(alias_get), SQL_I(run_id), SQL_T(alias)));
    return only_id(&rows, ret, err);
}

enum cairn_code cairn_srv_alias_put(struct cairn_srv_tx *tx, int64_t run_id, const char *alias,
                                    const char *version, int64_t wall_ms, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(alias_put), SQL_I(run_id), SQL_T(alias),
                                SQL_T(version), SQL_I(wall_ms)));
    return cairn_srv_event_of_version(tx, CAIRN_SRV_EVENT_ALIAS_SET, version, CAIRN_OK, alias, err);
}

enum cairn_code cairn_srv_alias_drop(struct cairn_srv_tx *tx, int64_t run_id, const char *alias,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(alias_drop), SQL_I(run_id), SQL_T(alias)));
    return cairn_srv_event_of_run(tx, CAIRN_SRV_EVENT_ALIAS_REMOVED, run_id, 0, alias, err);
}

static enum cairn_code append(json_t *array, json_t *take_item, struct cairn_error *err) {
    if (!json_array_append_new(array, take_item)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

enum cairn_code cairn_srv_aliases_of_run(struct cairn_srv_tx *tx, int64_t run_id, json_t **ret,
                                         struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_AUTO_JSON json_t *array = json_array();
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(aliases_of_run), SQL_I(run_id)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) break;
        char changed[32];
        cairn_time_text(cairn_srv_rows_i64(&rows, 3), true, changed);
        CAIRN_TRY(append(array,
                         CAIRN_PACK(alias_row, .alias = cairn_srv_rows_text(&rows, 0),
                                    .version = cairn_srv_rows_text(&rows, 1),
                                    .step = cairn_srv_rows_u64(&rows, 2), .changed_at = changed),
                         err));
    }
    *ret = CAIRN_TAKE(array);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_aliases_of_version(struct cairn_srv_tx *tx, const char *version,
                                             json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_AUTO_JSON json_t *array = json_array();
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(aliases_of_version), SQL_T(version)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) break;
        CAIRN_TRY(append(array, json_string(cairn_srv_rows_text(&rows, 0)), err));
    }
    *ret = CAIRN_TAKE(array);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_version_aliased(struct cairn_srv_tx *tx, const char *version, bool *ret,
                                          struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(aliases_of_version), SQL_T(version));
}

/* ---- metrics ---- */

/* The numbers' order, in integers, which both engines compare alike: IEEE 754 is sign and
 * magnitude, so the bits of what is negative are turned. */
static int64_t in_order(double number) {
    int64_t bits;
    number += 0.0; /* no two zeros */
    memcpy(&bits, &number, sizeof(bits));
    return bits < 0 ? bits ^ INT64_MAX : bits;
}

enum cairn_code cairn_srv_metrics_drop(struct cairn_srv_tx *tx, const char *version,
                                       struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(metrics_drop), SQL_T(version));
}

enum cairn_code cairn_srv_metrics_put(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_version *version,
                                      const json_t *metrics, struct cairn_error *err) {
    const char *name = NULL, *id = version->id.text;
    json_t *value = NULL;
    CAIRN_TRY(cairn_srv_metrics_drop(tx, id, err));
    json_object_foreach((json_t *)(uintptr_t)metrics, name, value) {
        int64_t ordered = in_order(json_number_value(value));
        bool joined = version->line && version->line != version->attempt;
        CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(metric_put), SQL_I(version->run_id),
                                    SQL_T(name), SQL_I(ordered),
                                    SQL_I(joined ? version->line : version->attempt),
                                    SQL_I(version->step), SQL_I(version->n), SQL_T(id),
                                    SQL_I(joined ? version->attempt : 0)));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_best(struct cairn_srv_tx *tx, int64_t run_id,
                               const struct cairn_policy *policy, struct cairn_version_id *ret,
                               struct cairn_error *err) {
    if (!policy->best_count)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "no retention policy of this run says by which metric a checkpoint is "
                          "the best (keep.best)");
    const struct cairn_policy_best *best = &policy->best[0];
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err,
                                 best->largest ? SQL(metric_largest) : SQL(metric_smallest),
                                 SQL_I(run_id), SQL_T(best->metric)));
    return only_id(&rows, ret, err);
}
