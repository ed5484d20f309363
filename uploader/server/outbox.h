/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outbox: reports saves to the server, in order, until each version is over.
 *
 * Why:     only uploaders talk to the server about saves; a server that is down for an hour must
 *          cost neither a stall nor a save.
 * Promise: Q9   per run and rank: begin, then table (only when it is unknown), seal or fail, then
 *               registrations; a later one is sent when the earlier one is answered.
 *          Q6   final are only stale-attempt, a version that is over and a run that is gone; what
 *               the server cannot answer now is repeated for ever with back-off; any other refusal
 *               becomes a fail of the ranks it names.
 *          Q16  nothing here is remembered on its own: after a restart all of it is told again.
 * Limits:  256 begins, 4,096 shards and 16 MiB of checksums a request.
 * Threads: one of its own, which waits for struct cairn_up's outbox_work.
 * Next:    uploader/server/watch.h polls how versions end.
 */
#pragma once

#include "uploader/up.h"

enum cairn_code cairn_up_outbox_new(struct cairn_up *up, struct cairn_up_outbox **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_outbox_start(struct cairn_up_outbox *outbox,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_outbox_stop(struct cairn_up_outbox *outbox);
void cairn_up_outbox_free(struct cairn_up_outbox *outbox);
