/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep_objects: deletes a dead version's objects.
 *
 * Why:     storage costs money, and a half-deleted checkpoint must never look whole.
 * Promise: Q30  committed.json is deleted first, then manifest.json, then the rest of the version's
 *               own prefix, then its open uploads; then the row becomes GONE.
 *               Copies in other stores go before the version's own objects, in the same order.
 *          Q32  a committed.json under an aborting version: deletes nothing, freezes the run.
 *          1    a refusal to delete or to free (versioning, object lock, a missing right) is noted
 *               with its bytes (server/ledger/version_lists.h) and retried after pauses; the sweep
 *               does not fail, and no deleted object is seen again.
 *          Q33  a layout object goes when no version has used it for 48 h; its key is not reused.
 * Limits:  one page of a listing in memory.
 * Threads: the sweeping thread.
 * Next:    server/sweep/sweep.c for when.
 */
#pragma once

#include "server/ledger/versions.h"
#include "server/server.h"

struct srv_lease;

/* *away: a bit for each store, by its index in server->tiers, that did not answer in this round and
 * is skipped; a version with a copy there stays. */
enum cairn_code srv_sweep_version(struct srv *server, struct cairn_store_worker *worker,
                                  const char *version_id, uint64_t *away,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Deletes one copy with a worker of its store: in the order of Q30, then object versions if the
 * store keeps them. Keeps marks in the main store, their only place (records.h#3). */
enum cairn_code srv_sweep_copy(struct srv *server, struct cairn_store_worker *worker,
                               const struct srv_version *version, const struct srv_lease *lease,
                               struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_sweep_end_uploads(struct cairn_store_worker *worker,
                                      const struct cairn_version_place *place,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Aborts uploads still open below a committed version: the reply with their id was lost, so no
 * uploader knows them. What fails is left to the store's life cycle rule. */
void srv_sweep_uploads(struct cairn_store_worker *worker, const struct srv_version *version);
/* Deletes layout objects and rank tables that no version uses. */
enum cairn_code srv_sweep_layouts(struct srv *server, struct cairn_store_worker *worker,
                                  uint64_t unused_ms, struct cairn_error *err) CAIRN_MUST_USE;
