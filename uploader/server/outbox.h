/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outbox: reports saves to the server, in order, until each version is over; and tells a save that
 *         ended because the lists of two ranks differ in which tensor.
 *
 * Why:     only uploaders talk to the server about saves; a server that is down for an hour must
 *          cost neither a stall nor a save. A begin says one digest of a list; which tensor of a
 *          million differs is found by looks at both lists (server/versions/list_calls.h).
 * Promise: Q9   per run and rank: begin, then table (only when it is unknown), seal or fail, then
 *               registrations; a later one is sent when the earlier one is answered.
 *          Q6   final are only stale-attempt, a version that is over and a run that is gone; what
 *               the server cannot answer now is repeated for ever with back-off; any other refusal
 *               becomes a fail of the ranks it names.
 *          Q16  nothing here is remembered on its own: after a restart all of it is told again.
 *          1    such an end waits until the tensor is known, or the server no longer says what is
 *               to be looked at; at the latest CAIRN_UP_LISTS_HOLD_MS after it last said something
 *               new. There are at most five looks (of 2^20 tensors 32 parts each time, the name).
 *          2    every other end, and that of a save whose trainer is gone or of a release before,
 *               is told at once; so is one where the server cannot be asked.
 *          3    trouble, a failure of the server's own or a proxy that lets a request not through:
 *               one save that the server cannot digest must neither hold up the others nor be tried
 *               in silence for ever, nor be failed, which is no word of the API about it (Q48).
 *               The request is split until each save was told alone; the ones that the server takes
 *               go on, the others are tried again after pauses of their own, 200 ms to 30 s.
 *          4    from CAIRN_UP_TROUBLE_TRIES failures in a row on, the log has said it once, its
 *               rank is told (docs/socket.md, `problem`), and later saves of other steps of its
 *               rank no longer wait for it. 502, 503 and 504 say that a server is away.
 * Limits:  256 begins, 4,096 shards and 16 MiB of checksums a request; one request for a list each
 *          CAIRN_UP_LISTS_EVERY_MS for each save that waits.
 * Threads: one of its own, which waits for struct cairn_up's outbox_work, and one for lists; hold
 *          and looked by any. What is held is guarded by uploader_state.
 * Next:    uploader/server/watch.h polls how versions end; client/save/split.h answers looks.
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

/* ---- lists that differ ---- */

#define CAIRN_UP_LISTS_HOLD_MS 10000
#define CAIRN_UP_LISTS_EVERY_MS 100

enum cairn_code cairn_up_lists_new(struct cairn_up *up, struct cairn_up_lists **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_lists_start(struct cairn_up_lists *lists,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* up->locked.ending is set. NULL is fine for both. */
void cairn_up_lists_stop(struct cairn_up_lists *lists);
void cairn_up_lists_free(struct cairn_up_lists *lists);
/* True: it ends later. */
bool cairn_up_lists_hold_locked(struct cairn_up *up, struct cairn_up_save *save,
                                enum cairn_up_end end, const struct cairn_error *why);
/* What a trainer says of its list. */
void cairn_up_lists_looked(struct cairn_up *up, uint64_t conn, const struct cairn_msg_looked *told);

/* ---- trouble ---- */

#define CAIRN_UP_TROUBLE_TRIES 5

/* outbox.h#4 holds for it. */
bool cairn_up_trouble_is_long_locked(const struct cairn_up_save *save);
/* A server that gives no answer is seen by the heartbeat and by the outbox: true for the first of
 * them, until it answers either. Takes uploader_state. */
bool cairn_up_server_fails(struct cairn_up *up, const struct cairn_error *why);
void cairn_up_server_answers(struct cairn_up *up);
