/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of frozen_runs and set_aside; see frozen.h. */
#include "server/ledger/frozen.h"

#include "common/text.h"
#include "server/ledger/events.h"

enum cairn_code cairn_srv_frozen_count(struct cairn_srv_tx *tx, uint64_t *ret,
                                       struct cairn_error *err) {
    bool found = false;
    int64_t count = 0;
    CAIRN_TRY(cairn_srv_sql_number(tx, &found, &count, err, SQL(frozen_count)));
    *ret = (uint64_t)count;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_frozen_put(struct cairn_srv_tx *tx, int64_t run_id, const char *cause,
                                     int64_t wall_ms, bool asked, bool *ret_made,
                                     struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(frozen_insert), SQL_I(run_id), SQL_T(cause),
                                SQL_I(wall_ms), SQL_I(asked)));
    *ret_made = changed > 0;
    if (!changed) return CAIRN_OK;
    return cairn_srv_event_of_run(tx, CAIRN_SRV_EVENT_RUN_FROZEN, run_id, 0, cause, err);
}

enum cairn_code cairn_srv_frozen_cause(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                       bool *ret_frozen, char ret[CAIRN_SRV_CAUSE_BYTES],
                                       struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(frozen_cause_of_run), SQL_T(name->project),
                                 SQL_T(name->run)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, ret_frozen, err));
    if (*ret_frozen)
        (void)cairn_text_copy(ret, CAIRN_SRV_CAUSE_BYTES, cairn_srv_rows_text(&rows, 0));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_frozen_ends(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                      bool *ret_ends, uint64_t *ret_due_tick,
                                      struct cairn_error *err) {
    int64_t due = 0;
    CAIRN_TRY(cairn_srv_sql_number(tx, ret_ends, &due, err, SQL(frozen_ends),
                                   SQL_T(name->project), SQL_T(name->run)));
    *ret_due_tick = *ret_ends ? (uint64_t)due : 0;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_tx_run_thawed_expect(struct cairn_srv_tx *tx, int64_t run_id,
                                               struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(frozen_is), SQL_I(run_id));
}

enum cairn_code cairn_srv_tx_run_thawed(struct cairn_srv_tx *tx, int64_t run_id,
                                        struct cairn_error *err) {
    bool frozen = false;
    CAIRN_TRY(cairn_srv_sql_found(tx, &frozen, err, SQL(frozen_is), SQL_I(run_id)));
    if (!frozen) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CATALOG_BEHIND, "the run is frozen until it is reconciled");
}

enum cairn_code cairn_srv_frozen_first(struct cairn_srv_tx *tx, bool *ret_found,
                                       struct cairn_run_name *ret,
                                       char ret_cause[CAIRN_SRV_CAUSE_BYTES],
                                       struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(frozen_first)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, ret_found, err));
    if (!*ret_found) return CAIRN_OK;
    (void)cairn_text_copy(ret->project, sizeof(ret->project), cairn_srv_rows_text(&rows, 0));
    (void)cairn_text_copy(ret->run, sizeof(ret->run), cairn_srv_rows_text(&rows, 1));
    (void)cairn_text_copy(ret_cause, CAIRN_SRV_CAUSE_BYTES, cairn_srv_rows_text(&rows, 2));
    return CAIRN_OK;
}

/* ---- reconciles ---- */

enum cairn_code cairn_srv_frozen_request(struct cairn_srv_tx *tx, int64_t run_id, bool *ret_frozen,
                                         char ret_cause[CAIRN_SRV_CAUSE_BYTES],
                                         char ret_note[CAIRN_SRV_CAUSE_BYTES],
                                         struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(frozen_mark), SQL_I(run_id)));
    if (changed)
        CAIRN_TRY(
            cairn_srv_event_of_run(tx, CAIRN_SRV_EVENT_RUN_RECONCILING, run_id, 0, NULL, err));
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(frozen_note), SQL_I(run_id)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, ret_frozen, err));
    if (!*ret_frozen) return CAIRN_OK;
    (void)cairn_text_copy(ret_cause, CAIRN_SRV_CAUSE_BYTES, cairn_srv_rows_text(&rows, 0));
    (void)cairn_text_copy(ret_note, CAIRN_SRV_CAUSE_BYTES, cairn_srv_rows_text(&rows, 1));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_frozen_set_note(struct cairn_srv_tx *tx, int64_t run_id, const char *note,
                                          uint64_t due_tick, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(frozen_set_note), SQL_I(run_id), SQL_T(note),
                             SQL_I(due_tick));
}

enum cairn_code cairn_srv_frozen_drop(struct cairn_srv_tx *tx, int64_t run_id,
                                      struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(frozen_drop), SQL_I(run_id)));
    return cairn_srv_event_of_run(tx, CAIRN_SRV_EVENT_RUN_RECONCILED, run_id, 0, NULL, err);
}

enum cairn_code
cairn_srv_frozen_requests(struct cairn_srv_tx *tx,
                          struct cairn_srv_reconcile_request ret[CAIRN_SRV_RECONCILES_MAX],
                          size_t *ret_count, struct cairn_error *err) {
    *ret_count = 0;
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(frozen_marked)));
    for (bool more = true; *ret_count < CAIRN_SRV_RECONCILES_MAX; ++*ret_count) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        struct cairn_srv_reconcile_request *one = &ret[*ret_count];
        struct cairn_run_name *name = &one->name;
        (void)cairn_text_copy(name->project, sizeof(name->project), cairn_srv_rows_text(&rows, 0));
        (void)cairn_text_copy(name->run, sizeof(name->run), cairn_srv_rows_text(&rows, 1));
        one->run_id = cairn_srv_rows_i64(&rows, 2);
        one->due_tick = cairn_srv_rows_u64(&rows, 3);
    }
    return CAIRN_OK;
}

/* ---- objects set aside ---- */

enum cairn_code cairn_srv_aside_there(struct cairn_srv_tx *tx, const char *key, bool *ret,
                                      struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(aside_there), SQL_T(key));
}

enum cairn_code cairn_srv_aside_put(struct cairn_srv_tx *tx, const char *key, const char *cause,
                                    int64_t wall_ms, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(aside_put), SQL_T(key), SQL_T(cause),
                             SQL_I(wall_ms));
}
