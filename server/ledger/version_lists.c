/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of versions, lineage, and objects kept after deletion; see version_lists.h. */
#include "server/ledger/version_lists.h"

#include <stdio.h>

#include "api/wire/messages.h"
#include "server/db/engine.h"
#include "server/ledger/copies.h"

static enum cairn_code note_superseded(struct srv_tx *tx, const struct srv_ids *ids,
                                       const char *reason, struct cairn_error *err) {
    for (size_t i = 0; i < ids->count; i++)
        CAIRN_TRY(srv_event_of_version(tx, SRV_EVENT_CHECKPOINT_SUPERSEDED, ids->ids[i].text,
                                       CAIRN_OK, reason, err));
    return CAIRN_OK;
}

enum cairn_code srv_versions_supersede_beyond(struct srv_tx *tx, int64_t run_id,
                                              const struct cairn_version_id *choice,
                                              uint64_t choice_step, struct srv_ids *ret,
                                              struct cairn_error *err) {
    CAIRN_TRY(srv_sql_ids(tx, SRV_ALL, ret, err, SQL(versions_supersede_beyond), SQL_I(run_id),
                          SQL_T(choice ? choice->text : ""), SQL_I(choice_step)));
    return note_superseded(tx, ret, "an attempt went on without it", err);
}

enum cairn_code srv_versions_supersede_step(struct srv_tx *tx, const struct srv_version *version,
                                            struct cairn_error *err) {
    SRV_GET(ids, ids,
            srv_sql_ids(tx, SRV_ALL, &ids, err, SQL(versions_supersede_step),
                        SQL_I(version->run_id), SQL_I(version->step), SQL_I(version->attempt),
                        SQL_I(version->n)));
    return note_superseded(tx, &ids, version->id.text, err);
}

const char *srv_kind_text(size_t kind) {
    CAIRN_ASSERT(kind < SRV_KINDS);
    return kind > CAIRN_STATE_GONE ? "trashed" : cairn_state_text((enum cairn_state)kind);
}

enum cairn_code srv_kinds_count(struct srv_tx *tx, struct srv_kind_count ret[SRV_KINDS],
                                struct cairn_error *err) {
    memset(ret, 0, SRV_KINDS * sizeof(*ret));
    SQL_OPEN(rows, tx, err, SQL(versions_kinds));
    SQL_EACH(&rows, err) {
        uint64_t kind = srv_rows_u64(&rows, 0);
        CAIRN_ASSERT(kind < SRV_KINDS); /* TRASHED_KIND is the last */
        ret[kind].versions = srv_rows_u64(&rows, 1);
        ret[kind].bytes = srv_rows_u64(&rows, 2);
    }
    return CAIRN_OK;
}

enum cairn_code srv_versions_round(struct srv_tx *tx, const struct srv_round_query *query,
                                   struct srv_ids *ret, struct cairn_error *err) {
    static const struct {
        enum srv_statement_number statement;
        bool by_time; /* its parameter is tick_ms, not limit */
    } rounds[] = {
        [SRV_ROUND_LEFT_OVER] = {SRV_STATEMENT_versions_left_over, false},
        [SRV_ROUND_OPEN] = {SRV_STATEMENT_versions_open, false},
        [SRV_ROUND_TRASHED] = {SRV_STATEMENT_versions_trashed, true},
        [SRV_ROUND_DEAD] = {SRV_STATEMENT_versions_dead, false},
        [SRV_ROUND_AGAIN] = {SRV_STATEMENT_versions_to_sweep_again, true},
        [SRV_ROUND_NOT_FREED] = {SRV_STATEMENT_versions_not_freed_due, true},
    };
    bool by_time = rounds[query->round].by_time, more = true;
    ret->count = 0;
    SQL_OPEN(rows, tx, err, &srv_statements[rounds[query->round].statement],
             SQL_I(by_time ? query->tick_ms : query->passed + query->limit));
    for (size_t i = 0; i < query->passed && more; i++) CAIRN_TRY(srv_rows_next(&rows, &more, err));
    return more ? srv_ids_read(&rows, query->limit, ret, err) : CAIRN_OK;
}

static enum cairn_code forget(struct srv_tx *tx, const char *id, struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(tombstones_drop_older), SQL_T(id)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(tombstone_put), SQL_T(id)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(shards_drop), SQL_T(id)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(ranks_drop), SQL_T(id)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(groups_drop), SQL_T(id)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(dispute_drop), SQL_T(id)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(metrics_drop), SQL_T(id)));
    CAIRN_TRY(srv_copies_forget(tx, id, err));
    return srv_sql_run(tx, NULL, err, SQL(version_forget), SQL_T(id));
}

enum cairn_code srv_versions_forget(struct srv_tx *tx, const struct srv_ids *ids,
                                    struct cairn_error *err) {
    for (size_t i = 0; i < ids->count; i++) CAIRN_TRY(forget(tx, ids->ids[i].text, err));
    return CAIRN_OK;
}

enum cairn_code srv_versions_to_remove(struct srv_tx *tx, int64_t run_id, size_t limit,
                                       struct srv_to_remove *ret, struct cairn_error *err) {
    ret->committed.count = ret->open.count = ret->unrecorded = 0;
    SQL_OPEN(rows, tx, err, SQL(versions_to_remove), SQL_I(run_id), SQL_I(limit));
    SQL_EACH(&rows, err) {
        struct cairn_version_id id;
        bool open = srv_rows_i64(&rows, 1) == CAIRN_STATE_OPEN;
        SQL_COPY(id.text, &rows, 0);
        if (!open && !srv_rows_i64(&rows, 2))
            ret->unrecorded++;
        else
            CAIRN_TRY(srv_ids_add(open ? &ret->open : &ret->committed, &id, err));
    }
    return CAIRN_OK;
}

/* clang-format off */
#define BOTH(kind) {SQL(versions_##kind##_falling), SQL(versions_##kind##_rising)}
#define OF_STATES(scan) {                                                                          \
    BOTH(scan##live), /* -1 */                                                                     \
    [1 + CAIRN_STATE_OPEN] = BOTH(scan##open),                                                     \
    [1 + CAIRN_STATE_COMMITTED] = BOTH(scan##committed),                                           \
    [1 + CAIRN_STATE_DELETING] = BOTH(scan##deleting),                                             \
    [1 + CAIRN_STATE_ABORTING] = BOTH(scan##aborting),                                             \
    [1 + CAIRN_STATE_GONE] = BOTH(scan##gone)}
/* clang-format on */

static const struct srv_statement *page_statement(const struct srv_page *page) {
    const struct srv_statement *const pages[][2] = OF_STATES();
    CAIRN_ASSERT(page->state >= -1 && page->state + 1 < (int)CAIRN_COUNT(pages));
    return pages[1 + page->state][page->rising];
}

enum cairn_code srv_versions_page(struct srv_tx *tx, const struct srv_page *page,
                                  struct srv_rows *ret, struct cairn_error *err) {
    return srv_sql_open(tx, ret, err, page_statement(page), SQL_I(page->run_id),
                        SQL_I(page->place.attempt), SQL_I(page->place.step), SQL_I(page->place.n),
                        SQL_I(page->limit));
}

static const struct srv_statement *scan_statement(const struct srv_page *page,
                                                  enum srv_trash trash) {
    const struct srv_statement *const all[][2] = {
        [SRV_TRASH_ONLY] = BOTH(scan_trashed), [SRV_TRASH_NOT] = BOTH(scan_kept)};
    const struct srv_statement *const scans[][2] = OF_STATES(scan_);
    const struct srv_statement *const steps[][2] = {BOTH(steps), BOTH(gone_steps)};
    CAIRN_ASSERT(page->state >= -1 && page->state + 1 < (int)CAIRN_COUNT(scans));
    if (page->by_step) return steps[page->state == CAIRN_STATE_GONE][page->rising];
    bool by_trash = page->state == -1 || page->state == CAIRN_STATE_COMMITTED;
    if (trash != SRV_TRASH_OR_NOT && by_trash) return all[trash][page->rising];
    return scans[1 + page->state][page->rising];
}

enum cairn_code srv_versions_scan(struct srv_tx *tx, const struct srv_page *page,
                                  enum srv_trash trash, srv_each_brief *each, void *argument,
                                  struct cairn_error *err) {
    SQL_OPEN(rows, tx, err, scan_statement(page, trash), SQL_I(page->run_id),
             SQL_I(page->place.attempt), SQL_I(page->place.step), SQL_I(page->place.n),
             SQL_I(page->limit));
    SQL_EACH(&rows, err) {
        struct srv_version_brief row;
        bool go_on = true;
        (void)srv_rows_take(&rows, 0, ROW(version_brief), &row);
        if (row.shown == CAIRN_STATE_COMMITTED && !srv_rows_i64(&rows, 5))
            row.shown = CAIRN_STATE_OPEN; /* Q24 */
        CAIRN_TRY(each(argument, &row, &go_on, err));
        if (!go_on) break;
    }
    return CAIRN_OK;
}

enum cairn_code srv_run_commits(struct srv_tx *tx, int64_t run_id, int64_t *ret_ms, size_t capacity,
                                size_t *ret_count, struct cairn_error *err) {
    *ret_count = 0;
    SQL_OPEN(rows, tx, err, SQL(run_commits), SQL_I(run_id), SQL_I(capacity));
    SQL_EACH(&rows, err) {
        if (*ret_count == capacity) break;
        ret_ms[(*ret_count)++] = srv_rows_i64(&rows, 0);
    }
    return CAIRN_OK;
}

/* ---- lineage ---- */

struct link {
    struct srv_origin place; /* of the current version */
    const char *by;          /* the relation that led to it */
    bool has_row;
    int64_t run_id, committed_ms;
    enum cairn_state state;
    char job[256];
    int64_t opened_ms;
};

static enum cairn_code append(json_t *array, const struct link *link, struct cairn_error *err) {
    const struct srv_origin *place = &link->place;
    char committed[32], opened[32];
    cairn_time_text(link->committed_ms, true, committed);
    cairn_time_text(link->opened_ms, true, opened);
    return cairn_json_append(
        array,
        CAIRN_PACK(lineage_row, .version = place->version.text, .project = place->name.project,
                   .run = place->name.run, .attempt = place->attempt, .step = place->step,
                   .by = link->by, .state = link->has_row ? cairn_state_text(link->state) : NULL,
                   .committed_at = link->committed_ms ? committed : NULL,
                   .job = link->job[0] ? link->job : NULL,
                   .attempt_opened_at = link->opened_ms ? opened : NULL),
        "the answer", err);
}

static enum cairn_code look_at_row(struct srv_tx *tx, struct link *link, struct cairn_error *err) {
    SRV_AUTO(version) version = {0};
    struct cairn_error why = {0};
    enum cairn_code code = srv_version_get(tx, link->place.version.text, &version, &why);
    if (code && code != CAIRN_NOT_FOUND && err) *err = why;
    link->has_row = !code;
    link->committed_ms = 0;
    if (code) return code == CAIRN_NOT_FOUND ? CAIRN_OK : code;
    link->run_id = version.run_id;
    link->state = srv_version_shown(&version);
    link->committed_ms = version.recorded ? version.committed_ms : 0;
    link->place.attempt = version.attempt;
    link->place.step = version.step;
    link->place.name = version.name;
    return CAIRN_OK;
}

/* The attempt that wrote it, and the version from which it resumed; *ret_parent "": none. */
static enum cairn_code look_at_attempt(struct srv_tx *tx, struct link *link,
                                       struct srv_origin *ret_parent, struct cairn_error *err) {
    bool found = false;
    *ret_parent = (struct srv_origin){0};
    link->job[0] = '\0';
    link->opened_ms = 0;
    SQL_FIRST(rows, &found, tx, err, SQL(attempt_lineage), SQL_I(link->run_id),
              SQL_I(link->place.attempt));
    if (!found) return CAIRN_OK;
    SQL_COPY(link->job, &rows, 0);
    link->opened_ms = srv_rows_i64(&rows, 1);
    (void)srv_rows_take(&rows, 2, ROW(origin), ret_parent);
    ret_parent->name = link->place.name;
    return CAIRN_OK;
}

static enum cairn_code run_id_of(struct srv_tx *tx, const struct cairn_run_name *name, int64_t *ret,
                                 struct cairn_error *err) {
    SRV_AUTO(run) run = {0};
    struct cairn_error why = {0};
    *ret = -1;
    if (!name->run[0]) return CAIRN_OK;
    enum cairn_code code = srv_run_get(tx, name, &run, &why);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (code && err) *err = why;
    if (!code) *ret = run.id;
    return code;
}

static bool was_met(const json_t *array, const char *version) {
    CAIRN_JSON_EACH(item, array)
        if (!strcmp(json_string_value(json_object_get(item, "version")), version)) return true;
    return false;
}

enum cairn_code srv_lineage(struct srv_tx *tx, const struct srv_version *version, json_t **ret,
                            bool *ret_more, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *array = json_array();
    struct link link = {.run_id = version->run_id};
    link.place.version = version->id;
    *ret_more = false;
    while (link.place.version.text[0] && !was_met(array, link.place.version.text)) {
        struct srv_origin parent;
        *ret_more = json_array_size(array) == SRV_LINEAGE_MAX;
        if (*ret_more) break;
        CAIRN_TRY(look_at_row(tx, &link, err));
        CAIRN_TRY(look_at_attempt(tx, &link, &parent, err));
        CAIRN_TRY(append(array, &link, err));
        link.by = "resume";
        if (!parent.version.text[0]) {
            CAIRN_TRY(srv_run_origin(tx, link.run_id, &parent, err));
            CAIRN_TRY(run_id_of(tx, &parent.name, &link.run_id, err));
            link.by = "from";
        }
        link.place = parent;
    }
    *ret = CAIRN_TAKE(array);
    return CAIRN_OK;
}

enum cairn_code srv_run_origin(struct srv_tx *tx, int64_t run_id, struct srv_origin *ret,
                               struct cairn_error *err) {
    bool found = false;
    *ret = (struct srv_origin){0};
    SQL_FIRST(rows, &found, tx, err, SQL(run_origin), SQL_I(run_id));
    if (!found) return CAIRN_OK;
    if (cairn_run_name_parse(srv_rows_text(&rows, 0), &ret->name, NULL))
        return CAIRN_OK; /* "": no origin */
    (void)srv_rows_take(&rows, 1, ROW(origin), ret);
    return CAIRN_OK;
}

enum cairn_code srv_run_set_origin(struct srv_tx *tx, int64_t run_id,
                                   const struct srv_version *version, struct cairn_error *err) {
    char run[2 * CAIRN_NAME_BYTES_MAX + 2] = "";
    if (version) snprintf(run, sizeof(run), "%s/%s", version->name.project, version->name.run);
    return srv_sql_run(tx, NULL, err, SQL(run_set_origin), SQL_I(run_id), SQL_T(run),
                       SQL_T(version ? version->id.text : ""),
                       SQL_I(version ? version->attempt : 0), SQL_I(version ? version->step : 0));
}

/* ---- objects that the store keeps of deleted versions ---- */

/* version_lists.h#5; the first retry is Q30's second sweep, which may find nothing left. */
static const uint64_t pauses_ms[] = {10000, 60000, 300000, 1800000, 7200000, 21600000, 86400000};

static enum cairn_code write_not_freed_event(struct srv_tx *tx, const char *version,
                                             const struct srv_left *left, struct cairn_error *err) {
    char reason[SRV_LEFT_REASON_BYTES + 64], size[24];
    cairn_size_text(left->bytes, size);
    snprintf(reason, sizeof(reason), "%s%s: %s", left->counted ? "" : "at least ", size,
             left->reason);
    return srv_event_of_version(tx, SRV_EVENT_CHECKPOINT_NOT_FREED, version, left->code, reason,
                                err);
}

enum cairn_code srv_not_freed_note(struct srv_tx *tx, const char *version,
                                   const struct srv_left *left, struct cairn_error *err) {
    struct srv_not_freed before;
    uint64_t objects = left->objects, bytes = left->bytes;
    CAIRN_ASSERT(left->code); /* objects are left for a reason */
    CAIRN_TRY(srv_not_freed_get(tx, version, &before, err));
    /* A retry without a count keeps the first sweep's larger numbers. */
    if (!left->counted && before.left.objects > objects) objects = before.left.objects;
    if (!left->counted && before.left.bytes > bytes) bytes = before.left.bytes;
    size_t pause = (size_t)cairn_min_u64(before.tries, CAIRN_COUNT(pauses_ms) - 1);
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(not_freed_put), SQL_T(version), SQL_I(left->code),
                          SQL_T(left->reason), SQL_I(left->counted), SQL_I(objects), SQL_I(bytes),
                          SQL_I(tx->wall_ms), SQL_I(before.tries + 1),
                          SQL_I(srv_tick(tx) + pauses_ms[pause])));
    return before.there ? CAIRN_OK : write_not_freed_event(tx, version, left, err);
}

enum cairn_code srv_not_freed_drop(struct srv_tx *tx, const char *version,
                                   struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(srv_sql_run(tx, &changed, err, SQL(not_freed_drop), SQL_T(version)));
    if (!changed) return CAIRN_OK;
    return srv_event_of_version(tx, SRV_EVENT_CHECKPOINT_FREED, version, CAIRN_OK, NULL, err);
}

struct srv_not_freed_row srv_not_freed_row(const struct srv_rows *rows) {
    struct srv_not_freed_row row = {.not_freed.there = true};
    (void)srv_rows_take(rows, 0, ROW(not_freed), &row.not_freed);
    (void)srv_rows_take(rows, 9, ROW(not_freed_version), &row);
    return row;
}
