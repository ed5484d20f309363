/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity: whose store this is, whether catalog or store is ahead, and which runs are frozen.
 *
 * Why:     a catalog restored from an old copy, or a second deployment on one prefix, would sweep
 *          the newest checkpoints as garbage (D07). An empty mount point looks like a store without
 *          copies, and in a foreign store a removal would delete foreign objects. A run whose store
 *          is ahead of the catalog must not answer, resume or delete, and must not stop other runs.
 * Promise: 1    a store with another uuid is refused at start; an empty one gets store.json.
 *          2    the generation in the store is raised by compare-and-set, after the catalog's: at
 *               every start, before each round of sweeps that deletes, and every ten minutes; a
 *               store with a generation ahead of the catalog freezes the server (Q35, Q36).
 *          3    the grant key is made once, 0600, beside the catalog and not inside it (Q38); a
 *               catalog with runs does not start without it (Q49).
 *          Q36  a frozen run answers CAIRN_CATALOG_BEHIND to writes and to `latest`; reads by
 *               version id continue. Only a reconcile ends the freeze.
 *          4    a run is frozen once and logged once, with the reason; other runs continue.
 *          5    a new store of copies gets a store.json with its own uuid, its owner's name and the
 *               main store's uuid (`copies_of`); the catalog knows the uuid before the store does.
 *          6    nothing is written or deleted in a store whose uuid differs from the catalog's for
 *               its name, or which lacks a known uuid.
 *          7    a rebuilt catalog takes a store back whose store.json names the main store; its
 *               copies are compared with the catalog (server/recovery/compare.c) at this start or
 *               the next.
 * Limits:  one small read for each check of another store: at start, and before each copy and each
 *          removal; reasons of SRV_CAUSE_BYTES.
 * Threads: start; raise on the sweeping thread; all else on any, with a worker of that store.
 * Next:    api/documents/manifest.h, struct cairn_store_record; server/guard/stores.h;
 *          server/recovery/recovery.h.
 */
#pragma once

#include "server/guard/stores.h"
#include "server/ledger/runs.h"

enum cairn_code srv_identity_start(struct srv *server, struct cairn_store_worker *worker,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Q35: by compare-and-set, on the sweeping thread only. Freezes if another server got the
 * number. */
enum cairn_code srv_identity_raise(struct srv *server, struct cairn_store_worker *worker,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Freezes and fails with CAIRN_CATALOG_BEHIND unless the store is ours, at our generation. */
enum cairn_code srv_identity_compare(struct srv *server, struct cairn_store_worker *worker,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- freezing ---- */

/* Freezes the run, and makes its row if needed. Always fails: with CAIRN_CATALOG_BEHIND, or with
 * the error of the write. */
enum cairn_code srv_run_freeze(struct srv *server, const struct cairn_run_name *name,
                               const char *why, struct cairn_error *err) CAIRN_MUST_USE;
/* Also requests a reconcile, on behalf of the operator who started this server. */
enum cairn_code srv_run_freeze_asked(struct srv *server, const struct cairn_run_name *name,
                                     const char *why, struct cairn_error *err) CAIRN_MUST_USE;
/* Seconds until a retry after CAIRN_CATALOG_BEHIND, if a reconcile of the run was requested; 0: an
 * operator is needed, or the server is frozen. */
uint32_t srv_run_thaws_in_s(struct srv *server, const struct cairn_run_name *name);
/* CAIRN_CATALOG_BEHIND if the server or this run is frozen. */
enum cairn_code srv_run_thawed(struct srv *server, const struct cairn_run_name *name,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* The number of frozen runs; ret describes the first. */
#define SRV_FROZEN_BYTES 720
uint64_t srv_frozen_text(struct srv *server, char ret[SRV_FROZEN_BYTES]);

/* ---- store.json of other stores ---- */

/* CAIRN_FORBIDDEN: another store. CAIRN_UNAVAILABLE: no store.json at the moment. */
enum cairn_code srv_tier_ready(struct srv *server, const struct srv_tier *tier,
                               struct cairn_store_worker *worker,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* For a reindex, before any write: checks that store.json exists and names the main store,
 * server->store_uuid. CAIRN_UNAVAILABLE, or the store's error: unreadable. */
enum cairn_code srv_tier_is_ours(struct srv *server, const struct srv_tier *tier,
                                 struct cairn_store_worker *worker,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* At start: a foreign store fails; an unreachable one is logged and checked later. */
enum cairn_code srv_tiers_start(struct srv *server, struct cairn_error *err) CAIRN_MUST_USE;
