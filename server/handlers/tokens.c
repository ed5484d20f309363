/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/tokens: who may do what. GET /v1/whoami: what the caller may do. */
#include "server/catalog/tokens.h"

#include "api/messages.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/text.h"
#include "server/handlers/request.h"
#include "server/jobs/revoked.h"

struct call {
    struct cairn_srv_request *request;
    struct cairn_srv_token token;
    uint64_t limit;
    char after[CAIRN_NAME_BYTES_MAX + 1], last[CAIRN_TOKEN_ID_BYTES];
    size_t looked;
    json_t *items, *next;
};

static const char *time_or_null(int64_t wall_ms, char text[32]) {
    cairn_time_text(wall_ms, true, text);
    return wall_ms ? text : NULL;
}

/* Who is bound to some projects makes, sees and revokes the tokens of these alone. */
static bool is_his(const struct cairn_srv_request *request, const char *projects) {
    return request->caller.kind == CAIRN_SRV_EVERYBODY ||
           cairn_project_pattern_covers(request->caller.projects, projects);
}

/* ---- POST /v1/tokens ---- */

static enum cairn_code read_wanted(struct call *call, const struct cairn_msg_token_make *said,
                                   struct cairn_error *err) {
    const struct cairn_srv_caller *caller = &call->request->caller;
    struct cairn_srv_token *token = &call->token;
    bool bound = caller->kind == CAIRN_SRV_TOKEN;
    const char *project = said->project ? said->project : bound ? caller->projects : "*";
    enum cairn_code code = cairn_scopes_read(said->scopes, &token->scopes, err);
    if (code) return cairn_within(err, code, "/scopes");
    if (said->name && !cairn_name_valid(cairn_view_of(said->name)))
        return cairn_fail(err, CAIRN_INVALID, "/name: " CAIRN_NAME_WANTED);
    if (!cairn_project_pattern_valid(project))
        return cairn_fail(err, CAIRN_INVALID,
                          "/project: want the name of a project, in which * and ? may stand");
    if (!is_his(call->request, project))
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "%s is bound to %s and makes no token for other projects", caller->who,
                          caller->projects);
    (void)cairn_text_copy(token->name, sizeof(token->name), said->name ? said->name : "");
    (void)cairn_text_copy(token->projects, sizeof(token->projects), project);
    (void)cairn_text_copy(token->who, sizeof(token->who), caller->who);
    token->created_ms = cairn_srv_wall_ms(call->request->server);
    if (said->expires_s) token->expires_ms = token->created_ms + (int64_t)said->expires_s * 1000;
    /* Else whoever has a token for a day makes one for ever. */
    if (!bound || !caller->expires_ms) return CAIRN_OK;
    if (token->expires_ms > caller->expires_ms)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "/expires_s: %s ends before that, and what it makes ends with it",
                          caller->who);
    if (!token->expires_ms) token->expires_ms = caller->expires_ms;
    return CAIRN_OK;
}

static enum cairn_code put(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct call *call = argument;
    return cairn_srv_token_put(tx, &call->token, err);
}

static enum cairn_code make(struct call *call, char *text, struct cairn_srv_reply *reply,
                            struct cairn_error *err) {
    struct cairn_srv *server = call->request->server;
    struct cairn_srv_token *token = &call->token;
    char expires[32];
    CAIRN_AUTO_JSON json_t *scopes = cairn_scopes_json(token->scopes);
    cairn_token_make(server->random, text, &token->key);
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, put, call, err));
    if (server->access) cairn_srv_access_reload(server->access);
    cairn_log(INFO, "token.made", "token=%s name=%s projects=%s", token->key.id, token->name,
              token->projects);
    return cairn_srv_reply_json(reply, 201,
                                CAIRN_PACK(token_made, .id = token->key.id, .token = text,
                                           .name = token->name,
                                           .scopes = scopes,
                                           .project = token->projects,
                                           .expires_at = time_or_null(token->expires_ms, expires)),
                                err);
}

enum cairn_code cairn_srv_on_token_make(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_token_make said = {0};
    struct call call = {.request = request};
    char text[CAIRN_TOKEN_TEXT_BYTES];
    CAIRN_TRY(cairn_srv_body(request, 100, &body, err));
    CAIRN_TRY(cairn_msg_token_make_read(body, "", &said, err));
    CAIRN_TRY(read_wanted(&call, &said, err));
    enum cairn_code code = make(&call, text, reply, err);
    cairn_wipe(text, sizeof(text));
    return code;
}

/* ---- GET /v1/tokens ---- */

static json_t *row_json(const struct cairn_srv_request *request,
                        const struct cairn_srv_token *token) {
    char created[32], expires[32];
    CAIRN_AUTO_JSON json_t *scopes = cairn_scopes_json(token->scopes);
    bool expired = token->expires_ms && token->expires_ms <= cairn_srv_wall_ms(request->server);
    cairn_time_text(token->created_ms, true, created);
    return CAIRN_PACK(token_row, .id = token->key.id, .name = token->name,
                      .scopes = scopes, .project = token->projects,
                      .created_at = created, .expires_at = time_or_null(token->expires_ms, expires),
                      .expired = expired, .actor = token->who);
}

/* Rows of others are passed over, so a page may be short and have a next one. */
static enum cairn_code add_row(const struct cairn_srv_token *token, void *owner,
                               struct cairn_error *err) {
    struct call *call = owner;
    call->looked++;
    (void)cairn_text_copy(call->last, sizeof(call->last), token->key.id);
    if (!is_his(call->request, token->projects) ||
        !json_array_append_new(call->items, row_json(call->request, token)))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
}

static enum cairn_code list(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    json_array_clear(call->items);
    call->looked = 0;
    return cairn_srv_tokens_each(tx, call->after, call->limit, add_row, call, err);
}

enum cairn_code cairn_srv_on_token_list(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_query_limit(request, &call.limit, err));
    CAIRN_TRY(cairn_srv_cursor_read(request, call.after, sizeof(call.after), err));
    call.items = json_array();
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, list, &call, err);
    if (code) json_decref(call.items);
    if (code) return code;
    if (call.looked == call.limit) call.next = cairn_srv_cursor_write(request->server, call.last);
    return cairn_srv_reply_page(reply, call.items, call.next, err);
}

/* ---- DELETE /v1/tokens/{token} ---- */

static enum cairn_code drop(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    const char *id = call->request->params.node;
    CAIRN_TRY(cairn_srv_token_get(tx, id, &call->token, err));
    if (!is_his(call->request, call->token.projects))
        return cairn_fail(err, CAIRN_NOT_FOUND, "there is no token %s", id);
    return cairn_srv_token_drop(tx, &call->token, err);
}

/* After the row, which a store that is away keeps from nothing. */
static bool tell_store(const struct call *call) {
    const struct cairn_token_key *key = &call->token.key;
    struct cairn_error why = {0};
    if (cairn_srv_revoked_put(call->request->store, key->id, &why) == CAIRN_OK) return true;
    cairn_log(WARN, "token.revoked_unstored", "token=%s cause=\"%s\"", key->id, why.message);
    return false;
}

enum cairn_code cairn_srv_on_token_revoke(struct cairn_srv_request *request,
                                          struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, drop, &call, err));
    if (server->access) cairn_srv_access_reload(server->access);
    cairn_log(INFO, "token.revoked", "token=%s name=%s", call.token.key.id, call.token.name);
    bool stored = tell_store(&call);
    return cairn_srv_reply_json(
        reply, 200, CAIRN_PACK(token_revoked, .id = call.token.key.id, .stored = stored), err);
}

/* ---- GET /v1/whoami ---- */

enum cairn_code cairn_srv_on_whoami(struct cairn_srv_request *request,
                                    struct cairn_srv_reply *reply, struct cairn_error *err) {
    const struct cairn_srv_caller *caller = &request->caller;
    bool all = caller->kind == CAIRN_SRV_EVERYBODY;
    char expires[32];
    CAIRN_AUTO_JSON json_t *scopes = cairn_scopes_json(all ? CAIRN_SCOPES_ALL : caller->scopes);
    return cairn_srv_reply_json(
        reply, 200,
        CAIRN_PACK(whoami, .tokens_needed = request->server->settings->require_token,
                   .id = caller->id[0] ? caller->id : NULL, .actor = caller->who,
                   .scopes = scopes,
                   .project = all ? "*" : caller->projects,
                   .expires_at = time_or_null(caller->expires_ms, expires)),
        err);
}
