/* SPDX-License-Identifier: Apache-2.0 */
/* POST, GET, DELETE /v1/tokens; GET /v1/whoami; the store's .cairn/revoked/<token>.json. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "server/http/request.h"
#include "store/open.h"

#define FAMILY_MAX 1001 /* a token and its valid descendants; the store gets one object for each */
#define SALT_BYTES 16

struct token_call {
    struct srv_request *request;
    struct srv_token token;
    char *text;                    /* CAIRN_TOKEN_TEXT_BYTES; wiped by its owner */
    char salt[2 * SALT_BYTES + 1]; /* of a token made with an Idempotency-Key */
};

static const char *time_or_null(int64_t wall_ms, char text[32]) {
    cairn_time_text(wall_ms, true, text);
    return wall_ms ? text : NULL;
}

/* A token bound to some projects makes, sees and revokes only tokens within these projects. */
static bool is_his(const struct srv_request *request, const char *projects) {
    return request->caller.kind == SRV_EVERYBODY ||
           cairn_project_pattern_covers(request->caller.projects, projects);
}

/* ---- POST /v1/tokens ---- */

static enum cairn_code read_wanted(struct token_call *call, const struct cairn_msg_token_make *said,
                                   struct cairn_error *err) {
    const struct srv_caller *caller = &call->request->caller;
    struct srv_token *token = &call->token;
    bool bound = caller->kind == SRV_TOKEN;
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
    (void)cairn_text_copy(token->parent, sizeof(token->parent), caller->id);
    token->created_ms = srv_wall_ms(call->request->server);
    if (said->expires_s) token->expires_ms = token->created_ms + (int64_t)said->expires_s * 1000;
    /* Otherwise a token that expires in a day could make one that never does. */
    if (!bound || !caller->expires_ms) return CAIRN_OK;
    if (token->expires_ms > caller->expires_ms)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "/expires_s: %s ends before that, and what it makes ends with it",
                          caller->who);
    if (!token->expires_ms) token->expires_ms = caller->expires_ms;
    return CAIRN_OK;
}

/* The text is not stored: a repeat derives it from the grant key and its row's salt. */
static void derive_text(const struct token_call *call, const char *salt, char *ret_text,
                        struct cairn_token_key *ret) {
    const struct srv *server = call->request->server;
    struct cairn_view key = {server->grant_key, sizeof(server->grant_key)};
    uint8_t seed[2 * CAIRN_SHA256_BYTES];
    for (size_t half = 0; half < 2; half++) {
        char said[48];
        snprintf(said, sizeof(said), "token %zu %s", half, salt);
        cairn_hmac_sha256(key, cairn_view_of(said), seed + half * CAIRN_SHA256_BYTES);
    }
    cairn_token_make_of(seed, ret_text, ret);
    cairn_wipe(seed, sizeof(seed));
}

/* subject: id and salt of the token made earlier with this Idempotency-Key. */
static enum cairn_code find_repeated(struct srv_tx *tx, struct token_call *call, char *subject,
                                     struct cairn_error *err) {
    struct cairn_token_key key = {0};
    struct cairn_error why = {0};
    char *salt = strchr(subject, ' ');
    CAIRN_ASSERT(salt);
    *salt++ = '\0';
    enum cairn_code code = srv_token_get(tx, subject, &call->token, &why);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_CONFLICT,
                          "the token %s that was made with this Idempotency-Key is gone: make "
                          "another one with a new key",
                          subject);
    CAIRN_TRY(cairn_pass(err, code, &why));
    derive_text(call, salt, call->text, &key);
    if (!memcmp(key.digest, call->token.key.digest, sizeof(key.digest))) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT,
                      "the token %s was made by a server with another grant.key, and its text "
                      "cannot be told again: revoke it",
                      subject);
}

SRV_CHANGE(put_token, struct token_call *call) {
    char subject[SRV_SUBJECT_BYTES];
    CAIRN_TRY(srv_idempotency_find(tx, subject, err));
    if (subject[0]) return find_repeated(tx, call, subject, err);
    CAIRN_TRY(srv_token_put(tx, &call->token, err));
    snprintf(subject, sizeof(subject), "%s %s", call->token.key.id, call->salt);
    return srv_idempotency_keep(tx, subject, err);
}

static enum cairn_code make_token(struct token_call *call, struct srv_reply *reply,
                                  struct cairn_error *err) {
    struct srv *server = call->request->server;
    struct srv_token *token = &call->token;
    char expires[32], *text = call->text;
    uint8_t salt[SALT_BYTES];
    server->random(salt, sizeof(salt));
    cairn_hex_encode(salt, sizeof(salt), call->salt);
    if (call->request->idempotency_key[0])
        derive_text(call, call->salt, text, &token->key);
    else
        cairn_token_make(server->random, text, &token->key);
    uint64_t looks = server->access ? srv_access_looks(server->access) : 0;
    CAIRN_TRY(srv_catalog_write(server->catalog, put_token, call, err));
    CAIRN_AUTO_JSON json_t *scopes = cairn_scopes_json(token->scopes);
    if (server->access) srv_access_add(server->access, token, looks);
    cairn_log(INFO, "token.made", "token=%s name=%s projects=%s", token->key.id, token->name,
              token->projects);
    return srv_reply_json(reply, 201,
                          CAIRN_PACK(token_made, .id = token->key.id, .token = text,
                                     .name = token->name, .scopes = scopes,
                                     .project = token->projects,
                                     .expires_at = time_or_null(token->expires_ms, expires)),
                          err);
}

SRV_HANDLER(token_make) {
    struct token_call call = {.request = request};
    char text[CAIRN_TOKEN_TEXT_BYTES];
    SRV_BODY(body, token_make, said, 100);
    CAIRN_TRY(read_wanted(&call, &said, err));
    call.text = text;
    enum cairn_code code = make_token(&call, reply, err);
    cairn_wipe(text, sizeof(text));
    return code;
}

/* ---- GET /v1/tokens ---- */

static json_t *token_json(const struct srv_request *request, const struct srv_token *token) {
    char created[32], expires[32];
    CAIRN_AUTO_JSON json_t *scopes = cairn_scopes_json(token->scopes);
    bool expired = srv_token_expired(token, srv_wall_ms(request->server));
    cairn_time_text(token->created_ms, true, created);
    return CAIRN_PACK(token_row, .id = token->key.id, .name = token->name, .scopes = scopes,
                      .project = token->projects, .created_at = created,
                      .expires_at = time_or_null(token->expires_ms, expires), .expired = expired,
                      .actor = token->who, .parent = token->parent[0] ? token->parent : NULL);
}

/* Skips rows outside of the caller's projects, so a short page may have a next page. */
SRV_HANDLER(token_list) {
    SRV_GET(list, list, srv_list_open(request, &list, err));
    SRV_LOOK(look, request->server->catalog, err);
    SRV_GET(rows, rows, srv_tokens_open(look.tx, list.after, list.limit, &rows, err));
    SQL_EACH(&rows, err) {
        struct srv_token token;
        CAIRN_TRY(srv_token_row(&rows, &token, err));
        if (srv_list_takes(&list, token.key.id) && is_his(request, token.projects))
            CAIRN_TRY(srv_list_add(&list, token_json(request, &token), err));
    }
    list.more = list.count == list.limit;
    return srv_list_reply(&list, reply, err);
}

/* ---- DELETE /v1/tokens/{token} ---- */

enum children { CHILDREN_ASK, CHILDREN_REVOKE, CHILDREN_KEEP };

/* items[0] is the token, then its valid descendants; expired tokens have none (read_wanted). */
struct revoking {
    struct srv_request *request;
    enum children children;
    struct srv_token items[FAMILY_MAX];
    size_t count;
};

static enum cairn_code find_family(struct srv_tx *tx, struct revoking *revoking,
                                   struct cairn_error *err) {
    int64_t now_ms = srv_wall_ms(revoking->request->server);
    for (size_t i = 0; i < revoking->count; i++) {
        SRV_GET(rows, rows, srv_token_children(tx, revoking->items[i].key.id, &rows, err));
        SQL_EACH(&rows, err) {
            struct srv_token token;
            CAIRN_TRY(srv_token_row(&rows, &token, err));
            if (srv_token_expired(&token, now_ms)) continue;
            if (revoking->count == FAMILY_MAX)
                return cairn_fail(err, CAIRN_CONFLICT,
                                  "more than %d tokens that are good were made by it: revoke some "
                                  "of them first",
                                  FAMILY_MAX - 1);
            revoking->items[revoking->count++] = token;
        }
    }
    return CAIRN_OK;
}

/* A child may have been handed out on purpose or made by a thief, so the caller must choose. */
static enum cairn_code ask_about_children(const struct revoking *revoking,
                                          struct cairn_error *err) {
    CAIRN_AUTO(buf) names = {.limit = 200};
    for (size_t i = 1; i < revoking->count; i++) {
        const struct srv_token *one = &revoking->items[i];
        if (cairn_buf_printf(&names, NULL, "%s%s%s%s", i > 1 ? ", " : "", one->key.id,
                             one->name[0] ? " " : "", one->name))
            break; /* GET /v1/tokens lists all of them */
    }
    return cairn_fail(err, CAIRN_CONFLICT,
                      "%zu tokens were made by it that are good (%s ...): children=revoke takes "
                      "them, too, children=keep leaves them",
                      revoking->count - 1, names.data);
}

SRV_CHANGE(drop_family, struct revoking *revoking) {
    const char *id = revoking->request->params.node;
    CAIRN_TRY(srv_token_get(tx, id, &revoking->items[0], err));
    if (!is_his(revoking->request, revoking->items[0].projects))
        return cairn_fail(err, CAIRN_NOT_FOUND, "there is no token %s", id);
    revoking->count = 1;
    if (revoking->children != CHILDREN_KEEP) CAIRN_TRY(find_family(tx, revoking, err));
    if (revoking->children == CHILDREN_ASK && revoking->count > 1)
        return ask_about_children(revoking, err);
    for (size_t i = revoking->count; i > 0; i--)
        CAIRN_TRY(srv_token_drop(tx, &revoking->items[i - 1], err));
    return CAIRN_OK;
}

/* After the rows are deleted: an unreachable store must not delay a revocation. */
static bool tell_store(const struct revoking *revoking) {
    bool stored = true;
    for (size_t i = 0; i < revoking->count && stored; i++) {
        const char *id = revoking->items[i].key.id;
        struct cairn_error why = {0};
        if (!srv_revoked_put(revoking->request->store, id, &why)) continue;
        cairn_log(WARN, "token.revoked_unstored", "token=%s cause=\"%s\"", id, why.message);
        stored = false;
    }
    return stored;
}

static enum cairn_code read_children(const struct srv_request *request, enum children *ret,
                                     struct cairn_error *err) {
    const char *text = cairn_query_get(&request->query, "children");
    *ret = !text ? CHILDREN_ASK : !strcmp(text, "keep") ? CHILDREN_KEEP : CHILDREN_REVOKE;
    if (!text || *ret == CHILDREN_KEEP || !strcmp(text, "revoke")) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "children: want revoke or keep, not %.40s", text);
}

SRV_HANDLER(token_revoke) {
    struct srv *server = request->server;
    CAIRN_AUTO_HEAP struct revoking *revoking = calloc(1, sizeof(*revoking));
    if (!revoking) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a revocation");
    revoking->request = request;
    CAIRN_TRY(read_children(request, &revoking->children, err));
    CAIRN_TRY(srv_catalog_write(server->catalog, drop_family, revoking, err));
    if (server->access) srv_access_reload(server->access);
    CAIRN_AUTO_JSON json_t *children = json_array();
    bool added = children;
    for (size_t i = 0; i < revoking->count; i++) {
        const struct srv_token *one = &revoking->items[i];
        cairn_log(INFO, "token.revoked", "token=%s name=%s", one->key.id, one->name);
        if (i) added &= !json_array_append_new(children, json_string(one->key.id));
    }
    bool stored = tell_store(revoking);
    if (!added) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    return srv_reply_json(reply, 200,
                          CAIRN_PACK(token_revoked, .id = revoking->items[0].key.id,
                                     .stored = stored, .children = children),
                          err);
}

/* ---- GET /v1/whoami ---- */

SRV_HANDLER(whoami) {
    const struct srv_caller *caller = &request->caller;
    bool all = caller->kind == SRV_EVERYBODY;
    char expires[32];
    CAIRN_AUTO_JSON json_t *scopes = cairn_scopes_json(all ? CAIRN_SCOPES_ALL : caller->scopes);
    return srv_reply_json(reply, 200,
                          CAIRN_PACK(whoami,
                                     .tokens_needed = request->server->settings->require_token,
                                     .id = caller->id[0] ? caller->id : NULL, .actor = caller->who,
                                     .scopes = scopes, .project = all ? "*" : caller->projects,
                                     .expires_at = time_or_null(caller->expires_ms, expires)),
                          err);
}

/* ---- revocations in the store ---- */

#define PREFIX ".cairn/revoked/"

enum cairn_code srv_revoked_put(struct cairn_store_worker *worker, const char *token,
                                struct cairn_error *err) {
    struct cairn_key key;
    char text[128];
    cairn_key_revoked(token, &key);
    int size = snprintf(text, sizeof(text), "{\"cairn_revoked\":1,\"token\":\"%s\"}", token);
    enum cairn_code code =
        cairn_store_put_same(worker, key.text, (struct cairn_view){text, (size_t)size}, err);
    return code ? cairn_within(err, code, "%s", key.text) : CAIRN_OK;
}

void srv_revoked_release(struct srv_revoked *revoked) {
    free(revoked->items);
    *revoked = (struct srv_revoked){0};
}

/* Skips keys that cairn does not write. */
static enum cairn_code add_revoked(struct srv_revoked *ret, const struct cairn_store_entry *entry,
                                   struct cairn_error *err) {
    const char *name = entry->key + strlen(PREFIX);
    char token[CAIRN_TOKEN_ID_BYTES];
    struct cairn_key key;
    snprintf(token, sizeof(token), "%.*s", (int)strcspn(name, "."), name);
    if (!cairn_name_valid(cairn_view_of(token))) return CAIRN_OK;
    cairn_key_revoked(token, &key);
    if (strcmp(key.text, entry->key) != 0) return CAIRN_OK;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(ret->items, ret->count, ret->capacity, SRV_REVOKED_MAX,
                               "revoked tokens", err));
    (void)cairn_text_copy(ret->items[ret->count].token, sizeof(token), token);
    ret->items[ret->count++].modified_ms = entry->modified_ms;
    return CAIRN_OK;
}

enum cairn_code srv_revoked_list(struct cairn_store_worker *worker, struct srv_revoked *ret,
                                 struct cairn_error *err) {
    CAIRN_AUTO(store_pages) pages = {.list = {.op = CAIRN_STORE_LIST, .key = PREFIX}};
    ret->count = 0;
    while (!pages.ended) {
        CAIRN_TRY(cairn_store_pages_next(&pages, worker, err));
        for (size_t i = 0; i < pages.listing.count; i++)
            CAIRN_TRY(add_revoked(ret, &pages.listing.entries[i], err));
    }
    return CAIRN_OK;
}

/* ---- rows ---- */

enum cairn_code srv_revoked_rows(struct srv_tx *tx, const struct srv_revoked *revoked, bool drops,
                                 uint64_t *ret_count, struct cairn_error *err) {
    *ret_count = 0;
    for (size_t i = 0; i < revoked->count; i++) {
        struct srv_token token;
        struct cairn_error why = {0};
        enum cairn_code code = srv_token_get(tx, revoked->items[i].token, &token, &why);
        if (code == CAIRN_NOT_FOUND) continue;
        CAIRN_TRY(cairn_pass(err, code, &why));
        if (drops) CAIRN_TRY(srv_token_drop(tx, &token, err));
        (*ret_count)++;
    }
    return CAIRN_OK;
}

struct revoked_rows {
    const struct srv_revoked *revoked;
    uint64_t count; /* rows found */
};

SRV_CHANGE(drop_rows, struct revoked_rows *found) {
    return srv_revoked_rows(tx, found->revoked, true, &found->count, err);
}

static enum cairn_code drop_revoked(struct srv *server, struct cairn_store_worker *worker,
                                    struct cairn_error *err) {
    SRV_AUTO(revoked) revoked = {0};
    struct revoked_rows found = {.revoked = &revoked};
    struct cairn_store_record record; /* an unmounted folder would list nothing */
    CAIRN_TRY(cairn_store_record_get(worker, 0, &record, err));
    CAIRN_TRY(srv_revoked_list(worker, &revoked, err));
    {
        SRV_LOOK(look, server->catalog, err);
        CAIRN_TRY(srv_revoked_rows(look.tx, &revoked, false, &found.count, err));
    }
    if (!found.count) return CAIRN_OK;
    CAIRN_TRY(srv_catalog_write(server->catalog, drop_rows, &found, err));
    if (server->access) srv_access_reload(server->access);
    cairn_log(WARN, "token.revoked_again", "tokens=%" PRIu64, found.count);
    return CAIRN_OK;
}

void srv_revoked_look(struct srv *server, struct cairn_store_worker *worker) {
    struct cairn_error why = {0};
    if (server->revocations == SRV_REVOCATIONS_READ) return;
    enum cairn_code code = drop_revoked(server, worker, &why);
    if (code && server->revocations == SRV_REVOCATIONS_UNREAD)
        cairn_log(WARN, "token.revocations_unread", "cause=\"%s\"", why.message);
    server->revocations = code ? SRV_REVOCATIONS_MISSED : SRV_REVOCATIONS_READ;
}

void srv_revoked_drop(struct cairn_store_worker *worker, int64_t before_ms) {
    SRV_AUTO(revoked) revoked = {0};
    struct cairn_error why = {0};
    enum cairn_code code = srv_revoked_list(worker, &revoked, &why);
    for (size_t i = 0; i < revoked.count && !code; i++) {
        struct cairn_key key;
        if (!revoked.items[i].modified_ms || revoked.items[i].modified_ms >= before_ms) continue;
        cairn_key_revoked(revoked.items[i].token, &key);
        code = cairn_store_delete(worker, key.text, &why);
    }
    if (code) cairn_log(DEBUG, "token.revocations_left", "cause=\"%s\"", why.message);
}
