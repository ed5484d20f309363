/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of versions and runs through the uploader; a version's labels, aliases and removal. */

#include <cairn/find.h>
#include <cairn/runs.h>
#include <stdlib.h>

#include "client/restore/restore.h"
#include "client/session/options.h"
#include "common/buf.h"
#include "common/text.h"

#define VERSION_OF_FINDING 7 /* socket version that introduced it */
#define PAGE 500
#define VERSION_OF_RUNS 4

/* Notes the session's run in an error; returns code. */
static enum cairn_code of_run(const struct cairn_session *session, enum cairn_code code,
                              struct cairn_error *err) {
    const struct cairn_error_subject subject = {.run = session->run_number};
    if (code) cairn_error_note(err, &subject);
    return code;
}

/* ---- pages ---- */

struct list {
    const char *what; /* the rows' name in messages */
    bool runs;        /* list runs; else versions */
    uint32_t page;
    const char *run, *ref, *state, *labels; /* versions only; NULL: the session's run, all */
    uint64_t limit;                         /* rows wanted; 0: all */
    size_t row_bytes, rows_max;
    enum cairn_code (*read)(const json_t *item, void *ret_row, struct cairn_error *err);
    void (*drop)(void *row); /* frees what read() allocated; NULL: rows own nothing */
};

struct rows {
    const struct list *list;
    void *rows;
    size_t count, capacity;
};
static void rows_release_at(struct rows *rows) {
    for (size_t i = 0; rows->rows && rows->list->drop && i < rows->count; i++)
        rows->list->drop((char *)rows->rows + i * rows->list->row_bytes);
    free(rows->rows);
}

static enum cairn_code take_page(const json_t *items, struct rows *rows, struct cairn_error *err) {
    const struct list *list = rows->list;
    size_t index;
    json_t *item;
    CAIRN_TRY(cairn_array_room(&rows->rows, list->row_bytes, rows->count, json_array_size(items),
                               &rows->capacity, list->rows_max, list->what, err));
    json_array_foreach(items, index, item) {
        if (list->limit && rows->count >= list->limit) break;
        CAIRN_TRY(list->read(item, (char *)rows->rows + rows->count * list->row_bytes, err));
        rows->count++;
    }
    return CAIRN_OK;
}

static enum cairn_code take_all(struct cairn_session *session, struct rows *rows,
                                struct cairn_error *err) {
    uint64_t deadline_ms = cairn_client_deadline(session, 0);
    char cursor[1024] = "";
    do {
        CAIRN_AUTO(frame) answer = {0};
        const struct cairn_client_request request = {
            CAIRN_CLIENT_REQUEST(
                list, .limit = rows->list->page, .cursor = cursor[0] ? cursor : NULL,
                .timeout_ms = cairn_client_left_ms(deadline_ms), .runs = rows->list->runs,
                .run = rows->list->run, .ref = rows->list->ref, .state = rows->list->state,
                .labels = rows->list->labels),
            .waits = true, .deadline_ms = deadline_ms};
        CAIRN_TRY(cairn_client_call(session, &request, &answer, err));
        struct cairn_msg_listed told = {0};
        struct cairn_msg_page page = {0};
        if (cairn_msg_listed_read(answer.message, "", &told, err) != CAIRN_OK ||
            cairn_msg_page_read(told.reply, "/reply", &page, err) != CAIRN_OK)
            return cairn_fail(err, CAIRN_PROTOCOL, "listed without items");
        CAIRN_TRY(take_page(page.items, rows, err));
        if (page.next_cursor && strcmp(page.next_cursor, cursor) == 0)
            return cairn_fail(
                err, CAIRN_PROTOCOL,
                "the server's list of versions comes to the same page again"); /* restore.h#7 */
        if (!cairn_text_copy(cursor, sizeof cursor, page.next_cursor ? page.next_cursor : ""))
            return cairn_fail(err, CAIRN_PROTOCOL, "a cursor that is too long");
    } while (cursor[0] && (!rows->list->limit || rows->count < rows->list->limit));
    return CAIRN_OK;
}

static enum cairn_code read_pages(struct cairn_session *session, const struct list *list,
                                  void **ret_rows, size_t *ret_count, struct cairn_error *err) {
    __attribute__((cleanup(rows_release_at))) struct rows rows = {
        .list = list, .rows = calloc(1, list->row_bytes), .capacity = 1};
    if (!rows.rows) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list");
    /* A run that was never saved has no versions. */
    struct cairn_error why = {0};
    enum cairn_code code = take_all(session, &rows, &why);
    if (code == CAIRN_NOT_FOUND && !rows.count && why.http_status == 404) code = CAIRN_OK;
    if (code && err) *err = why;
    if (code) return code;
    *ret_rows = CAIRN_TAKE(rows.rows);
    *ret_count = rows.count;
    return CAIRN_OK;
}

/* ---- rows of versions ---- */

static char *text_of(const json_t *object) {
    return object ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS) : strdup("{}");
}

static void drop_row(void *row) {
    struct cairn_version_info *info = row;
    free((char *)(uintptr_t)info->labels_json);
    free((char *)(uintptr_t)info->metrics_json);
}

/* Reads the fields shared with struct cairn_checkpoint; *ret_row borrows from item. */
static enum cairn_code read_row(const json_t *item, struct cairn_msg_checkpoint_row *ret_row,
                                struct cairn_version_info *ret, struct cairn_error *err) {
    struct cairn_msg_checkpoint_row row = {.created_at = "", .format = ""};
    *ret = (struct cairn_version_info){0};
    if (cairn_msg_checkpoint_row_read(item, "/items", &row, err) != CAIRN_OK ||
        !cairn_text_copy(ret->version, sizeof ret->version, row.version) ||
        !cairn_text_copy(ret->state, sizeof ret->state, row.trashed ? "trashed" : row.state))
        return cairn_fail(err, CAIRN_PROTOCOL,
                          "a checkpoint without version, state, step or attempt");
    ret->step = row.step;
    ret->attempt = row.attempt;
    ret->total_bytes = row.bytes;
    ret->shard_count = row.shards;
    ret->superseded = row.superseded;
    ret->latest = row.latest;
    (void)cairn_text_copy(ret->saved_at, sizeof ret->saved_at,
                          row.committed_at ? row.committed_at : row.created_at);
    *ret_row = row;
    return CAIRN_OK;
}

static enum cairn_code read_version(const json_t *item, void *ret_row, struct cairn_error *err) {
    struct cairn_version_info *ret = ret_row;
    struct cairn_msg_checkpoint_row row;
    CAIRN_TRY(read_row(item, &row, ret, err));
    ret->world_size = row.world_size;
    ret->pinned = row.pinned;
    (void)cairn_text_copy(ret->format, sizeof ret->format, row.format);
    ret->labels_json = text_of(row.labels);
    ret->metrics_json = text_of(row.metrics);
    if (ret->labels_json && ret->metrics_json) return CAIRN_OK;
    drop_row(ret);
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list");
}

/* ---- versions ---- */

static enum cairn_code read_checkpoint(const json_t *item, void *ret_row, struct cairn_error *err) {
    struct cairn_checkpoint *ret = ret_row;
    struct cairn_version_info info;
    struct cairn_msg_checkpoint_row row;
    CAIRN_TRY(read_row(item, &row, &info, err));
    *ret = (struct cairn_checkpoint){.step = info.step,
                                     .attempt = info.attempt,
                                     .total_bytes = info.total_bytes,
                                     .shard_count = info.shard_count,
                                     .superseded = info.superseded,
                                     .latest = info.latest};
    memcpy(ret->version, info.version, sizeof ret->version);
    memcpy(ret->state, info.state, sizeof ret->state);
    memcpy(ret->saved_at, info.saved_at, sizeof ret->saved_at);
    return CAIRN_OK;
}

static const struct list versions = {.what = "versions",
                                     .page = 500,
                                     .row_bytes = sizeof(struct cairn_checkpoint),
                                     .rows_max = 1000000,
                                     .read = read_checkpoint};

enum cairn_code cairn_list(struct cairn_session *session, struct cairn_checkpoint **ret_list,
                           size_t *ret_count, struct cairn_error *err) {
    void *rows = NULL;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_CLIENT_RET(ret_list, err);
    CAIRN_CLIENT_RET(ret_count, err);
    CAIRN_TRY(cairn_client_need_run(session, err));
    enum cairn_code code = read_pages(session, &versions, &rows, ret_count, err);
    if (code) return of_run(session, cairn_within(err, code, "%s: list", session->run), err);
    *ret_list = rows;
    return CAIRN_OK;
}

void cairn_list_free(struct cairn_checkpoint *list) {
    free(list);
}

/* Appends a row without a version, which marks the end for cairn_find_free. */
static enum cairn_code end_rows(void *rows, size_t count, struct cairn_version_info **ret,
                                struct cairn_error *err) {
    struct cairn_version_info *list = reallocarray(rows, count + 1, sizeof *list);
    if (list) {
        list[count] = (struct cairn_version_info){0};
        *ret = list;
        return CAIRN_OK;
    }
    for (size_t i = 0; i < count; i++) drop_row((struct cairn_version_info *)rows + i);
    free(rows);
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list");
}

enum cairn_code cairn_find(struct cairn_session *session, const struct cairn_find_options *options,
                           struct cairn_version_info **ret_list, size_t *ret_count,
                           struct cairn_error *err) {
    struct cairn_find_options own;
    struct cairn_run_name name;
    void *rows = NULL;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_CLIENT_RET(ret_list, err);
    CAIRN_CLIENT_RET(ret_count, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    if (!own.run) CAIRN_TRY(cairn_client_need_run(session, err));
    const char *run = own.run ? own.run : session->run;
    CAIRN_TRY(cairn_run_name_parse(run, &name, err));
    if (own.ref && (own.state || own.labels))
        return cairn_fail(err, CAIRN_INVALID, "%s: ref names one version; state and labels choose",
                          run);
    CAIRN_TRY(cairn_client_speaks(session, VERSION_OF_FINDING, "a search for versions", err));
    uint32_t page = own.limit && own.limit < PAGE ? (uint32_t)own.limit : PAGE;
    const struct list list = {.what = "versions",
                              .page = page,
                              .run = own.run,
                              .ref = own.ref,
                              .state = own.state,
                              .labels = own.labels,
                              .limit = own.limit,
                              .row_bytes = sizeof(struct cairn_version_info),
                              .rows_max = 1000000,
                              .read = read_version,
                              .drop = drop_row};
    enum cairn_code code = read_pages(session, &list, &rows, ret_count, err);
    if (code) {
        const struct cairn_error_subject subject = {.run = cairn_error_run(run)};
        (void)cairn_within(err, code, "%s: find", run);
        cairn_error_note(err, &subject);
        return code;
    }
    return end_rows(rows, *ret_count, ret_list, err);
}

void cairn_find_free(struct cairn_version_info *list) {
    for (struct cairn_version_info *row = list; row && row->version[0]; row++) drop_row(row);
    free(list);
}

static enum cairn_code read_object(const char *text, const char *what, json_t **ret,
                                   struct cairn_error *err) {
    json_error_t why;
    if (!text) return CAIRN_OK;
    *ret = json_loads(text, 0, &why);
    if (json_is_object(*ret)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s: wanted an object of JSON%s%s", what,
                      *ret ? "" : ": ", *ret ? "" : why.text);
}

enum cairn_code cairn_annotate(struct cairn_session *session, const char *ref,
                               const struct cairn_annotate_options *options,
                               struct cairn_error *err) {
    struct cairn_annotate_options own;
    CAIRN_AUTO_JSON json_t *labels = NULL, *metrics = NULL;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    CAIRN_TRY(cairn_client_need_run(session, err));
    if (!ref || !ref[0])
        return cairn_fail(err, CAIRN_INVALID, "%s: no version is named", session->run);
    if (own.pin < CAIRN_PIN_KEEP || own.pin > CAIRN_PIN_NO)
        return cairn_fail(err, CAIRN_INVALID, "pin %d is none of enum cairn_pin", (int)own.pin);
    CAIRN_TRY(read_object(own.labels_json, "labels_json", &labels, err));
    CAIRN_TRY(read_object(own.metrics_json, "metrics_json", &metrics, err));
    CAIRN_TRY(cairn_client_speaks(session, VERSION_OF_FINDING, "labels after the commit", err));
    uint64_t deadline_ms = cairn_client_deadline(session, own.timeout_ms);
    uint32_t pin =
        own.pin == CAIRN_PIN_KEEP ? (uint32_t)CAIRN_MESSAGE_NONE : own.pin == CAIRN_PIN_YES;
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(annotate, .ref = ref, .labels = labels, .metrics = metrics, .pin = pin,
                             .timeout_ms = cairn_client_left_ms(deadline_ms)),
        .waits = true, .deadline_ms = deadline_ms};
    enum cairn_code code = cairn_client_call(session, &request, NULL, err);
    return of_run(session, cairn_within(err, code, "%s: annotate %s", session->run, ref), err);
}

enum cairn_code cairn_alias_set(struct cairn_session *session, const char *alias, const char *ref,
                                uint32_t timeout_ms, struct cairn_error *err) {
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_TRY(cairn_client_need_run(session, err));
    if (!alias || !alias[0] || (ref && !ref[0]))
        return cairn_fail(err, CAIRN_INVALID, "%s: an alias has a name, and names a version",
                          session->run);
    CAIRN_TRY(cairn_client_speaks(session, VERSION_OF_FINDING, "aliases", err));
    uint64_t deadline_ms = cairn_client_deadline(session, timeout_ms);
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(alias, .alias = alias, .ref = ref,
                             .timeout_ms = cairn_client_left_ms(deadline_ms)),
        .waits = true, .deadline_ms = deadline_ms};
    enum cairn_code code = cairn_client_call(session, &request, NULL, err);
    return of_run(session, cairn_within(err, code, "%s: alias %s", session->run, alias), err);
}

/* ---- runs ---- */

static enum cairn_code read_run(const json_t *item, void *ret_row, struct cairn_error *err) {
    struct cairn_run *ret = ret_row;
    struct cairn_msg_run_row row = {.created_at = ""};
    struct cairn_msg_run_latest latest = {.version = ""};
    *ret = (struct cairn_run){0};
    if (cairn_msg_run_row_read(item, "/items", &row, err) != CAIRN_OK ||
        (row.latest &&
         cairn_msg_run_latest_read(row.latest, "/items/latest", &latest, err) != CAIRN_OK))
        return cairn_fail(err, CAIRN_PROTOCOL, "a run without its names");
    snprintf(ret->run, sizeof ret->run, "%s/%s", row.project, row.run);
    ret->attempt = row.attempt;
    ret->version_count = row.committed;
    ret->total_bytes = row.bytes;
    ret->latest_step = latest.step;
    (void)cairn_text_copy(ret->latest, sizeof ret->latest, latest.version);
    (void)cairn_text_copy(ret->created_at, sizeof ret->created_at, row.created_at);
    return CAIRN_OK;
}

static const struct list all = {.what = "runs",
                                .runs = true,
                                .page = 1000,
                                .row_bytes = sizeof(struct cairn_run),
                                .rows_max = UINT32_C(1) << 20,
                                .read = read_run};

enum cairn_code cairn_runs(struct cairn_session *session, struct cairn_run **ret_list,
                           size_t *ret_count, struct cairn_error *err) {
    void *rows = NULL;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_CLIENT_RET(ret_list, err);
    CAIRN_CLIENT_RET(ret_count, err);
    enum cairn_code code = cairn_client_speaks(session, VERSION_OF_RUNS, "a list of runs", err);
    if (!code) code = read_pages(session, &all, &rows, ret_count, err);
    if (code) return cairn_within(err, code, "runs");
    *ret_list = rows;
    return CAIRN_OK;
}

void cairn_runs_free(struct cairn_run *list) {
    free(list);
}

enum cairn_code cairn_remove(struct cairn_session *session, const char *version,
                             uint32_t timeout_ms, struct cairn_error *err) {
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_TRY(cairn_client_need_run(session, err));
    if (!version || !cairn_version_id_valid(cairn_view_of(version)))
        return cairn_fail(err, CAIRN_INVALID, "%s: a version is removed by its id", session->run);
    CAIRN_TRY(cairn_client_speaks(session, VERSION_OF_RUNS, "the removal of a version", err));
    uint64_t deadline_ms = cairn_client_deadline(session, timeout_ms);
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(remove, .version = version,
                             .timeout_ms = cairn_client_left_ms(deadline_ms)),
        .waits = true, .deadline_ms = deadline_ms};
    enum cairn_code code = cairn_client_call(session, &request, NULL, err);
    return of_run(session, cairn_within(err, code, "%s: remove %s", session->run, version), err);
}
