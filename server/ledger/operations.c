/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of operations; see operations.h. */
#include "server/ledger/operations.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/ledger/events.h"
#include "server/ledger/rows.h"
#include "server/ledger/tokens.h"

#define UNFINISHED_MAX 100000

const char *srv_operation_state_text(enum srv_operation_state state) {
    static const char *const texts[] = {
        [SRV_OPERATION_QUEUED] = "queued",       [SRV_OPERATION_RUNNING] = "running",
        [SRV_OPERATION_DONE] = "done",           [SRV_OPERATION_FAILED] = "failed",
        [SRV_OPERATION_CANCELLED] = "cancelled", [SRV_OPERATION_INTERRUPTED] = "interrupted",
    };
    return (size_t)state < CAIRN_COUNT(texts) ? texts[state] : "unknown";
}

void srv_operation_release(struct srv_operation *operation) {
    cairn_buf_release(&operation->request);
    cairn_buf_release(&operation->result);
    cairn_buf_release(&operation->problem);
}

bool srv_operation_is_over(const struct srv_operation *operation) {
    return operation->state != SRV_OPERATION_QUEUED && operation->state != SRV_OPERATION_RUNNING;
}

void srv_operation_name(int64_t wall_ms, void (*random)(void *ret_data, size_t size),
                        char ret[SRV_OPERATION_BYTES]) {
    uint8_t bytes[10];
    random(bytes, sizeof bytes);
    int at = snprintf(ret, SRV_OPERATION_BYTES, "op_%012" PRIx64,
                      (uint64_t)wall_ms & UINT64_C(0xffffffffffff));
    for (size_t i = 0; i < sizeof bytes; i++, at += 2)
        snprintf(ret + at, (size_t)(SRV_OPERATION_BYTES - at), "%02x", bytes[i]);
}

static enum cairn_code find_alike(struct srv_tx *tx, const struct srv_operation *operation,
                                  bool alone, char ret_id[SRV_OPERATION_BYTES],
                                  struct cairn_error *err) {
    const struct cairn_run_name *name = &operation->name;
    if (alone) return srv_operation_of_run(tx, operation->kind, name, ret_id, err);
    return srv_sql_text(tx, ret_id, SRV_OPERATION_BYTES, err, SQL(operation_same),
                        SQL_T(operation->kind), SQL_T(name->project), SQL_T(name->run),
                        SQL_T(operation->request.data));
}

/* A read-only operation may be repeated often and changes nothing, so it has no event. */
static bool only_reads(const char *kind, const char *request) {
    return !strcmp(kind, "verify") && !strstr(request, "\"repair\":true");
}

enum cairn_code srv_operation_put(struct srv_tx *tx, struct srv_operation *operation, bool alone,
                                  bool *ret_made, struct cairn_error *err) {
    char found[SRV_SUBJECT_BYTES];
    const char *kind = operation->kind, *request = operation->request.data;
    const struct cairn_run_name *name = &operation->name;
    CAIRN_TRY(srv_idempotency_find(tx, found, err)); /* also an ended one */
    bool repeated = found[0] != '\0';
    if (!repeated) CAIRN_TRY(find_alike(tx, operation, alone, found, err));
    *ret_made = !found[0];
    if (found[0]) (void)cairn_text_copy(operation->id, sizeof(operation->id), found);
    if (!repeated) CAIRN_TRY(srv_idempotency_keep(tx, operation->id, err));
    if (found[0]) return CAIRN_OK;
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(operation_put), SQL_T(operation->id), SQL_T(kind),
                          SQL_T(name->project), SQL_T(name->run), SQL_T(request),
                          SQL_T(operation->who), SQL_I(operation->created_ms)));
    if (only_reads(kind, request)) return CAIRN_OK;
    char reason[600]; /* longer text is cut */
    snprintf(reason, sizeof(reason), "%s %s %s", operation->id, kind, request);
    return srv_event_of_name(tx, SRV_EVENT_OPERATION_BEGUN, name, reason, err);
}

static enum cairn_code write_event(struct srv_tx *tx, enum srv_event event, const char *id,
                                   const char *reason, struct cairn_error *err) {
    SRV_GET(operation, operation, srv_operation_get(tx, id, &operation, err));
    if (only_reads(operation.kind, operation.request.data)) return CAIRN_OK;
    return srv_event_of_name(tx, event, &operation.name, reason, err);
}

static enum cairn_code read_text(const struct srv_rows *rows, int column, struct cairn_buf *ret,
                                 struct cairn_error *err) {
    ret->limit = 2 * SRV_OPERATION_TEXT_MAX;
    if (srv_rows_null(rows, column)) return CAIRN_OK;
    return cairn_buf_append_text(ret, srv_rows_text(rows, column), err);
}

enum cairn_code srv_operation_row(const struct srv_rows *rows, struct srv_operation *ret,
                                  struct cairn_error *err) {
    srv_operation_release(ret);
    *ret = (struct srv_operation){.done = 0};
    (void)srv_rows_take(rows, 0, ROW(operation), ret);
    CAIRN_TRY(read_text(rows, 4, &ret->request, err));
    CAIRN_TRY(read_text(rows, 9, &ret->result, err));
    return read_text(rows, 10, &ret->problem, err);
}

enum cairn_code srv_operation_get(struct srv_tx *tx, const char *id, struct srv_operation *ret,
                                  struct cairn_error *err) {
    bool found = false;
    SQL_FIRST(rows, &found, tx, err, SQL(operation_get), SQL_T(id));
    if (!found) return cairn_fail(err, CAIRN_NOT_FOUND, "there is no operation %s", id);
    return srv_operation_row(&rows, ret, err);
}

enum cairn_code srv_operation_cancel(struct srv_tx *tx, const char *id, struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(srv_sql_run(tx, &changed, err, SQL(operation_cancel), SQL_T(id)));
    return changed ? write_event(tx, SRV_EVENT_OPERATION_CANCELLING, id, id, err) : CAIRN_OK;
}

enum cairn_code srv_operation_end(struct srv_tx *tx, const char *id,
                                  const struct srv_operation_end *end, struct cairn_error *err) {
    uint64_t changed = 0;
    char reason[SRV_OPERATION_BYTES + 32];
    CAIRN_TRY(srv_sql_run(tx, &changed, err, SQL(operation_end), SQL_T(id), SQL_I(end->state),
                          SQL_T(end->result), SQL_T(end->problem), SQL_I(end->wall_ms),
                          SQL_I(cairn_max_u64(srv_tick(tx), 1))));
    if (!changed) return CAIRN_OK;
    srv_notify_text(tx, id);
    snprintf(reason, sizeof(reason), "%s %s", id, srv_operation_state_text(end->state));
    return write_event(tx, SRV_EVENT_OPERATION_ENDED, id, reason, err);
}

enum cairn_code srv_operations_unfinished(struct srv_tx *tx, char (**ret)[SRV_OPERATION_BYTES],
                                          size_t *ret_count, struct cairn_error *err) {
    size_t capacity = 0;
    free(*ret); /* from a previous run of the transaction */
    *ret = NULL;
    *ret_count = 0;
    SQL_OPEN(rows, tx, err, SQL(operations_unfinished));
    SQL_EACH(&rows, err) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(*ret, *ret_count, capacity, UNFINISHED_MAX, "operations", err));
        (void)cairn_text_copy((*ret)[(*ret_count)++], SRV_OPERATION_BYTES, srv_rows_text(&rows, 0));
    }
    return CAIRN_OK;
}
