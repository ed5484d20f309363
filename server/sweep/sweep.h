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
 *          Those of deletions, orphans and uploads stand in their sources.
 * Limits:  1,000 versions of each kind are swept in a round.
 * Threads: the sweeping thread, but for what says "on any".
 * Next:    server/sweep/sweep_objects.h, server/sweep/orphans.c, server/sweep/uploads.c;
 *          server/README.md, D1-D4.
 */
#pragma once

#include "common/lock.h"
#include "server/db/sql.h"
#include "server/http/request.h"
#include "server/ledger/versions.h"
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

/* ---- what no version of the catalog names (orphans.c) ---- */

struct cairn_srv_orphans;
enum cairn_code cairn_srv_orphans_new(struct cairn_srv *server, struct cairn_srv_orphans **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_orphans_free(struct cairn_srv_orphans *orphans); /* NULL is fine */
/* Reads some pages further, where a look is due. *ret_due: how many versions the look that ended
 * with them found due; _bury is to be called then, after the generation was raised (Q35). */
enum cairn_code cairn_srv_orphans_look(struct cairn_srv_orphans *orphans,
                                       struct cairn_store_worker *worker, size_t *ret_due,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Each of those is given up, or swept again, if it is still what it was found to be. The sweep's
 * next query finds them. */
enum cairn_code cairn_srv_orphans_bury(struct cairn_srv_orphans *orphans,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Is a look under way that a call asked for? Then the next round does not wait. */
bool cairn_srv_orphans_hurried(const struct cairn_srv_orphans *orphans);
/* On any thread: where that version stands, which the last look found; false: it found none. */
bool cairn_srv_orphans_met(struct cairn_srv_orphans *orphans, const char *version,
                           struct cairn_srv_met *ret);

/* ---- uploads that no save will end (uploads.c) ---- */

struct cairn_srv_uploads;
enum cairn_code cairn_srv_uploads_new(struct cairn_srv *server, struct cairn_srv_uploads **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_uploads_free(struct cairn_srv_uploads *uploads); /* NULL is fine */
/* Lists some runs further, where a look is due. ret_due: versions whose uploads are to be ended
 * now; it is emptied first. */
enum cairn_code cairn_srv_uploads_look(struct cairn_srv_uploads *uploads,
                                       struct cairn_store_worker *worker,
                                       struct cairn_srv_ids *ret_due,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the uploads of one of those, if it is still what it was found to be. */
enum cairn_code cairn_srv_uploads_end(struct cairn_srv_uploads *uploads,
                                      struct cairn_store_worker *worker, const char *version,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Is a look under way that a call asked for? On any thread. */
bool cairn_srv_uploads_hurried(struct cairn_srv_uploads *uploads);
/* A page of what a look found, which that lock guards. *items may be NULL: none has ended. */
enum cairn_code cairn_srv_reply_found(struct cairn_srv_request *request, struct cairn_lock *lock,
                                      json_t *const *items, struct cairn_srv_reply *reply,
                                      struct cairn_error *err) CAIRN_MUST_USE;
