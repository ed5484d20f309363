/* SPDX-License-Identifier: Apache-2.0 */
/*
 * revoked: .cairn/revoked/<token>.json, which says in the store that a token is good for nothing.
 *
 * Why:     the copy of the catalog's own words may be older than a revocation, and so may a backup
 *          of the database; a catalog that is made from either must not let that token in.
 * Promise: 1   it is there before a revocation is answered; where the store could not be told, the
 *              answer says so, and the next copy is without the token.
 *          2   it stays until no copy that is kept can hold the token, and for as long as a backup
 *              that does is likely to be put back, CAIRN_SRV_REVOKED_KEPT_MS.
 *          3   a server that starts drops the tokens that its store calls revoked before it
 *              listens; where the store does not list them then, as soon as it does.
 * Limits:  CAIRN_SRV_REVOKED_MAX; more are refused where they are read, never passed over.
 * Threads: any that owns the worker.
 * Next:    server/guard/said_copy.h, which reads and drops them; server/main.c, server/sweep/sweep.c,
 *          which look; server/access/token_calls.c.
 */
#pragma once

#include "server/ledger/tokens.h"
#include "server/server.h"
#include "store/store.h"

#define CAIRN_SRV_REVOKED_MAX 1000000
#define CAIRN_SRV_REVOKED_KEPT_MS (INT64_C(400) * 24 * 3600 * 1000) /* a year, and a month late */

enum cairn_code cairn_srv_revoked_put(struct cairn_store_worker *worker, const char *token,
                                      struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_srv_revoked {
    struct {
        char token[CAIRN_TOKEN_ID_BYTES];
        int64_t modified_ms; /* by the store's clock */
    } *items;                /* owned */
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
