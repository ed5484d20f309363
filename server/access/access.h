/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access: identifies a caller by its token, and limits its calls by scope and by rate.
 *
 * Why:     groups that share a server must not see, change or infer each other's data, nor starve
 *          each other with a script that polls in a loop.
 * Promise: A01  a token is found by id; its SHA-256 is compared in constant time, also if unknown.
 *          A02  the server that revokes a token refuses it at once, every other server within
 *               SRV_TOKENS_LOOK_MS; a server that could not read its catalog for
 *               SRV_TOKENS_OLD_MS accepts no token.
 *          P16  a call outside of a token's projects, or without its read scope, is answered 404 in
 *               the words of a missing run; 403 needs a token that may read but not change.
 *          1    a caller with a grant needs no token for the calls of a save that is under way
 *               (routes.def), so that uploaders finish while tokens change.
 *          2    a call is judged from memory, without the catalog, before its body is read and
 *               again before its handler runs, also when it was parked.
 *          3    a call costs its token, or without a valid token its address, one request; calls
 *               with a valid grant, heartbeats, renewing or dropping a lease, and calls that need
 *               no token (/livez) are free, so no save and no restore starves.
 *          4    a caller over its rate and burst is refused and told when to retry, for free.
 *          5    each caller has its own rate.
 *          6    .cairn/revoked/<token>.json is in the store before a revocation is answered; if the
 *               store fails, the answer says so, and the next catalog copy lacks the token.
 *          7    it stays for SRV_REVOKED_KEPT_MS, until no backup that is likely to be
 *               restored can hold the token.
 *          8    a starting server drops the tokens that its store lists as revoked before it
 *               listens; where that listing fails, as soon as one succeeds.
 * Limits:  SRV_TOKENS_KEPT tokens in memory; a list of over SRV_REVOKED_MAX revocations
 *          fails. An answer that has begun is sent to its end. SRV_RATES_MAX callers; the
 *          longest idle of a set is evicted and starts again with a full burst.
 * Threads: its own reloads tokens, locked by server_access; rates are locked by server_rates; any
 *          thread may call. A store worker belongs to its caller.
 * Next:    api/routes.def; server/http/request.h judges calls; server/ledger/tokens.h;
 *          server/guard/said_copy.h reads and drops revocations.
 */
#pragma once

#include "server/ledger/tokens.h"
#include "server/server.h"

#define SRV_TOKENS_KEPT (SRV_TOKENS_MAX + SRV_TOKENS_OPERATOR)
#define SRV_TOKENS_LOOK_MS 5000
#define SRV_TOKENS_OLD_MS 60000
#define SRV_WHO_BYTES (CAIRN_NAME_BYTES_MAX + CAIRN_TOKEN_ID_BYTES + 2)

/* Parsed from the Authorization header, whose text is not kept. */
struct srv_credential {
    bool there, readable; /* header present; header holds a token */
    struct cairn_token_key key;
};
void srv_credential_read(const char *value, struct srv_credential *ret);

enum srv_caller_kind {
    SRV_NOBODY,    /* not judged yet, or the route needs no token */
    SRV_EVERYBODY, /* require_token is off */
    SRV_TOKEN,
    SRV_GRANT, /* valid for the grant's run only */
};
struct srv_caller {
    enum srv_caller_kind kind;
    char id[CAIRN_TOKEN_ID_BYTES]; /* token id; "": none */
    unsigned scopes;
    char projects[CAIRN_NAME_BYTES_MAX + 1];
    int64_t expires_ms;      /* 0: never */
    char who[SRV_WHO_BYTES]; /* actor in events; "": unknown */
};

enum cairn_code srv_access_new(struct srv *server, struct srv_access **ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Starts the thread that reloads tokens changed by other servers. */
enum cairn_code srv_access_start(struct srv_access *access, struct cairn_error *err) CAIRN_MUST_USE;
void srv_access_free(struct srv_access *access); /* NULL is fine */
/* Adds a token that this server has just written, without reloading all. looks: the value of
 * srv_access_looks() from before the row was written. */
uint64_t srv_access_looks(struct srv_access *access);
void srv_access_add(struct srv_access *access, const struct srv_token *token, uint64_t looks);
/* Reloads after this server changed a token: a revoked token is refused on return. If the catalog
 * cannot be read, every token is refused until it can. */
void srv_access_reload(struct srv_access *access);
/* Wakes the reload after another server's notification. NULL is fine. */
void srv_access_notified(struct srv_access *access, uint64_t key);
/* Installs the token of admin_token_file, unless it is revoked. Else writes DATA_DIR/admin.token:
 * for new_admin_token, or if require_token is on and there is no admin token. */
enum cairn_code srv_access_first(struct srv *server, struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_code srv_access_identify(struct srv_access *access,
                                    const struct srv_credential *credential, struct srv_caller *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Makes a token for work over HTTP that outlives the caller's request, with the caller's read and
 * write scopes, current projects and actor name. Only this process accepts it, until it is returned
 * or the caller's own token ends. The caller wipes ret_text. */
enum cairn_code srv_access_lend(struct srv_access *access, const struct srv_caller *caller,
                                char ret_text[CAIRN_TOKEN_TEXT_BYTES],
                                char ret_id[CAIRN_TOKEN_ID_BYTES],
                                struct cairn_error *err) CAIRN_MUST_USE;
void srv_access_return(struct srv_access *access, const char *id);
/* False once the credential that a stream began with is no longer accepted. */
bool srv_access_holds(struct srv_access *access, const struct srv_credential *credential);
/* For projects that a handler shows or names beside the run in the path; `caller` was judged. */
bool srv_caller_may(const struct srv_caller *caller, enum cairn_scope scope, const char *project);

/* ---- request rates ---- */

#define SRV_RATES_MAX 4096
#define SRV_RATES_PER_SECOND_MAX 1000000

struct srv_rates;
struct srv_rates_options {
    uint64_t per_second, burst;                  /* each 1 to SRV_RATES_PER_SECOND_MAX */
    void (*random)(void *ret_data, size_t size); /* a seed: callers cannot choose whom they evict */
};
enum cairn_code srv_rates_new(const struct srv_rates_options *options, struct srv_rates **ret,
                              struct cairn_error *err) CAIRN_MUST_USE;
void srv_rates_free(struct srv_rates *rates); /* NULL is fine */
/* Takes one request at now_ms of the mono clock. False: *ret_wait_ms is the time until the next. */
bool srv_rates_take(struct srv_rates *rates, const char *caller, uint64_t now_ms,
                    uint64_t *ret_wait_ms) CAIRN_MUST_USE;

/* ---- revoked tokens in the store ---- */

#define SRV_REVOKED_MAX 1000000
#define SRV_REVOKED_KEPT_MS (INT64_C(400) * 24 * 3600 * 1000) /* a year and a month's delay */

enum cairn_code srv_revoked_put(struct cairn_store_worker *worker, const char *token,
                                struct cairn_error *err) CAIRN_MUST_USE;

struct srv_revoked {
    struct {
        char token[CAIRN_TOKEN_ID_BYTES];
        int64_t modified_ms; /* by the store's clock */
    } * items;               /* owned */
    size_t count, capacity;
};
void srv_revoked_release(struct srv_revoked *revoked);
enum cairn_code srv_revoked_list(struct cairn_store_worker *worker, struct srv_revoked *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Inside a transaction: counts the rows of the tokens; drops: and deletes them. */
enum cairn_code srv_revoked_rows(struct srv_tx *tx, const struct srv_revoked *revoked, bool drops,
                                 uint64_t *ret_count, struct cairn_error *err) CAIRN_MUST_USE;
/* Once per server life, at startup or in a sweep: drops tokens that the store lists as revoked. */
void srv_revoked_look(struct srv *server, struct cairn_store_worker *worker);
/* Deletes revocations older than before_ms; a failed delete is retried by the next call. */
void srv_revoked_drop(struct cairn_store_worker *worker, int64_t before_ms);
