/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of runs, of frozen_runs and of set_aside; see runs.h. */
#include "server/ledger/runs.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/text.h"
#include "server/db/sql.h"
#include "server/ledger/events.h"

void cairn_srv_run_release(struct cairn_srv_run *run) {
    free(run->labels);
    free(run->note);
    run->labels = run->note = NULL;
}

enum cairn_code cairn_srv_run_get(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                  struct cairn_srv_run *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &more, err, SQL(run_get), SQL_T(name->project),
                                  SQL_T(name->run)));
    if (!more)
        return cairn_fail(err, CAIRN_NOT_FOUND, "there is no run %s/%s", name->project, name->run);
    struct cairn_srv_run run = {.id = cairn_srv_rows_i64(&rows, 0),
                                .name = *name,
                                .attempt = cairn_srv_rows_u64(&rows, 1),
                                .created_ms = cairn_srv_rows_i64(&rows, 3),
                                .removed = cairn_srv_rows_i64(&rows, 5) != 0,
                                .unmarked = cairn_srv_rows_i64(&rows, 6) != 0};
    SQL_COPY(run.nonce, &rows, 2);
    run.labels = strdup(cairn_srv_rows_text(&rows, 4));
    run.note = strdup(cairn_srv_rows_text(&rows, 7));
    if (!run.labels || !run.note) {
        cairn_srv_run_release(&run);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a run");
    }
    *ret = run;
    return CAIRN_OK;
}

static enum cairn_code get_or_insert(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                     const char *labels, int64_t wall_ms, struct cairn_srv_run *ret,
                                     bool *ret_made, struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(run_insert), SQL_T(name->project),
                                SQL_T(name->run), SQL_T(labels ? labels : "{}"), SQL_I(wall_ms)));
    *ret_made = changed > 0;
    if (changed)
        CAIRN_TRY(cairn_srv_event_of_name(tx, CAIRN_SRV_EVENT_RUN_CREATED, name, NULL, err));
    return cairn_srv_run_get(tx, name, ret, err);
}

enum cairn_code cairn_srv_run_make(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                   const char *labels, int64_t wall_ms, struct cairn_srv_run *ret,
                                   bool *ret_made, struct cairn_error *err) {
    CAIRN_AUTO(srv_run) run = {0};
    bool made = false;
    CAIRN_TRY(get_or_insert(tx, name, labels, wall_ms, &run, &made, err));
    if (ret_made) *ret_made = made || run.removed;
    if (run.removed) {
        CAIRN_TRY(cairn_srv_run_renew(tx, &run, labels, wall_ms, err));
        return cairn_srv_run_get(tx, name, ret, err);
    }
    *ret = run;
    run = (struct cairn_srv_run){0};
    return CAIRN_OK;
}

enum cairn_code cairn_srv_run_take(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                   int64_t wall_ms, struct cairn_srv_run *ret,
                                   struct cairn_error *err) {
    bool made = false;
    CAIRN_TRY(get_or_insert(tx, name, NULL, wall_ms, ret, &made, err));
    CAIRN_TRY(cairn_srv_run_revive(tx, ret, err));
    ret->removed = false;
    return CAIRN_OK;
}

/* Drops the old policy: "last 1" would trash new versions. */
static enum cairn_code drop_policy(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                   struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(policy_drop), SQL_T(name->project),
                                SQL_T(name->run)));
    return changed ? cairn_srv_event_of_name(tx, CAIRN_SRV_EVENT_POLICY_REMOVED, name,
                                             "with its run", err)
                   : CAIRN_OK;
}

enum cairn_code cairn_srv_run_renew(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                    const char *labels, int64_t wall_ms, struct cairn_error *err) {
    if (!run->removed) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(run_renew), SQL_I(run->id),
                                SQL_T(labels ? labels : "{}"), SQL_I(wall_ms)));
    CAIRN_TRY(drop_policy(tx, &run->name, err));
    return cairn_srv_event_of_run(tx, CAIRN_SRV_EVENT_RUN_CREATED, run->id, 0, NULL, err);
}

enum cairn_code cairn_srv_run_revive(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                     struct cairn_error *err) {
    if (!run->removed) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(run_revive), SQL_I(run->id)));
    return cairn_srv_event_of_run(tx, CAIRN_SRV_EVENT_RUN_CREATED, run->id, 0, NULL, err);
}

enum cairn_code cairn_srv_run_hide(struct cairn_srv_tx *tx, int64_t run_id,
                                   struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(run_hide), SQL_I(run_id)));
    return cairn_srv_event_of_run(tx, CAIRN_SRV_EVENT_RUN_REMOVED, run_id, 0, NULL, err);
}

enum cairn_code cairn_srv_run_held(struct cairn_srv_tx *tx, int64_t run_id,
                                   struct cairn_version_id *ret, uint64_t *ret_step,
                                   struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &found, err, SQL(run_held), SQL_I(run_id),
                                  SQL_I(cairn_srv_tick(tx))));
    (void)cairn_text_copy(ret->text, sizeof(ret->text), found ? cairn_srv_rows_text(&rows, 0) : "");
    *ret_step = found ? cairn_srv_rows_u64(&rows, 1) : 0;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_run_remove(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                     struct cairn_error *err) {
    bool needed = false;
    CAIRN_TRY(cairn_srv_sql_found(tx, &needed, err, SQL(run_needed), SQL_I(run->id)));
    if (needed)
        return cairn_fail(err, CAIRN_IN_USE,
                          "%s/%s has versions, or some that went less than 48 h ago: delete them, "
                          "and wait until they are gone for good",
                          run->name.project, run->name.run);
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(run_drop_ranks), SQL_I(run->id)));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(run_remove), SQL_I(run->id)));
    CAIRN_TRY(drop_policy(tx, &run->name, err));
    return cairn_srv_event_of_run(tx, CAIRN_SRV_EVENT_RUN_REMOVED, run->id, 0, NULL, err);
}

/* attempts.h#6: only the attempt's number is known. */
static enum cairn_code refuse_forgotten(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                        struct cairn_error *err) {
    bool known = false;
    CAIRN_TRY(cairn_srv_sql_found(tx, &known, err, SQL(attempt_there), SQL_I(run->id),
                                  SQL_I(run->attempt), SQL_T(run->nonce)));
    if (known) return CAIRN_OK;
    return cairn_fail(err, CAIRN_STALE_ATTEMPT,
                      "%s/%s was removed, and its attempt %" PRIu64 " is forgotten: open another",
                      run->name.project, run->name.run, run->attempt);
}

enum cairn_code cairn_srv_admit(struct cairn_srv_tx *tx, const struct cairn_grant *grant,
                                struct cairn_srv_run *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, &grant->name, &run, err));
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
    run = (struct cairn_srv_run){0};
    return CAIRN_OK;
}

enum cairn_code cairn_srv_run_set_attempt(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                          const char *nonce, struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(run_set_attempt), SQL_I(run_id),
                                SQL_I(attempt), SQL_T(nonce)));
    CAIRN_ASSERT(changed == 1);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_run_set_labels(struct cairn_srv_tx *tx, int64_t run_id,
                                         const char *labels, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(run_set_labels), SQL_I(run_id), SQL_T(labels)));
    return cairn_srv_event_of_run(tx, CAIRN_SRV_EVENT_RUN_ANNOTATED, run_id, 0, NULL, err);
}

enum cairn_code cairn_srv_run_annotate(struct cairn_srv_tx *tx, int64_t run_id, const char *labels,
                                       const char *note, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(run_annotate), SQL_I(run_id), SQL_T(labels),
                                SQL_T(note)));
    return cairn_srv_event_of_run(tx, CAIRN_SRV_EVENT_RUN_ANNOTATED, run_id, 0, NULL, err);
}

enum cairn_code cairn_srv_run_totals(struct cairn_srv_tx *tx, int64_t run_id,
                                     uint64_t *ret_versions, uint64_t *ret_bytes,
                                     struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &more, err, SQL(run_totals), SQL_I(run_id)));
    CAIRN_ASSERT(more); /* sums always have a row */
    *ret_versions = cairn_srv_rows_u64(&rows, 0);
    *ret_bytes = cairn_srv_rows_u64(&rows, 1);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_run_removal(struct cairn_srv_tx *tx, int64_t run_id,
                                      struct cairn_srv_run_removal *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &more, err, SQL(run_removal), SQL_I(run_id)));
    CAIRN_ASSERT(more);
    *ret = (struct cairn_srv_run_removal){.versions = cairn_srv_rows_u64(&rows, 0),
                                          .bytes = cairn_srv_rows_u64(&rows, 1),
                                          .open = cairn_srv_rows_u64(&rows, 2)};
    return CAIRN_OK;
}

enum cairn_code cairn_srv_run_opened(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                     int64_t *ret_ms, bool *ret_saving, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(
        cairn_srv_sql_first(tx, &rows, &more, err, SQL(run_opened), SQL_I(run_id), SQL_I(attempt)));
    CAIRN_ASSERT(more); /* a SELECT without FROM has one row */
    *ret_ms = cairn_srv_rows_i64(&rows, 0);
    *ret_saving = cairn_srv_rows_i64(&rows, 1) != 0;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_runs_page(struct cairn_srv_tx *tx, const char *project,
                                    const struct cairn_run_name *after, size_t limit,
                                    struct cairn_srv_run_names *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(project[0] ? cairn_srv_sql_open(tx, &rows, err, SQL(runs_page_of_project),
                                              SQL_T(project), SQL_T(after->run), SQL_I(limit))
                         : cairn_srv_sql_open(tx, &rows, err, SQL(runs_page), SQL_T(after->project),
                                              SQL_T(after->run), SQL_I(limit)));
    return cairn_srv_run_names_read(&rows, limit, ret, err);
}

enum cairn_code cairn_srv_runs_all(struct cairn_srv_tx *tx, struct cairn_srv_run_names *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(runs_names)));
    return cairn_srv_run_names_read(&rows, CAIRN_SRV_ALL, ret, err);
}

enum cairn_code cairn_srv_runs_last_commits(
    struct cairn_srv_tx *tx, size_t limit,
    enum cairn_code (*each)(void *argument, const char *project, const char *run,
                            int64_t committed_ms, struct cairn_error *err),
    void *argument, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(runs_last_commits), SQL_I(limit)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more || !cairn_srv_rows_i64(&rows, 2)) return CAIRN_OK;
        CAIRN_TRY(each(argument, cairn_srv_rows_text(&rows, 0), cairn_srv_rows_text(&rows, 1),
                       cairn_srv_rows_i64(&rows, 2), err));
    }
}

enum cairn_code cairn_srv_runs_count(struct cairn_srv_tx *tx, uint64_t *ret,
                                     struct cairn_error *err) {
    bool found = false;
    int64_t count = 0;
    CAIRN_TRY(cairn_srv_sql_number(tx, &found, &count, err, SQL(runs_count)));
    *ret = (uint64_t)count;
    return CAIRN_OK;
}

/* ---- frozen runs, and objects that a reconcile has set aside ---- */

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
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, ret_frozen, err, SQL(frozen_cause_of_run),
                                  SQL_T(name->project), SQL_T(name->run)));
    if (*ret_frozen)
        (void)cairn_text_copy(ret, CAIRN_SRV_CAUSE_BYTES, cairn_srv_rows_text(&rows, 0));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_frozen_ends(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                      bool *ret_ends, uint64_t *ret_due_tick,
                                      struct cairn_error *err) {
    int64_t due = 0;
    CAIRN_TRY(cairn_srv_sql_number(tx, ret_ends, &due, err, SQL(frozen_ends), SQL_T(name->project),
                                   SQL_T(name->run)));
    *ret_due_tick = *ret_ends ? (uint64_t)due : 0;
    return CAIRN_OK;
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
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, ret_found, err, SQL(frozen_first)));
    if (!*ret_found) return CAIRN_OK;
    cairn_srv_rows_name(&rows, 0, ret);
    (void)cairn_text_copy(ret_cause, CAIRN_SRV_CAUSE_BYTES, cairn_srv_rows_text(&rows, 2));
    return CAIRN_OK;
}

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
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, ret_frozen, err, SQL(frozen_note), SQL_I(run_id)));
    if (!*ret_frozen) return CAIRN_OK;
    (void)cairn_text_copy(ret_cause, CAIRN_SRV_CAUSE_BYTES, cairn_srv_rows_text(&rows, 0));
    (void)cairn_text_copy(ret_note, CAIRN_SRV_CAUSE_BYTES, cairn_srv_rows_text(&rows, 1));
    return CAIRN_OK;
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
        cairn_srv_rows_name(&rows, 0, name);
        one->run_id = cairn_srv_rows_i64(&rows, 2);
        one->due_tick = cairn_srv_rows_u64(&rows, 3);
    }
    return CAIRN_OK;
}
