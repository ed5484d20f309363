/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tokens and of idempotency keys; see tokens.h. */
#include "server/ledger/tokens.h"

#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "server/db/engine.h"
#include "server/ledger/events.h"
#include "server/ledger/rows.h"

static const struct cairn_run_name everything = {"", ""};

/* The token's rights, for the audit; without secret and digest. */
static enum cairn_code value_of(const struct srv_token *token, struct cairn_buf *ret,
                                struct cairn_error *err) {
    char created[32], expires[32];
    cairn_time_text(token->created_ms, true, created);
    cairn_time_text(token->expires_ms, true, expires);
    CAIRN_AUTO_JSON json_t *scopes = cairn_scopes_json(token->scopes);
    CAIRN_AUTO_JSON json_t *json =
        scopes ? CAIRN_PACK(token_row, .id = token->key.id, .name = token->name, .scopes = scopes,
                            .project = token->projects, .created_at = created,
                            .expires_at = token->expires_ms ? expires : NULL, .actor = token->who,
                            .parent = token->parent[0] ? token->parent : NULL)
               : NULL;
    if (!json) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an event");
    return cairn_json_dump(json, ret, err);
}

/* The event keeps the rights after the row is gone. */
static enum cairn_code write_event(struct srv_tx *tx, enum srv_event event,
                                   const struct srv_token *token, struct cairn_error *err) {
    char scopes[CAIRN_SCOPES_TEXT_BYTES], reason[400];
    cairn_scopes_text(token->scopes, scopes);
    snprintf(reason, sizeof(reason), "%s%s%s may %s in %s", token->key.id,
             token->name[0] ? " " : "", token->name, scopes, token->projects);
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(value_of(token, &text, err));
    bool made = event == SRV_EVENT_TOKEN_MADE;
    CAIRN_TRY(srv_event_of_change(tx, event, &everything, reason, made ? "" : text.data,
                                  made ? text.data : "", err));
    srv_notify_text(tx, SRV_TOKENS_KEY);
    return CAIRN_OK;
}

enum cairn_code srv_token_row(const struct srv_rows *rows, struct srv_token *ret,
                              struct cairn_error *err) {
    if (srv_rows_blob(rows, 1).size != sizeof(ret->key.digest) ||
        strlen(srv_rows_text(rows, 0)) >= sizeof(ret->key.id))
        return cairn_fail(err, CAIRN_IO, "a row of tokens is none");
    *ret = (struct srv_token){.scopes = 0};
    (void)srv_rows_take(rows, 0, ROW(token), ret);
    ret->over = ret->expires_ms < 0;
    if (ret->over) ret->expires_ms = -ret->expires_ms;
    return CAIRN_OK;
}

enum cairn_code srv_token_get(struct srv_tx *tx, const char *id, struct srv_token *ret,
                              struct cairn_error *err) {
    bool found = false;
    SQL_FIRST(rows, &found, tx, err, SQL(token_get), SQL_T(id));
    if (!found) return cairn_fail(err, CAIRN_NOT_FOUND, "there is no token %s", id);
    return srv_token_row(&rows, ret, err);
}

/* A token revoked while it makes another must leave none behind. */
static enum cairn_code look_for_parent(struct srv_tx *tx, const struct srv_token *token,
                                       struct cairn_error *err) {
    struct srv_token parent;
    struct cairn_error why = {0};
    if (!token->parent[0]) return CAIRN_OK;
    enum cairn_code code = srv_token_get(tx, token->parent, &parent, &why);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "the token was revoked meanwhile");
    return cairn_pass(err, code, &why);
}

/* Keeps starts with --new-admin-token from filling the operator's own rows. */
static enum cairn_code drop_oldest_operator(struct srv_tx *tx, struct cairn_error *err) {
    struct srv_token oldest;
    bool found = false;
    {
        SQL_FIRST(rows, &found, tx, err, SQL(tokens_oldest_by), SQL_T(SRV_TOKENS_SERVER),
                  SQL_T(SRV_TOKENS_OPERATORS));
        if (found) CAIRN_TRY(srv_token_row(&rows, &oldest, err));
    }
    return found ? srv_token_drop(tx, &oldest, err) : CAIRN_OK;
}

static enum cairn_code make_room(struct srv_tx *tx, const struct srv_token *token,
                                 struct cairn_error *err) {
    bool operators = !strcmp(token->who, SRV_TOKENS_SERVER);
    int64_t now_ms = token->created_ms;
    uint64_t count = 0;
    CAIRN_TRY(
        srv_sql_run(tx, NULL, err, SQL(tokens_drop_expired), SQL_I(now_ms - SRV_TOKEN_KEPT_MS)));
    CAIRN_TRY(srv_sql_u64(tx, &count, err, SQL(tokens_count)));
    if (count < SRV_TOKENS_MAX) return CAIRN_OK;
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(tokens_drop_longest_expired), SQL_I(now_ms),
                          SQL_I(count - SRV_TOKENS_MAX + 1)));
    CAIRN_TRY(srv_sql_u64(tx, &count, err, SQL(tokens_count)));
    if (count < SRV_TOKENS_MAX) return CAIRN_OK;
    if (!operators)
        return cairn_fail(err, CAIRN_CONFLICT,
                          "there are %d tokens that are good: revoke some first, and give those "
                          "to come an end (expires_s)",
                          SRV_TOKENS_MAX);
    bool full = count >= SRV_TOKENS_MAX + SRV_TOKENS_OPERATOR;
    return full ? drop_oldest_operator(tx, err) : CAIRN_OK;
}

enum cairn_code srv_token_put(struct srv_tx *tx, const struct srv_token *token,
                              struct cairn_error *err) {
    CAIRN_TRY(look_for_parent(tx, token, err));
    CAIRN_TRY(make_room(tx, token, err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(token_put), SQL_T(token->key.id),
                          SQL_D(token->key.digest), SQL_T(token->name), SQL_I(token->scopes),
                          SQL_T(token->projects), SQL_I(token->created_ms),
                          SQL_I(token->over ? -token->expires_ms : token->expires_ms),
                          SQL_T(token->who), SQL_T(token->parent)));
    return write_event(tx, SRV_EVENT_TOKEN_MADE, token, err);
}

enum cairn_code srv_token_drop(struct srv_tx *tx, const struct srv_token *token,
                               struct cairn_error *err) {
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(token_drop), SQL_T(token->key.id)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(token_children_go_to), SQL_T(token->key.id),
                          SQL_T(token->parent)));
    return write_event(tx, SRV_EVENT_TOKEN_REVOKED, token, err);
}

/* ---- idempotency keys ---- */

static const struct srv_idempotency *asked(const struct srv_tx *tx) {
    return tx->actor ? tx->actor->idempotency : NULL;
}

enum cairn_code srv_idempotency_find(struct srv_tx *tx, char ret_subject[SRV_SUBJECT_BYTES],
                                     struct cairn_error *err) {
    const struct srv_idempotency *call = asked(tx);
    bool found = false;
    ret_subject[0] = '\0';
    if (!call) return CAIRN_OK;
    SQL_FIRST(rows, &found, tx, err, SQL(idempotency_get), SQL_T(call->caller), SQL_T(call->key),
              SQL_I(tx->wall_ms - SRV_IDEMPOTENCY_KEPT_MS));
    if (!found) return CAIRN_OK;
    struct cairn_view digest = srv_rows_blob(&rows, 0);
    if (digest.size != sizeof(call->digest) ||
        memcmp(digest.data, call->digest, sizeof(call->digest)) != 0)
        return cairn_fail(err, CAIRN_KEY_REUSED,
                          "Idempotency-Key \"%.64s\" was sent with another call: make a new one",
                          call->key);
    (void)cairn_text_copy(ret_subject, SRV_SUBJECT_BYTES, srv_rows_text(&rows, 1));
    return CAIRN_OK;
}

enum cairn_code srv_idempotency_keep(struct srv_tx *tx, const char *subject,
                                     struct cairn_error *err) {
    const struct srv_idempotency *call = asked(tx);
    if (!call) return CAIRN_OK;
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(idempotency_drop_old),
                          SQL_I(tx->wall_ms - SRV_IDEMPOTENCY_KEPT_MS)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(idempotency_drop_many), SQL_T(call->caller),
                          SQL_I(SRV_IDEMPOTENCY_MAX - 1)));
    return srv_sql_run(tx, NULL, err, SQL(idempotency_put), SQL_T(call->caller), SQL_T(call->key),
                       SQL_D(call->digest), SQL_T(subject), SQL_I(tx->wall_ms));
}
