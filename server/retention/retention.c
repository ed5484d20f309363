/* SPDX-License-Identifier: Apache-2.0 */
/* GET, PUT and DELETE of the retention policy of a run, of a project, of the server. */
#include "api/wire/messages.h"
#include "common/log.h"
#include "server/retention/policy_json.h"
#include "server/versions/runs_json.h"

struct call {
    struct cairn_srv_request *request;
    const struct cairn_policy *policy;
    bool change;
    struct cairn_policy holds;
    enum cairn_srv_scope scope;
};

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    const struct cairn_run_name *name = &call->request->params.run_name;
    if (name->run[0]) { /* the others may have a policy before their first run */
        CAIRN_AUTO(srv_run) run = {0};
        CAIRN_TRY(cairn_srv_run_get(tx, name, &run, err));
        CAIRN_TRY(cairn_srv_run_there(&run, err));
    }
    if (call->change) CAIRN_TRY(cairn_srv_policy_put(tx, name, call->policy, err));
    return cairn_srv_policy_get(tx, name, &call->holds, &call->scope, err);
}

static enum cairn_code serve(struct call *call, struct cairn_srv_reply *reply,
                             struct cairn_error *err) {
    struct cairn_srv *server = call->request->server;
    const struct cairn_run_name *name = &call->request->params.run_name;
    CAIRN_TRY(cairn_srv_thawed(server, err));
    CAIRN_TRY(call->change ? cairn_srv_catalog_write(server->catalog, look, call, err)
                           : cairn_srv_catalog_read(server->catalog, look, call, err));
    if (call->change)
        cairn_log(INFO, "retention.policy", "project=\"%s\" run=\"%s\" set=%d", name->project,
                  name->run, call->policy != NULL);
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(cairn_srv_policy_json(&call->holds, call->scope, &json, err));
    return cairn_srv_reply_json(reply, 200, CAIRN_TAKE(json), err);
}

static enum cairn_code get(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                           struct cairn_error *err) {
    struct call call = {.request = request};
    return serve(&call, reply, err);
}

static enum cairn_code put(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                           struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_policy policy;
    CAIRN_TRY(cairn_srv_body(request, 1000, &body, err));
    CAIRN_TRY(cairn_policy_read(body, "", &policy, err));
    struct call call = {.request = request, .policy = &policy, .change = true};
    return serve(&call, reply, err);
}

static enum cairn_code drop(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                            struct cairn_error *err) {
    struct call call = {.request = request, .change = true};
    return serve(&call, reply, err);
}

#define HANDLER(name, what)                                                                        \
    enum cairn_code cairn_srv_on_##name(struct cairn_srv_request *request,                         \
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {  \
        return what(request, reply, err);                                                          \
    }
HANDLER(run_retention_get, get)
HANDLER(run_retention_put, put)
HANDLER(run_retention_delete, drop)
HANDLER(project_retention_get, get)
HANDLER(project_retention_put, put)
HANDLER(project_retention_delete, drop)
HANDLER(retention_get, get)
HANDLER(retention_put, put)
HANDLER(retention_delete, drop)
