/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of operations; see operations.h. */
#include "server/ledger/operations.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/text.h"
#include "server/db/catalog.h"
#include "server/db/sql.h"
#include "server/ledger/events.h"
#include "server/ledger/tokens.h"

#define UNFINISHED_MAX 100000

const char *cairn_srv_operation_state_text(enum cairn_srv_operation_state state) {
    static const char *const texts[] = {
        [CAIRN_SRV_OPERATION_QUEUED] = "queued",
        [CAIRN_SRV_OPERATION_RUNNING] = "running",
        [CAIRN_SRV_OPERATION_DONE] = "done",
        [CAIRN_SRV_OPERATION_FAILED] = "failed",
        [CAIRN_SRV_OPERATION_CANCELLED] = "cancelled",
        [CAIRN_SRV_OPERATION_INTERRUPTED] = "interrupted",
    };
    return (size_t)state < CAIRN_COUNT(texts) ? texts[state] : "unknown";
}

void cairn_srv_operation_release(struct cairn_srv_operation *operation) {
    cairn_buf_release(&operation->request);
    cairn_buf_release(&operation->result);
    cairn_buf_release(&operation->problem);
}

bool cairn_srv_operation_is_over(const struct cairn_srv_operation *operation) {
    return operation->state != CAIRN_SRV_OPERATION_QUEUED &&
           operation->state != CAIRN_SRV_OPERATION_RUNNING;
}

void cairn_srv_operation_name(int64_t wall_ms, void (*random)(void *ret_data, size_t size),
                              char ret[CAIRN_SRV_OPERATION_BYTES]) {
    uint8_t bytes[10];
    random(bytes, sizeof bytes);
    int at = snprintf(ret, CAIRN_SRV_OPERATION_BYTES, "op_%012" PRIx64,
                      (uint64_t)wall_ms & UINT64_C(0xffffffffffff));
    for (size_t i = 0; i < sizeof bytes; i++, at += 2)
        snprintf(ret + at, (size_t)(CAIRN_SRV_OPERATION_BYTES - at), "%02x", bytes[i]);
}

static enum cairn_code first_id(struct cairn_srv_rows *rows, char ret_id[CAIRN_SRV_OPERATION_BYTES],
                                struct cairn_error *err) {
    bool found = false;
    CAIRN_TRY(cairn_srv_rows_next(rows, &found, err));
    (void)cairn_text_copy(ret_id, CAIRN_SRV_OPERATION_BYTES,
                          found ? cairn_srv_rows_text(rows, 0) : "");
    return CAIRN_OK;
}

enum cairn_code cairn_srv_operation_of_run(struct cairn_srv_tx *tx, const char *kind,
                                           const struct cairn_run_name *name,
                                           char ret_id[CAIRN_SRV_OPERATION_BYTES],
                                           struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(operation_of_run), SQL_T(kind),
                                 SQL_T(name->project), SQL_T(name->run)));
    return first_id(&rows, ret_id, err);
}

static enum cairn_code find_alike(struct cairn_srv_tx *tx,
                                  const struct cairn_srv_operation *operation, bool alone,
                                  char ret_id[CAIRN_SRV_OPERATION_BYTES], struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    const struct cairn_run_name *name = &operation->name;
    if (alone) return cairn_srv_operation_of_run(tx, operation->kind, name, ret_id, err);
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(operation_same), SQL_T(operation->kind),
                                 SQL_T(name->project), SQL_T(name->run),
                                 SQL_T(operation->request.data)));
    return first_id(&rows, ret_id, err);
}

/* A read-only operation may be repeated often and changes nothing, so it has no event. */
static bool only_reads(const char *kind, const char *request) {
    return !strcmp(kind, "verify") && !strstr(request, "\"repair\":true");
}

enum cairn_code cairn_srv_operation_put(struct cairn_srv_tx *tx,
                                        struct cairn_srv_operation *operation, bool alone,
                                        bool *ret_made, struct cairn_error *err) {
    char found[CAIRN_SRV_SUBJECT_BYTES];
    const char *kind = operation->kind, *request = operation->request.data;
    const struct cairn_run_name *name = &operation->name;
    CAIRN_TRY(cairn_srv_idempotency_find(tx, found, err)); /* also an ended one */
    bool repeated = found[0] != '\0';
    if (!repeated) CAIRN_TRY(find_alike(tx, operation, alone, found, err));
    *ret_made = !found[0];
    if (found[0]) (void)cairn_text_copy(operation->id, sizeof(operation->id), found);
    if (!repeated) CAIRN_TRY(cairn_srv_idempotency_keep(tx, operation->id, err));
    if (found[0]) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(operation_put), SQL_T(operation->id),
                                SQL_T(kind), SQL_T(name->project), SQL_T(name->run), SQL_T(request),
                                SQL_T(operation->who), SQL_I(operation->created_ms)));
    if (only_reads(kind, request)) return CAIRN_OK;
    char reason[600]; /* longer text is cut */
    snprintf(reason, sizeof(reason), "%s %s %s", operation->id, kind, request);
    return cairn_srv_event_of_name(tx, CAIRN_SRV_EVENT_OPERATION_BEGUN, name, reason, err);
}

static enum cairn_code tell(struct cairn_srv_tx *tx, enum cairn_srv_event event, const char *id,
                            const char *reason, struct cairn_error *err) {
    CAIRN_AUTO(srv_operation) operation = {0};
    CAIRN_TRY(cairn_srv_operation_get(tx, id, &operation, err));
    if (only_reads(operation.kind, operation.request.data)) return CAIRN_OK;
    return cairn_srv_event_of_name(tx, event, &operation.name, reason, err);
}

static enum cairn_code read_text(const struct cairn_srv_rows *rows, int column,
                                 struct cairn_buf *ret, struct cairn_error *err) {
    ret->limit = 2 * CAIRN_SRV_OPERATION_TEXT_MAX;
    if (cairn_srv_rows_null(rows, column)) return CAIRN_OK;
    return cairn_buf_append_text(ret, cairn_srv_rows_text(rows, column), err);
}

static enum cairn_code read_row(const struct cairn_srv_rows *rows, struct cairn_srv_operation *ret,
                                struct cairn_error *err) {
    cairn_srv_operation_release(ret);
    *ret = (struct cairn_srv_operation){
        .state = (enum cairn_srv_operation_state)cairn_srv_rows_i64(rows, 5),
        .done = cairn_srv_rows_u64(rows, 6),
        .total = cairn_srv_rows_u64(rows, 7),
        .cancel = cairn_srv_rows_i64(rows, 8) != 0,
        .created_ms = cairn_srv_rows_i64(rows, 12),
        .ended_ms = cairn_srv_rows_i64(rows, 13)};
    SQL_COPY(ret->id, rows, 0);
    SQL_COPY(ret->kind, rows, 1);
    cairn_srv_rows_name(rows, 2, &ret->name);
    SQL_COPY(ret->who, rows, 11);
    CAIRN_TRY(read_text(rows, 4, &ret->request, err));
    CAIRN_TRY(read_text(rows, 9, &ret->result, err));
    return read_text(rows, 10, &ret->problem, err);
}

enum cairn_code cairn_srv_operation_get(struct cairn_srv_tx *tx, const char *id,
                                        struct cairn_srv_operation *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &found, err, SQL(operation_get), SQL_T(id)));
    if (!found) return cairn_fail(err, CAIRN_NOT_FOUND, "there is no operation %s", id);
    return read_row(&rows, ret, err);
}

enum cairn_code cairn_srv_operation_start(struct cairn_srv_tx *tx, const char *id,
                                          bool *ret_started, struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(operation_start), SQL_T(id)));
    *ret_started = changed > 0;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_operation_cancel(struct cairn_srv_tx *tx, const char *id,
                                           struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(operation_cancel), SQL_T(id)));
    return changed ? tell(tx, CAIRN_SRV_EVENT_OPERATION_CANCELLING, id, id, err) : CAIRN_OK;
}

enum cairn_code cairn_srv_operation_end(struct cairn_srv_tx *tx, const char *id,
                                        const struct cairn_srv_operation_end *end,
                                        struct cairn_error *err) {
    uint64_t changed = 0;
    char reason[CAIRN_SRV_OPERATION_BYTES + 32];
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(operation_end), SQL_T(id), SQL_I(end->state),
                                SQL_T(end->result), SQL_T(end->problem), SQL_I(end->wall_ms),
                                SQL_I(cairn_max_u64(cairn_srv_tick(tx), 1))));
    if (!changed) return CAIRN_OK;
    cairn_srv_notify_text(tx, id);
    snprintf(reason, sizeof(reason), "%s %s", id, cairn_srv_operation_state_text(end->state));
    return tell(tx, CAIRN_SRV_EVENT_OPERATION_ENDED, id, reason, err);
}

enum cairn_code cairn_srv_operations_unfinished(struct cairn_srv_tx *tx,
                                                char (**ret)[CAIRN_SRV_OPERATION_BYTES],
                                                size_t *ret_count, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    size_t capacity = 0;
    free(*ret); /* from a previous run of the transaction */
    *ret = NULL;
    *ret_count = 0;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(operations_unfinished)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        CAIRN_TRY(CAIRN_ARRAY_ROOM(*ret, *ret_count, capacity, UNFINISHED_MAX, "operations", err));
        (void)cairn_text_copy((*ret)[(*ret_count)++], CAIRN_SRV_OPERATION_BYTES,
                              cairn_srv_rows_text(&rows, 0));
    }
}

enum cairn_code
cairn_srv_operations_each(struct cairn_srv_tx *tx, const char *before, uint64_t limit,
                          enum cairn_code (*each)(const struct cairn_srv_operation *operation,
                                                  void *owner, struct cairn_error *err),
                          void *owner, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_AUTO(srv_operation) operation = {0};
    CAIRN_TRY(
        cairn_srv_sql_open(tx, &rows, err, SQL(operations_page), SQL_T(before), SQL_I(limit)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        CAIRN_TRY(read_row(&rows, &operation, err));
        CAIRN_TRY(each(&operation, owner, err));
    }
}

enum cairn_code cairn_srv_operations_trim(struct cairn_srv_tx *tx, uint64_t before_tick,
                                          uint64_t keep, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(operations_drop_old), SQL_I(before_tick)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(operations_drop_many), SQL_I(keep));
}
