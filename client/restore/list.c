/* SPDX-License-Identifier: Apache-2.0 */
/* The versions of a run, page by page as the server answers them; a page that fails or does not
 * make sense fails the whole call, since a short list reads like lost checkpoints. */
#include <stdlib.h>

#include "client/session/session.h"
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

static bool flag(const json_t *item, const char *name) {
    return json_is_true(json_object_get(item, name));
}

static enum cairn_code read_row(const json_t *item, struct cairn_checkpoint *ret,
                                struct cairn_error *err) {
    const char *version = cairn_client_text_of(item, "version");
    const char *state = cairn_client_text_of(item, "state");
    const char *saved = cairn_client_text_of(item, "committed_at");
    uint64_t shards = 0;
    *ret = (struct cairn_checkpoint){.superseded = flag(item, "superseded"),
                                     .latest = flag(item, "latest")};
    if (!saved) saved = cairn_client_text_of(item, "created_at");
    if (!version || !state || !cairn_client_u64_of(item, "step", &ret->step) ||
        !cairn_client_u64_of(item, "attempt", &ret->attempt) ||
        !cairn_text_copy(ret->version, sizeof ret->version, version) ||
        !cairn_text_copy(ret->state, sizeof ret->state, state))
        return cairn_fail(err, CAIRN_PROTOCOL,
                          "a checkpoint without version, state, step or attempt");
    (void)cairn_client_u64_of(item, "bytes", &ret->total_bytes);
    (void)cairn_client_u64_of(item, "shards", &shards);
    ret->shard_count = (uint32_t)shards;
    (void)cairn_text_copy(ret->saved_at, sizeof ret->saved_at, saved ? saved : "");
    return CAIRN_OK;
}

static enum cairn_code take_page(const json_t *items, struct rows *rows, struct cairn_error *err) {
    size_t index, more = rows->count + json_array_size(items);
    json_t *item;
    if (!json_is_array(items)) return cairn_fail(err, CAIRN_PROTOCOL, "listed without items");
    if (more > ROWS_MAX) return cairn_fail(err, CAIRN_TOO_LARGE, "more than %d versions", ROWS_MAX);
    if (more > rows->capacity) {
        struct cairn_checkpoint *moved = reallocarray(rows->rows, more, sizeof *moved);
        if (!moved) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %zu versions", more);
        rows->rows = moved;
        rows->capacity = more;
    }
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
        const struct cairn_client_ask ask = {
            .take_message = json_pack("{s:s, s:i, s:s?}", "t", "list", "limit", PAGE, "cursor",
                                      cursor[0] ? cursor : NULL),
            .wanted = "listed",
            .patient = true,
            .deadline_ms = deadline_ms};
        CAIRN_TRY(cairn_client_call(session, &ask, &answer, err));
        const json_t *reply = json_object_get(answer.message, "reply");
        CAIRN_TRY(take_page(json_object_get(reply, "items"), rows, err));
        const char *next = cairn_client_text_of(reply, "next_cursor");
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
    CAIRN_TRY(cairn_client_enter(session, err));
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
