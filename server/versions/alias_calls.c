/* SPDX-License-Identifier: Apache-2.0 */
/* Aliases of a run: names that people give, which protect what they point at. `latest` and `best`
 * are computed, so nobody sets them. */
#include "server/ledger/aliases.h"

#include <stdio.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "common/text.h"
#include "server/http/request.h"
#include "server/ledger/frozen.h"
#include "server/ledger/versions.h"

struct call {
    struct cairn_srv_request *request;
    const char *to; /* of PUT: what it is to point at, as a ref */
    bool drop, made, same; /* same: it is as it is to be already */
    struct cairn_version_id id;
    json_t *shown;
};

static enum cairn_code check_name(const char *alias, struct cairn_error *err) {
    if (!strcmp(alias, "latest") || !strcmp(alias, "best"))
        return cairn_fail(err, CAIRN_CONFLICT, "`%s` is computed: nobody sets it", alias);
    if (alias[0] >= 'a' && alias[0] <= 'z' && strlen(alias) <= CAIRN_SRV_ALIAS_BYTES_MAX &&
        !cairn_text_starts(alias, "ckpt_"))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "alias: want [a-z][a-z0-9-]*, at most %d bytes",
                      CAIRN_SRV_ALIAS_BYTES_MAX);
}

/* If-Match names the version that it points at by now; a new one needs none. */
static enum cairn_code judge(const struct call *call, const struct cairn_version_id *now,
                             struct cairn_error *err) {
    const struct cairn_srv_request *request = call->request;
    char tag[CAIRN_VERSION_ID_BYTES + 2];
    snprintf(tag, sizeof(tag), "\"%s\"", now->text);
    if (now->text[0] && request->if_none_match[0] &&
        cairn_srv_tag_listed(request->if_none_match, tag, true))
        return cairn_fail(err, CAIRN_PRECONDITION, "%s is there already: it is %s",
                          request->params.ref, now->text);
    if (now->text[0]) return cairn_srv_must_match(request, tag, NULL, err);
    if (!request->if_match[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_PRECONDITION, "there is no alias %s", request->params.ref);
}

/* A repeat whose first answer was lost finds it there, whatever it says of the state before (RFC
 * 9110, 13.1.1); who makes a new one or none hears that there is one. */
static enum cairn_code point(struct cairn_srv_tx *tx, struct call *call,
                             const struct cairn_srv_run *run, const struct cairn_version_id *now,
                             struct cairn_error *err) {
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_srv_ref ref = {&run->name, call->to, false};
    CAIRN_TRY(cairn_srv_version_find(tx, &ref, &version, err));
    if (version.state != CAIRN_STATE_COMMITTED || !version.recorded)
        return cairn_fail(err, CAIRN_NOT_COMMITTED,
                          "%s is %s: an alias points at what is committed", version.id.text,
                          cairn_state_text(cairn_srv_version_shown(&version)));
    if (version.trashed)
        return cairn_fail(err, CAIRN_CONFLICT, "%s is in the trash: undelete it first",
                          version.id.text);
    call->id = version.id;
    call->same = !strcmp(now->text, version.id.text) && !call->request->if_none_match[0];
    if (call->same) return CAIRN_OK;
    CAIRN_TRY(judge(call, now, err));
    return cairn_srv_alias_put(tx, run->id, call->request->params.ref, version.id.text,
                               cairn_srv_wall_ms(call->request->server), err);
}

static enum cairn_code change(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    const char *alias = call->request->params.ref;
    struct cairn_version_id now;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, &call->request->params.run_name, &run, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, run.id, err));
    CAIRN_TRY(cairn_srv_alias_get(tx, run.id, alias, &now, err));
    call->made = !call->drop && !now.text[0];
    call->id = now;
    if (!call->drop) return point(tx, call, &run, &now, err);
    call->same = !now.text[0];
    if (call->same) return CAIRN_OK;
    CAIRN_TRY(judge(call, &now, err));
    return cairn_srv_alias_drop(tx, run.id, alias, err);
}

static enum cairn_code answer(struct call *call, int status, struct cairn_srv_reply *reply,
                              struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_reply_json(reply, status,
                                   CAIRN_PACK(alias_row, .alias = call->request->params.ref,
                                              .version = call->id.text, .step = CAIRN_MESSAGE_NONE),
                                   err));
    cairn_srv_reply_header(reply, "ETag", "\"%s\"", call->id.text);
    return CAIRN_OK;
}

static enum cairn_code serve_change(struct call *call, struct cairn_srv_reply *reply,
                                    struct cairn_error *err) {
    struct cairn_srv *server = call->request->server;
    CAIRN_TRY(cairn_srv_thawed(server, err));
    CAIRN_TRY(check_name(call->request->params.ref, err));
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, change, call, err));
    if (call->same && call->drop) {
        reply->status = 204;
        return CAIRN_OK;
    }
    if (call->same) return answer(call, 200, reply, err);
    cairn_log(INFO, "alias.changed", "run=%s/%s alias=%s version=%s dropped=%d",
              call->request->params.run_name.project, call->request->params.run_name.run,
              call->request->params.ref, call->id.text, call->drop);
    return answer(call, call->made ? 201 : 200, reply, err);
}

enum cairn_code cairn_srv_on_alias_put(struct cairn_srv_request *request,
                                       struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_alias_put said = {0};
    CAIRN_TRY(cairn_srv_body(request, 100, &body, err));
    CAIRN_TRY(cairn_msg_alias_put_read(body, "", &said, err));
    struct call call = {.request = request, .to = said.ref};
    return serve_change(&call, reply, err);
}

enum cairn_code cairn_srv_on_alias_delete(struct cairn_srv_request *request,
                                          struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct call call = {.request = request, .drop = true};
    return serve_change(&call, reply, err);
}

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_srv_ref ref = {&call->request->params.run_name, call->request->params.ref, true};
    CAIRN_TRY(cairn_srv_version_find(tx, &ref, &version, err));
    call->id = version.id;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_alias_get(struct cairn_srv_request *request,
                                       struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    if (request->params.ref[0] < 'a' || request->params.ref[0] > 'z' ||
        cairn_text_starts(request->params.ref, "ckpt_"))
        return check_name(request->params.ref, err);
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, look, &call, err));
    return answer(&call, 200, reply, err);
}

static enum cairn_code list(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    CAIRN_AUTO(srv_run) run = {0};
    json_decref(call->shown);
    call->shown = NULL;
    CAIRN_TRY(cairn_srv_run_get(tx, &call->request->params.run_name, &run, err));
    return cairn_srv_aliases_of_run(tx, run.id, &call->shown, err);
}

enum cairn_code cairn_srv_on_alias_list(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, list, &call, err);
    if (code) json_decref(call.shown);
    if (code) return code;
    return cairn_srv_reply_page(reply, call.shown, NULL, err);
}
