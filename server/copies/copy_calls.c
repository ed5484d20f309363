/* SPDX-License-Identifier: Apache-2.0 */
/* POST {C}/promote and {C}/demote: copies of a version in further stores. */
#include "api/wire/messages.h"
#include "common/log.h"
#include "common/text.h"
#include "server/copies/copies_job.h"
#include "server/copies/demote.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/operations/operations_json.h"
#include "server/versions/versions_json.h"

struct call {
    struct cairn_srv_request *request;
    const char *store;
    struct cairn_srv_version version;
    json_t *shown;
};

static void release(struct call *call) {
    cairn_srv_version_release(&call->version);
    json_decref(call->shown);
}

static enum cairn_code check_store(const struct call *call, struct cairn_error *err) {
    if (cairn_srv_tier_find(call->request->server, call->store)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "the server's setting stores names no store \"%s\"",
                      call->store);
}

static enum cairn_code find(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    struct cairn_srv_ref ref = {&call->request->params.run_name, call->request->params.ref, false};
    cairn_srv_version_release(&call->version);
    return cairn_srv_version_find(tx, &ref, &call->version, err);
}

/* ---- promote ---- */

static enum cairn_code promote(struct call *call, struct cairn_srv_reply *reply,
                               struct cairn_error *err) {
    struct cairn_srv_request *request = call->request;
    char id[CAIRN_SRV_OPERATION_BYTES];
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, find, call, err));
    struct cairn_srv_copy_begin begin = {.name = &call->version.name,
                                         .caller = &request->caller,
                                         .version = call->version.id.text,
                                         .store = call->store};
    CAIRN_TRY(cairn_srv_copies_begin(request->server, &begin, id, err));
    if (!id[0]) return cairn_srv_reply_json(reply, 202, json_object(), err);
    return cairn_srv_reply_begun(request, id, reply, err);
}

enum cairn_code cairn_srv_on_promote(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_promote said = {0};
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_TRY(cairn_srv_body(request, 10, &body, err));
    CAIRN_TRY(cairn_msg_promote_read(body, "", &said, err));
    call.store = said.to;
    CAIRN_TRY(check_store(&call, err));
    enum cairn_code code = promote(&call, reply, err);
    release(&call);
    return code;
}

/* ---- demote ---- */

static enum cairn_code show(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    struct cairn_version_id id = call->version.id;
    cairn_srv_version_release(&call->version);
    CAIRN_TRY(cairn_srv_version_get(tx, id.text, &call->version, err));
    json_decref(call->shown);
    call->shown = NULL;
    return cairn_srv_version_json(tx, &call->version, &call->shown, err);
}

static enum cairn_code demote(struct call *call, struct cairn_srv_reply *reply,
                              struct cairn_error *err) {
    struct cairn_srv_request *request = call->request;
    struct cairn_srv *server = request->server;
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, find, call, err));
    struct cairn_srv_demote asked = {.server = server,
                                     .worker = request->store,
                                     .version = call->version.id.text,
                                     .store = call->store};
    CAIRN_TRY(cairn_srv_demote_ask(&asked, err));
    cairn_log(INFO, "copy.removing", "version=%s store=%s", asked.version, asked.store);
    cairn_srv_jobs_sweep(server);
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, show, call, err));
    return cairn_srv_reply_json(reply, 202, CAIRN_TAKE(call->shown), err);
}

enum cairn_code cairn_srv_on_demote(struct cairn_srv_request *request,
                                    struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_demote said = {0};
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_TRY(cairn_srv_body(request, 10, &body, err));
    CAIRN_TRY(cairn_msg_demote_read(body, "", &said, err));
    call.store = said.from;
    CAIRN_TRY(check_store(&call, err));
    enum cairn_code code = demote(&call, reply, err);
    release(&call);
    return code;
}
