/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen runs as rows (rule Q36); see frozen.h. */
#include "server/catalog/frozen.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "common/log.h"
#include "common/text.h"
#include "server/jobs/jobs.h"
#include "server/request.h"
#include "server/waiters.h"

struct row {
    struct cairn_srv *server;
    const struct cairn_run_name *name;
    const char *why;
    bool made, frozen;
    char cause[400];
    struct cairn_run_name first;
    int64_t count;
};

static enum cairn_code count_rows(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct row *row = argument;
    bool found = false;
    return cairn_srv_sql_number(tx, &found, &row->count, err, SQL(frozen_count));
}

enum cairn_code cairn_srv_frozen_start(struct cairn_srv *server, struct cairn_error *err) {
    struct row row = {.server = server};
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, count_rows, &row, err));
    server->frozen_runs = (uint64_t)row.count;
    return CAIRN_OK;
}

static enum cairn_code insert(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct row *row = argument;
    CAIRN_AUTO(srv_run) run = {0};
    uint64_t changed = 0;
    CAIRN_TRY(
        cairn_srv_run_make(tx, row->name, NULL, cairn_srv_wall_ms(row->server), &run, NULL, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(frozen_insert), SQL_I(run.id),
                                SQL_T(row->why), SQL_I(cairn_srv_wall_ms(row->server)),
                                SQL_I(row->server->settings->adopt_store)));
    row->made = changed > 0;
    return CAIRN_OK;
}

static enum cairn_code behind(const struct cairn_run_name *name, const char *cause,
                              struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CATALOG_BEHIND,
                      "run %s/%s is frozen until `cairn reconcile %s/%s`: %s", name->project,
                      name->run, name->project, name->run, cause);
}

enum cairn_code cairn_srv_run_freeze(struct cairn_srv *server, const struct cairn_run_name *name,
                                     const char *why, struct cairn_error *err) {
    struct row row = {.server = server, .name = name, .why = row.cause};
    (void)cairn_text_copy(row.cause, sizeof(row.cause), why);
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, insert, &row, err));
    if (row.made) {
        atomic_fetch_add(&server->frozen_runs, 1);
        cairn_log(ERROR, "run.frozen",
                  "run=%s/%s cause=\"%s\" effect=\"nothing is written, deleted or resumed from in "
                  "this run until it is reconciled; other runs go on\"",
                  name->project, name->run, row.cause);
    }
    return behind(name, row.cause, err);
}

static enum cairn_code find_row(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct row *row = argument;
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(frozen_cause_of_run),
                                 SQL_T(row->name->project), SQL_T(row->name->run)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &row->frozen, err));
    if (row->frozen)
        (void)cairn_text_copy(row->cause, sizeof(row->cause), cairn_srv_rows_text(&rows, 0));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_run_thawed(struct cairn_srv *server, const struct cairn_run_name *name,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(server, err));
    if (!server->frozen_runs) return CAIRN_OK;
    struct row row = {.name = name};
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, find_row, &row, err));
    return row.frozen ? behind(name, row.cause, err) : CAIRN_OK;
}

enum cairn_code cairn_srv_tx_run_thawed(struct cairn_srv_tx *tx, int64_t run_id,
                                        struct cairn_error *err) {
    bool frozen = false;
    int64_t one = 0;
    CAIRN_TRY(cairn_srv_sql_number(tx, &frozen, &one, err, SQL(frozen_is), SQL_I(run_id)));
    if (!frozen) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CATALOG_BEHIND, "the run is frozen until it is reconciled");
}

enum cairn_code cairn_srv_aside_there(struct cairn_srv_tx *tx, const char *key, bool *ret,
                                      struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(aside_there), SQL_T(key));
}

static enum cairn_code first_row(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct row *row = argument;
    CAIRN_TRY(count_rows(tx, row, err));
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(frozen_first)));
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    if (!more) return CAIRN_OK;
    (void)cairn_text_copy(row->first.project, sizeof(row->first.project),
                          cairn_srv_rows_text(&rows, 0));
    (void)cairn_text_copy(row->first.run, sizeof(row->first.run), cairn_srv_rows_text(&rows, 1));
    (void)cairn_text_copy(row->cause, sizeof(row->cause), cairn_srv_rows_text(&rows, 2));
    return CAIRN_OK;
}

uint64_t cairn_srv_frozen_text(struct cairn_srv *server, char ret[CAIRN_SRV_FROZEN_BYTES]) {
    struct row row = {.server = server};
    ret[0] = '\0';
    if (!server->frozen_runs) return 0;
    if (cairn_srv_catalog_read(server->catalog, first_row, &row, NULL) || !row.count) return 0;
    snprintf(ret, CAIRN_SRV_FROZEN_BYTES, "%" PRId64 " frozen; %s/%s: %s", row.count,
             row.first.project, row.first.run, row.cause);
    return (uint64_t)row.count;
}

/* ---- POST {R}/reconcile ---- */

struct wish {
    const struct cairn_run_name *name;
    bool frozen;
    char cause[400], note[400];
};

static enum cairn_code wish_for(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct wish *wish = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, wish->name, &run, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(frozen_ask), SQL_I(run.id)));
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(frozen_note), SQL_I(run.id)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &wish->frozen, err));
    if (!wish->frozen) return CAIRN_OK;
    (void)cairn_text_copy(wish->cause, sizeof(wish->cause), cairn_srv_rows_text(&rows, 0));
    (void)cairn_text_copy(wish->note, sizeof(wish->note), cairn_srv_rows_text(&rows, 1));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_reconcile(struct cairn_srv_request *request,
                                       struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    struct wish wish = {.name = &request->params.run_name};
    CAIRN_TRY(cairn_srv_thawed(server, err));
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, wish_for, &wish, err));
    uint64_t until_ms = request->arrived_ms + CAIRN_SRV_WAIT_MS_MAX / 2;
    if (wish.frozen && cairn_srv_mono_ms(server) < until_ms) {
        char text[2 * CAIRN_NAME_BYTES_MAX + 2];
        snprintf(text, sizeof(text), "%s/%s", wish.name->project, wish.name->run);
        cairn_srv_jobs_sweep(server);
        reply->park = true;
        reply->park_key = cairn_srv_key_of(text);
        reply->park_until_ms = until_ms;
        return CAIRN_OK;
    }
    return cairn_srv_reply_json(
        reply, wish.frozen ? 202 : 200,
        json_pack("{s:s, s:s, s:b, s:s?, s:s?}", "project", wish.name->project, "run",
                  wish.name->run, "frozen", (int)wish.frozen, "cause",
                  wish.frozen ? wish.cause : NULL, "note", wish.note[0] ? wish.note : NULL),
        err);
}
