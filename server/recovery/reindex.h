/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reindex: an empty catalog filled by what the stores alone say: main, and the further ones.
 *
 * Why:     a catalog that is lost with its backups must not take the checkpoints with it.
 * Promise: Q37  committed is what has its record, the manifest of that digest and every object with
 *               its length; attempt records, in the order of their numbers, give numbers, nonces,
 *               jobs and what is superseded, so no number is given out twice; marks give the trash.
 *          Q35  the store's generation is raised first, which stops a server on the old catalog,
 *               then `reconcile-wait` passes, then the bucket is listed.
 *          1    what cannot be read is named and passed over, what a newer release wrote is called
 *               that and is no damage; a run of which the store did not
 *               answer is tried again by the same call later, as is one that was killed.
 *          2    dry: neither the store nor a catalog on a disk is written.
 *          3    each further store is one of this main store, and answers, before anything is
 *               written; one that the caller leaves out is not asked at all.
 *          4    a version is had where one store has it whole, with a row of each copy
 *               (mend_copies.h); a copy that is damaged is told with its store.
 * Limits:  1,000,000 runs; of a run its ids, and 64 manifests at a time.
 * Threads: one.
 * Next:    server/recovery/reindexing.h for the command line; server/recovery/mend_read.h.
 */
#pragma once

#include "server/guard/stores.h"
#include "server/server.h"

/* Copies of committed versions in one store. */
struct cairn_srv_reindexed_store {
    const char *name, *url;
    bool left_out;
    uint64_t whole, alone; /* alone: of these, those that no other store has whole */
    uint64_t unfinished;   /* objects without a record */
    uint64_t damaged, remains;
};
struct cairn_srv_reindexed {
    struct cairn_srv_reindexed_store stores[CAIRN_SRV_TIERS_MAX]; /* main, nearest, left out */
    size_t store_count;
    uint64_t runs, attempts;
    uint64_t versions, found; /* taken over; there already, of a call that was ended */
    uint64_t remains;         /* records of versions that were deleted */
    uint64_t said;            /* rows of the copy of what people have said */
    uint64_t damaged, unread; /* objects that are not what they should be; that were not answered */
    uint64_t newer;           /* documents of a newer release: named, and not taken over */
};
struct cairn_srv_reindex {
    struct cairn_srv *server; /* stores, catalog, waiters, settings */
    bool dry;
    /* Now and then; the run at hand, NULL while the bucket is listed. */
    void (*progress)(void *owner, const struct cairn_run_name *name, uint64_t number,
                     uint64_t runs);
    /* An object that is damaged, of a newer release (CAIRN_UNSUPPORTED), or could not be read. */
    void (*problem)(void *owner, const char *what, enum cairn_code code, const char *cause);
    void *owner;
    struct cairn_srv_reindexed done; /* set */
};
/* CAIRN_OK also where something is damaged or unread: `done` says so. */
enum cairn_code cairn_srv_reindex(struct cairn_srv_reindex *reindex,
                                  struct cairn_store_worker *worker,
                                  struct cairn_error *err) CAIRN_MUST_USE;
