/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of versions and their common rules; see versions.h. */
#include "server/ledger/versions.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/manifest.h"
#include "api/wire/messages.h"
#include "common/clock.h"
#include "server/ledger/events.h"
#include "server/ledger/policies.h"

void srv_version_release(struct srv_version *version) {
    free(version->labels);
    free(version->meta);
    free(version->warnings);
    free(version->metrics);
    free(version->note);
    version->labels = version->meta = version->warnings = version->metrics = version->note = NULL;
}

enum cairn_code srv_version_copy(const struct srv_version *version, struct srv_version *ret,
                                 struct cairn_error *err) {
    struct srv_version copy = *version;
    copy.labels = strdup(version->labels);
    copy.meta = strdup(version->meta);
    copy.warnings = strdup(version->warnings);
    copy.metrics = strdup(version->metrics);
    copy.note = strdup(version->note);
    if (!copy.labels || !copy.meta || !copy.warnings || !copy.metrics || !copy.note) {
        srv_version_release(&copy);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a version");
    }
    *ret = copy;
    return CAIRN_OK;
}

enum cairn_code srv_version_row(const struct srv_rows *rows, struct srv_version *ret,
                                struct cairn_error *err) {
    struct srv_version version = {0};
    if (!srv_rows_take(rows, 0, ROW(version), &version)) {
        srv_version_release(&version);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a version");
    }
    *ret = version;
    return CAIRN_OK;
}

/* The first row of an opened query. */
static enum cairn_code only_row(struct srv_rows *rows, bool *ret_found, struct srv_version *ret,
                                struct cairn_error *err) {
    CAIRN_TRY(srv_rows_next(rows, ret_found, err));
    return *ret_found ? srv_version_row(rows, ret, err) : CAIRN_OK;
}

enum cairn_code srv_version_get(struct srv_tx *tx, const char *id, struct srv_version *ret,
                                struct cairn_error *err) {
    SQL_OPEN(rows, tx, err, SQL(version_get), SQL_T(id));
    bool found = false;
    CAIRN_TRY(only_row(&rows, &found, ret, err));
    if (!found) return cairn_fail(err, CAIRN_NOT_FOUND, "there is no version %s", id);
    return CAIRN_OK;
}

enum cairn_code srv_version_look(struct srv_catalog *catalog, const char *id,
                                 struct srv_version *ret, struct cairn_error *err) {
    srv_version_release(ret);
    SRV_LOOK(look, catalog, err);
    return srv_version_get(look.tx, id, ret, err);
}

enum cairn_code srv_latest(struct srv_tx *tx, int64_t run_id, bool *ret_found,
                           struct cairn_version_id *ret, uint64_t *ret_step,
                           struct cairn_error *err) {
    SQL_FIRST(rows, ret_found, tx, err, SQL(version_latest), SQL_I(run_id));
    if (!*ret_found) return CAIRN_OK;
    SQL_COPY(ret->text, &rows, 0);
    *ret_step = srv_rows_u64(&rows, 1);
    return CAIRN_OK;
}

enum cairn_code srv_version_find_given_up(struct srv_tx *tx, const struct srv_ref *ref,
                                          struct srv_version *ret, struct cairn_error *err) {
    SRV_AUTO(rows) rows = {0};
    uint64_t step = 0;
    bool found = false;
    SRV_GET(run, run, srv_run_get(tx, ref->name, &run, err));
    if (!cairn_parse_u64(cairn_view_of(ref->text), &step, NULL) && step <= CAIRN_STEP_MAX) {
        CAIRN_TRY(srv_sql_open(tx, &rows, err, SQL(version_of_step_given_up), SQL_I(run.id),
                               SQL_I(step)));
        CAIRN_TRY(only_row(&rows, &found, ret, err));
    }
    return found ? CAIRN_OK
                 : cairn_fail(err, CAIRN_NOT_FOUND, "run %s/%s has no checkpoint %s",
                              run.name.project, run.name.run, ref->text);
}

/* The best by the policy's first metric; "": none. CAIRN_NOT_FOUND: no policy names a metric. */
static enum cairn_code find_best(struct srv_tx *tx, int64_t run_id,
                                 const struct cairn_policy *policy, struct cairn_version_id *ret,
                                 struct cairn_error *err) {
    if (!policy->best_count)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "no retention policy of this run says by which metric a checkpoint is "
                          "the best (keep.best)");
    const struct cairn_policy_best *best = &policy->best[0];
    return srv_sql_text(tx, SQL_INTO(ret->text), err,
                        best->largest ? SQL(metric_largest) : SQL(metric_smallest), SQL_I(run_id),
                        SQL_T(best->metric));
}

/* Resolves `best` or an alias. */
static enum cairn_code find_word(struct srv_tx *tx, const struct srv_run *run, const char *word,
                                 struct cairn_version_id *ret, struct cairn_error *err) {
    struct cairn_policy policy;
    enum srv_scope scope;
    if (strcmp(word, "best") != 0) return srv_alias_get(tx, run->id, word, ret, err);
    CAIRN_TRY(srv_policy_get(tx, &run->name, &policy, &scope, err));
    return find_best(tx, run->id, &policy, ret, err);
}

/* Ids are unique over all runs; reads the run only if the version is another's. */
static enum cairn_code find_id(struct srv_tx *tx, const struct srv_ref *ref, bool *ret_found,
                               struct srv_version *ret, struct cairn_error *err) {
    SRV_AUTO(version) version = {0};
    *ret_found = false;
    if (!cairn_version_id_valid(cairn_view_of(ref->text))) return CAIRN_OK;
    enum cairn_code code = srv_version_get(tx, ref->text, &version, err);
    if (code) return code == CAIRN_NOT_FOUND ? CAIRN_OK : code;
    *ret_found = !strcmp(version.name.project, ref->name->project) &&
                 !strcmp(version.name.run, ref->name->run);
    if (!*ret_found) return CAIRN_OK;
    *ret = version;
    version = (struct srv_version){0};
    return CAIRN_OK;
}

enum cairn_code srv_version_find(struct srv_tx *tx, const struct srv_ref *ref,
                                 struct srv_version *ret, struct cairn_error *err) {
    SRV_AUTO(version) version = {0};
    bool by_id = false;
    CAIRN_TRY(find_id(tx, ref, &by_id, ret, err));
    if (by_id) return CAIRN_OK;
    SRV_GET(run, run, srv_run_get(tx, ref->name, &run, err));
    bool found = false;
    uint64_t step = 0;
    if (!strcmp(ref->text, "latest")) {
        struct cairn_version_id id;
        CAIRN_TRY(srv_latest(tx, run.id, &found, &id, &step, err));
        if (found) CAIRN_TRY(srv_version_get(tx, id.text, &version, err));
    } else if (cairn_version_id_valid(cairn_view_of(ref->text))) {
        CAIRN_TRY(srv_version_get(tx, ref->text, &version, err));
        found = version.run_id == run.id;
    } else if (!cairn_parse_u64(cairn_view_of(ref->text), &step, NULL) && step <= CAIRN_STEP_MAX) {
        /* the step's shown version, else its newest open one, else (with_trash) a trashed one */
        SQL_OPEN(rows, tx, err, SQL(version_of_step), SQL_I(run.id), SQL_I(step),
                 SQL_I(ref->with_trash));
        CAIRN_TRY(only_row(&rows, &found, &version, err));
    } else {
        struct cairn_version_id id;
        CAIRN_TRY(find_word(tx, &run, ref->text, &id, err));
        found = id.text[0];
        if (found) CAIRN_TRY(srv_version_get(tx, id.text, &version, err));
    }
    if (!found)
        return cairn_fail(err, CAIRN_NOT_FOUND, "run %s/%s has no checkpoint %s", run.name.project,
                          run.name.run, ref->text);
    *ret = version;
    version = (struct srv_version){0};
    return CAIRN_OK;
}

enum cairn_code srv_version_insert(struct srv_tx *tx, const struct srv_version_new *opened,
                                   struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(version_insert), SQL_T(opened->id.text),
                          SQL_I(opened->run->id), SQL_I(opened->run->attempt), SQL_I(opened->step),
                          SQL_I(opened->n), SQL_T(opened->run->nonce), SQL_I(opened->world_size),
                          SQL_I(opened->on_exists), SQL_I(opened->skip), SQL_T(opened->format),
                          SQL_I(opened->wall_ms), SQL_I(srv_tick(tx))));
    CAIRN_TRY(srv_usage_enter(tx, opened->id.text, err));
    if (opened->buried) return CAIRN_OK;
    return srv_event_of_version(tx, SRV_EVENT_CHECKPOINT_OPENED, opened->id.text, CAIRN_OK, NULL,
                                err);
}

/* Names of the changed annotations: "labels, metrics". */
static void changed_text(const struct srv_version *was, const struct srv_annotations *is, char *ret,
                         size_t capacity) {
    const char *const words[] = {
        strcmp(was->labels, is->labels) != 0 ? "labels" : NULL,
        strcmp(was->metrics, is->metrics) != 0 ? "metrics" : NULL,
        strcmp(was->note, is->note) != 0 ? "note" : NULL,
        was->pinned == is->pinned ? NULL
        : is->pinned              ? "pinned"
                                  : "unpinned",
    };
    size_t used = 0;
    *ret = '\0';
    for (size_t i = 0; i < CAIRN_COUNT(words); i++)
        if (words[i])
            used +=
                (size_t)snprintf(ret + used, capacity - used, "%s%s", used ? ", " : "", words[i]);
}

enum cairn_code srv_version_annotate(struct srv_tx *tx, const struct srv_version *version,
                                     const struct srv_annotations *said, struct cairn_error *err) {
    CAIRN_ASSERT(version->state == CAIRN_STATE_COMMITTED ||
                 !strcmp(version->labels, said->labels)); /* Q22 */
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(version_annotate), SQL_T(version->id.text),
                          SQL_T(said->labels), SQL_T(said->metrics), SQL_T(said->note),
                          SQL_I(said->pinned)));
    char what[64];
    changed_text(version, said, what, sizeof(what));
    return srv_event_of_version(tx, SRV_EVENT_CHECKPOINT_ANNOTATED, version->id.text, CAIRN_OK,
                                what, err);
}

/* Q24: the commit's event is written when the version is recorded. */
static enum cairn_code note_move(struct srv_tx *tx, const struct srv_version *version,
                                 enum cairn_event event, struct cairn_error *err) {
    static const enum srv_event event_of[] = {
        [CAIRN_EVENT_GIVE_UP] = SRV_EVENT_CHECKPOINT_ABORTED,
        [CAIRN_EVENT_DELETE] = SRV_EVENT_CHECKPOINT_DELETING,
        [CAIRN_EVENT_SWEPT] = SRV_EVENT_CHECKPOINT_GONE,
        [CAIRN_EVENT_TAKE_OVER] = SRV_EVENT_CHECKPOINT_FOUND,
    };
    bool gives_up = event == CAIRN_EVENT_GIVE_UP;
    if (event == CAIRN_EVENT_COMMIT) return CAIRN_OK;
    return srv_event_of_version(tx, event_of[event], version->id.text,
                                gives_up ? version->code : CAIRN_OK,
                                gives_up ? version->reason : NULL, err);
}

enum cairn_code srv_version_move(struct srv_tx *tx, struct srv_version *version,
                                 const struct srv_move *move, struct cairn_error *err) {
    enum cairn_state next;
    bool listed = cairn_state_after(version->state, move->event, &next);
    CAIRN_ASSERT(listed);
    if (move->event == CAIRN_EVENT_GIVE_UP) {
        version->code = move->code;
        (void)cairn_text_copy(version->reason, sizeof(version->reason), move->reason);
    }
    version->state = next;
    srv_notify_version(tx, &version->id, &version->name);
    CAIRN_TRY(srv_usage_leave(tx, version->id.text, err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(version_move), SQL_T(version->id.text), SQL_I(next),
                          SQL_I(version->code), SQL_T(version->reason[0] ? version->reason : NULL),
                          SQL_I(version->http_status), SQL_T(version->request_id)));
    CAIRN_TRY(srv_usage_enter(tx, version->id.text, err));
    return note_move(tx, version, move->event, err);
}

enum cairn_code srv_version_set_committed(struct srv_tx *tx, const struct srv_version *version,
                                          const char *warnings, struct cairn_error *err) {
    CAIRN_ASSERT(version->state == CAIRN_STATE_COMMITTED);
    CAIRN_TRY(srv_usage_leave(tx, version->id.text, err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(version_set_committed), SQL_T(version->id.text),
                          SQL_I(version->bytes), SQL_I(version->shards),
                          SQL_D(version->manifest_sha256), SQL_I(version->committed_ms),
                          SQL_T(warnings)));
    return srv_usage_enter(tx, version->id.text, err);
}

enum cairn_code srv_version_take(struct srv_tx *tx, const struct srv_version_taken *taken,
                                 struct cairn_error *err) {
    const struct cairn_manifest *manifest = taken->manifest;
    const char *id = taken->id->text;
    CAIRN_ASSERT(taken->committed_ms);       /* 0 means never committed */
    CAIRN_TRY(srv_usage_leave(tx, id, err)); /* the row may exist already */
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(version_take), SQL_T(id), SQL_I(taken->run_id),
                          SQL_I(manifest->origin.attempt), SQL_I(manifest->origin.step),
                          SQL_I(manifest->origin.n), SQL_T(manifest->origin.nonce),
                          SQL_I(manifest->world_size), SQL_T(manifest->format_tag),
                          SQL_T(manifest->labels_json), SQL_T(manifest->meta_json),
                          SQL_I(taken->committed_ms), SQL_I(srv_tick(tx)), SQL_I(taken->line)));
    CAIRN_TRY(srv_usage_enter(tx, id, err));
    SRV_GET(version, version, srv_version_get(tx, id, &version, err));
    struct srv_move move = {.event = CAIRN_EVENT_TAKE_OVER};
    CAIRN_TRY(srv_version_move(tx, &version, &move, err));
    struct cairn_view layout = {manifest->has_layout ? manifest->layout_digest : NULL, 32};
    CAIRN_TRY(srv_usage_leave(tx, id, err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(version_set_taken), SQL_T(id),
                          SQL_I(manifest->total_bytes), SQL_I(manifest->shard_count), SQL_B(layout),
                          SQL_T(manifest->has_layout ? manifest->layout_writer.text : NULL),
                          SQL_D(taken->manifest_sha256), SQL_I(taken->committed_ms)));
    return srv_usage_enter(tx, id, err);
}

enum cairn_code srv_version_settle_missing(struct srv_tx *tx, const char *id, bool gone,
                                           struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(version_settle_missing), SQL_T(id), SQL_I(gone),
                          SQL_I(srv_tick(tx))));
    return srv_event_of_version(
        tx, SRV_EVENT_CHECKPOINT_LOST, id, CAIRN_OK,
        gone ? "nothing of it is in the store" : "its record is not in the store", err);
}

enum cairn_code srv_version_follow_mark(struct srv_tx *tx, const char *id, bool trashed,
                                        struct cairn_error *err) {
    bool differs = false;
    CAIRN_TRY(
        srv_sql_found(tx, &differs, err, SQL(version_mark_differs), SQL_T(id), SQL_I(trashed)));
    if (!differs) return CAIRN_OK;
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(version_follow_mark), SQL_T(id), SQL_I(trashed),
                          SQL_I(srv_tick(tx))));
    return srv_event_of_version(
        tx, trashed ? SRV_EVENT_CHECKPOINT_TRASHED : SRV_EVENT_CHECKPOINT_UNDELETED, id, CAIRN_OK,
        "the mark in the store says so", err);
}

/* ---- conditions, and changes beside the state ---- */

/* Never decreases, whatever happens to the version: a comparison that began earlier notices. */
SRV_RUNS(count_trash_change, (int64_t run_id), run_count_trash_change, SQL_I(run_id));

enum cairn_code srv_version_trash(struct srv_tx *tx, const struct srv_version *version,
                                  const char *reason, struct cairn_error *err) {
    CAIRN_ASSERT(version->state == CAIRN_STATE_COMMITTED);
    CAIRN_ASSERT(version->recorded);
    CAIRN_TRY(srv_count_trash_change(tx, version->run_id, err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(version_trash), SQL_T(version->id.text),
                          SQL_I(srv_tick(tx))));
    if (version->trashed) return CAIRN_OK;
    return srv_event_of_version(tx, SRV_EVENT_CHECKPOINT_TRASHED, version->id.text, CAIRN_OK,
                                reason, err);
}

enum cairn_code srv_version_untrash(struct srv_tx *tx, const struct srv_version *version,
                                    struct cairn_error *err) {
    CAIRN_ASSERT(version->state == CAIRN_STATE_COMMITTED);
    CAIRN_TRY(srv_count_trash_change(tx, version->run_id, err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(version_untrash), SQL_T(version->id.text)));
    if (!version->trashed) return CAIRN_OK;
    return srv_event_of_version(tx, SRV_EVENT_CHECKPOINT_UNDELETED, version->id.text, CAIRN_OK,
                                NULL, err);
}

enum cairn_code srv_version_supersede(struct srv_tx *tx, const char *id, struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(srv_sql_run(tx, &changed, err, SQL(version_supersede), SQL_T(id)));
    if (!changed) return CAIRN_OK;
    return srv_event_of_version(tx, SRV_EVENT_CHECKPOINT_SUPERSEDED, id, CAIRN_OK, NULL, err);
}

enum cairn_code srv_version_revive(struct srv_tx *tx, const char *id, struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(srv_sql_run(tx, &changed, err, SQL(version_revive), SQL_T(id)));
    if (!changed) return CAIRN_OK;
    return srv_event_of_version(tx, SRV_EVENT_CHECKPOINT_REVIVED, id, CAIRN_OK, NULL, err);
}

enum cairn_code srv_version_set_recorded(struct srv_tx *tx, const struct srv_version *version,
                                         bool *ret_changed, struct cairn_error *err) {
    bool committed = false, recorded = false;
    CAIRN_TRY(srv_version_was_committed(tx, version->id.text, &committed, &recorded, err));
    *ret_changed = committed && !recorded;
    if (!*ret_changed) return CAIRN_OK;
    srv_notify_version(tx, &version->id, &version->name);
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(version_set_recorded), SQL_T(version->id.text)));
    return srv_event_of_version(tx, SRV_EVENT_CHECKPOINT_COMMITTED, version->id.text, CAIRN_OK,
                                NULL, err);
}

enum cairn_code srv_version_set_swept(struct srv_tx *tx, const struct srv_version *version,
                                      bool first, struct cairn_error *err) {
    CAIRN_ASSERT(version->state == CAIRN_STATE_GONE);
    if (first)
        CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(version_set_gone), SQL_T(version->id.text),
                              SQL_I(srv_tick(tx))));
    return srv_sql_run(tx, NULL, err, SQL(version_swept_again), SQL_T(version->id.text));
}

enum cairn_state srv_version_shown(const struct srv_version *version) {
    if (version->state == CAIRN_STATE_COMMITTED && !version->recorded) return CAIRN_STATE_OPEN;
    return version->state;
}

enum cairn_code srv_version_there(const struct srv_version *version, struct cairn_error *err) {
    bool over = version->state == CAIRN_STATE_DELETING || version->state == CAIRN_STATE_GONE;
    if (!over || !version->committed_ms) return CAIRN_OK;
    return cairn_fail(err, CAIRN_DELETED, "%s (step %" PRIu64 ") was deleted", version->id.text,
                      version->step);
}

struct cairn_version_place srv_version_place(const struct srv_version *version) {
    return (struct cairn_version_place){version->name, version->step, version->id};
}

/* ---- aliases and metrics ---- */

enum cairn_code srv_alias_put(struct srv_tx *tx, int64_t run_id, const char *alias,
                              const char *version, int64_t wall_ms, struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(alias_put), SQL_I(run_id), SQL_T(alias),
                          SQL_T(version), SQL_I(wall_ms)));
    return srv_event_of_version(tx, SRV_EVENT_ALIAS_SET, version, CAIRN_OK, alias, err);
}

enum cairn_code srv_alias_drop(struct srv_tx *tx, int64_t run_id, const char *alias,
                               struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(alias_drop), SQL_I(run_id), SQL_T(alias)));
    return srv_event_of_run(tx, SRV_EVENT_ALIAS_REMOVED, run_id, 0, alias, err);
}

enum cairn_code srv_aliases_of_run(struct srv_tx *tx, int64_t run_id, json_t **ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *array = json_array();
    SQL_OPEN(rows, tx, err, SQL(aliases_of_run), SQL_I(run_id));
    SQL_EACH(&rows, err) {
        char changed[32];
        cairn_time_text(srv_rows_i64(&rows, 3), true, changed);
        CAIRN_TRY(
            cairn_json_append(array,
                              CAIRN_PACK(alias_row, .alias = srv_rows_text(&rows, 0),
                                         .version = srv_rows_text(&rows, 1),
                                         .step = srv_rows_u64(&rows, 2), .changed_at = changed),
                              "the answer", err));
    }
    *ret = CAIRN_TAKE(array);
    return CAIRN_OK;
}

enum cairn_code srv_aliases_of_version(struct srv_tx *tx, const char *version, json_t **ret,
                                       struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *array = json_array();
    SQL_OPEN(rows, tx, err, SQL(aliases_of_version), SQL_T(version));
    SQL_EACH(&rows, err)
        CAIRN_TRY(
            cairn_json_append(array, json_string(srv_rows_text(&rows, 0)), "the answer", err));
    *ret = CAIRN_TAKE(array);
    return CAIRN_OK;
}

/* Maps a double to an integer of the same order, since both engines compare integers alike: IEEE
 * 754 is sign and magnitude, so a negative number's bits are inverted. */
static int64_t in_order(double number) {
    int64_t bits;
    number += 0.0; /* -0.0 becomes 0.0 */
    memcpy(&bits, &number, sizeof(bits));
    return bits < 0 ? bits ^ INT64_MAX : bits;
}

enum cairn_code srv_metrics_put(struct srv_tx *tx, const struct srv_version *version,
                                const json_t *metrics, struct cairn_error *err) {
    const char *name = NULL, *id = version->id.text;
    json_t *value = NULL;
    CAIRN_TRY(srv_metrics_drop(tx, id, err));
    json_object_foreach((json_t *)(uintptr_t)metrics, name, value) {
        int64_t ordered = in_order(json_number_value(value));
        bool joined = version->line && version->line != version->attempt;
        CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(metric_put), SQL_I(version->run_id), SQL_T(name),
                              SQL_I(ordered), SQL_I(joined ? version->line : version->attempt),
                              SQL_I(version->step), SQL_I(version->n), SQL_T(id),
                              SQL_I(joined ? version->attempt : 0)));
    }
    return CAIRN_OK;
}

/* ---- versions known only to the store ---- */

#define SWEEPS_ALL 5 /* at once, and after 10 s, 1, 24 and 48 h */

enum cairn_code srv_met_look(struct srv_tx *tx, struct srv_met *met, struct cairn_error *err) {
    SRV_AUTO(version) version = {0};
    SRV_AUTO(run) run = {0};
    struct cairn_error why = {0};
    met->known = met->gone = met->run = false;
    enum cairn_code code = srv_version_get(tx, met->id.text, &version, &why);
    if (!code) {
        met->gone = version.state == CAIRN_STATE_GONE && version.sweeps >= SWEEPS_ALL;
        met->known = met->run = true;
        return CAIRN_OK;
    }
    if (code == CAIRN_NOT_FOUND) code = srv_run_get(tx, &met->name, &run, &why);
    met->run = code == CAIRN_OK;
    if (!code || code == CAIRN_NOT_FOUND) return CAIRN_OK;
    return cairn_fail(err, code, "%s", why.message);
}

/* It never began, so only its run and step are known. */
static enum cairn_code give_up(struct srv_tx *tx, const struct srv_met *met, const char *reason,
                               int64_t wall_ms, struct cairn_error *err) {
    SRV_GET(run, run, srv_run_get(tx, &met->name, &run, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, run.id, err));
    struct srv_version_new opened = {.id = met->id,
                                     .run = &run,
                                     .step = met->step,
                                     .n = 1,
                                     .world_size = 1,
                                     .format = "",
                                     .wall_ms = wall_ms,
                                     .buried = true};
    CAIRN_TRY(srv_version_insert(tx, &opened, err));
    SRV_GET(version, version, srv_version_get(tx, met->id.text, &version, err));
    struct srv_move move = {CAIRN_EVENT_GIVE_UP, CAIRN_TIMEOUT, reason};
    return srv_version_move(tx, &version, &move, err);
}

static enum cairn_code sweep_again(struct srv_tx *tx, const struct srv_met *met,
                                   struct cairn_error *err) {
    SRV_GET(version, version, srv_version_get(tx, met->id.text, &version, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, version.run_id, err));
    return srv_sql_run(tx, NULL, err, SQL(version_sweep_once_more), SQL_T(met->id.text));
}

enum cairn_code srv_met_bury(struct srv_tx *tx, struct srv_met *met, const char *reason,
                             int64_t wall_ms, bool *ret_done, struct cairn_error *err) {
    bool was_gone = met->gone;
    CAIRN_TRY(srv_met_look(tx, met, err));
    *ret_done = met->run && (was_gone ? met->gone : !met->known);
    if (!*ret_done) return CAIRN_OK;
    return met->gone ? sweep_again(tx, met, err) : give_up(tx, met, reason, wall_ms, err);
}
