/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}/lineage: what a version was trained from, attempt by attempt and across runs. */
#include "server/ledger/lineage.h"

#include "api/wire/messages.h"
#include "server/http/request.h"

struct call {
    struct cairn_srv_request *request;
    json_t *items;
    bool more;
};

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_srv_ref ref = {&call->request->params.run_name, call->request->params.ref, true};
    json_decref(call->items);
    call->items = NULL;
    CAIRN_TRY(cairn_srv_version_find(tx, &ref, &version, err));
    return cairn_srv_lineage(tx, &version, &call->items, &call->more, err);
}

/* The chain ends for him where a project begins that he may not read. */
static void cut(struct call *call) {
    for (size_t i = 0; i < json_array_size(call->items); i++) {
        const char *project =
            json_string_value(json_object_get(json_array_get(call->items, i), "project"));
        if (!project || !project[0] ||
            cairn_srv_caller_may(&call->request->caller, CAIRN_SCOPE_READ, project))
            continue;
        while (json_array_size(call->items) > i)
            (void)json_array_remove(call->items, json_array_size(call->items) - 1);
        call->more = true;
    }
}

enum cairn_code cairn_srv_on_lineage(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, look, &call, err);
    if (!code) cut(&call);
    if (!code)
        code = cairn_srv_reply_json(
            reply, 200, CAIRN_PACK(lineage, .items = call.items, .more = call.more), err);
    json_decref(call.items);
    return code;
}
