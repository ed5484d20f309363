/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send: moves the bytes of shards to the store, many parts at once, oldest shard first; and checks
 * that the store is the one that the grants name.
 *
 * Why:     store/multipart.h chooses the next request of one shard; a few threads run it for all
 *          shards and journal what a restart must know before each step. A node without its mount
 *          would write shards to its own disk, and the checkpoint would commit without them.
 * Promise: 1   intent and token are journaled before CREATE or PUT, upload id before parts, block
 *              checksums before COMPLETE (and PUT), "durable" after HEAD and before reports (R2,
 *              Q16).
 *          2   bytes are sent from the slab itself; a file's bytes from a bounded pool reserved at
 *              start, so a file larger than the memory budget can be saved.
 *          3   checksums come from staging (slab) or from the first read (file). Bytes that no
 *              longer match are not sent: CAIRN_SOURCE_CHANGED names shard and range.
 *          4   after a shard ended, no request of this process carries its bytes (Q20); giving a
 *              shard up first cancels its requests, then aborts its upload.
 *          5   an unresponsive file delays only files of its own save, and no slab. A save's files
 *              take half of the free readers at most, so two hanging saves leave one to a third.
 *          6   nothing is picked before the store was checked, at start and after each gap (Q55):
 *              its path names another folder, or a request did not reach it.
 *          7   where cores are scarce nothing is picked while ranks copy, for copy_first at a time,
 *              a fifth of the time at most, and once for a rank that stops copying.
 *          8   senders start only after the uuid of .cairn/store.json matched every grant in the
 *              journal and of every session; a gap repeats the check. A path that names another
 *              folder by then is followed once no request is in flight in the old one.
 *          9   an unreachable store costs no save: saves wait, and log and heartbeat say so. A
 *              wrong store, three times in a row, ends the process.
 * Limits:  requests in flight as the store's appetite allows; the pool as reserved. send.h#5 takes
 *          three readers: a memory_budget of 12 part_size. A check each 200 ms, within 5 s.
 * Threads: upload_queue locks a shard's `queue`; own worker threads call uploader/saves/save.h
 *          without locks. store_check_tick: the main thread, uploader_state.
 * Next:    store/multipart.h, uploader/send/shards.h, uploader/journal/journal.h.
 */
#pragma once

#include "uploader/send/shards.h"
#include "uploader/up.h"

enum cairn_code cairn_up_send_new(struct cairn_up *up, struct cairn_up_send **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_send_start(struct cairn_up_send *send,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* False: a thread waits for an unresponsive file, and nothing of this may be freed. */
bool cairn_up_send_stop(struct cairn_up_send *send);
void cairn_up_send_free(struct cairn_up_send *send);

/* ---- the store of the grants ---- */

struct cairn_up_store_check {
    struct cairn_store_worker *worker; /* owned */
    uint64_t next_ms;                  /* mono clock */
    bool reported;                     /* this gap was logged */
    struct cairn_log_limit log_limit;  /* for recurring gaps */
    unsigned mismatches;               /* consecutive checks that found another store */
};
enum cairn_code cairn_up_store_check_init(struct cairn_up_store_check *check, struct cairn_up *up,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Cheap without a gap. Fails when the process must end (send.h#9). */
enum cairn_code cairn_up_store_check_tick(struct cairn_up_store_check *check, struct cairn_up *up,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_CONFLICT: the grant's uuid is not the store's. Waits a moment for an unchecked store, then
 * CAIRN_UNAVAILABLE, except for grants of a store that the journal names. */
enum cairn_code cairn_up_store_check_grant(struct cairn_up *up, const char *grant_uuid,
                                           struct cairn_error *err) CAIRN_MUST_USE;
