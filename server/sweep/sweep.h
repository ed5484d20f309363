/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep: what falls due by time: silent nodes, the trash, objects of ended versions, old rows.
 *
 * Why:     a save whose node is gone must end, and unused objects must go, without a request.
 * Promise: 1   a version that cannot be swept keeps no other one from being swept, and nothing
 *              else of the round from being done, however many of them there are.
 *          2   no object of a version is deleted before the generation was raised or compared in
 *              this round (Q35).
 *          3   rows of events and of operations are trimmed, and operations that a dead server left
 *              are ended, whether or not any store answers.
 *          4   a signal ends a round between two versions; what is left is the next start's.
 * Limits:  1,000 versions of each kind are swept in a round.
 * Threads: one owner.
 * Next:    server/sweep/sweep_objects.h; server/README.md, D1-D4.
 */
#pragma once

#include "server/server.h"

/* What one sweeping thread remembers from round to round. */
struct cairn_srv_sweep;
enum cairn_code cairn_srv_sweep_new(struct cairn_srv *server, struct cairn_srv_sweep **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_sweep_free(struct cairn_srv_sweep *sweep); /* NULL is fine */
/* One round: ticks, commits that were left over, silence, trash, objects, rows. True: it met a run
 * that was being compared with the store, and is to be repeated soon. */
bool cairn_srv_sweep_run(struct cairn_srv_sweep *sweep, struct cairn_store_worker *worker);
/* At a clean stop, after the last round: what was said since is copied into the store, too. Where
 * that round went wrong nothing is tried: no store that is away keeps a server from stopping. */
void cairn_srv_sweep_leave(struct cairn_srv_sweep *sweep, struct cairn_store_worker *worker);
