/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tokens and of idempotency keys; see tokens.h. */
#include "server/ledger/tokens.h"

#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/text.h"
#include "server/db/catalog.h"
#include "server/db/engine.h"
#include "server/ledger/events.h"

static const struct cairn_run_name everything = {"", ""};

/* The token's rights, for the audit; without secret and digest. */
static enum cairn_code value_of(const struct cairn_srv_token *token, struct cairn_buf *ret,
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
static enum cairn_code tell(struct cairn_srv_tx *tx, enum cairn_srv_event event,
                            const struct cairn_srv_token *token, struct cairn_error *err) {
    char scopes[CAIRN_SCOPES_TEXT_BYTES], reason[400];
    cairn_scopes_text(token->scopes, scopes);
    snprintf(reason, sizeof(reason), "%s%s%s may %s in %s", token->key.id,
             token->name[0] ? " " : "", token->name, scopes, token->projects);
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(value_of(token, &text, err));
    bool made = event == CAIRN_SRV_EVENT_TOKEN_MADE;
    CAIRN_TRY(cairn_srv_event_of_change(tx, event, &everything, reason, made ? "" : text.data,
                                        made ? text.data : "", err));
    cairn_srv_notify_text(tx, CAIRN_SRV_TOKENS_KEY);
    return CAIRN_OK;
}

/* Columns: token, digest, name, scopes, projects, created_ms, expires_ms, who, parent. */
static enum cairn_code read_row(const struct cairn_srv_rows *rows, struct cairn_srv_token *ret,
                                struct cairn_error *err) {
    struct cairn_view digest = cairn_srv_rows_blob(rows, 1);
    *ret = (struct cairn_srv_token){.scopes = (unsigned)cairn_srv_rows_i64(rows, 3),
                                    .created_ms = cairn_srv_rows_i64(rows, 5),
                                    .expires_ms = cairn_srv_rows_i64(rows, 6)};
    ret->over = ret->expires_ms < 0;
    if (ret->over) ret->expires_ms = -ret->expires_ms;
    if (digest.size != sizeof(ret->key.digest) ||
        !cairn_text_copy(ret->key.id, sizeof(ret->key.id), cairn_srv_rows_text(rows, 0)))
        return cairn_fail(err, CAIRN_IO, "a row of tokens is none");
    memcpy(ret->key.digest, digest.data, digest.size);
    SQL_COPY(ret->name, rows, 2);
    SQL_COPY(ret->projects, rows, 4);
    SQL_COPY(ret->who, rows, 7);
    SQL_COPY(ret->parent, rows, 8);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_token_get(struct cairn_srv_tx *tx, const char *id,
                                    struct cairn_srv_token *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &found, err, SQL(token_get), SQL_T(id)));
    if (!found) return cairn_fail(err, CAIRN_NOT_FOUND, "there is no token %s", id);
    return read_row(&rows, ret, err);
}

/* A token revoked while it makes another must leave none behind. */
static enum cairn_code look_for_parent(struct cairn_srv_tx *tx, const struct cairn_srv_token *token,
                                       struct cairn_error *err) {
    struct cairn_srv_token parent;
    struct cairn_error why = {0};
    if (!token->parent[0]) return CAIRN_OK;
    enum cairn_code code = cairn_srv_token_get(tx, token->parent, &parent, &why);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "the token was revoked meanwhile");
    if (code && err) *err = why;
    return code;
}

static enum cairn_code count_rows(struct cairn_srv_tx *tx, int64_t *ret, struct cairn_error *err) {
    bool found = false;
    return cairn_srv_sql_number(tx, &found, ret, err, SQL(tokens_count));
}

/* Keeps starts with --new-admin-token from filling the operator's own rows. */
static enum cairn_code drop_oldest_operator(struct cairn_srv_tx *tx, struct cairn_error *err) {
    struct cairn_srv_token oldest;
    bool found = false;
    {
        CAIRN_AUTO(srv_rows) rows = {0};
        CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &found, err, SQL(tokens_oldest_by),
                                      SQL_T(CAIRN_SRV_TOKENS_SERVER),
                                      SQL_T(CAIRN_SRV_TOKENS_OPERATORS)));
        if (found) CAIRN_TRY(read_row(&rows, &oldest, err));
    }
    return found ? cairn_srv_token_drop(tx, &oldest, err) : CAIRN_OK;
}

static enum cairn_code make_room(struct cairn_srv_tx *tx, const struct cairn_srv_token *token,
                                 struct cairn_error *err) {
    bool operators = !strcmp(token->who, CAIRN_SRV_TOKENS_SERVER);
    int64_t count = 0, now_ms = token->created_ms;
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(tokens_drop_expired),
                                SQL_I(now_ms - CAIRN_SRV_TOKEN_KEPT_MS)));
    CAIRN_TRY(count_rows(tx, &count, err));
    if (count < CAIRN_SRV_TOKENS_MAX) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(tokens_drop_longest_expired), SQL_I(now_ms),
                                SQL_I(count - CAIRN_SRV_TOKENS_MAX + 1)));
    CAIRN_TRY(count_rows(tx, &count, err));
    if (count < CAIRN_SRV_TOKENS_MAX) return CAIRN_OK;
    if (!operators)
        return cairn_fail(err, CAIRN_CONFLICT,
                          "there are %d tokens that are good: revoke some first, and give those "
                          "to come an end (expires_s)",
                          CAIRN_SRV_TOKENS_MAX);
    bool full = count >= CAIRN_SRV_TOKENS_MAX + CAIRN_SRV_TOKENS_OPERATOR;
    return full ? drop_oldest_operator(tx, err) : CAIRN_OK;
}

enum cairn_code cairn_srv_token_put(struct cairn_srv_tx *tx, const struct cairn_srv_token *token,
                                    struct cairn_error *err) {
    CAIRN_TRY(look_for_parent(tx, token, err));
    CAIRN_TRY(make_room(tx, token, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(token_put), SQL_T(token->key.id),
                                SQL_D(token->key.digest), SQL_T(token->name), SQL_I(token->scopes),
                                SQL_T(token->projects), SQL_I(token->created_ms),
                                SQL_I(token->over ? -token->expires_ms : token->expires_ms),
                                SQL_T(token->who), SQL_T(token->parent)));
    return tell(tx, CAIRN_SRV_EVENT_TOKEN_MADE, token, err);
}

enum cairn_code cairn_srv_token_drop(struct cairn_srv_tx *tx, const struct cairn_srv_token *token,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(token_drop), SQL_T(token->key.id)));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(token_children_go_to), SQL_T(token->key.id),
                                SQL_T(token->parent)));
    return tell(tx, CAIRN_SRV_EVENT_TOKEN_REVOKED, token, err);
}

static enum cairn_code walk(struct cairn_srv_rows *rows, cairn_srv_each_token *each, void *owner,
                            struct cairn_error *err) {
    for (bool more = true;;) {
        struct cairn_srv_token token;
        CAIRN_TRY(cairn_srv_rows_next(rows, &more, err));
        if (!more) return CAIRN_OK;
        CAIRN_TRY(read_row(rows, &token, err));
        CAIRN_TRY(each(&token, owner, err));
    }
}

enum cairn_code cairn_srv_token_children(struct cairn_srv_tx *tx, const char *id,
                                         cairn_srv_each_token *each, void *owner,
                                         struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(token_children), SQL_T(id)));
    return walk(&rows, each, owner, err);
}

enum cairn_code cairn_srv_tokens_each(struct cairn_srv_tx *tx, const char *after, uint64_t limit,
                                      cairn_srv_each_token *each, void *owner,
                                      struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    if (after)
        CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(tokens_page), SQL_T(after), SQL_I(limit)));
    else
        CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(tokens_all)));
    return walk(&rows, each, owner, err);
}

/* ---- idempotency keys ---- */

static const struct cairn_srv_idempotency *asked(const struct cairn_srv_tx *tx) {
    return tx->actor ? tx->actor->idempotency : NULL;
}

enum cairn_code cairn_srv_idempotency_find(struct cairn_srv_tx *tx,
                                           char ret_subject[CAIRN_SRV_SUBJECT_BYTES],
                                           struct cairn_error *err) {
    const struct cairn_srv_idempotency *call = asked(tx);
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    ret_subject[0] = '\0';
    if (!call) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &found, err, SQL(idempotency_get), SQL_T(call->caller),
                                  SQL_T(call->key),
                                  SQL_I(tx->wall_ms - CAIRN_SRV_IDEMPOTENCY_KEPT_MS)));
    if (!found) return CAIRN_OK;
    struct cairn_view digest = cairn_srv_rows_blob(&rows, 0);
    if (digest.size != sizeof(call->digest) ||
        memcmp(digest.data, call->digest, sizeof(call->digest)) != 0)
        return cairn_fail(err, CAIRN_KEY_REUSED,
                          "Idempotency-Key \"%.64s\" was sent with another call: make a new one",
                          call->key);
    (void)cairn_text_copy(ret_subject, CAIRN_SRV_SUBJECT_BYTES, cairn_srv_rows_text(&rows, 1));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_idempotency_keep(struct cairn_srv_tx *tx, const char *subject,
                                           struct cairn_error *err) {
    const struct cairn_srv_idempotency *call = asked(tx);
    if (!call) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(idempotency_drop_old),
                                SQL_I(tx->wall_ms - CAIRN_SRV_IDEMPOTENCY_KEPT_MS)));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(idempotency_drop_many), SQL_T(call->caller),
                                SQL_I(CAIRN_SRV_IDEMPOTENCY_MAX - 1)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(idempotency_put), SQL_T(call->caller),
                             SQL_T(call->key), SQL_D(call->digest), SQL_T(subject),
                             SQL_I(tx->wall_ms));
}
