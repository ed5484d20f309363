/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiers: the further stores of this server, beside the one that checkpoints are saved to.
 *
 * Why:     a fast store is small and a durable one slow; copies of a version lie in several, and
 *          who copies, reads or deletes must find a store by its name, and the nearest first.
 * Promise: 1   the main store is one of them, by the name "main", so that no reader and no copier
 *              treats it as another kind.
 *          2   the order is that of the setting `stores`: nearest first; main is first where it is
 *              not named there.
 *          3   a worker that was borrowed is its borrower's alone until it is given back.
 * Limits:  CAIRN_SRV_TIERS_MAX with main; those in S3 share its settings, but for what their URLs
 *          say.
 * Threads: immutable after start, but for idle workers, which are locked by server_tiers.
 * Next:    server/guard/tier_identity.h; docs/tiers.md.
 */
#pragma once

#include "common/lock.h"
#include "server/ledger/copies.h"
#include "server/server.h"
#include "store/named.h"

struct cairn_srv_idle;
struct cairn_srv_copying;

struct cairn_srv_tier {
    char name[CAIRN_SRV_TIER_NAME_BYTES];
    struct cairn_store *store;
    struct cairn_srv_idle *idle; /* workers that nobody uses */
    bool left_out; /* a reindex goes on without it: nothing is asked of it */
    _Atomic bool unread; /* its copies were not compared with the catalog yet (since the start) */
    _Atomic uint64_t away_until_ms; /* mono clock: it did not answer a reader just now */
};
struct cairn_srv_tiers {
    struct cairn_srv_tier tiers[CAIRN_SRV_TIERS_MAX]; /* nearest first */
    size_t count, main; /* main: the index of the main store */
    struct cairn_lock lock;
    struct cairn_srv_copying *copying; /* what is being copied now; locked */
};

/* server->store is open: it becomes main's. open is called for each of the others. */
enum cairn_code cairn_srv_tiers_new(struct cairn_srv *server,
                                    enum cairn_code (*open)(struct cairn_srv *server,
                                                            const char *url,
                                                            struct cairn_store **ret,
                                                            struct cairn_error *err),
                                    struct cairn_srv_tiers **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_tiers_free(struct cairn_srv_tiers *tiers); /* NULL is fine; main's is not freed */

/* Is there any store beside main? */
bool cairn_srv_tiers_any(const struct cairn_srv *server);
/* NULL: the settings name none so. */
struct cairn_srv_tier *cairn_srv_tier_find(const struct cairn_srv *server, const char *name);
bool cairn_srv_tier_is_main(const struct cairn_srv *server, const struct cairn_srv_tier *tier);
enum cairn_code cairn_srv_tier_borrow(struct cairn_srv *server, struct cairn_srv_tier *tier,
                                      struct cairn_store_worker **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* NULL is fine. */
void cairn_srv_tier_return(struct cairn_srv *server, struct cairn_srv_tier *tier,
                           struct cairn_store_worker *worker);
