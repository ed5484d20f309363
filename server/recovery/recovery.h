/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recovery: the catalog against the stores: compared, mended run by run, or made again from them.
 *
 * Why:     a backup of the catalog that is put back looks like a good catalog: it answers with an
 *          old `latest`, and in time it deletes what was acknowledged after it (V39); and a catalog
 *          that is lost with its backups must not take the checkpoints with it.
 * Promise: Q35  in the life of a server a run is compared before the first answer about it and
 *               before the first sweep in it; what is newer in the store freezes that run (Q36).
 *          Q37  a version is committed when one store has its record, the manifest of the record's
 *               digest, the layout, and every object with its length.
 *          1    a reconcile takes over what the stores say of a frozen run in one transaction,
 *               which ends the freeze; nothing is deleted, and no object is written.
 *          2    a store that does not answer is a failure, never a statement about a version.
 *          The numbered promises stand in compare.c, mend.c and reindex.c.
 * Limits:  as server/guard/stores.h: 1,000,000 versions and attempts of a run. A run's records
 *          are in memory at once.
 * Threads: compare: any, one thread at a time a run, the others get `busy`; reconcile: the sweeping
 *          thread; a reindex has one owner.
 * Next:    server/recovery/mend.h, server/guard/identity.h, server/ledger/runs.h.
 */
#pragma once

#include "server/server.h"

/* ---- comparing (compare.c) ---- */

struct cairn_srv_compared;
enum cairn_code cairn_srv_compared_new(struct cairn_srv_compared **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_compared_free(struct cairn_srv_compared *compared); /* NULL is fine */
/* CAIRN_OK: compared now or before. *ret_busy: another thread compares it, nothing is known yet.
 * CAIRN_CATALOG_BEHIND: the run was found to be ahead, and is frozen. */
enum cairn_code cairn_srv_compare(struct cairn_srv *server, struct cairn_store_worker *worker,
                                  const struct cairn_run_name *name, bool *ret_busy,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Was it compared in this life of the server, with whatever end? */
bool cairn_srv_is_compared(struct cairn_srv *server, const struct cairn_run_name *name);
/* Every run of the catalog that was not compared yet. One that was found ahead is no failure. */
enum cairn_code cairn_srv_compare_all(struct cairn_srv *server, struct cairn_store_worker *worker,
                                      bool *ret_busy, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- mending (mend.c) ---- */

/* Takes up the frozen runs for which a reconcile was requested. */
void cairn_srv_reconcile_requested(struct cairn_srv *server, struct cairn_store_worker *worker);

/* ---- cairn-server --reindex, which is what `cairn reindex` runs (reindex.c) ---- */

struct cairn_srv_reindexing {
    bool wanted, dry, json, json_progress, quiet, force;
    const char *without; /* NULL, or further stores to leave out, with commas between */
};
/* Takes --reindex, --dry-run, --json, --progress=none, --progress=json and --without=NAMES out of
 * argv. */
void cairn_srv_reindexing_take(int *argc, char **argv, struct cairn_srv_reindexing *ret);
/* server has settings, clock, random and its open stores; what is made besides is the caller's to
 * take down. settings: the same as the server's. */
enum cairn_code cairn_srv_reindexing_run(const struct cairn_srv_reindexing *asked,
                                         struct cairn_srv *server,
                                         struct cairn_srv_settings *settings,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Says the failure in the form that was asked for. */
void cairn_srv_reindexing_tell(const struct cairn_srv_reindexing *asked,
                               const struct cairn_error *why);
