/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of one page behind those of the pages before; see pages.h. */
#include "client/restore/pages.h"

#include <stdlib.h>

#include "common/buf.h"
#include "common/text.h"

struct rows {
    const struct cairn_client_list *list;
    void *rows;
    size_t count, capacity;
};
static void rows_release_at(struct rows *rows) {
    for (size_t i = 0; rows->rows && rows->list->drop && i < rows->count; i++)
        rows->list->drop((char *)rows->rows + i * rows->list->row_bytes);
    free(rows->rows);
}

static enum cairn_code take_page(const json_t *items, struct rows *rows, struct cairn_error *err) {
    const struct cairn_client_list *list = rows->list;
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
            return cairn_fail(err, CAIRN_PROTOCOL, "the list goes in circles"); /* pages.h#2 */
        if (!cairn_text_copy(cursor, sizeof cursor, page.next_cursor ? page.next_cursor : ""))
            return cairn_fail(err, CAIRN_PROTOCOL, "a cursor that is too long");
    } while (cursor[0] && (!rows->list->limit || rows->count < rows->list->limit));
    return CAIRN_OK;
}

enum cairn_code cairn_client_pages(struct cairn_session *session,
                                   const struct cairn_client_list *list, void **ret_rows,
                                   size_t *ret_count, struct cairn_error *err) {
    __attribute__((cleanup(rows_release_at))) struct rows rows = {
        .list = list, .rows = calloc(1, list->row_bytes), .capacity = 1};
    if (!rows.rows) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list");
    /* What nobody has saved has no versions. */
    struct cairn_error why = {0};
    enum cairn_code code = take_all(session, &rows, &why);
    if (code == CAIRN_NOT_FOUND && !rows.count && why.http_status == 404) code = CAIRN_OK;
    if (code && err) *err = why;
    if (code) return code;
    *ret_rows = CAIRN_TAKE(rows.rows);
    *ret_count = rows.count;
    return CAIRN_OK;
}
