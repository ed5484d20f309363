/* SPDX-License-Identifier: Apache-2.0 */
/* The versions of a run, page by page as the server answers them. A page that fails or cannot be
 * read fails the whole call: a caller could not tell a short list from checkpoints that are
 * gone. */
#include <stdlib.h>

#include "client/session/session.h"
#include "common/array.h"
#include "common/text.h"

#define PAGE 500
#define ROWS_MAX 1000000

struct rows {
    struct cairn_checkpoint *rows;
    size_t count, capacity;
};
static void rows_release_at(struct rows *rows) {
    free(rows->rows);
}

static enum cairn_code read_row(const json_t *item, struct cairn_checkpoint *ret,
                                struct cairn_error *err) {
    struct cairn_msg_checkpoint_row row = {.created_at = ""};
    *ret = (struct cairn_checkpoint){0};
    if (cairn_msg_checkpoint_row_read(item, "/items", &row, err) != CAIRN_OK ||
        !cairn_text_copy(ret->version, sizeof ret->version, row.version) ||
        !cairn_text_copy(ret->state, sizeof ret->state, row.state))
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

static enum cairn_code take_page(const json_t *items, struct rows *rows, struct cairn_error *err) {
    size_t index;
    json_t *item;
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(rows->rows, rows->count, json_array_size(items), rows->capacity,
                                   ROWS_MAX, "versions", err));
    json_array_foreach(items, index, item) {
        CAIRN_TRY(read_row(item, &rows->rows[rows->count], err));
        rows->count++;
    }
    return CAIRN_OK;
}

static enum cairn_code list_all(struct cairn_session *session, struct rows *rows,
                                struct cairn_error *err) {
    uint64_t deadline_ms = cairn_client_deadline(session, 0);
    char cursor[1024] = "";
    do {
        CAIRN_AUTO(frame) answer = {0};
        const struct cairn_client_request request = {
            CAIRN_CLIENT_REQUEST(list, .limit = PAGE, .cursor = cursor[0] ? cursor : NULL,
                                 .timeout_ms = cairn_client_left_ms(deadline_ms)),
            .waits = true, .deadline_ms = deadline_ms};
        CAIRN_TRY(cairn_client_call(session, &request, &answer, err));
        struct cairn_msg_listed told = {0};
        struct cairn_msg_checkpoint_page page = {0};
        if (cairn_msg_listed_read(answer.message, "", &told, err) != CAIRN_OK ||
            cairn_msg_checkpoint_page_read(told.reply, "/reply", &page, err) != CAIRN_OK)
            return cairn_fail(err, CAIRN_PROTOCOL, "listed without items");
        CAIRN_TRY(take_page(page.items, rows, err));
        const char *next = page.next_cursor;
        if (next && strcmp(next, cursor) == 0)
            return cairn_fail(err, CAIRN_PROTOCOL, "the list goes in circles");
        if (!cairn_text_copy(cursor, sizeof cursor, next ? next : ""))
            return cairn_fail(err, CAIRN_PROTOCOL, "a cursor that is too long");
    } while (cursor[0]);
    return CAIRN_OK;
}

enum cairn_code cairn_list(struct cairn_session *session, struct cairn_checkpoint **ret_list,
                           size_t *ret_count, struct cairn_error *err) {
    __attribute__((cleanup(rows_release_at))) struct rows rows = {
        .rows = calloc(1, sizeof *rows.rows), .capacity = 1};
    CAIRN_CLIENT_CALL(session, err);
    if (!rows.rows) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list");
    enum cairn_code code = list_all(session, &rows, err);
    if (code) return cairn_within(err, code, "%s: list", session->run);
    *ret_list = CAIRN_TAKE(rows.rows);
    *ret_count = rows.count;
    return CAIRN_OK;
}

void cairn_list_free(struct cairn_checkpoint *list) {
    free(list);
}
