/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare_stores: a run's versions and copies against the further stores, after a start on a
 * catalog that is older than they are, or was made again without them.
 *
 * Why:     a version that was moved after the backup is missing in the main store and is not lost;
 *          a copy that was made after it has no row.
 * Promise: 1   only where the catalog has a mark for the store: it was adopted, or the store was
 *              taken back. The mark goes when every run was compared.
 *          2   what differs, and a store that does not answer, is a cause to freeze the run; the
 *              reconcile that follows settles it. Nothing is written here.
 * Limits:  a listing of the run in each store; once in the life of a server.
 * Threads: as server/recovery/compare.h.
 * Next:    server/recovery/mend_copies.h, server/recovery/reconcile.h.
 */
#pragma once

#include "server/guard/stores.h"

#define CAIRN_SRV_STORES_CAUSE_BYTES 400

/* ret_cause "": nothing differs, or nothing was to be compared. */
enum cairn_code cairn_srv_compare_stores(struct cairn_srv *server,
                                         struct cairn_store_worker *worker,
                                         const struct cairn_run_name *name,
                                         char ret_cause[CAIRN_SRV_STORES_CAUSE_BYTES],
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Every run was. */
enum cairn_code cairn_srv_compare_stores_end(struct cairn_srv *server,
                                             struct cairn_error *err) CAIRN_MUST_USE;
