/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access: who a caller is, by his token.
 *
 * Why:     several groups share a server, and none may see, change or infer what is another's.
 * Promise: A01  a token is looked up by its id and compared as a SHA-256, in the same time wherever
 *               two differ and for an id that is not known.
 *          A02  a token that was revoked is refused at once by the server that was asked to, by
 *               each other one within CAIRN_SRV_TOKENS_LOOK_MS; a server that could not read its
 *               catalog for CAIRN_SRV_TOKENS_OLD_MS takes no token at all.
 * Limits:  CAIRN_SRV_TOKENS_KEPT tokens in memory. An answer that has begun is sent to its end.
 * Threads: one of its own; asked by any; locked by server_access.
 * Next:    server/http/request.h, server/ledger/tokens.h, server/access/token_calls.c.
 */
#pragma once

#include "server/ledger/tokens.h"
#include "server/server.h"

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
