/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_check: is the store under this mount or prefix the one that the grants name? (Q55)
 *
 * Why:     a node whose mount is not there would write its shards to its own disk, and the rest of
 *          the checkpoint would be committed without them.
 * Promise: 1   the senders are admitted only after .cairn/store.json was read and its uuid is that
 *              of every grant in the journal and of every session.
 *          2   after a gap the same is done again; a path that names another folder by then is
 *              followed when nothing is under way in the one before.
 *          3   a store that stays away costs no save: they wait, and log and heartbeat say so. One
 *              that is another store three times in a row ends the process.
 * Limits:  one check in 200 ms; each of at most 5 s.
 * Threads: tick: the main thread. The rest any; state is locked by uploader_state.
 * Next:    uploader/send/send.h send.h#6; docs/protocol.md Q55.
 */
#pragma once

#include "uploader/up.h"

struct cairn_up_store_check {
    struct cairn_store_worker *worker; /* owned */
    uint64_t next_ms;                  /* mono clock */
    bool reported;                     /* of this gap */
    struct cairn_log_limit log_limit;  /* of gaps that come again and again */
    unsigned mismatches;               /* checks in a row that found another store */
};
enum cairn_code cairn_up_store_check_init(struct cairn_up_store_check *check, struct cairn_up *up,
                                          struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_store_check_release(struct cairn_up_store_check *check);
/* Cheap while nothing is wrong. Fails when the process must end (store_check.h#3). */
enum cairn_code cairn_up_store_check_tick(struct cairn_up_store_check *check, struct cairn_up *up,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* The uuid in a grant must be the store's: CAIRN_CONFLICT. Waits a moment for a store that was not
 * checked yet, then CAIRN_UNAVAILABLE; but for grants of a store that the journal names. */
enum cairn_code cairn_up_store_check_grant(struct cairn_up *up, const char *grant_uuid,
                                           struct cairn_error *err) CAIRN_MUST_USE;
