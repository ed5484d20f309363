/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep_objects: deleting what a dead version left in the store.
 *
 * Why:     storage costs money, and a half-deleted checkpoint must never look whole.
 * Promise: Q30  committed.json first, then manifest.json, then the rest of the version's own
 *               prefix, then its open uploads; the row says gone only after all that.
 *               Copies in further stores go before the version's own objects, each in that order.
 *          Q32  a committed.json under an aborting version deletes nothing and freezes the server.
 *          1    what the store refuses to delete or to free (versioning, object lock, a missing
 *          right) is noted with its bytes (server/ledger/version_lists.h) and tried again after
 *               pauses; it is no failure of the sweep, and nothing that was deleted is seen again.
 *          Q33  a layout object goes when no version has named it for 48 h; its key is not reused.
 * Limits:  one page of a listing in memory.
 * Threads: the sweeping thread.
 * Next:    server/sweep/sweep.c for when.
 */
#pragma once

#include "server/ledger/versions.h"
#include "server/server.h"

struct cairn_srv_lease;

/* *away: a bit for each store, by its place in server->tiers, that has not answered in this round
 * and is not asked again; a version with a copy there stays. */
enum cairn_code cairn_srv_sweep_version(struct cairn_srv *server, struct cairn_store_worker *worker,
                                        const char *version_id, uint64_t *away,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* One copy, by a worker of its store: in the order of Q30, and then by version ids where its store
 * keeps versions. Marks stay in the main store, where alone they are (records.h#3). */
enum cairn_code cairn_srv_sweep_copy(struct cairn_srv *server, struct cairn_store_worker *worker,
                                     const struct cairn_srv_version *version,
                                     const struct cairn_srv_lease *lease,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Aborts the uploads below a version's prefix, in the worker's store. */
enum cairn_code cairn_srv_sweep_end_uploads(struct cairn_store_worker *worker,
                                            const struct cairn_version_place *place,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Uploads that are still open below a version that committed: begun, but the reply that named them
 * was lost, so nobody else knows of them. What fails is left to the store's life cycle rule. */
void cairn_srv_sweep_uploads(struct cairn_store_worker *worker,
                             const struct cairn_srv_version *version);
/* Layout objects and rank tables that nothing refers to any more. */
enum cairn_code cairn_srv_sweep_layouts(struct cairn_srv *server, struct cairn_store_worker *worker,
                                        uint64_t unused_ms, struct cairn_error *err) CAIRN_MUST_USE;
