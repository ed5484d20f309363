/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partner: copies of what is staged, given to the uploader of another node and kept for one.
 *
 * Why:     until the store has it, a save lies on one node; what takes that node takes the save of
 *          all ranks with it.
 * Promise: Q57  a save is told partnered once its partner has compared every block of it with the
 *               checksums of its staging, and the journal here says so. A copy has all that its
 *               rank's node would still send: begin, seal, table, tokens and bytes.
 *          1    nothing here is waited for by a save: a partner that is slow, full or away costs
 *               the milestone and nothing else. Bytes of a slab are copied out, and never sent from
 *               it, so no slab stays lent for a network.
 *          2    copies lie in partner_memory, which is reserved at the start; one that does not fit
 *               is refused before a byte of it comes.
 *          3    a copy is kept until its version is over, or its attempt; and while this node sends
 *               it in its node's stead. After that it stays for restores
 *               (uploader/saves/slabs.h#5), and is no copy any more that could be sent.
 *          5    what the store has sooner than the partner is given nevertheless, out of the slab
 *               that keeps it, as long as no newer save waits: for restores after the loss of this
 *               node. It is not told partnered for that.
 *          4    it is given by the node that it is of alone, and told to be sent by that or by the
 *               server.
 * Limits:  slabs alone: a save with files, or that ends with its trainer, is never partnered. A
 *          description of CAIRN_UP_DESCRIPTION_BYTES_MAX. One save is given at a time.
 * Threads: one of its own gives; copies come on those of the port; all of it is locked by
 *          uploader_state.
 * Next:    keep.c; docs/partner.md.
 */
#pragma once

#include "uploader/saves/save.h"

#define CAIRN_UP_COPY_PIECE_BYTES (8 * CAIRN_MIB)

/* *ret stays NULL without partner_memory. Adds its route to the port. */
enum cairn_code cairn_up_partner_new(struct cairn_up *up, struct cairn_up_partner **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* NULL is fine for all of these. */
enum cairn_code cairn_up_partner_start(struct cairn_up_partner *partner,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Once the peers have stopped: no request comes or goes any more. */
void cairn_up_partner_stop(struct cairn_up_partner *partner);
/* Once no sender runs. */
void cairn_up_partner_free(struct cairn_up_partner *partner);
/* The nodes of that attempt are known anew: what waits for a partner is given at once. */
void cairn_up_partner_listed(struct cairn_up *up, const char *grant);
/* Now and then: copies that nobody needs go. */
void cairn_up_partner_tick(struct cairn_up_partner *partner);

/* ---- for the heartbeat ---- */
/* What is kept whole under that right, as `copies` says it; a new array, or NULL: none. */
json_t *cairn_up_partner_copies_locked(const struct cairn_up_partner *partner,
                                       const struct cairn_up_attempt *attempt);
/* The version is over. */
void cairn_up_partner_over_locked(struct cairn_up_partner *partner, const char *version,
                                  bool committed);
/* Its node is gone: this one sends it, also while it drains, since the copy is gone when it has
 * stopped. CAIRN_NOT_FOUND: there is no such copy. CAIRN_UNAVAILABLE: not now, as without memory or
 * with a full journal; ask again. */
enum cairn_code cairn_up_partner_finish(struct cairn_up_partner *partner, const char *version,
                                        uint32_t rank, struct cairn_error *err) CAIRN_MUST_USE;
