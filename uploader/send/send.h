/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send: moves the bytes of shards to the store, many parts at once, oldest shard first.
 *
 * Why:     store/multipart.h says what comes next for one shard; this runs it for all of them on a
 *          few threads and writes into the journal what must be remembered before each step.
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
 * Limits:  requests in flight as the store's appetite allows; the pool as reserved. send.h#5 takes
 *          three readers: a memory_budget of twelve times part_size.
 * Threads: `queue` of a shard is locked by upload_queue; worker threads of its own. The callbacks
 *          of uploader/saves/save.h are called on them with no lock held.
 * Next:    store/multipart.h, uploader/shards/queue.h, uploader/journal/journal.h.
 */
#pragma once

#include "uploader/shards/shard.h"

enum cairn_code cairn_up_send_new(struct cairn_up *up, struct cairn_up_send **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_send_start(struct cairn_up_send *send,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* False: a thread waits for a file that does not answer, and nothing of this may be freed. */
bool cairn_up_send_stop(struct cairn_up_send *send);
void cairn_up_send_free(struct cairn_up_send *send);
