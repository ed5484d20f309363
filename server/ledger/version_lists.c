/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of versions; see version_lists.h. */
#include "server/ledger/version_lists.h"

#include "common/text.h"
#include "server/ledger/copies.h"

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

/* ---- counts ---- */

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

/* ---- rounds of the sweep ---- */

enum cairn_code cairn_srv_versions_round(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_round_query *query,
                                         struct cairn_srv_ids *ret, struct cairn_error *err) {
    static const struct {
        enum cairn_srv_statement_number statement;
        bool by_time; /* its parameter is the time, not the limit */
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

/* ---- what is over ---- */

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

enum cairn_code cairn_srv_version_forgotten_expect(struct cairn_srv_tx *tx, int64_t run_id,
                                                   uint64_t attempt, const char *id,
                                                   struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(tombstone_there), SQL_I(run_id), SQL_I(attempt),
                                SQL_T(id));
}

enum cairn_code cairn_srv_version_forgotten(struct cairn_srv_tx *tx, int64_t run_id,
                                            uint64_t attempt, const char *id, bool *ret,
                                            struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(tombstone_there), SQL_I(run_id), SQL_I(attempt),
                               SQL_T(id));
}

/* ---- with their run ---- */

enum cairn_code cairn_srv_versions_to_remove(struct cairn_srv_tx *tx, int64_t run_id, size_t limit,
                                             struct cairn_srv_to_remove *ret,
                                             struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    ret->committed.count = ret->open.count = ret->unrecorded = 0;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_to_remove), SQL_I(run_id),
                                 SQL_I(limit)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        struct cairn_version_id id;
        bool open = cairn_srv_rows_i64(&rows, 1) == CAIRN_STATE_OPEN;
        (void)cairn_text_copy(id.text, sizeof(id.text), cairn_srv_rows_text(&rows, 0));
        if (!open && !cairn_srv_rows_i64(&rows, 2))
            ret->unrecorded++;
        else
            CAIRN_TRY(cairn_srv_ids_add(open ? &ret->open : &ret->committed, &id, err));
    }
}

/* ---- pages for people ---- */

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
