/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity: whose store this is, which of catalog and store is ahead, and which runs are stopped
 * for that.
 *
 * Why:     a catalog restored from an old copy, or a second deployment on one prefix, would take
 *          the newest checkpoints for rubbish and sweep them (D07). An empty mount point looks like
 *          a store without copies, and the store of somebody else has objects that a removal would
 *          delete. A catalog that is behind its store in one run must not answer, resume or delete
 *          there, and must not stop the others.
 * Promise: 1    a store of another uuid is refused at start; an empty one gets store.json.
 *          2    the generation in the store is raised at every start, before each round of sweeps
 *               that deletes something and every ten minutes, by compare-and-set and after the
 *               catalog's; a store whose generation is ahead of the catalog freezes the server
 *               (Q35, Q36).
 *          3    the grant key is made once, 0600, beside the catalog and not inside it (Q38); a
 *               catalog that has runs does not start without it (Q49).
 *          Q36  a frozen run answers CAIRN_CATALOG_BEHIND wherever a write or a `latest` is asked
 *               for; its bytes are read by version id. It ends with a reconcile alone.
 *          4    a run is frozen once and logged once, with the reason; other runs go on.
 *          5    a new store gets a store.json with a uuid of its own, its owner's name and the uuid
 *               of the main store (`copies_of`); the catalog knows the uuid before the store does.
 *          6    a store with another uuid than the catalog has for its name, or without one that
 *               the catalog knows, is never written to and nothing is deleted in it.
 *          7    a catalog that was rebuilt takes a store back whose store.json names the main
 *               store; what lies there is compared with the catalog (compare_stores.h), at this
 *               start or at the next one.
 * Limits:  one small read a call of a further store: at start, and before each copy and each
 *          removal; reasons of CAIRN_SRV_CAUSE_BYTES.
 * Threads: start; raise on the sweeping thread; all else on any, with a worker of that store.
 * Next:    api/documents/manifest.h, struct cairn_store_record; server/guard/stores.h;
 *          server/recovery/recovery.h, server/recovery/recovery.h.
 */
#pragma once

#include "server/guard/stores.h"
#include "server/ledger/runs.h"
#include "server/server.h"

enum cairn_code cairn_srv_identity_start(struct cairn_srv *server,
                                         struct cairn_store_worker *worker,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Q35: by compare-and-set, on the sweeping thread alone. A number that another server got first
 * freezes. */
enum cairn_code cairn_srv_identity_raise(struct cairn_srv *server,
                                         struct cairn_store_worker *worker,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Freezes and fails with CAIRN_CATALOG_BEHIND when the store is not ours at our generation. */
enum cairn_code cairn_srv_identity_compare(struct cairn_srv *server,
                                           struct cairn_store_worker *worker,
                                           struct cairn_error *err) CAIRN_MUST_USE;

/* ---- freezing ---- */

/* Makes the run's row if need be, and fails: CAIRN_CATALOG_BEHIND, or that it could not be
 * written. */
enum cairn_code cairn_srv_run_freeze(struct cairn_srv *server, const struct cairn_run_name *name,
                                     const char *why, struct cairn_error *err) CAIRN_MUST_USE;
/* The same, and a reconcile is requested: who started this server has asked for that. */
enum cairn_code cairn_srv_run_freeze_asked(struct cairn_srv *server,
                                           const struct cairn_run_name *name, const char *why,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* In how many seconds to ask again after CAIRN_CATALOG_BEHIND of this run, whose reconcile was
 * requested; 0: it waits for an operator, or the whole server does. */
uint32_t cairn_srv_run_thaws_in_s(struct cairn_srv *server, const struct cairn_run_name *name);
/* CAIRN_CATALOG_BEHIND when the server or this run is frozen. */
enum cairn_code cairn_srv_run_thawed(struct cairn_srv *server, const struct cairn_run_name *name,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* For people: how many runs are frozen, and the first of them. */
#define CAIRN_SRV_FROZEN_BYTES 720
uint64_t cairn_srv_frozen_text(struct cairn_srv *server, char ret[CAIRN_SRV_FROZEN_BYTES]);

/* ---- store.json of further stores ---- */

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
