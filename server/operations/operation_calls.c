/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/operations: how far imports and exports are, and their end. */
#include "common/log.h"
#include "common/text.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/operations/above.h"
#include "server/operations/operations_json.h"

struct call {
    struct cairn_srv_request *request;
    struct cairn_srv_operation operation;
    uint64_t limit;
    char before[CAIRN_NAME_BYTES_MAX + 1], last[CAIRN_SRV_OPERATION_BYTES];
    size_t looked;
    json_t *items, *next;
};

/* What is outside of his projects is as if it were not there (P16). */
static enum cairn_code get(struct cairn_srv_tx *tx, struct call *call, enum cairn_scope scope,
                           struct cairn_error *err) {
    const char *id = call->request->params.node;
    CAIRN_TRY(cairn_srv_operation_get(tx, id, &call->operation, err));
    if (cairn_srv_caller_may(&call->request->caller, scope, call->operation.name.project))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "there is no operation %s", id);
}

/* ---- GET /v1/operations/{operation} ---- */

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    return get(tx, call, CAIRN_SCOPE_READ, err);
}

static enum cairn_code serve_get(struct call *call, struct cairn_srv_reply *reply,
                                 struct cairn_error *err) {
    struct cairn_srv_request *request = call->request;
    uint64_t until_ms = 0;
    CAIRN_TRY(cairn_srv_query_wait(request, &until_ms, err));
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, look, call, err));
    if (until_ms && !cairn_srv_operation_is_over(&call->operation)) {
        reply->park = reply->rung = true;
        reply->park_key = cairn_srv_key_of(call->operation.id);
        reply->park_until_ms = until_ms;
        return CAIRN_OK;
    }
    reply->in_vain = !cairn_srv_operation_is_over(&call->operation);
    return cairn_srv_reply_operation(request, &call->operation, reply, err);
}

enum cairn_code cairn_srv_on_operation_get(struct cairn_srv_request *request,
                                           struct cairn_srv_reply *reply,
                                           struct cairn_error *err) {
    struct call call = {.request = request};
    enum cairn_code code = serve_get(&call, reply, err);
    cairn_srv_operation_release(&call.operation);
    return code;
}

/* ---- DELETE /v1/operations/{operation} ---- */

/* One that waits ends here; of one that runs its server is told by the row. */
static enum cairn_code cancel(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    const char *id = call->request->params.node;
    const struct cairn_srv_operation_end end = {
        .state = CAIRN_SRV_OPERATION_CANCELLED,
        .problem = "{\"code\":\"cancelled\",\"message\":\"it was cancelled before it began\"}",
        .wall_ms = cairn_srv_wall_ms(call->request->server)};
    CAIRN_TRY(get(tx, call, CAIRN_SCOPE_WRITE, err));
    if (call->operation.state == CAIRN_SRV_OPERATION_QUEUED) {
        CAIRN_TRY(cairn_srv_ticks_advance(tx, call->request->server, err));
        CAIRN_TRY(cairn_srv_operation_end(tx, id, &end, err));
        CAIRN_TRY(cairn_srv_copies_unwish(tx, call->request->server, &call->operation, err));
    }
    if (call->operation.state == CAIRN_SRV_OPERATION_RUNNING)
        CAIRN_TRY(cairn_srv_operation_cancel(tx, id, err));
    return get(tx, call, CAIRN_SCOPE_WRITE, err);
}

enum cairn_code cairn_srv_on_operation_cancel(struct cairn_srv_request *request,
                                              struct cairn_srv_reply *reply,
                                              struct cairn_error *err) {
    struct call call = {.request = request};
    enum cairn_code code = cairn_srv_catalog_write(request->server->catalog, cancel, &call, err);
    if (!code) {
        cairn_log(INFO, "operation.cancel", "operation=%s", call.operation.id);
        cairn_srv_waiters_wake(request->server->waiters, call.operation.id);
        cairn_srv_jobs_sweep(request->server); /* of a copy that is wanted no more */
        code = cairn_srv_reply_operation(request, &call.operation, reply, err);
    }
    cairn_srv_operation_release(&call.operation);
    return code;
}

/* ---- GET /v1/operations ---- */

/* Rows of others are passed over, so a page may be short and have a next one. */
static enum cairn_code add_row(const struct cairn_srv_operation *operation, void *owner,
                               struct cairn_error *err) {
    struct call *call = owner;
    call->looked++;
    (void)cairn_text_copy(call->last, sizeof(call->last), operation->id);
    if (!cairn_srv_caller_may(&call->request->caller, CAIRN_SCOPE_READ, operation->name.project) ||
        !json_array_append_new(call->items, cairn_srv_operation_json(call->request, operation)))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
}

static enum cairn_code list(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    json_array_clear(call->items);
    call->looked = 0;
    return cairn_srv_operations_each(tx, call->before[0] ? call->before : "op_~", call->limit,
                                     add_row, call, err);
}

enum cairn_code cairn_srv_on_operation_list(struct cairn_srv_request *request,
                                            struct cairn_srv_reply *reply,
                                            struct cairn_error *err) {
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_query_limit(request, &call.limit, err));
    CAIRN_TRY(cairn_srv_cursor_read(request, call.before, sizeof(call.before), err));
    call.items = json_array();
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, list, &call, err);
    if (code) json_decref(call.items);
    if (code) return code;
    if (call.looked == call.limit) call.next = cairn_srv_cursor_write(request->server, call.last);
    return cairn_srv_reply_page(reply, call.items, call.next, err);
}
