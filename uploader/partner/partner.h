/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partner: copies of staged saves, given to the uploader of another node and kept for one.
 *
 * Why:     until the store has a save, the loss of its node loses the save of all ranks.
 * Promise: Q57  a save is reported partnered once its partner compared every block with the
 *               checksums of its staging, and this journal says so. A copy has all that its rank's
 *               node would still send: begin, seal, table, tokens and bytes.
 *          1    no save waits for its copy: a slow, full or unreachable partner costs only the
 *               milestone. Bytes are copied out of the slab first, so no slab waits for a network.
 *          2    copies lie in partner_memory, reserved at start; larger ones are refused unread.
 *          3    a copy is kept until its version or attempt is over, and while this node sends it
 *               for its node. After that it only serves restores (uploader/saves/slabs.h#5).
 *          5    a save that the store had before the partner is still given, out of the slab that
 *               keeps it, while no newer save waits: for restores after the loss of this node. It
 *               is not reported partnered for that.
 *          4    only its own node gives a copy; that node or the server orders it to be sent.
 * Limits:  slabs and streams: a save with files, or bound to its trainer, is never partnered. A
 *          description of CAIRN_UP_DESCRIPTION_BYTES_MAX. One save is given at a time.
 * Threads: its own thread gives; the port's threads receive; locked by uploader_state.
 * Next:    keep.c; docs/partner.md.
 */
#pragma once

#include "uploader/saves/save.h"

#define CAIRN_UP_COPY_PIECE_BYTES (8 * CAIRN_MIB)

/* *ret stays NULL without partner_memory. Adds its route to the port. */
enum cairn_code cairn_up_partner_new(struct cairn_up *up, struct cairn_up_partner **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* NULL is allowed here and below. */
enum cairn_code cairn_up_partner_start(struct cairn_up_partner *partner,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* The peers have stopped: no request runs any more. */
void cairn_up_partner_stop(struct cairn_up_partner *partner);
/* No sender runs any more. */
void cairn_up_partner_free(struct cairn_up_partner *partner);
/* The attempt's list of nodes arrived: saves that wait for a partner are given now. */
void cairn_up_partner_listed(struct cairn_up *up, const char *grant);
/* Frees copies without use; called at intervals. */
void cairn_up_partner_tick(struct cairn_up_partner *partner);

/* A new array of whole copies under that grant, for `copies` of the heartbeat; NULL: none. */
json_t *cairn_up_partner_copies_locked(const struct cairn_up_partner *partner,
                                       const struct cairn_up_attempt *attempt);
/* Marks the version as over. */
void cairn_up_partner_over_locked(struct cairn_up_partner *partner, const char *version,
                                  bool committed);
/* Sends the copy for its lost node, also while draining, since the copy ends with this process.
 * CAIRN_NOT_FOUND: no such copy. CAIRN_UNAVAILABLE: no memory or a full journal; retry. */
enum cairn_code cairn_up_partner_finish(struct cairn_up_partner *partner, const char *version,
                                        uint32_t rank, struct cairn_error *err) CAIRN_MUST_USE;
