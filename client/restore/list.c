/* SPDX-License-Identifier: Apache-2.0 */
/* The versions of a run. */
#include <stdlib.h>

#include "client/restore/pages.h"
#include "client/session/options.h"
#include "common/text.h"

static enum cairn_code read_row(const json_t *item, void *ret_row, struct cairn_error *err) {
    struct cairn_checkpoint *ret = ret_row;
    struct cairn_msg_checkpoint_row row = {.created_at = ""};
    *ret = (struct cairn_checkpoint){0};
    if (cairn_msg_checkpoint_row_read(item, "/items", &row, err) != CAIRN_OK ||
        !cairn_text_copy(ret->version, sizeof ret->version, row.version) ||
        !cairn_text_copy(ret->state, sizeof ret->state, row.trashed ? "trashed" : row.state))
        return cairn_fail(err, CAIRN_PROTOCOL,
                          "a checkpoint without version, state, step or attempt");
    ret->step = row.step;
    ret->attempt = row.attempt;
    ret->superseded = row.superseded;
    ret->latest = row.latest;
    ret->total_bytes = row.bytes;
    ret->shard_count = row.shards;
    (void)cairn_text_copy(ret->saved_at, sizeof ret->saved_at,
                          row.committed_at ? row.committed_at : row.created_at);
    return CAIRN_OK;
}

static const struct cairn_client_list versions = {.what = "versions",
                                                  .page = 500,
                                                  .row_bytes = sizeof(struct cairn_checkpoint),
                                                  .rows_max = 1000000,
                                                  .read = read_row};

enum cairn_code cairn_list(struct cairn_session *session, struct cairn_checkpoint **ret_list,
                           size_t *ret_count, struct cairn_error *err) {
    void *rows = NULL;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_CLIENT_RET(ret_list, err);
    CAIRN_CLIENT_RET(ret_count, err);
    enum cairn_code code = cairn_client_pages(session, &versions, &rows, ret_count, err);
    if (code) return cairn_within(err, code, "%s: list", session->run);
    *ret_list = rows;
    return CAIRN_OK;
}

void cairn_list_free(struct cairn_checkpoint *list) {
    free(list);
}
