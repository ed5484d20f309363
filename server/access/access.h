/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access: who a caller is, by his token; which calls he may make, and how often.
 *
 * Why:     several groups share a server, and none may see, change or infer what is another's, or
 *          take the server from the others by a script that asks in a loop.
 * Promise: A01  a token is looked up by its id and compared as a SHA-256, in the same time wherever
 *               two differ and for an id that is not known.
 *          A02  a token that was revoked is refused at once by the server that was asked to, by
 *               each other one within CAIRN_SRV_TOKENS_LOOK_MS; a server that could not read its
 *               catalog for CAIRN_SRV_TOKENS_OLD_MS takes no token at all.
 *          P16  outside of a token's projects, and where it may not read, a call is 404 in the
 *               words of a run that is not there; 403 is for who may see and not change.
 *          1    a caller with a grant needs no token for the calls of a save that is under way
 *               (routes.def), so that uploaders finish while tokens change.
 *          2    a call is judged from memory, without the catalog, before its body is read and
 *               again before its handler runs, also when it was parked.
 *          3    a call costs its token one request of its rate, one without a good token its
 *               address; a call that shows a good grant, a heartbeat, the life of a reader's lease
 *               and calls that need nothing (/livez) are free, so no save and no restore starves.
 *          4    a caller that exceeds its rate, after a burst, is refused and told when to come
 *               again; a refusal costs nothing.
 *          5    callers do not share: what one asks leaves the others' rates as they are.
 *          6    .cairn/revoked/<token>.json is in the store before a revocation is answered; where
 *               the store could not be told, the answer says so, and the next copy of the catalog's
 *               words is without the token.
 *          7    it stays for CAIRN_SRV_REVOKED_KEPT_MS, until no copy or backup that is likely to
 *               be put back can hold the token.
 *          8    a server that starts drops the tokens that its store calls revoked before it
 *               listens; where the store does not list them then, as soon as it does.
 * Limits:  CAIRN_SRV_TOKENS_KEPT tokens in memory; CAIRN_SRV_REVOKED_MAX revocations, more are
 *          refused where they are read. An answer that has begun is sent to its end.
 *          CAIRN_SRV_RATES_MAX callers of fixed size, a server; where there are more, the one that
 *          was silent for longest is forgotten, and begins anew with a whole burst.
 * Threads: one of its own for the tokens, locked by server_access; rates locked by server_rates;
 *          all may be called from any thread. A store's worker is its caller's.
 * Next:    api/routes.def; server/http/request.h for the judgement of a call;
 *          server/ledger/tokens.h; server/guard/said_copy.h, which reads and drops revocations.
 */
#pragma once

#include "server/ledger/tokens.h"
#include "server/server.h"
#include "store/store.h"

#define CAIRN_SRV_TOKENS_KEPT (CAIRN_SRV_TOKENS_MAX + CAIRN_SRV_TOKENS_OPERATOR)
#define CAIRN_SRV_TOKENS_LOOK_MS 5000
#define CAIRN_SRV_TOKENS_OLD_MS 60000
#define CAIRN_SRV_WHO_BYTES (CAIRN_NAME_BYTES_MAX + CAIRN_TOKEN_ID_BYTES + 2)

/* What a request came with; its text is not kept. */
struct cairn_srv_credential {
    bool there, readable; /* an Authorization header; one that holds a token */
    struct cairn_token_key key;
};
/* The value of the header Authorization. */
void cairn_srv_credential_read(const char *value, struct cairn_srv_credential *ret);

enum cairn_srv_caller_kind {
    CAIRN_SRV_NOBODY,    /* not judged yet, or of a call that needs nothing */
    CAIRN_SRV_EVERYBODY, /* the server asks for no tokens */
    CAIRN_SRV_TOKEN,
    CAIRN_SRV_GRANT, /* of the run of its grant alone */
};
struct cairn_srv_caller {
    enum cairn_srv_caller_kind kind;
    char id[CAIRN_TOKEN_ID_BYTES]; /* of a token; "": none */
    unsigned scopes;
    char projects[CAIRN_NAME_BYTES_MAX + 1];
    int64_t expires_ms;            /* 0: never */
    char who[CAIRN_SRV_WHO_BYTES]; /* for events; "": nobody said */
};

/* Reads all tokens; no thread yet. */
enum cairn_code cairn_srv_access_new(struct cairn_srv *server, struct cairn_srv_access **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* From here on it looks for what other servers changed. */
enum cairn_code cairn_srv_access_start(struct cairn_srv_access *access,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_access_free(struct cairn_srv_access *access); /* NULL is fine */
/* One that this server has made, when its row is there; no other is read again. looks: what
 * cairn_srv_access_looks() said before the row was written. */
uint64_t cairn_srv_access_looks(struct cairn_srv_access *access);
void cairn_srv_access_add(struct cairn_srv_access *access, const struct cairn_srv_token *token,
                          uint64_t looks);
/* After a change of this server: what was revoked is refused when it returns. Where the catalog
 * cannot be read nobody is let in until it can. */
void cairn_srv_access_reload(struct cairn_srv_access *access);
/* Another server may have changed a token. NULL is fine. */
void cairn_srv_access_notified(struct cairn_srv_access *access, uint64_t key);
/* The operator's token: the one that admin_token_file brings, where a revoked one is refused; or a
 * first one into DATA_DIR/admin.token, where tokens are asked for and none may make others, and
 * where the settings say so. */
enum cairn_code cairn_srv_access_first(struct cairn_srv *server,
                                       struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_code cairn_srv_access_identify(struct cairn_srv_access *access,
                                          const struct cairn_srv_credential *credential,
                                          struct cairn_srv_caller *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* A token for who does something for that caller, over HTTP, when he has gone: with his scopes to
 * read and write, for his projects as they stand there, and under his name. It is good at this
 * server alone, until it is returned, the caller's own has ended or the process has. The text is to
 * be wiped. */
enum cairn_code cairn_srv_access_lend(struct cairn_srv_access *access,
                                      const struct cairn_srv_caller *caller,
                                      char ret_text[CAIRN_TOKEN_TEXT_BYTES],
                                      char ret_id[CAIRN_TOKEN_ID_BYTES],
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_access_return(struct cairn_srv_access *access, const char *id);
/* Is what an open stream began with still good? */
bool cairn_srv_access_holds(struct cairn_srv_access *access,
                            const struct cairn_srv_credential *credential);
/* Of one that was judged: for what a handler shows or names beside the run of the path. */
bool cairn_srv_caller_may(const struct cairn_srv_caller *caller, enum cairn_scope scope,
                          const char *project);

/* ---- how often he may ask ---- */

#define CAIRN_SRV_RATES_MAX 4096
#define CAIRN_SRV_RATES_PER_SECOND_MAX 1000000

struct cairn_srv_rates;
struct cairn_srv_rates_options {
    uint64_t per_second, burst;                  /* each 1 to CAIRN_SRV_RATES_PER_SECOND_MAX */
    void (*random)(void *ret_data, size_t size); /* callers cannot choose whose place they take */
};
enum cairn_code cairn_srv_rates_new(const struct cairn_srv_rates_options *options,
                                    struct cairn_srv_rates **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_rates_free(struct cairn_srv_rates *rates); /* NULL is fine */
/* One request at that time of the mono clock. False: not before *ret_wait_ms have passed. */
bool cairn_srv_rates_take(struct cairn_srv_rates *rates, const char *caller, uint64_t now_ms,
                          uint64_t *ret_wait_ms) CAIRN_MUST_USE;

/* ---- tokens that the store calls revoked ---- */

#define CAIRN_SRV_REVOKED_MAX 1000000
#define CAIRN_SRV_REVOKED_KEPT_MS (INT64_C(400) * 24 * 3600 * 1000) /* a year, and a month late */

enum cairn_code cairn_srv_revoked_put(struct cairn_store_worker *worker, const char *token,
                                      struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_srv_revoked {
    struct {
        char token[CAIRN_TOKEN_ID_BYTES];
        int64_t modified_ms; /* by the store's clock */
    } * items;               /* owned */
    size_t count, capacity;
};
void cairn_srv_revoked_release(struct cairn_srv_revoked *revoked);
enum cairn_code cairn_srv_revoked_list(struct cairn_store_worker *worker,
                                       struct cairn_srv_revoked *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Inside a transaction: their rows go. *ret_count: that were there. */
enum cairn_code cairn_srv_revoked_take(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_revoked *revoked, uint64_t *ret_count,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* One listing in the life of a server; again after one that failed. The start and the sweeping
 * thread ask. */
void cairn_srv_revoked_look(struct cairn_srv *server, struct cairn_store_worker *worker);
/* Those that were put before; what cannot be deleted now is found the next time. */
void cairn_srv_revoked_drop(struct cairn_store_worker *worker, int64_t before_ms);
