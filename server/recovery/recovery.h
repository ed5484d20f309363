/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recovery: compares the catalog with the stores, repairs it run by run, or rebuilds it.
 *
 * Why:     a restored backup of the catalog looks valid, yet answers with an old `latest` and in
 *          time deletes what was acknowledged after it (V39); and the loss of a catalog and its
 *          backups must not lose the checkpoints.
 * Promise: Q35  once in the life of a server a run is compared before the first answer about it and
 *               the first sweep in it; anything newer in the store freezes that run (Q36).
 *          Q37  a version is committed if one store has its record, the manifest with the record's
 *               digest, the layout, and every object with its length.
 *          1    a reconcile imports a frozen run from the stores and ends the freeze in one
 *               transaction; nothing is deleted, and no object is written.
 *          2    an unreachable store is a failure, never evidence about a version.
 *          compare.c, mend.c and reindex.c number promises of their own.
 * Limits:  as server/guard/stores.h: 1,000,000 versions and attempts of a run, whose records are in
 *          memory at once.
 * Threads: compare: any, one thread at a time a run, others get `busy`; reconcile: the sweeping
 *          thread; a reindex has one owner.
 * Next:    server/recovery/mend.h, server/guard/identity.h, server/ledger/runs.h.
 */
#pragma once

#include "server/server.h"

/* ---- comparing (compare.c) ---- */

enum cairn_code srv_compared_new(struct srv_compared **ret, struct cairn_error *err) CAIRN_MUST_USE;
void srv_compared_free(struct srv_compared *compared);
/* CAIRN_OK: compared, now or earlier. *ret_busy: another thread is comparing, nothing is known yet.
 * CAIRN_CATALOG_BEHIND: the store is ahead, and the run is frozen. */
enum cairn_code srv_compare(struct srv *server, struct cairn_store_worker *worker,
                            const struct cairn_run_name *name, bool *ret_busy,
                            struct cairn_error *err) CAIRN_MUST_USE;
/* True if the run was compared in this life of the server, with any result. */
bool srv_is_compared(struct srv *server, const struct cairn_run_name *name);
/* Compares every run of the catalog not compared yet. A run that gets frozen is no failure. */
enum cairn_code srv_compare_all(struct srv *server, struct cairn_store_worker *worker,
                                bool *ret_busy, struct cairn_error *err) CAIRN_MUST_USE;

/* Reconciles the frozen runs for which that was requested. */
void srv_reconcile_requested(struct srv *server, struct cairn_store_worker *worker);

/* ---- cairn-server --reindex, run by `cairn reindex` (reindex.c) ---- */

struct srv_reindexing {
    bool wanted, dry, json, json_progress, quiet, force;
    const char *without; /* names of stores to leave out, separated by commas; or NULL */
};
/* Takes --reindex, --dry-run, --json, --progress=none|json and --without=NAMES out of argv. */
void srv_reindexing_take(int *argc, char **argv, struct srv_reindexing *ret);
/* server has settings, clock, random and its open stores; the caller takes down what is added.
 * settings: the same as the server's. */
enum cairn_code srv_reindexing_run(const struct srv_reindexing *asked, struct srv *server,
                                   struct srv_settings *settings,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void srv_reindexing_tell(const struct srv_reindexing *asked, const struct cairn_error *why);
