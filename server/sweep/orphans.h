/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orphans: objects and uploads in the store below versions that this catalog does not know.
 *
 * Why:     a node that was cut off from the server for good, a process that woke after days, a
 *          catalog that was put back: what they left belongs to no row, so no sweep looks there.
 * Promise: Q31  only below a version of which the store's own clock says that nothing was written
 *               for 48 h, and which an earlier look, an hour ago or more, has found the same: first
 *               its id becomes a row that is given up, so that no begin can join it any more, then
 *               the sweep deletes what a row in that state has (Q30).
 *          Q30  what came to a version that is gone after its last sweep is swept once more, by the
 *               same rule.
 *          1    a committed.json, and a run that the catalog does not know, keep everything: such
 *               a version may be a checkpoint of a catalog that was lost. It is shown with what to
 *               do about it.
 *          2    no request lists the store: what is answered is what the last look found; a
 *               request may ask for a look.
 *          3    marks alone keep themselves: the copy in the main store is removed without them
 *               (records.h#3), so their version may lie in a store that was not read.
 * Limits:  a look every 6 hours, the first an hour after the start; 20 pages of a listing a round;
 *          the first 1,000 orphans are kept, what is behind them is found when those are gone.
 * Threads: looks on the sweeping thread; _ask, _status and _page on any.
 * Next:    server/sweep/sweep.c, server/sweep/uploads.h, server/sweep/orphan_calls.c.
 */
#pragma once

#include "common/json.h"
#include "server/ledger/versions.h"
#include "server/server.h"

struct cairn_srv_orphans;
enum cairn_code cairn_srv_orphans_new(struct cairn_srv *server, struct cairn_srv_orphans **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_orphans_free(struct cairn_srv_orphans *orphans); /* NULL is fine */

/* Some pages further, where a look is due. *ret_due: how many versions the look that ended with
 * them found due; _bury is to be called then, after the generation was raised (Q35). */
enum cairn_code cairn_srv_orphans_look(struct cairn_srv_orphans *orphans,
                                       struct cairn_store_worker *worker, size_t *ret_due,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Each of those is given up, or swept again, if it is still what it was found to be. The sweep's
 * next query finds them. */
enum cairn_code cairn_srv_orphans_bury(struct cairn_srv_orphans *orphans,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Is a look under way that somebody asked for? Then the next round does not wait. */
bool cairn_srv_orphans_hurried(const struct cairn_srv_orphans *orphans);

/* A look begins with the next round, unless one is under way or has ended within two seconds. True:
 * this call is why. */
bool cairn_srv_orphans_ask(struct cairn_srv_orphans *orphans);
struct cairn_srv_orphans_status {
    bool looking;            /* or about to */
    uint64_t objects, bytes; /* that the look which is under way, or the last one, has seen */
    uint64_t versions;       /* orphans of the last look */
    uint64_t orphan_bytes;
    int64_t looked_ms; /* wall clock: the end of the last look; 0: there was none */
    char trouble[200]; /* why it could not be ended; "" */
};
void cairn_srv_orphans_status(struct cairn_srv_orphans *orphans,
                              struct cairn_srv_orphans_status *ret);
/* Where that version stands, which the last look found; false: it found none of that id. */
bool cairn_srv_orphans_met(struct cairn_srv_orphans *orphans, const char *version,
                           struct cairn_srv_met *ret);
/* What the last look found, from this place on: new objects of the form orphan_row. *ret_more:
 * there are others behind. NULL without memory. */
json_t *cairn_srv_orphans_page(struct cairn_srv_orphans *orphans, uint64_t from, uint64_t limit,
                               bool *ret_more);
