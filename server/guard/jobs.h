/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs: work without a request that waits for it: commits, records, sweeps.
 *
 * Why:     a commit writes to the store for seconds; a request must not carry it, and a crash in
 *          the middle must be taken up again.
 * Promise: 1   one version is committed by one job at a time.
 *          2   what could not be finished (the store is away) is tried again, with growing pauses,
 *              and anyway at each sweep; the reason is logged when it changes.
 *          3   of commits whose rows and tables are 8 MiB or more two run at once, so that memory
 *              does not grow with the number of threads.
 * Limits:  16 commits at once; 65,536 versions in work.
 * Threads: commit and sweep are asked for on any thread; an idle one has one thread.
 * Next:    server/commit/commit.c, server/sweep/sweep.c.
 */
#pragma once

#include "server/server.h"

/* What the threads run: cairn_srv_commit_run and cairn_srv_sweep_run. They are handed in, since a
 * commit asks for a sweep and a sweep for commits. */
struct cairn_srv_work {
    enum cairn_code (*commit)(struct cairn_srv *server, struct cairn_store_worker *worker,
                              const char *version_id, struct cairn_error *err);
    bool (*sweep)(struct cairn_srv_sweep *sweep, struct cairn_store_worker *worker);
    void (*leave)(struct cairn_srv_sweep *sweep, struct cairn_store_worker *worker); /* or NULL */
};
/* *ret is server->jobs: its own threads find it there. */
enum cairn_code cairn_srv_jobs_new(struct cairn_srv *server, const struct cairn_srv_work *work,
                                   struct cairn_srv_jobs **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* The same without a thread: cairn_srv_jobs_step runs the commits that are due, on the calling
 * thread, and sweeps are the caller's. */
enum cairn_code cairn_srv_jobs_new_idle(struct cairn_srv *server, const struct cairn_srv_work *work,
                                        struct cairn_srv_jobs **ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* How many commits it ran; of an idle one only. */
size_t cairn_srv_jobs_step(struct cairn_srv_jobs *jobs, struct cairn_store_worker *worker);
void cairn_srv_jobs_free(struct cairn_srv_jobs *jobs); /* NULL is fine */
/* See whether this version can be committed, or its record be written. */
void cairn_srv_jobs_commit(struct cairn_srv *server, const char *version_id);
/* Before a commit loads that many bytes of rows and tables: waits while others have the room of
 * large ones. True: it is given back by give_room. */
bool cairn_srv_jobs_take_room(struct cairn_srv *server, uint64_t bytes);
void cairn_srv_jobs_give_room(struct cairn_srv *server);
/* Q53: how many versions wait for an operator, since their documents are there with other bytes;
 * the first one and why. */
#define CAIRN_SRV_STUCK_BYTES 512
size_t cairn_srv_jobs_stuck(struct cairn_srv *server, char ret[CAIRN_SRV_STUCK_BYTES]);
/* Why that version cannot be committed; false: nothing is known to be in its way. */
bool cairn_srv_jobs_stuck_of(struct cairn_srv *server, const char *version,
                             char ret[CAIRN_SRV_STUCK_BYTES]);
/* Sweep now instead of at the next interval. */
void cairn_srv_jobs_sweep(struct cairn_srv *server);
