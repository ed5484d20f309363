/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_stores: what all stores of a server say of one run, each for itself and joined.
 *
 * Why:     a version may lie in a further store alone: what one store lacks is lost only where the
 *          others lack it too.
 * Promise: 1   the main store is first, then the others, nearest first; each is the store that the
 *              catalog knows by its name, or it is not read.
 *          2   a store that does not answer, or may not be listed, is a failure that names it,
 *              never a store without the run.
 * Limits:  CAIRN_SRV_TIERS_MAX stores; as server/guard/run_objects.h in each.
 * Threads: one owner.
 * Next:    server/recovery/mend.h.
 */
#pragma once

#include "server/guard/run_objects.h"
#include "server/guard/tiers.h"

struct cairn_srv_run_store {
    struct cairn_srv_tier *tier; /* NULL: the main store of a server that has no other */
    const char *name;
    struct cairn_store_worker *worker;
    bool borrowed;
    struct cairn_srv_run_objects objects;
};
struct cairn_srv_run_stores {
    struct cairn_srv *server;
    struct cairn_srv_run_store stores[CAIRN_SRV_TIERS_MAX]; /* [0]: main */
    size_t count;
};
/* worker: of the main store, the caller's. What was opened is released also after a failure. */
enum cairn_code cairn_srv_run_stores_open(struct cairn_srv_run_stores *stores,
                                          struct cairn_srv *server,
                                          struct cairn_store_worker *worker,
                                          struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_run_stores_release(struct cairn_srv_run_stores *stores);
/* Lists each; ret: all of them joined. */
enum cairn_code cairn_srv_run_stores_list(struct cairn_srv_run_stores *stores,
                                          struct cairn_srv_run_objects *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* With the name of the store, where there are several. */
enum cairn_code cairn_srv_run_store_within(const struct cairn_srv_run_stores *stores, size_t index,
                                           enum cairn_code code, struct cairn_error *err);
