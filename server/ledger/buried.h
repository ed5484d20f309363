/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buried: rows of versions that were never begun here, so that what lies in the store below them
 * can be deleted.
 *
 * Why:     a begin that comes late must find that its version is over, before the first of its
 *          objects is deleted (V12).
 * Promise: Q31  a version gets a row only where it has none, given up from the start; it counts as
 *               one of the run's newest attempt, so that its id stays refused after the row is
 *               forgotten.
 *          Q30  one that is gone is swept once more only after its last sweep.
 * Limits:  none.
 * Threads: inside a transaction.
 * Next:    server/sweep/sweep.h; server/ledger/versions.h.
 */
#pragma once

#include "server/ledger/versions.h"

/* What the catalog says of a version that was met in the store. */
struct cairn_srv_met {
    struct cairn_run_name name;
    struct cairn_version_id id;
    uint64_t step;
    bool known; /* ret: it has a row, and a sweep of its own if it needs one */
    bool gone;  /* ret: it has a row and was swept for the last time */
    bool run;   /* ret: its run has a row */
};
enum cairn_code cairn_srv_met_look(struct cairn_srv_tx *tx, struct cairn_srv_met *met,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_done false: it is not what it was any more, and nothing was changed. CAIRN_CATALOG_BEHIND:
 * its run is frozen. */
enum cairn_code cairn_srv_met_bury(struct cairn_srv_tx *tx, struct cairn_srv_met *met,
                                   const char *reason, int64_t wall_ms, bool *ret_done,
                                   struct cairn_error *err) CAIRN_MUST_USE;
