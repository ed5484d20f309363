/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reconcile: ends the freeze of one run by taking over what its store says.
 *
 * Why:     the store alone is enough to restore from; so it is enough to mend a catalog with, run
 *          by run, without a stop of the others.
 * Promise: 1   taken over are: the numbers, nonces and jobs of attempts; each version whose record,
 *              manifest and objects verify; and what newer attempts superseded or revived. What
 *              claims to be committed and does not verify is set aside, by key and cause.
 *          2   nothing is deleted: a version that the catalog calls committed and of which no
 *              store has a record, and main no manifest, goes into the trash. One that lies in a
 *              further store is not lost: the rows of its copies are put right (mend_copies.h).
 *          3   the generation is raised first, then `reconcile-wait` passes, then the store is
 *              read (Q35): what another server had under way has ended. One transaction takes it
 *              all over and removes the row.
 *          4   where one of the stores of the setting does not answer the run stays frozen.
 * Limits:  16 runs a round; a run's records in memory at once.
 * Threads: the sweeping thread.
 * Next:    server/ledger/runs.h, server/guard/stores.h.
 */
#pragma once

#include "server/server.h"

/* The frozen runs for which a reconcile was requested. */
void cairn_srv_reconcile_requested(struct cairn_srv *server, struct cairn_store_worker *worker);
