/* SPDX-License-Identifier: Apache-2.0 */
/*
 * since: do the events of a run since a moment leave standing what was known of it then?
 *
 * Why:     a plan over all versions of a run costs as much as the run is long; after most commits
 *          nothing that an earlier one found has changed, and the run's events say so.
 * Promise: 1   what a change can touch is one table (since.c): an event that it does not name ends
 *              what is known, so a new kind of event is never taken for a harmless one.
 *          2   knowledge under another policy, of events that were trimmed, of a catalog that was
 *              put back, or that more than 1,000 events have passed, does not stand.
 * Limits:  999 events at a time.
 * Threads: inside a transaction.
 * Next:    server/retention/retain.c, server/copies/tiering.c; api/events.def.
 */
#pragma once

#include "common/hash/hash.h"
#include "plan/retention.h"
#include "server/ledger/events.h"

/* Saves in flight among so many of the newest ones are of what comes after; an older one counts as
 * known. */
#define CAIRN_SRV_IN_FLIGHT_AMONG 64

/* What is known of a run; the caller keeps more beside it. */
struct cairn_srv_known {
    struct cairn_run_name name;
    uint8_t policy[CAIRN_SHA256_BYTES]; /* of its JSON */
    uint64_t event;                     /* the last one of the catalog that was looked at */
    struct cairn_plan_item newest;      /* the last version that is known; later ones are read */
};
bool cairn_srv_known_is_of(const struct cairn_srv_known *known, const struct cairn_run_name *name);

enum cairn_srv_subject {
    CAIRN_SRV_OF_PLAN = 1,  /* which versions a retention policy keeps */
    CAIRN_SRV_OF_COPIES = 2 /* in which stores a version lies, and whether it counts */
};
struct cairn_srv_since {
    const struct cairn_srv_known *then;
    enum cairn_srv_subject subject;
    const uint8_t *policy; /* the digest of the one that holds now */
    uint64_t first, last;  /* cairn_srv_events_bounds */
    /* After each event that is harmless by itself; newer: it is of a version after `then`. False:
     * what is known does not stand. NULL: it does. */
    bool (*judge)(void *owner, const struct cairn_srv_event_short *event, bool newer);
    void *owner;
};
enum cairn_code cairn_srv_since_stands(struct cairn_srv_tx *tx, const struct cairn_srv_since *since,
                                       bool *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Is `item` of an older line or step? */
bool cairn_srv_is_before(const struct cairn_plan_item *item, uint64_t line, uint64_t step);
