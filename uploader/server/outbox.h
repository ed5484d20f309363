/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outbox: reports saves to the server, in order, until each version is over; and finds the tensor
 *         in which the lists of two ranks differ.
 *
 * Why:     only uploaders report saves to the server; a server that is down for an hour must cost
 *          neither a stall nor a save. A begin has one digest of a list; a bisection of both lists
 *          finds which of a million tensors differs.
 * Promise: Q9   per run and rank: begin, then table (only when unknown), seal or fail, then
 *               registrations, each sent after the previous answer.
 *          Q6   final are only stale-attempt, a version that is over and a run that is gone;
 *               without an answer requests are retried for ever with back-off; any other refusal
 *               becomes a fail of the ranks it names.
 *          Q16  the outbox keeps no state: a restart reports everything again.
 *          1    an end by differing lists waits until the tensor is known or the server requests no
 *               more digests, at most CAIRN_UP_LISTS_HOLD_MS after its last progress. There are at
 *               most five rounds (of 2^20 tensors 32 parts each time, then the name).
 *          2    every other end is reported at once, also of a save without its trainer, or of an
 *               older release, or when the server cannot be reached.
 *          3    trouble is a failure inside the server or a proxy that blocks a request. Such a
 *               save may neither delay others, nor be retried in silence, nor be failed, since no
 *               error of the API says so (Q48): the batch is split to single saves; accepted saves
 *               proceed, others are retried after pauses of 200 ms to 30 s.
 *          4    after CAIRN_UP_TROUBLE_TRIES consecutive failures it is logged once, the rank is
 *               told (docs/socket.md, `problem`), and the rank's later saves of other steps no
 *               longer wait. 502, 503 and 504 mean an unreachable server.
 * Limits:  256 begins, 4,096 shards and 16 MiB of checksums a request; one request for a list each
 *          CAIRN_UP_LISTS_EVERY_MS for each waiting save.
 * Threads: its own, which waits for struct cairn_up's outbox_work, and one for lists; any thread
 *          calls hold and looked. Held saves are guarded by uploader_state.
 * Next:    uploader/server/watch.h polls outcomes; client/save/split.h makes digests of lists.
 */
#pragma once

#include "api/wire/messages.h"
#include "uploader/saves/save.h"
#include "uploader/up.h"

enum cairn_code cairn_up_outbox_new(struct cairn_up *up, struct cairn_up_outbox **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_outbox_start(struct cairn_up_outbox *outbox,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_outbox_stop(struct cairn_up_outbox *outbox);
void cairn_up_outbox_free(struct cairn_up_outbox *outbox);

#define CAIRN_UP_LISTS_HOLD_MS 10000
#define CAIRN_UP_LISTS_EVERY_MS 100

enum cairn_code cairn_up_lists_new(struct cairn_up *up, struct cairn_up_lists **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_lists_start(struct cairn_up_lists *lists,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* up->locked.ending is set. NULL is allowed for both. */
void cairn_up_lists_stop(struct cairn_up_lists *lists);
void cairn_up_lists_free(struct cairn_up_lists *lists);
/* True: the save ends later. */
bool cairn_up_lists_hold_locked(struct cairn_up *up, struct cairn_up_save *save,
                                enum cairn_up_end end, const struct cairn_error *why);
/* Takes a trainer's digests of its list. */
void cairn_up_lists_looked(struct cairn_up *up, uint64_t conn, const struct cairn_msg_looked *told);

#define CAIRN_UP_TROUBLE_TRIES 5

/* True when outbox.h#4 applies. */
bool cairn_up_trouble_is_long_locked(const struct cairn_up_save *save);
/* True for the first of heartbeat and outbox to fail, until an answer. Takes uploader_state. */
bool cairn_up_server_fails(struct cairn_up *up, const struct cairn_error *why);
void cairn_up_server_answers(struct cairn_up *up);
