/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_identity: is what a further store's URL names the store that this catalog copies to?
 *
 * Why:     an empty mount point looks like a store without copies, and the store of somebody else
 *          has objects that a removal would delete.
 * Promise: 1   a new store gets a store.json with a uuid of its own, its owner's name and the uuid
 *              of the main store (`copies_of`); the catalog knows the uuid before the store does.
 *          2   a store with another uuid than the catalog has for its name, or without one that
 *              the catalog knows, is never written to and nothing is deleted in it.
 *          3   a catalog that was rebuilt takes a store back whose store.json names the main store;
 *              what lies there is compared with the catalog (recovery/compare.c), at this start or
 *              at the next one.
 * Limits:  one small read a call; at start, and before each copy and each removal.
 * Threads: any, with a worker of that store.
 * Next:    server/guard/tiers.h, server/guard/identity.h.
 */
#pragma once

#include "server/guard/tiers.h"

/* CAIRN_FORBIDDEN: it is another store. CAIRN_UNAVAILABLE: it is not there at the moment. */
enum cairn_code cairn_srv_tier_ready(struct cairn_srv *server, const struct cairn_srv_tier *tier,
                                     struct cairn_store_worker *worker,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* For a reindex, before anything is written: it is there, and it names the main store, whose uuid
 * is server->store_uuid. CAIRN_UNAVAILABLE, or what the store said: it cannot be read. */
enum cairn_code cairn_srv_tier_is_ours(struct cairn_srv *server, const struct cairn_srv_tier *tier,
                                       struct cairn_store_worker *worker,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* All of them at start: another store ends it; one that is away is logged, and comes later. */
enum cairn_code cairn_srv_tiers_start(struct cairn_srv *server,
                                      struct cairn_error *err) CAIRN_MUST_USE;
