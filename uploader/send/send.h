/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send: moves the bytes of shards to the store, many parts at once, oldest shard first; and checks
 *       that the store is the one that the grants name.
 *
 * Why:     store/multipart.h says what comes next for one shard; this runs it for all of them on a
 *          few threads and writes into the journal what must be remembered before each step. A node
 *          whose mount is not there would write its shards to its own disk, and the rest of the
 *          checkpoint would be committed without them.
 * Promise: 1   intent and token are in the journal before CREATE or PUT, the upload id before any
 *              part, all block checksums before COMPLETE (and before PUT), "durable" after HEAD
 *              and before anybody hears of it (R2, Q16).
 *          2   bytes are sent from the slab itself; a file's bytes from a bounded pool that is
 *              reserved at start, so a file larger than the memory budget can be saved.
 *          3   checksums come from staging (slab) or from the one first read (file). Bytes that no
 *              longer match them are never sent on: CAIRN_SOURCE_CHANGED names shard and range.
 *          4   after a shard ended, no request of this process carries its bytes (Q20); a shard
 *              that is given up is cancelled on the wire first, then its upload is aborted.
 *          5   a file that does not answer holds up the files of its own save, and no bytes of a
 *              slab. A save's files take at most half of the readers that other saves leave, so
 *              those of a third save are read while the files of two hang.
 *          6   nothing is picked before the store was checked, at the start and after each gap
 *              (Q55): its path names another folder, or a request found it away.
 *          7   where cores are scarce nothing is picked while ranks copy, for copy_first at a time
 *              and a fifth of the time at most, and once for a rank that copies no further.
 *          8   the senders are admitted only after .cairn/store.json was read and its uuid is that
 *              of every grant in the journal and of every session; after a gap the same is done
 *              again, and a path that names another folder by then is followed when nothing is
 *              under way in the one before.
 *          9   a store that stays away costs no save: they wait, and log and heartbeat say so. One
 *              that is another store three times in a row ends the process.
 * Limits:  requests in flight as the store's appetite allows; the pool as reserved. send.h#5 takes
 *          three readers: a memory_budget of twelve times part_size. One check in 200 ms, of at
 *          most 5 s.
 * Threads: `queue` of a shard is locked by upload_queue; worker threads of its own. The callbacks
 *          of uploader/saves/save.h are called on them with no lock held. store_check_tick: the
 *          main thread; its state is locked by uploader_state.
 * Next:    store/multipart.h, uploader/send/shards.h, uploader/journal/journal.h.
 */
#pragma once

#include "uploader/send/shards.h"
#include "uploader/up.h"

enum cairn_code cairn_up_send_new(struct cairn_up *up, struct cairn_up_send **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_send_start(struct cairn_up_send *send,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* False: a thread waits for a file that does not answer, and nothing of this may be freed. */
bool cairn_up_send_stop(struct cairn_up_send *send);
void cairn_up_send_free(struct cairn_up_send *send);

/* ---- the store of the grants ---- */

struct cairn_up_store_check {
    struct cairn_store_worker *worker; /* owned */
    uint64_t next_ms;                  /* mono clock */
    bool reported;                     /* of this gap */
    struct cairn_log_limit log_limit;  /* of gaps that come again and again */
    unsigned mismatches;               /* checks in a row that found another store */
};
enum cairn_code cairn_up_store_check_init(struct cairn_up_store_check *check, struct cairn_up *up,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Cheap while nothing is wrong. Fails when the process must end (send.h#9). */
enum cairn_code cairn_up_store_check_tick(struct cairn_up_store_check *check, struct cairn_up *up,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* The uuid in a grant must be the store's: CAIRN_CONFLICT. Waits a moment for a store that was not
 * checked yet, then CAIRN_UNAVAILABLE; but for grants of a store that the journal names. */
enum cairn_code cairn_up_store_check_grant(struct cairn_up *up, const char *grant_uuid,
                                           struct cairn_error *err) CAIRN_MUST_USE;
