/* SPDX-License-Identifier: Apache-2.0 */
/* Runs as the server has them, and the removal of a version. */
#include <cairn/runs.h>
#include <stdlib.h>

#include "client/restore/pages.h"
#include "client/session/options.h"
#include "common/text.h"

#define VERSION_OF_RUNS 4

static enum cairn_code read_row(const json_t *item, void *ret_row, struct cairn_error *err) {
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

static const struct cairn_client_list all = {.what = "runs",
                                             .runs = true,
                                             .page = 1000,
                                             .row_bytes = sizeof(struct cairn_run),
                                             .rows_max = UINT32_C(1) << 20,
                                             .read = read_row};

enum cairn_code cairn_runs(struct cairn_session *session, struct cairn_run **ret_list,
                           size_t *ret_count, struct cairn_error *err) {
    void *rows = NULL;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_CLIENT_RET(ret_list, err);
    CAIRN_CLIENT_RET(ret_count, err);
    enum cairn_code code = cairn_client_speaks(session, VERSION_OF_RUNS, "a list of runs", err);
    if (!code) code = cairn_client_pages(session, &all, &rows, ret_count, err);
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
    if (!version || !cairn_version_id_valid(cairn_view_of(version)))
        return cairn_fail(err, CAIRN_INVALID, "%s: a version is removed by its id", session->run);
    CAIRN_TRY(cairn_client_speaks(session, VERSION_OF_RUNS, "the removal of a version", err));
    uint64_t deadline_ms = cairn_client_deadline(session, timeout_ms);
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(remove, .version = version,
                             .timeout_ms = cairn_client_left_ms(deadline_ms)),
        .waits = true, .deadline_ms = deadline_ms};
    enum cairn_code code = cairn_client_call(session, &request, NULL, err);
    return code ? cairn_within(err, code, "%s: remove %s", session->run, version) : CAIRN_OK;
}
