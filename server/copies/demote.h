/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demote: one copy of a version is removed, while the version stays.
 *
 * Why:     a fast store has room for the newest versions alone; what is older lies in a slow one.
 * Promise: 1   a copy becomes REMOVING in one transaction, which sees another copy that is whole
 *              and not known to be damaged (server/copies/damage.h); before it, that one was looked at:
 *              its store is the one that the catalog knows, and each of its objects is there with
 *              its size. The last copy is never removed.
 *          2   where no such copy is left by the time that the removal begins, since damage was
 *              found meanwhile, it is WHOLE again, unless its record was deleted already.
 *          Q29 a version that somebody reads, or that the newest attempt resumed from and has
 *              committed nothing since, keeps all its copies.
 *          Q30 the record goes first, then the manifest, then the rest of the version's own
 *              prefix, then open uploads; the row says GONE after all of that. Marks stay: they
 *              are of the version and not of the copy.
 * Limits:  as server/sweep/sweep_objects.h.
 * Threads: ask on any; run on the sweeping thread.
 * Next:    server/copies/copies_job.h, server/sweep/sweep_objects.h.
 */
#pragma once

#include "server/guard/stores.h"
#include "server/ledger/versions.h"

struct cairn_srv_demote {
    struct cairn_srv *server;
    struct cairn_store_worker *worker; /* of the main store */
    const char *version, *store;
    bool by_policy; /* only what a policy made, or what was saved to main */
};
/* The row becomes REMOVING; a second time changes nothing. CAIRN_IN_USE: it is held, or the last
 * one. CAIRN_NOT_FOUND: there is no copy. */
enum cairn_code cairn_srv_demote_ask(const struct cairn_srv_demote *demote,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* What is REMOVING is removed. */
enum cairn_code cairn_srv_demote_run(struct cairn_srv *server, struct cairn_store_worker *worker,
                                     const char *version, const char *store,
                                     struct cairn_error *err) CAIRN_MUST_USE;
