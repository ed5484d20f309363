/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of versions, lineage, and objects kept after deletion; see version_lists.h. */
#include "server/ledger/version_lists.h"

#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/text.h"
#include "server/db/engine.h"
#include "server/ledger/copies.h"
#include "server/ledger/events.h"

enum cairn_code cairn_srv_versions_open_of_run(struct cairn_srv_tx *tx, int64_t run_id,
                                               struct cairn_srv_ids *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_open_of_run), SQL_I(run_id)));
    return cairn_srv_ids_read(&rows, CAIRN_SRV_ALL, ret, err);
}

enum cairn_code cairn_srv_versions_unrecorded(struct cairn_srv_tx *tx,
                                              const struct cairn_run_name *name, size_t limit,
                                              struct cairn_srv_ids *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_unrecorded_of_run),
                                 SQL_T(name->project), SQL_T(name->run)));
    return cairn_srv_ids_read(&rows, limit, ret, err);
}

enum cairn_code cairn_srv_versions_older(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_version *version, size_t limit,
                                         struct cairn_srv_ids *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_older_of_step),
                                 SQL_I(version->run_id), SQL_I(version->step),
                                 SQL_I(version->attempt), SQL_I(version->n)));
    return cairn_srv_ids_read(&rows, limit, ret, err);
}

const char *cairn_srv_kind_text(size_t kind) {
    CAIRN_ASSERT(kind < CAIRN_SRV_KINDS);
    return kind > CAIRN_STATE_GONE ? "trashed" : cairn_state_text((enum cairn_state)kind);
}

enum cairn_code cairn_srv_kinds_count(struct cairn_srv_tx *tx,
                                      struct cairn_srv_kind_count ret[CAIRN_SRV_KINDS],
                                      struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    memset(ret, 0, CAIRN_SRV_KINDS * sizeof(*ret));
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_kinds)));
    for (;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        uint64_t kind = cairn_srv_rows_u64(&rows, 0);
        CAIRN_ASSERT(kind < CAIRN_SRV_KINDS); /* TRASHED_KIND is the last */
        ret[kind].versions = cairn_srv_rows_u64(&rows, 1);
        ret[kind].bytes = cairn_srv_rows_u64(&rows, 2);
    }
}

enum cairn_code cairn_srv_versions_round(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_round_query *query,
                                         struct cairn_srv_ids *ret, struct cairn_error *err) {
    static const struct {
        enum cairn_srv_statement_number statement;
        bool by_time; /* its parameter is tick_ms, not limit */
    } rounds[] = {
        [CAIRN_SRV_ROUND_LEFT_OVER] = {CAIRN_SRV_STATEMENT_versions_left_over, false},
        [CAIRN_SRV_ROUND_OPEN] = {CAIRN_SRV_STATEMENT_versions_open, false},
        [CAIRN_SRV_ROUND_TRASHED] = {CAIRN_SRV_STATEMENT_versions_trashed, true},
        [CAIRN_SRV_ROUND_DEAD] = {CAIRN_SRV_STATEMENT_versions_dead, false},
        [CAIRN_SRV_ROUND_AGAIN] = {CAIRN_SRV_STATEMENT_versions_to_sweep_again, true},
        [CAIRN_SRV_ROUND_NOT_FREED] = {CAIRN_SRV_STATEMENT_versions_not_freed_due, true},
    };
    CAIRN_AUTO(srv_rows) rows = {0};
    bool by_time = rounds[query->round].by_time, more = true;
    ret->count = 0;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err,
                                 &cairn_srv_statements[rounds[query->round].statement],
                                 SQL_I(by_time ? query->tick_ms : query->passed + query->limit)));
    for (size_t i = 0; i < query->passed && more; i++)
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    return more ? cairn_srv_ids_read(&rows, query->limit, ret, err) : CAIRN_OK;
}

enum cairn_code cairn_srv_versions_over(struct cairn_srv_tx *tx, uint64_t tick_ms, size_t limit,
                                        struct cairn_srv_ids *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_over), SQL_I(tick_ms), SQL_I(limit)));
    return cairn_srv_ids_read(&rows, limit, ret, err);
}

static enum cairn_code forget(struct cairn_srv_tx *tx, const char *id, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(tombstones_drop_older), SQL_T(id)));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(tombstone_put), SQL_T(id)));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(shards_drop), SQL_T(id)));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(ranks_drop), SQL_T(id)));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(groups_drop), SQL_T(id)));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(dispute_drop), SQL_T(id)));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(metrics_drop), SQL_T(id)));
    CAIRN_TRY(cairn_srv_copies_forget(tx, id, err));
    return cairn_srv_sql_run(tx, NULL, err, SQL(version_forget), SQL_T(id));
}

enum cairn_code cairn_srv_versions_forget(struct cairn_srv_tx *tx, const struct cairn_srv_ids *ids,
                                          struct cairn_error *err) {
    for (size_t i = 0; i < ids->count; i++) CAIRN_TRY(forget(tx, ids->ids[i].text, err));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_versions_to_remove(struct cairn_srv_tx *tx, int64_t run_id, size_t limit,
                                             struct cairn_srv_to_remove *ret,
                                             struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    ret->committed.count = ret->open.count = ret->unrecorded = 0;
    CAIRN_TRY(
        cairn_srv_sql_open(tx, &rows, err, SQL(versions_to_remove), SQL_I(run_id), SQL_I(limit)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        struct cairn_version_id id;
        bool open = cairn_srv_rows_i64(&rows, 1) == CAIRN_STATE_OPEN;
        SQL_COPY(id.text, &rows, 0);
        if (!open && !cairn_srv_rows_i64(&rows, 2))
            ret->unrecorded++;
        else
            CAIRN_TRY(cairn_srv_ids_add(open ? &ret->open : &ret->committed, &id, err));
    }
}

static const struct cairn_srv_statement *page_statement(const struct cairn_srv_page *page) {
    const struct cairn_srv_statement *const pages[][2] = {
        {SQL(versions_live_falling), SQL(versions_live_rising)},
        [1 + CAIRN_STATE_OPEN] = {SQL(versions_open_falling), SQL(versions_open_rising)},
        [1 + CAIRN_STATE_COMMITTED] = {SQL(versions_committed_falling),
                                       SQL(versions_committed_rising)},
        [1 +
            CAIRN_STATE_DELETING] = {SQL(versions_deleting_falling), SQL(versions_deleting_rising)},
        [1 +
            CAIRN_STATE_ABORTING] = {SQL(versions_aborting_falling), SQL(versions_aborting_rising)},
        [1 + CAIRN_STATE_GONE] = {SQL(versions_gone_falling), SQL(versions_gone_rising)},
    };
    CAIRN_ASSERT(page->state >= -1 && page->state + 1 < (int)CAIRN_COUNT(pages));
    return pages[1 + page->state][page->rising];
}

static enum cairn_code each_version(struct cairn_srv_tx *tx, struct cairn_srv_rows *rows,
                                    cairn_srv_each_version *each, void *argument,
                                    struct cairn_error *err) {
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(rows, &more, err));
        if (!more) return CAIRN_OK;
        CAIRN_AUTO(srv_version) version = {0};
        CAIRN_TRY(cairn_srv_version_row(rows, &version, err));
        CAIRN_TRY(each(tx, argument, &version, err));
    }
}

enum cairn_code cairn_srv_versions_page(struct cairn_srv_tx *tx, const struct cairn_srv_page *page,
                                        cairn_srv_each_version *each, void *argument,
                                        struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, page_statement(page), SQL_I(page->run_id),
                                 SQL_I(page->place.attempt), SQL_I(page->place.step),
                                 SQL_I(page->place.n), SQL_I(page->limit)));
    return each_version(tx, &rows, each, argument, err);
}

static const struct cairn_srv_statement *scan_statement(const struct cairn_srv_page *page,
                                                        enum cairn_srv_trash trash) {
    const struct cairn_srv_statement *const all[][2] = {
        [CAIRN_SRV_TRASH_ONLY] = {SQL(versions_scan_trashed_falling),
                                  SQL(versions_scan_trashed_rising)},
        [CAIRN_SRV_TRASH_NOT] = {SQL(versions_scan_kept_falling), SQL(versions_scan_kept_rising)},
    };
    const struct cairn_srv_statement *const scans[][2] = {
        {SQL(versions_scan_live_falling), SQL(versions_scan_live_rising)},
        [1 + CAIRN_STATE_OPEN] = {SQL(versions_scan_open_falling), SQL(versions_scan_open_rising)},
        [1 + CAIRN_STATE_COMMITTED] = {SQL(versions_scan_committed_falling),
                                       SQL(versions_scan_committed_rising)},
        [1 + CAIRN_STATE_DELETING] = {SQL(versions_scan_deleting_falling),
                                      SQL(versions_scan_deleting_rising)},
        [1 + CAIRN_STATE_ABORTING] = {SQL(versions_scan_aborting_falling),
                                      SQL(versions_scan_aborting_rising)},
        [1 + CAIRN_STATE_GONE] = {SQL(versions_scan_gone_falling), SQL(versions_scan_gone_rising)},
    };
    const struct cairn_srv_statement *const steps[][2] = {
        {SQL(versions_steps_falling), SQL(versions_steps_rising)},
        {SQL(versions_gone_steps_falling), SQL(versions_gone_steps_rising)},
    };
    CAIRN_ASSERT(page->state >= -1 && page->state + 1 < (int)CAIRN_COUNT(scans));
    if (page->by_step) return steps[page->state == CAIRN_STATE_GONE][page->rising];
    bool by_trash = page->state == -1 || page->state == CAIRN_STATE_COMMITTED;
    if (trash != CAIRN_SRV_TRASH_OR_NOT && by_trash) return all[trash][page->rising];
    return scans[1 + page->state][page->rising];
}

enum cairn_code cairn_srv_versions_scan(struct cairn_srv_tx *tx, const struct cairn_srv_page *page,
                                        enum cairn_srv_trash trash, cairn_srv_each_brief *each,
                                        void *argument, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, scan_statement(page, trash), SQL_I(page->run_id),
                                 SQL_I(page->place.attempt), SQL_I(page->place.step),
                                 SQL_I(page->place.n), SQL_I(page->limit)));
    for (bool more = true, go_on = true; go_on;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        enum cairn_state state = (enum cairn_state)cairn_srv_rows_i64(&rows, 4);
        bool unrecorded = state == CAIRN_STATE_COMMITTED && !cairn_srv_rows_i64(&rows, 5); /* Q24 */
        struct cairn_srv_version_brief row = {.id = cairn_srv_rows_text(&rows, 0),
                                              .place = {cairn_srv_rows_u64(&rows, 1),
                                                        cairn_srv_rows_u64(&rows, 2),
                                                        cairn_srv_rows_u64(&rows, 3)},
                                              .shown = unrecorded ? CAIRN_STATE_OPEN : state,
                                              .trashed = !cairn_srv_rows_null(&rows, 6),
                                              .at_ms = cairn_srv_rows_i64(&rows, 7),
                                              .labels = cairn_srv_rows_text(&rows, 8)};
        CAIRN_TRY(each(argument, &row, &go_on, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_versions_open_of_attempt(struct cairn_srv_tx *tx,
                                                   const struct cairn_run_name *name,
                                                   uint64_t attempt, cairn_srv_each_version *each,
                                                   void *argument, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_open_of_attempt),
                                 SQL_T(name->project), SQL_T(name->run), SQL_I(attempt)));
    return each_version(tx, &rows, each, argument, err);
}

enum cairn_code cairn_srv_run_commits(struct cairn_srv_tx *tx, int64_t run_id, int64_t *ret_ms,
                                      size_t capacity, size_t *ret_count, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    *ret_count = 0;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(run_commits), SQL_I(run_id), SQL_I(capacity)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more || *ret_count == capacity) return CAIRN_OK;
        ret_ms[(*ret_count)++] = cairn_srv_rows_i64(&rows, 0);
    }
}

enum cairn_code
cairn_srv_versions_recorded(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                            enum cairn_code (*each)(void *argument, const char *id, uint64_t step,
                                                    bool trashed, struct cairn_error *err),
                            void *argument, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_recorded_of_run),
                                 SQL_T(name->project), SQL_T(name->run)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        CAIRN_TRY(each(argument, cairn_srv_rows_text(&rows, 0), cairn_srv_rows_u64(&rows, 1),
                       !cairn_srv_rows_null(&rows, 2), err));
    }
}

enum cairn_code cairn_srv_versions_trash_changes(struct cairn_srv_tx *tx,
                                                 const struct cairn_run_name *name, uint64_t *ret,
                                                 struct cairn_error *err) {
    int64_t changes = 0;
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_number(tx, &found, &changes, err, SQL(run_trash_changes),
                                   SQL_T(name->project), SQL_T(name->run)));
    *ret = (uint64_t)changes;
    return CAIRN_OK;
}

/* ---- lineage ---- */

struct link {
    struct cairn_srv_origin place; /* of the current version */
    const char *by;                /* the relation that led to it */
    bool has_row;
    int64_t run_id, committed_ms;
    enum cairn_state state;
    char job[256];
    int64_t opened_ms;
};

static enum cairn_code append(json_t *array, const struct link *link, struct cairn_error *err) {
    const struct cairn_srv_origin *place = &link->place;
    char committed[32], opened[32];
    cairn_time_text(link->committed_ms, true, committed);
    cairn_time_text(link->opened_ms, true, opened);
    json_t *item =
        CAIRN_PACK(lineage_row, .version = place->version.text, .project = place->name.project,
                   .run = place->name.run, .attempt = place->attempt, .step = place->step,
                   .by = link->by, .state = link->has_row ? cairn_state_text(link->state) : NULL,
                   .committed_at = link->committed_ms ? committed : NULL,
                   .job = link->job[0] ? link->job : NULL,
                   .attempt_opened_at = link->opened_ms ? opened : NULL);
    if (!json_array_append_new(array, item)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

static enum cairn_code look_at_row(struct cairn_srv_tx *tx, struct link *link,
                                   struct cairn_error *err) {
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_srv_version_get(tx, link->place.version.text, &version, &why);
    if (code && code != CAIRN_NOT_FOUND && err) *err = why;
    link->has_row = !code;
    link->committed_ms = 0;
    if (code) return code == CAIRN_NOT_FOUND ? CAIRN_OK : code;
    link->run_id = version.run_id;
    link->state = cairn_srv_version_shown(&version);
    link->committed_ms = version.recorded ? version.committed_ms : 0;
    link->place.attempt = version.attempt;
    link->place.step = version.step;
    link->place.name = version.name;
    return CAIRN_OK;
}

/* The attempt that wrote it, and the version from which it resumed; *ret_parent "": none. */
static enum cairn_code look_at_attempt(struct cairn_srv_tx *tx, struct link *link,
                                       struct cairn_srv_origin *ret_parent,
                                       struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    *ret_parent = (struct cairn_srv_origin){0};
    link->job[0] = '\0';
    link->opened_ms = 0;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &found, err, SQL(attempt_lineage), SQL_I(link->run_id),
                                  SQL_I(link->place.attempt)));
    if (!found) return CAIRN_OK;
    SQL_COPY(link->job, &rows, 0);
    link->opened_ms = cairn_srv_rows_i64(&rows, 1);
    SQL_COPY(ret_parent->version.text, &rows, 2);
    ret_parent->attempt = cairn_srv_rows_u64(&rows, 3);
    ret_parent->step = cairn_srv_rows_u64(&rows, 4);
    ret_parent->name = link->place.name;
    return CAIRN_OK;
}

static enum cairn_code run_id_of(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                 int64_t *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_run) run = {0};
    struct cairn_error why = {0};
    *ret = -1;
    if (!name->run[0]) return CAIRN_OK;
    enum cairn_code code = cairn_srv_run_get(tx, name, &run, &why);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (code && err) *err = why;
    if (!code) *ret = run.id;
    return code;
}

static bool was_met(const json_t *array, const char *version) {
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach((json_t *)(uintptr_t)array, index, item)
        if (!strcmp(json_string_value(json_object_get(item, "version")), version)) return true;
    return false;
}

enum cairn_code cairn_srv_lineage(struct cairn_srv_tx *tx, const struct cairn_srv_version *version,
                                  json_t **ret, bool *ret_more, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *array = json_array();
    struct link link = {.run_id = version->run_id};
    link.place.version = version->id;
    *ret_more = false;
    while (link.place.version.text[0] && !was_met(array, link.place.version.text)) {
        struct cairn_srv_origin parent;
        *ret_more = json_array_size(array) == CAIRN_SRV_LINEAGE_MAX;
        if (*ret_more) break;
        CAIRN_TRY(look_at_row(tx, &link, err));
        CAIRN_TRY(look_at_attempt(tx, &link, &parent, err));
        CAIRN_TRY(append(array, &link, err));
        link.by = "resume";
        if (!parent.version.text[0]) {
            CAIRN_TRY(cairn_srv_run_origin(tx, link.run_id, &parent, err));
            CAIRN_TRY(run_id_of(tx, &parent.name, &link.run_id, err));
            link.by = "from";
        }
        link.place = parent;
    }
    *ret = CAIRN_TAKE(array);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_run_origin(struct cairn_srv_tx *tx, int64_t run_id,
                                     struct cairn_srv_origin *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    *ret = (struct cairn_srv_origin){0};
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &found, err, SQL(run_origin), SQL_I(run_id)));
    if (!found) return CAIRN_OK;
    if (cairn_run_name_parse(cairn_srv_rows_text(&rows, 0), &ret->name, NULL))
        return CAIRN_OK; /* "": no origin */
    SQL_COPY(ret->version.text, &rows, 1);
    ret->attempt = cairn_srv_rows_u64(&rows, 2);
    ret->step = cairn_srv_rows_u64(&rows, 3);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_run_set_origin(struct cairn_srv_tx *tx, int64_t run_id,
                                         const struct cairn_srv_version *version,
                                         struct cairn_error *err) {
    char run[2 * CAIRN_NAME_BYTES_MAX + 2] = "";
    if (version) snprintf(run, sizeof(run), "%s/%s", version->name.project, version->name.run);
    return cairn_srv_sql_run(tx, NULL, err, SQL(run_set_origin), SQL_I(run_id), SQL_T(run),
                             SQL_T(version ? version->id.text : ""),
                             SQL_I(version ? version->attempt : 0),
                             SQL_I(version ? version->step : 0));
}

/* ---- objects that the store keeps of deleted versions ---- */

/* version_lists.h#5; the first retry is Q30's second sweep, which may find nothing left. */
static const uint64_t pauses_ms[] = {10000, 60000, 300000, 1800000, 7200000, 21600000, 86400000};

static void read_row(const struct cairn_srv_rows *rows, struct cairn_srv_not_freed *ret) {
    *ret =
        (struct cairn_srv_not_freed){.there = true,
                                     .left = {.code = (enum cairn_code)cairn_srv_rows_i64(rows, 0),
                                              .counted = cairn_srv_rows_i64(rows, 2) != 0,
                                              .objects = cairn_srv_rows_u64(rows, 3),
                                              .bytes = cairn_srv_rows_u64(rows, 4)},
                                     .since_ms = cairn_srv_rows_i64(rows, 5),
                                     .tried_ms = cairn_srv_rows_i64(rows, 6),
                                     .tries = cairn_srv_rows_u64(rows, 7),
                                     .next_tick = cairn_srv_rows_u64(rows, 8)};
    SQL_COPY(ret->left.reason, rows, 1);
}

enum cairn_code cairn_srv_not_freed_get(struct cairn_srv_tx *tx, const char *version,
                                        struct cairn_srv_not_freed *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    *ret = (struct cairn_srv_not_freed){0};
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &found, err, SQL(not_freed_get), SQL_T(version)));
    if (found) read_row(&rows, ret);
    return CAIRN_OK;
}

static enum cairn_code tell(struct cairn_srv_tx *tx, const char *version,
                            const struct cairn_srv_left *left, struct cairn_error *err) {
    char reason[CAIRN_SRV_LEFT_REASON_BYTES + 64], size[24];
    cairn_size_text(left->bytes, size);
    snprintf(reason, sizeof(reason), "%s%s: %s", left->counted ? "" : "at least ", size,
             left->reason);
    return cairn_srv_event_of_version(tx, CAIRN_SRV_EVENT_CHECKPOINT_NOT_FREED, version, left->code,
                                      reason, err);
}

enum cairn_code cairn_srv_not_freed_note(struct cairn_srv_tx *tx, const char *version,
                                         const struct cairn_srv_left *left,
                                         struct cairn_error *err) {
    struct cairn_srv_not_freed before;
    uint64_t objects = left->objects, bytes = left->bytes;
    CAIRN_ASSERT(left->code); /* objects are left for a reason */
    CAIRN_TRY(cairn_srv_not_freed_get(tx, version, &before, err));
    /* A retry without a count keeps the first sweep's larger numbers. */
    if (!left->counted && before.left.objects > objects) objects = before.left.objects;
    if (!left->counted && before.left.bytes > bytes) bytes = before.left.bytes;
    size_t pause = (size_t)cairn_min_u64(before.tries, CAIRN_COUNT(pauses_ms) - 1);
    CAIRN_TRY(cairn_srv_sql_run(
        tx, NULL, err, SQL(not_freed_put), SQL_T(version), SQL_I(left->code), SQL_T(left->reason),
        SQL_I(left->counted), SQL_I(objects), SQL_I(bytes), SQL_I(tx->wall_ms),
        SQL_I(before.tries + 1), SQL_I(cairn_srv_tick(tx) + pauses_ms[pause])));
    return before.there ? CAIRN_OK : tell(tx, version, left, err);
}

enum cairn_code cairn_srv_not_freed_drop(struct cairn_srv_tx *tx, const char *version,
                                         struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(not_freed_drop), SQL_T(version)));
    if (!changed) return CAIRN_OK;
    return cairn_srv_event_of_version(tx, CAIRN_SRV_EVENT_CHECKPOINT_FREED, version, CAIRN_OK, NULL,
                                      err);
}

enum cairn_code cairn_srv_not_freed_sum(struct cairn_srv_tx *tx,
                                        struct cairn_srv_not_freed_sum *ret,
                                        struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &found, err, SQL(not_freed_sum)));
    CAIRN_ASSERT(found); /* a count has one row */
    *ret = (struct cairn_srv_not_freed_sum){cairn_srv_rows_u64(&rows, 0),
                                            cairn_srv_rows_u64(&rows, 1)};
    return CAIRN_OK;
}

enum cairn_code
cairn_srv_not_freed_each(struct cairn_srv_tx *tx, const char *after, uint64_t limit,
                         enum cairn_code (*each)(const struct cairn_srv_not_freed_row *row,
                                                 void *owner, struct cairn_error *err),
                         void *owner, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(not_freed_page), SQL_T(after), SQL_I(limit)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        struct cairn_srv_not_freed_row row = {.step = cairn_srv_rows_u64(&rows, 12),
                                              .state =
                                                  (enum cairn_state)cairn_srv_rows_i64(&rows, 13)};
        read_row(&rows, &row.not_freed);
        SQL_COPY(row.version.text, &rows, 9);
        cairn_srv_rows_name(&rows, 10, &row.name);
        CAIRN_TRY(each(&row, owner, err));
    }
}
