/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens: rows of bearer tokens (scopes, projects, expiry) and of Idempotency-Key values.
 *
 * Why:     rights must outlive the process and be the same at each server. A client without an
 *          answer repeats its POST, which must not create a second token or operation.
 * Promise: 1   a row has the SHA-256 of a token and not the token.
 *          2   each change is an event with its actor, and other servers are notified.
 *          3   an expired token never blocks a new one: it is kept for SRV_TOKEN_KEPT_MS for
 *              display, and dropped earlier, oldest expiry first, when the table is full.
 *          4   the operator's token has reserved rows, also when all others are taken.
 *          5   a second call of a caller with the same key creates nothing and gets the first one's
 *              result: the key's row is in the same transaction.
 *          6   the same key with another method, path or body is CAIRN_KEY_REUSED, without effect.
 *          7   keys of different callers are independent.
 * Limits:  SRV_TOKENS_MAX rows, plus SRV_TOKENS_OPERATOR for the operator's; when these
 *          are full, the oldest operator's token is revoked for the new one. Keys:
 *          SRV_IDEMPOTENCY_KEPT_MS, and the newest SRV_IDEMPOTENCY_MAX of a caller.
 * Threads: inside a transaction.
 * Next:    server/access/access.h (checks), api/wire/rights.h; server/handle.c.
 */
#pragma once

#include "api/wire/rights.h"
#include "api/wire/words.h"
#include "server/db/sql.h"

#define SRV_TOKENS_MAX 10000
#define SRV_TOKENS_OPERATOR 16
#define SRV_TOKEN_KEPT_MS (INT64_C(30) * 24 * 3600 * 1000)
#define SRV_TOKENS_KEY "tokens" /* for notifications (catalog.h) */
/* Maker and name of the operator's token: callers are named by token id, so none has it. */
#define SRV_TOKENS_SERVER "cairn-server"
#define SRV_TOKENS_OPERATORS "operator"

struct srv_token {
    struct cairn_token_key key;
    char name[CAIRN_NAME_BYTES_MAX + 1];     /* for display; "": none */
    char projects[CAIRN_NAME_BYTES_MAX + 1]; /* a pattern */
    char who[160];
    char parent[CAIRN_TOKEN_ID_BYTES]; /* the maker's token; "": none that exists */
    unsigned scopes;
    int64_t created_ms, expires_ms; /* wall time, as promised; 0: no end */
    bool over; /* has expired: stays so if the clock is set back; row: negative date */
};
static inline bool srv_token_expired(const struct srv_token *token, int64_t now_ms) {
    return token->over || (token->expires_ms && token->expires_ms <= now_ms);
}
/* CAIRN_UNAUTHORIZED: its parent was revoked. CAIRN_CONFLICT: too many valid tokens. */
enum cairn_code srv_token_put(struct srv_tx *tx, const struct srv_token *token,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* Marks tokens expired at now_ms. */
SRV_RUNS(tokens_end, (int64_t now_ms), tokens_end_expired, SQL_I(now_ms));
/* CAIRN_NOT_FOUND: unknown id. */
enum cairn_code srv_token_get(struct srv_tx *tx, const char *id, struct srv_token *ret,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* Its children get its own parent. */
enum cairn_code srv_token_drop(struct srv_tx *tx, const struct srv_token *token,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Rows of tokens, by id: a token's direct children; all (after NULL), or `limit` after that id. */
SRV_OPENS(token_children, (const char *id), token_children, SQL_T(id));
SRV_WORD srv_tokens_open(struct srv_tx *tx, const char *after, uint64_t limit, struct srv_rows *ret,
                         struct cairn_error *err) {
    return after ? srv_sql_open(tx, ret, err, SQL(tokens_page), SQL_T(after), SQL_I(limit))
                 : srv_sql_open(tx, ret, err, SQL(tokens_all));
}
enum cairn_code srv_token_row(const struct srv_rows *rows, struct srv_token *ret,
                              struct cairn_error *err) CAIRN_MUST_USE;

/* ---- idempotency keys ---- */

#define SRV_IDEMPOTENCY_KEPT_MS (INT64_C(24) * 3600 * 1000)
#define SRV_IDEMPOTENCY_MAX 1000
#define SRV_IDEMPOTENCY_KEY_MAX 255
#define SRV_SUBJECT_BYTES 128

/* The key of a request; texts belong to the request. */
struct srv_idempotency {
    const char *caller, *key;
    uint8_t digest[CAIRN_SHA256_BYTES]; /* of method, path and body */
};

/* Id created earlier with the key of this change's call; "": no key, or nothing created yet. */
enum cairn_code srv_idempotency_find(struct srv_tx *tx, char ret_subject[SRV_SUBJECT_BYTES],
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Stores the created id under the call's key; nothing without a key. */
enum cairn_code srv_idempotency_keep(struct srv_tx *tx, const char *subject,
                                     struct cairn_error *err) CAIRN_MUST_USE;
