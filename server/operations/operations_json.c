/* SPDX-License-Identifier: Apache-2.0 */
/* From a row to api/messages.def's operation_row; see operations_json.h. */
#include "server/operations/operations_json.h"

#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "server/retention/remove_run.h"

static json_t *parse(const struct cairn_buf *text) {
    json_t *json = NULL;
    const struct cairn_json_limits limits = {0};
    if (!text->size || cairn_json_parse(cairn_buf_view(text), limits, &json, NULL)) return NULL;
    return json;
}

static const char *time_or_null(int64_t wall_ms, char text[32]) {
    cairn_time_text(wall_ms, true, text);
    return wall_ms ? text : NULL;
}

/* What its work counts. */
static const char *unit_of(const struct cairn_srv_operation *operation) {
    return strcmp(operation->kind, CAIRN_SRV_REMOVE) ? "bytes" : "versions";
}

json_t *cairn_srv_operation_json(const struct cairn_srv_request *asked,
                                 const struct cairn_srv_operation *operation) {
    char created[32], ended[32], instance[600];
    CAIRN_AUTO_JSON json_t *request = parse(&operation->request);
    CAIRN_AUTO_JSON json_t *result = parse(&operation->result);
    CAIRN_AUTO_JSON json_t *failure = parse(&operation->problem);
    CAIRN_AUTO_JSON json_t *problem = NULL;
    if (failure) {
        struct cairn_error why = {0};
        cairn_failure_get(failure, "message", &why);
        snprintf(instance, sizeof(instance), "%s/v1/operations/%s",
                 cairn_srv_public_path(asked->server->settings), operation->id);
        problem = cairn_srv_problem(why.code, &why, instance);
    }
    CAIRN_AUTO_JSON json_t *progress =
        CAIRN_PACK(operation_progress, .done = operation->done, .total = operation->total,
                   .unit = unit_of(operation));
    cairn_time_text(operation->created_ms, true, created);
    return CAIRN_PACK(operation_row, .id = operation->id, .kind = operation->kind,
                      .project = operation->name.project, .run = operation->name.run,
                      .state = cairn_srv_operation_state_text(operation->state),
                      .progress = progress, .request = request,
                      .cancel_requested = operation->cancel, .result = result, .problem = problem,
                      .actor = operation->who, .created_at = created,
                      .ended_at = time_or_null(operation->ended_ms, ended));
}

enum cairn_code cairn_srv_reply_operation(const struct cairn_srv_request *request,
                                          const struct cairn_srv_operation *operation,
                                          struct cairn_srv_reply *reply, struct cairn_error *err) {
    cairn_srv_reply_header(reply, "Cache-Control", "private, no-cache");
    return cairn_srv_reply_json(reply, cairn_srv_operation_is_over(operation) ? 200 : 202,
                                cairn_srv_operation_json(request, operation), err);
}

struct begun {
    const char *id;
    struct cairn_srv_operation operation;
};

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct begun *begun = argument;
    return cairn_srv_operation_get(tx, begun->id, &begun->operation, err);
}

enum cairn_code cairn_srv_reply_begun(struct cairn_srv_request *request, const char *id,
                                      struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct begun begun = {.id = id};
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, look, &begun, err);
    if (!code) code = cairn_srv_reply_operation(request, &begun.operation, reply, err);
    cairn_srv_reply_header(reply, "Location", "%s/v1/operations/%s",
                           cairn_srv_public_path(request->server->settings), id);
    cairn_srv_operation_release(&begun.operation);
    return code;
}
