/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep: timed work: silent nodes, the trash, objects of ended versions, old rows.
 *
 * Why:     a save whose node is gone must end, and unused objects must go, without a request.
 * Promise: 1   a version that cannot be swept delays no other version and no other part of the
 *              round, however many such versions there are.
 *          2   no object of a version is deleted before the generation was raised or compared in
 *              this round (Q35).
 *          3   rows of events and of operations are trimmed, and operations of a dead server end,
 *              whether or not any store answers.
 *          4   a signal ends a round between two versions; the next start continues.
 *          The sources state the promises of deletions, orphans and uploads.
 * Limits:  1,000 versions of each kind a round.
 * Threads: the sweeping thread, unless a function says "on any thread".
 * Next:    server/sweep/sweep_objects.h, server/sweep/orphans.c, server/sweep/uploads.c;
 *          server/README.md, D1-D4.
 */
#pragma once

#include "common/lock.h"
#include "server/http/request.h"
#include "server/ledger/versions.h"

enum cairn_code srv_sweep_new(struct srv *server, struct srv_sweep **ret,
                              struct cairn_error *err) CAIRN_MUST_USE;
void srv_sweep_free(struct srv_sweep *sweep);
/* One round: ticks, unfinished commits, silence, trash, objects, rows. True: a run is being
 * compared with the store, and the round should be repeated soon. */
bool srv_sweep_run(struct srv_sweep *sweep, struct cairn_store_worker *worker);
/* Copies new user metadata (guard/said_copy.h) into the store at a clean stop. Does nothing if the
 * last round failed: an unreachable store must not delay the stop. */
void srv_sweep_leave(struct srv_sweep *sweep, struct cairn_store_worker *worker);

/* ---- objects of unknown versions (orphans.c) ---- */

enum cairn_code srv_orphans_new(struct srv *server, struct srv_orphans **ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
void srv_orphans_free(struct srv_orphans *orphans);
/* Lists the next pages if a listing is due. *ret_due: the number of orphans to delete when a
 * listing ends; then call _bury, after the generation was raised (Q35). */
enum cairn_code srv_orphans_look(struct srv_orphans *orphans, struct cairn_store_worker *worker,
                                 size_t *ret_due, struct cairn_error *err) CAIRN_MUST_USE;
/* Gives up each due version, or schedules another sweep, if unchanged; the next query finds it. */
enum cairn_code srv_orphans_bury(struct srv_orphans *orphans,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* True while a listing runs that a request asked for; then the next round starts at once. */
bool srv_orphans_hurried(const struct srv_orphans *orphans);
/* On any thread: the place of an orphan in the last listing; false: not found. */
bool srv_orphans_met(struct srv_orphans *orphans, const char *version, struct srv_met *ret);

/* ---- abandoned uploads (uploads.c) ---- */

enum cairn_code srv_uploads_new(struct srv *server, struct srv_uploads **ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
void srv_uploads_free(struct srv_uploads *uploads);
/* Lists the next runs' uploads if a listing is due. ret_due, emptied first: versions to end now. */
enum cairn_code srv_uploads_look(struct srv_uploads *uploads, struct cairn_store_worker *worker,
                                 struct srv_ids *ret_due, struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the uploads of a due version, if its state is unchanged. */
enum cairn_code srv_uploads_end(struct srv_uploads *uploads, struct cairn_store_worker *worker,
                                const char *version, struct cairn_error *err) CAIRN_MUST_USE;
/* True while a listing runs that a request asked for; on any thread. */
bool srv_uploads_hurried(struct srv_uploads *uploads);
/* Replies with a page of a listing's items, which the lock guards. *items NULL: none has ended. */
enum cairn_code srv_reply_found(struct srv_request *request, struct cairn_lock *lock,
                                json_t *const *items, struct srv_reply *reply,
                                struct cairn_error *err) CAIRN_MUST_USE;
