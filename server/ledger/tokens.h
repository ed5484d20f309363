/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens: rows of bearer tokens (who may do what in which projects, until when) and of what their
 * callers named with the header Idempotency-Key.
 *
 * Why:     rights must outlive the process and be the same at each server of a catalog. Who got no
 *          answer to a POST sends it again; what each call makes anew (a token, an operation that
 *          has ended meanwhile) would be there twice.
 * Promise: 1   a row has the SHA-256 of a token and not the token.
 *          2   each change is an event with who made it, and is told to other servers.
 *          3   a token that has expired never stands in the way of a new one: it is kept for
 *              CAIRN_SRV_TOKEN_KEPT_MS to be looked at, and where the rows are full those that
 *              expired first go.
 *          4   the operator's token has a place wherever all others are taken.
 *          5   of two calls of one caller with the same key the second one makes nothing and is
 *              answered with what the first one made: the row stands in the same transaction.
 *          6   the same key with another method, path or body is CAIRN_KEY_REUSED, and nothing
 *              happens.
 *          7   one caller's keys are nothing to another one.
 * Limits:  CAIRN_SRV_TOKENS_MAX rows, and CAIRN_SRV_TOKENS_OPERATOR beyond them for the operator's;
 *          where these are full, too, the oldest of the operator's is revoked for the new one.
 *          CAIRN_SRV_IDEMPOTENCY_KEPT_MS, and the newest CAIRN_SRV_IDEMPOTENCY_MAX of a caller.
 * Threads: inside a transaction.
 * Next:    server/access/access.h, which is asked; api/wire/rights.h; server/handle.c.
 */
#pragma once

#include "api/documents/keys.h"
#include "api/wire/rights.h"
#include "api/wire/words.h"
#include "common/hash/hash.h"
#include "server/db/sql.h"

#define CAIRN_SRV_TOKENS_MAX 10000
#define CAIRN_SRV_TOKENS_OPERATOR 16
#define CAIRN_SRV_TOKEN_KEPT_MS (INT64_C(30) * 24 * 3600 * 1000)
#define CAIRN_SRV_TOKENS_KEY "tokens" /* of catalog.h */
/* Who makes the operator's token, and its name: no caller is called so, by his token's id. */
#define CAIRN_SRV_TOKENS_SERVER "cairn-server"
#define CAIRN_SRV_TOKENS_OPERATORS "operator"

struct cairn_srv_token {
    struct cairn_token_key key;
    char name[CAIRN_NAME_BYTES_MAX + 1];     /* for people; "": none */
    char projects[CAIRN_NAME_BYTES_MAX + 1]; /* a pattern */
    char who[160];                           /* made it */
    char parent[CAIRN_TOKEN_ID_BYTES];       /* the token that did; "": none that is there */
    unsigned scopes;
    int64_t created_ms, expires_ms; /* wall time, as its date was promised; 0: no end */
    bool over; /* a clock has shown that date: it stays expired, also when that is set back. The
                  row's expires_ms is negative then */
};
static inline bool cairn_srv_token_expired(const struct cairn_srv_token *token, int64_t now_ms) {
    return token->over || (token->expires_ms && token->expires_ms <= now_ms);
}
/* CAIRN_UNAUTHORIZED where its parent was revoked meanwhile; CAIRN_CONFLICT where too many are
 * good, unless it is the operator's. */
enum cairn_code cairn_srv_token_put(struct cairn_srv_tx *tx, const struct cairn_srv_token *token,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Those whose date has come by now_ms are over. */
CAIRN_SRV_WORD cairn_srv_tokens_end(struct cairn_srv_tx *tx, int64_t now_ms,
                                    struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(tokens_end_expired), SQL_I(now_ms));
}
/* CAIRN_NOT_FOUND where there is none. */
enum cairn_code cairn_srv_token_get(struct cairn_srv_tx *tx, const char *id,
                                    struct cairn_srv_token *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* What it made belongs to its own maker from then on. */
enum cairn_code cairn_srv_token_drop(struct cairn_srv_tx *tx, const struct cairn_srv_token *token,
                                     struct cairn_error *err) CAIRN_MUST_USE;
typedef enum cairn_code cairn_srv_each_token(const struct cairn_srv_token *token, void *owner,
                                             struct cairn_error *err);
/* Those that it made itself, by id. */
enum cairn_code cairn_srv_token_children(struct cairn_srv_tx *tx, const char *id,
                                         cairn_srv_each_token *each, void *owner,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* All of them (after NULL), or `limit` behind that id; by id. */
enum cairn_code cairn_srv_tokens_each(struct cairn_srv_tx *tx, const char *after, uint64_t limit,
                                      cairn_srv_each_token *each, void *owner,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- idempotency keys ---- */

#define CAIRN_SRV_IDEMPOTENCY_KEPT_MS (INT64_C(24) * 3600 * 1000)
#define CAIRN_SRV_IDEMPOTENCY_MAX 1000
#define CAIRN_SRV_IDEMPOTENCY_KEY_MAX 255
#define CAIRN_SRV_SUBJECT_BYTES 128

/* Of a request; the texts are the request's. */
struct cairn_srv_idempotency {
    const char *caller, *key;
    uint8_t digest[CAIRN_SHA256_BYTES]; /* of method, path and body */
};

/* What was made with the key of the call that makes this change; "" where it has none, or nothing
 * was made yet. */
enum cairn_code cairn_srv_idempotency_find(struct cairn_srv_tx *tx,
                                           char ret_subject[CAIRN_SRV_SUBJECT_BYTES],
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* This is made with it; nothing where the call has no key. */
enum cairn_code cairn_srv_idempotency_keep(struct cairn_srv_tx *tx, const char *subject,
                                           struct cairn_error *err) CAIRN_MUST_USE;
