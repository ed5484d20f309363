/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs: work that nobody waits for: commits, records, sweeps.
 *
 * Why:     a commit writes to the store for seconds; a request must not carry it, and a crash in
 *          the middle must be taken up again.
 * Promise: 1   one version is committed by one job at a time.
 *          2   what could not be finished (the store is away) is tried again, with growing pauses,
 *              and anyway at each sweep; the reason is logged when it changes.
 * Limits:  2 commits at once; 65,536 versions in work.
 * Threads: any thread may ask; an idle one has one thread.
 * Next:    server/jobs/commit.c, server/jobs/sweep.c.
 */
#pragma once

#include "server/server.h"

enum cairn_code cairn_srv_jobs_new(struct cairn_srv *server, struct cairn_srv_jobs **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* The same without a thread: cairn_srv_jobs_step runs what is due, on the calling thread. */
enum cairn_code cairn_srv_jobs_new_idle(struct cairn_srv *server, struct cairn_srv_jobs **ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* How many commits it ran; of an idle one only. */
size_t cairn_srv_jobs_step(struct cairn_srv_jobs *jobs, struct cairn_store_worker *worker);
void cairn_srv_jobs_free(struct cairn_srv_jobs *jobs); /* NULL is fine */
/* See whether this version can be committed, or its record be written. */
void cairn_srv_jobs_commit(struct cairn_srv *server, const char *version_id);
/* Q53: how many versions wait for an operator, since their documents are there with other bytes;
 * the first one and why. */
#define CAIRN_SRV_STUCK_BYTES 512
size_t cairn_srv_jobs_stuck(struct cairn_srv *server, char ret[CAIRN_SRV_STUCK_BYTES]);
/* Sweep now instead of at the next interval. */
void cairn_srv_jobs_sweep(struct cairn_srv *server);

/* ---- the work itself ---- */

/* Q22, Q23 and the record, for one version; CAIRN_OK also when there was nothing to do. */
enum cairn_code cairn_srv_commit_run(struct cairn_srv *server, struct cairn_store_worker *worker,
                                     const char *version_id,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* What one sweeping thread remembers from round to round. */
struct cairn_srv_sweep;
enum cairn_code cairn_srv_sweep_new(struct cairn_srv *server, struct cairn_srv_sweep **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_sweep_free(struct cairn_srv_sweep *sweep); /* NULL is fine */
/* One round: ticks, what was left over, silence, trash, sweeps, tables and layouts. True: it met a
 * run that was being compared with the store, and is to be repeated soon. */
bool cairn_srv_sweep_run(struct cairn_srv_sweep *sweep, struct cairn_store_worker *worker);
