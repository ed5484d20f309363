/* SPDX-License-Identifier: Apache-2.0 */
/*
 * since: checks whether knowledge about a run is still valid, by the run's events since then.
 *
 * Why:     the cost of a full plan grows with the run; after most commits nothing that an earlier
 *          plan found has changed, and the run's events show that.
 * Promise: 1   one table (since.c) says what each kind of event leaves valid; a kind that is not in
 *              it, such as a new one, invalidates everything.
 *          2   knowledge is invalid under another policy, after trimmed events, after a restored
 *              catalog, or after 1,000 events.
 * Limits:  999 events at a time.
 * Threads: inside a transaction.
 * Next:    server/retention/retain.c, server/copies/tiering.c; api/events.def.
 */
#pragma once

#include "common/hash/hash.h"
#include "plan/retention.h"
#include "server/ledger/events.h"

/* A save in flight among this many newest versions counts as later, an older one as known. */
#define CAIRN_SRV_IN_FLIGHT_AMONG 64

/* What is known of a run; the caller keeps details beside it. */
struct cairn_srv_known {
    struct cairn_run_name name;
    uint8_t policy[CAIRN_SHA256_BYTES]; /* digest of its JSON */
    uint64_t event;                     /* the catalog's newest event then */
    struct cairn_plan_item newest;      /* the last known version; later ones are read anew */
};
bool cairn_srv_known_is_of(const struct cairn_srv_known *known, const struct cairn_run_name *name);

enum cairn_srv_subject { CAIRN_SRV_OF_PLAN = 1, CAIRN_SRV_OF_COPIES = 2 };
struct cairn_srv_since {
    const struct cairn_srv_known *then;
    enum cairn_srv_subject subject;
    const uint8_t *policy;
    uint64_t first, last; /* cairn_srv_events_bounds */
    /* Called for each harmless event; newer: its version is later than `then`. Returns false to
     * invalidate. NULL: all harmless events pass. */
    bool (*judge)(void *owner, const struct cairn_srv_event_short *event, bool newer);
    void *owner;
};
enum cairn_code cairn_srv_since_stands(struct cairn_srv_tx *tx, const struct cairn_srv_since *since,
                                       bool *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* True if `item` has an older line or step. */
bool cairn_srv_is_before(const struct cairn_plan_item *item, uint64_t line, uint64_t step);
