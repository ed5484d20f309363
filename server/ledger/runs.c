/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of runs, of frozen_runs and of set_aside; see runs.h. */
#include "server/ledger/runs.h"

#include <inttypes.h>
#include <stdlib.h>

#include "server/ledger/events.h"

void srv_run_release(struct srv_run *run) {
    free(run->labels);
    free(run->note);
    run->labels = run->note = NULL;
}

enum cairn_code srv_run_get(struct srv_tx *tx, const struct cairn_run_name *name,
                            struct srv_run *ret, struct cairn_error *err) {
    SRV_AUTO(run) run = {.name = *name};
    bool found = false;
    CAIRN_TRY(srv_sql_row(tx, ROW(run), &run, &found, err, SQL(run_get), SQL_T(name->project),
                          SQL_T(name->run)));
    if (!found)
        return cairn_fail(err, CAIRN_NOT_FOUND, "there is no run %s/%s", name->project, name->run);
    *ret = run;
    run = (struct srv_run){0};
    return CAIRN_OK;
}

static enum cairn_code get_or_insert(struct srv_tx *tx, const struct cairn_run_name *name,
                                     const char *labels, int64_t wall_ms, struct srv_run *ret,
                                     bool *ret_made, struct cairn_error *err) {
    CAIRN_TRY(srv_sql_changed(tx, ret_made, err, SQL(run_insert), SQL_T(name->project),
                              SQL_T(name->run), SQL_T(labels ? labels : "{}"), SQL_I(wall_ms)));
    if (*ret_made) CAIRN_TRY(srv_event_of_name(tx, SRV_EVENT_RUN_CREATED, name, NULL, err));
    return srv_run_get(tx, name, ret, err);
}

enum cairn_code srv_run_make(struct srv_tx *tx, const struct cairn_run_name *name,
                             const char *labels, int64_t wall_ms, struct srv_run *ret,
                             bool *ret_made, struct cairn_error *err) {
    SRV_AUTO(run) run = {0};
    bool made = false;
    CAIRN_TRY(get_or_insert(tx, name, labels, wall_ms, &run, &made, err));
    if (ret_made) *ret_made = made || run.removed;
    if (run.removed) {
        CAIRN_TRY(srv_run_renew(tx, &run, labels, wall_ms, err));
        return srv_run_get(tx, name, ret, err);
    }
    *ret = run;
    run = (struct srv_run){0};
    return CAIRN_OK;
}

enum cairn_code srv_run_take(struct srv_tx *tx, const struct cairn_run_name *name, int64_t wall_ms,
                             struct srv_run *ret, struct cairn_error *err) {
    bool made = false;
    CAIRN_TRY(get_or_insert(tx, name, NULL, wall_ms, ret, &made, err));
    CAIRN_TRY(srv_run_revive(tx, ret, err));
    ret->removed = false;
    return CAIRN_OK;
}

/* Drops the old policy: "last 1" would trash new versions. */
static enum cairn_code drop_policy(struct srv_tx *tx, const struct cairn_run_name *name,
                                   struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(
        srv_sql_run(tx, &changed, err, SQL(policy_drop), SQL_T(name->project), SQL_T(name->run)));
    return changed ? srv_event_of_name(tx, SRV_EVENT_POLICY_REMOVED, name, "with its run", err)
                   : CAIRN_OK;
}

enum cairn_code srv_run_renew(struct srv_tx *tx, const struct srv_run *run, const char *labels,
                              int64_t wall_ms, struct cairn_error *err) {
    if (!run->removed) return CAIRN_OK;
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(run_renew), SQL_I(run->id),
                          SQL_T(labels ? labels : "{}"), SQL_I(wall_ms)));
    CAIRN_TRY(drop_policy(tx, &run->name, err));
    return srv_event_of_run(tx, SRV_EVENT_RUN_CREATED, run->id, 0, NULL, err);
}

enum cairn_code srv_run_revive(struct srv_tx *tx, const struct srv_run *run,
                               struct cairn_error *err) {
    if (!run->removed) return CAIRN_OK;
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(run_revive), SQL_I(run->id)));
    return srv_event_of_run(tx, SRV_EVENT_RUN_CREATED, run->id, 0, NULL, err);
}

enum cairn_code srv_run_hide(struct srv_tx *tx, int64_t run_id, struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(run_hide), SQL_I(run_id)));
    return srv_event_of_run(tx, SRV_EVENT_RUN_REMOVED, run_id, 0, NULL, err);
}

enum cairn_code srv_run_held(struct srv_tx *tx, int64_t run_id, struct cairn_version_id *ret,
                             uint64_t *ret_step, struct cairn_error *err) {
    bool found = false;
    SQL_FIRST(rows, &found, tx, err, SQL(run_held), SQL_I(run_id), SQL_I(srv_tick(tx)));
    (void)cairn_text_copy(ret->text, sizeof(ret->text), found ? srv_rows_text(&rows, 0) : "");
    *ret_step = found ? srv_rows_u64(&rows, 1) : 0;
    return CAIRN_OK;
}

enum cairn_code srv_run_remove(struct srv_tx *tx, const struct srv_run *run,
                               struct cairn_error *err) {
    bool needed = false;
    CAIRN_TRY(srv_sql_found(tx, &needed, err, SQL(run_needed), SQL_I(run->id)));
    if (needed)
        return cairn_fail(err, CAIRN_IN_USE,
                          "%s/%s has versions, or some that went less than 48 h ago: delete them, "
                          "and wait until they are gone for good",
                          run->name.project, run->name.run);
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(run_drop_ranks), SQL_I(run->id)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(run_remove), SQL_I(run->id)));
    CAIRN_TRY(drop_policy(tx, &run->name, err));
    return srv_event_of_run(tx, SRV_EVENT_RUN_REMOVED, run->id, 0, NULL, err);
}

/* attempts.h#6: only the attempt's number is known. */
static enum cairn_code refuse_forgotten(struct srv_tx *tx, const struct srv_run *run,
                                        struct cairn_error *err) {
    bool known = false;
    CAIRN_TRY(srv_sql_found(tx, &known, err, SQL(attempt_there), SQL_I(run->id),
                            SQL_I(run->attempt), SQL_T(run->nonce)));
    if (known) return CAIRN_OK;
    return cairn_fail(err, CAIRN_STALE_ATTEMPT,
                      "%s/%s was removed, and its attempt %" PRIu64 " is forgotten: open another",
                      run->name.project, run->name.run, run->attempt);
}

enum cairn_code srv_admit(struct srv_tx *tx, const struct cairn_grant *grant, struct srv_run *ret,
                          struct cairn_error *err) {
    SRV_GET(run, run, srv_run_get(tx, &grant->name, &run, err));
    if (grant->attempt < run.attempt)
        return cairn_fail(err, CAIRN_STALE_ATTEMPT,
                          "attempt %" PRIu64 " of %s/%s is over: attempt %" PRIu64 " is the newest",
                          grant->attempt, run.name.project, run.name.run, run.attempt);
    if (grant->attempt > run.attempt || strcmp(grant->nonce, run.nonce))
        return cairn_fail(err, CAIRN_CATALOG_BEHIND,
                          "a grant of attempt %" PRIu64
                          " of %s/%s is not of this catalog, which is "
                          "at attempt %" PRIu64,
                          grant->attempt, run.name.project, run.name.run, run.attempt);
    if (run.removed) CAIRN_TRY(refuse_forgotten(tx, &run, err));
    *ret = run;
    run = (struct srv_run){0};
    return CAIRN_OK;
}

enum cairn_code srv_run_set_labels(struct srv_tx *tx, int64_t run_id, const char *labels,
                                   struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(run_set_labels), SQL_I(run_id), SQL_T(labels)));
    return srv_event_of_run(tx, SRV_EVENT_RUN_ANNOTATED, run_id, 0, NULL, err);
}

enum cairn_code srv_run_annotate(struct srv_tx *tx, int64_t run_id, const char *labels,
                                 const char *note, struct cairn_error *err) {
    CAIRN_TRY(
        srv_sql_run(tx, NULL, err, SQL(run_annotate), SQL_I(run_id), SQL_T(labels), SQL_T(note)));
    return srv_event_of_run(tx, SRV_EVENT_RUN_ANNOTATED, run_id, 0, NULL, err);
}

enum cairn_code srv_run_totals(struct srv_tx *tx, int64_t run_id, uint64_t *ret_versions,
                               uint64_t *ret_bytes, struct cairn_error *err) {
    bool more = false;
    SQL_FIRST(rows, &more, tx, err, SQL(run_totals), SQL_I(run_id));
    CAIRN_ASSERT(more); /* sums always have a row */
    *ret_versions = srv_rows_u64(&rows, 0);
    *ret_bytes = srv_rows_u64(&rows, 1);
    return CAIRN_OK;
}

enum cairn_code srv_run_opened(struct srv_tx *tx, int64_t run_id, uint64_t attempt, int64_t *ret_ms,
                               bool *ret_saving, struct cairn_error *err) {
    bool more = false;
    SQL_FIRST(rows, &more, tx, err, SQL(run_opened), SQL_I(run_id), SQL_I(attempt));
    CAIRN_ASSERT(more); /* a SELECT without FROM has one row */
    *ret_ms = srv_rows_i64(&rows, 0);
    *ret_saving = srv_rows_i64(&rows, 1) != 0;
    return CAIRN_OK;
}

enum cairn_code srv_runs_page(struct srv_tx *tx, const char *project,
                              const struct cairn_run_name *after, size_t limit,
                              struct srv_run_names *ret, struct cairn_error *err) {
    SRV_AUTO(rows) rows = {0};
    CAIRN_TRY(project[0] ? srv_sql_open(tx, &rows, err, SQL(runs_page_of_project), SQL_T(project),
                                        SQL_T(after->run), SQL_I(limit))
                         : srv_sql_open(tx, &rows, err, SQL(runs_page), SQL_T(after->project),
                                        SQL_T(after->run), SQL_I(limit)));
    return srv_run_names_read(&rows, limit, ret, err);
}

/* ---- frozen runs, and objects that a reconcile has set aside ---- */

enum cairn_code srv_frozen_put(struct srv_tx *tx, int64_t run_id, const char *cause,
                               int64_t wall_ms, bool asked, bool *ret_made,
                               struct cairn_error *err) {
    CAIRN_TRY(srv_sql_changed(tx, ret_made, err, SQL(frozen_insert), SQL_I(run_id), SQL_T(cause),
                              SQL_I(wall_ms), SQL_I(asked)));
    if (!*ret_made) return CAIRN_OK;
    return srv_event_of_run(tx, SRV_EVENT_RUN_FROZEN, run_id, 0, cause, err);
}

enum cairn_code srv_frozen_cause(struct srv_tx *tx, const struct cairn_run_name *name,
                                 bool *ret_frozen, char ret[SRV_CAUSE_BYTES],
                                 struct cairn_error *err) {
    SQL_FIRST(rows, ret_frozen, tx, err, SQL(frozen_cause_of_run), SQL_T(name->project),
              SQL_T(name->run));
    if (*ret_frozen) (void)cairn_text_copy(ret, SRV_CAUSE_BYTES, srv_rows_text(&rows, 0));
    return CAIRN_OK;
}

enum cairn_code srv_tx_run_thawed(struct srv_tx *tx, int64_t run_id, struct cairn_error *err) {
    bool frozen = false;
    CAIRN_TRY(srv_sql_found(tx, &frozen, err, SQL(frozen_is), SQL_I(run_id)));
    if (!frozen) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CATALOG_BEHIND, "the run is frozen until it is reconciled");
}

enum cairn_code srv_frozen_first(struct srv_tx *tx, bool *ret_found, struct cairn_run_name *ret,
                                 char ret_cause[SRV_CAUSE_BYTES], struct cairn_error *err) {
    SQL_FIRST(rows, ret_found, tx, err, SQL(frozen_first));
    if (!*ret_found) return CAIRN_OK;
    srv_rows_name(&rows, 0, ret);
    (void)cairn_text_copy(ret_cause, SRV_CAUSE_BYTES, srv_rows_text(&rows, 2));
    return CAIRN_OK;
}

enum cairn_code srv_frozen_request(struct srv_tx *tx, int64_t run_id, bool *ret_frozen,
                                   char ret_cause[SRV_CAUSE_BYTES], char ret_note[SRV_CAUSE_BYTES],
                                   struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(srv_sql_run(tx, &changed, err, SQL(frozen_mark), SQL_I(run_id)));
    if (changed) CAIRN_TRY(srv_event_of_run(tx, SRV_EVENT_RUN_RECONCILING, run_id, 0, NULL, err));
    SQL_FIRST(rows, ret_frozen, tx, err, SQL(frozen_note), SQL_I(run_id));
    if (!*ret_frozen) return CAIRN_OK;
    (void)cairn_text_copy(ret_cause, SRV_CAUSE_BYTES, srv_rows_text(&rows, 0));
    (void)cairn_text_copy(ret_note, SRV_CAUSE_BYTES, srv_rows_text(&rows, 1));
    return CAIRN_OK;
}

enum cairn_code srv_frozen_drop(struct srv_tx *tx, int64_t run_id, struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(frozen_drop), SQL_I(run_id)));
    return srv_event_of_run(tx, SRV_EVENT_RUN_RECONCILED, run_id, 0, NULL, err);
}

enum cairn_code srv_frozen_requests(struct srv_tx *tx,
                                    struct srv_reconcile_request ret[SRV_RECONCILES_MAX],
                                    size_t *ret_count, struct cairn_error *err) {
    *ret_count = 0;
    SQL_OPEN(rows, tx, err, SQL(frozen_marked));
    SQL_EACH(&rows, err) {
        if (*ret_count == SRV_RECONCILES_MAX) break;
        (void)srv_rows_take(&rows, 0, ROW(reconcile), &ret[(*ret_count)++]);
    }
    return CAIRN_OK;
}
