/* SPDX-License-Identifier: Apache-2.0 */
/* Versions that are looked for, with what people say of them; and what is said of one. */
#include <cairn/find.h>
#include <stdlib.h>

#include "client/restore/pages.h"
#include "client/session/options.h"
#include "common/text.h"

#define VERSION_OF_FINDING 7 /* of the socket */
#define PAGE 500

/* ---- reading ---- */

static char *text_of(const json_t *object) {
    return object ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS) : strdup("{}");
}

static void drop_row(void *row) {
    struct cairn_version_info *info = row;
    free((char *)(uintptr_t)info->labels_json);
    free((char *)(uintptr_t)info->metrics_json);
}

static enum cairn_code read_row(const json_t *item, void *ret_row, struct cairn_error *err) {
    struct cairn_version_info *ret = ret_row;
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
    ret->world_size = row.world_size;
    ret->superseded = row.superseded;
    ret->latest = row.latest;
    ret->pinned = row.pinned;
    (void)cairn_text_copy(ret->format, sizeof ret->format, row.format);
    (void)cairn_text_copy(ret->saved_at, sizeof ret->saved_at,
                          row.committed_at ? row.committed_at : row.created_at);
    ret->labels_json = text_of(row.labels);
    ret->metrics_json = text_of(row.metrics);
    if (ret->labels_json && ret->metrics_json) return CAIRN_OK;
    drop_row(ret);
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list");
}

/* ---- the calls ---- */

/* The list ends with a row without a version, so that cairn_find_free knows its end. */
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
    const char *run = own.run ? own.run : session->run;
    CAIRN_TRY(cairn_run_name_parse(run, &name, err));
    if (own.ref && (own.state || own.labels))
        return cairn_fail(err, CAIRN_INVALID, "%s: ref names one version; state and labels choose",
                          run);
    CAIRN_TRY(cairn_client_speaks(session, VERSION_OF_FINDING, "a search for versions", err));
    uint32_t page = own.limit && own.limit < PAGE ? (uint32_t)own.limit : PAGE;
    const struct cairn_client_list list = {
        .what = "versions", .page = page, .run = own.run, .ref = own.ref, .state = own.state,
        .labels = own.labels, .limit = own.limit, .row_bytes = sizeof(struct cairn_version_info),
        .rows_max = 1000000, .read = read_row, .drop = drop_row};
    enum cairn_code code = cairn_client_pages(session, &list, &rows, ret_count, err);
    if (code) return cairn_within(err, code, "%s: find", run);
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
    if (!ref || !ref[0])
        return cairn_fail(err, CAIRN_INVALID, "%s: no version is named", session->run);
    if (own.pin < CAIRN_PIN_KEEP || own.pin > CAIRN_PIN_NO)
        return cairn_fail(err, CAIRN_INVALID, "pin %d is unknown", (int)own.pin);
    CAIRN_TRY(read_object(own.labels_json, "labels_json", &labels, err));
    CAIRN_TRY(read_object(own.metrics_json, "metrics_json", &metrics, err));
    CAIRN_TRY(cairn_client_speaks(session, VERSION_OF_FINDING, "labels after the commit", err));
    uint64_t deadline_ms = cairn_client_deadline(session, own.timeout_ms);
    uint32_t pin = own.pin == CAIRN_PIN_KEEP ? (uint32_t)CAIRN_MESSAGE_NONE
                                             : own.pin == CAIRN_PIN_YES;
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(annotate, .ref = ref, .labels = labels, .metrics = metrics, .pin = pin,
                             .timeout_ms = cairn_client_left_ms(deadline_ms)),
        .waits = true, .deadline_ms = deadline_ms};
    enum cairn_code code = cairn_client_call(session, &request, NULL, err);
    return code ? cairn_within(err, code, "%s: annotate %s", session->run, ref) : CAIRN_OK;
}

enum cairn_code cairn_alias_set(struct cairn_session *session, const char *alias, const char *ref,
                                uint32_t timeout_ms, struct cairn_error *err) {
    CAIRN_CLIENT_CALL(session, err);
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
    return code ? cairn_within(err, code, "%s: alias %s", session->run, alias) : CAIRN_OK;
}
