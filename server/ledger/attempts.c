/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of attempts; see attempts.h. */
#include "server/ledger/attempts.h"

#include <stdlib.h>

#include "api/documents/records.h"
#include "common/json.h"
#include "common/text.h"
#include "server/ledger/events.h"
#include "server/ledger/over.h"

enum cairn_code cairn_srv_attempt_of_job(struct cairn_srv_tx *tx, int64_t run_id, const char *job,
                                         bool *ret_found, struct cairn_srv_attempt *ret,
                                         struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(attempt_of_job), SQL_I(run_id), SQL_T(job)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, ret_found, err));
    if (!*ret_found) return CAIRN_OK;
    *ret = (struct cairn_srv_attempt){.number = cairn_srv_rows_u64(&rows, 0),
                                      .world_size = cairn_srv_rows_u64(&rows, 2),
                                      .has_choice = !cairn_srv_rows_null(&rows, 4),
                                      .recorded = cairn_srv_rows_i64(&rows, 5) != 0,
                                      .choice_step = cairn_srv_rows_u64(&rows, 6),
                                      .weights = strdup(cairn_srv_rows_text(&rows, 7))};
    if (!ret->weights) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
    (void)cairn_text_copy(ret->nonce, sizeof(ret->nonce), cairn_srv_rows_text(&rows, 1));
    (void)cairn_text_copy(ret->resume, sizeof(ret->resume), cairn_srv_rows_text(&rows, 3));
    (void)cairn_text_copy(ret->choice.text, sizeof(ret->choice.text),
                          cairn_srv_rows_text(&rows, 4));
    return CAIRN_OK;
}

/* ---- ids as the row keeps them ---- */

static enum cairn_code ids_text(const struct cairn_version_id *ids, size_t count, char **ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(list, json_string(ids[i].text)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
    *ret = list ? json_dumps(list, JSON_COMPACT) : NULL;
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
}

static enum cairn_code read_ids(const char *text, struct cairn_attempt_record *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *ids = json_loads(text, 0, NULL);
    size_t count = json_array_size(ids);
    ret->superseded = calloc(count + 1, sizeof(*ret->superseded));
    if (!ret->superseded || !ids) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a record");
    for (; ret->superseded_count < count; ret->superseded_count++)
        (void)cairn_text_copy(ret->superseded[ret->superseded_count].text,
                              sizeof(ret->superseded->text),
                              json_string_value(json_array_get(ids, ret->superseded_count)));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_attempt_insert(struct cairn_srv_tx *tx, int64_t run_id,
                                         const struct cairn_srv_attempt_new *opened,
                                         struct cairn_error *err) {
    const struct cairn_srv_attempt *attempt = opened->attempt;
    CAIRN_AUTO_HEAP char *superseded = NULL;
    CAIRN_TRY(ids_text(opened->superseded->ids, opened->superseded->count, &superseded, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(attempt_insert), SQL_I(run_id),
                                SQL_I(attempt->number), SQL_T(attempt->nonce), SQL_T(opened->job),
                                SQL_I(attempt->world_size), SQL_T(attempt->resume),
                                SQL_T(attempt->has_choice ? attempt->choice.text : NULL),
                                SQL_T(superseded), SQL_I(opened->wall_ms),
                                SQL_T(opened->incarnation),
                                SQL_T(attempt->weights ? attempt->weights : "")));
    CAIRN_TRY(cairn_srv_over_attempt(tx, run_id, attempt->number, err));
    return cairn_srv_event_of_run(tx, CAIRN_SRV_EVENT_ATTEMPT_OPENED, run_id, attempt->number,
                                  opened->job, err);
}

/* ---- its record in the store ---- */

enum cairn_code cairn_srv_attempt_unrecorded(struct cairn_srv_tx *tx,
                                             const struct cairn_run_name *name,
                                             enum cairn_srv_recorded state, bool *ret_found,
                                             int64_t *ret_run_id, struct cairn_attempt_record *ret,
                                             struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(attempt_unrecorded), SQL_T(name->project),
                                 SQL_T(name->run), SQL_I(state)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, ret_found, err));
    if (!*ret_found) return CAIRN_OK;
    *ret_run_id = cairn_srv_rows_i64(&rows, 0);
    ret->name = *name;
    ret->attempt = cairn_srv_rows_u64(&rows, 1);
    (void)cairn_text_copy(ret->nonce, sizeof(ret->nonce), cairn_srv_rows_text(&rows, 2));
    (void)cairn_text_copy(ret->job, sizeof(ret->job), cairn_srv_rows_text(&rows, 3));
    ret->world_size = (uint32_t)cairn_srv_rows_i64(&rows, 4);
    ret->joins = !strcmp(cairn_srv_rows_text(&rows, 8), CAIRN_SRV_RESUME_KEEP);
    ret->has_resume = !cairn_srv_rows_null(&rows, 5);
    (void)cairn_text_copy(ret->resume_version.text, sizeof(ret->resume_version.text),
                          cairn_srv_rows_text(&rows, 5));
    if (!(ret->weights = strdup(cairn_srv_rows_text(&rows, 7))))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a record");
    return read_ids(cairn_srv_rows_text(&rows, 6), ret, err);
}

enum cairn_code cairn_srv_attempt_set_recorded(struct cairn_srv_tx *tx, int64_t run_id,
                                               uint64_t number, enum cairn_srv_recorded state,
                                               struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(attempt_set_recorded), SQL_I(run_id), SQL_I(number),
                             SQL_I(state));
}

enum cairn_code cairn_srv_attempt_copy_missing(struct cairn_srv_tx *tx, bool *ret_found,
                                               struct cairn_run_name *ret,
                                               struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(attempt_copy_owed)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, ret_found, err));
    if (!*ret_found) return CAIRN_OK;
    (void)cairn_text_copy(ret->project, sizeof(ret->project), cairn_srv_rows_text(&rows, 0));
    (void)cairn_text_copy(ret->run, sizeof(ret->run), cairn_srv_rows_text(&rows, 1));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_attempt_newest_recorded(struct cairn_srv_tx *tx, bool *ret_found,
                                                  struct cairn_attempt_record *ret,
                                                  struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(attempt_newest_recorded)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, ret_found, err));
    if (!*ret_found) return CAIRN_OK;
    struct cairn_run_name *name = &ret->name;
    (void)cairn_text_copy(name->project, sizeof(name->project), cairn_srv_rows_text(&rows, 0));
    (void)cairn_text_copy(name->run, sizeof(name->run), cairn_srv_rows_text(&rows, 1));
    ret->attempt = cairn_srv_rows_u64(&rows, 2);
    (void)cairn_text_copy(ret->nonce, sizeof(ret->nonce), cairn_srv_rows_text(&rows, 3));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_attempt_take(struct cairn_srv_tx *tx, int64_t run_id,
                                       const struct cairn_attempt_record *record, int64_t wall_ms,
                                       struct cairn_error *err) {
    bool known = false;
    CAIRN_TRY(cairn_srv_sql_found(tx, &known, err, SQL(attempt_there), SQL_I(run_id),
                                  SQL_I(record->attempt), SQL_T(record->nonce)));
    if (known) return CAIRN_OK;
    CAIRN_AUTO_HEAP char *superseded = NULL;
    CAIRN_TRY(ids_text(record->superseded, record->superseded_count, &superseded, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(attempt_drop), SQL_I(run_id),
                                SQL_I(record->attempt), SQL_T(record->job)));
    CAIRN_TRY(
        cairn_srv_sql_run(tx, NULL, err, SQL(members_drop), SQL_I(run_id), SQL_I(record->attempt)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(attempt_take), SQL_I(run_id),
                             SQL_I(record->attempt), SQL_T(record->nonce), SQL_T(record->job),
                             SQL_I(record->world_size),
                             SQL_T(record->has_resume ? record->resume_version.text : NULL),
                             SQL_T(superseded), SQL_I(wall_ms),
                             SQL_T(record->weights ? record->weights : ""),
                             SQL_T(record->joins ? CAIRN_SRV_RESUME_KEEP : ""));
}
