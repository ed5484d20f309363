/* SPDX-License-Identifier: Apache-2.0 */
/* One row of attempts for each step of the chain; see lineage.h. */
#include "server/ledger/lineage.h"

#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/text.h"

struct link {
    struct cairn_srv_origin place; /* of the version that is looked at */
    const char *by;                /* what led to it */
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
    json_t *item = CAIRN_PACK(lineage_row, .version = place->version.text,
                              .project = place->name.project, .run = place->name.run,
                              .attempt = place->attempt, .step = place->step, .by = link->by,
                              .state = link->has_row ? cairn_state_text(link->state) : NULL,
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

/* The attempt that wrote it, and what that resumed from; *ret_parent "" for none. */
static enum cairn_code look_at_attempt(struct cairn_srv_tx *tx, struct link *link,
                                       struct cairn_srv_origin *ret_parent,
                                       struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    *ret_parent = (struct cairn_srv_origin){0};
    link->job[0] = '\0';
    link->opened_ms = 0;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(attempt_lineage), SQL_I(link->run_id),
                                 SQL_I(link->place.attempt)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
    if (!found) return CAIRN_OK;
    (void)cairn_text_copy(link->job, sizeof(link->job), cairn_srv_rows_text(&rows, 0));
    link->opened_ms = cairn_srv_rows_i64(&rows, 1);
    (void)cairn_text_copy(ret_parent->version.text, sizeof(ret_parent->version.text),
                          cairn_srv_rows_text(&rows, 2));
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
    json_array_foreach((json_t *)(uintptr_t)array, index, item) if (
        !strcmp(json_string_value(json_object_get(item, "version")), version)) return true;
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

/* ---- what a run began from ---- */

enum cairn_code cairn_srv_run_origin(struct cairn_srv_tx *tx, int64_t run_id,
                                     struct cairn_srv_origin *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    *ret = (struct cairn_srv_origin){0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(run_origin), SQL_I(run_id)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
    if (!found) return CAIRN_OK;
    if (cairn_run_name_parse(cairn_srv_rows_text(&rows, 0), &ret->name, NULL))
        return CAIRN_OK; /* "" where it began from none */
    (void)cairn_text_copy(ret->version.text, sizeof(ret->version.text),
                          cairn_srv_rows_text(&rows, 1));
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
