/* SPDX-License-Identifier: Apache-2.0 */
/*
 * revoked: .cairn/revoked/<token>.json, which says in the store that a token is good for nothing.
 *
 * Why:     the copy of the catalog's own words may be older than a revocation, and a catalog that
 *          is made again from it must not let that token in.
 * Promise: 1   it is there before a revocation is answered; where the store could not be told, the
 *              answer says so, and the next copy is without the token.
 *          2   it stays until no copy that is kept can hold the token.
 * Limits:  CAIRN_SRV_REVOKED_MAX; more are refused where they are read, never passed over.
 * Threads: any that owns the worker.
 * Next:    server/jobs/said_copy.h, which reads and drops them; server/handlers/tokens.c.
 */
#pragma once

#include "server/catalog/tokens.h"
#include "store/store.h"

#define CAIRN_SRV_REVOKED_MAX 1000000

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
/* Those that were put before; what cannot be deleted now is found the next time. */
void cairn_srv_revoked_drop(struct cairn_store_worker *worker, int64_t before_ms);
