/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs: work without a request that waits for it: commits, records, sweeps; and the right of this
 * server to do it, where several share a catalog.
 *
 * Why:     a commit writes to the store for seconds; a request must not carry it, and a crash in
 *          the middle must be taken up again. A server that was stopped in the middle of a commit
 *          or a sweep and comes back must not finish what another has taken over; one that is dead
 *          must keep nobody waiting.
 * Promise: 1   one version is committed by one job at a time.
 *          2   what could not be finished (the store is away) is tried again, with growing pauses,
 *              and anyway at each sweep; the reason is logged when it changes.
 *          3   of commits whose rows and tables are 8 MiB or more two run at once, so that memory
 *              does not grow with the number of threads.
 *          4   a lease lasts for job-lease of catalog time and is renewed for as long as the
 *              process runs; who is stopped for longer loses it.
 *          5   a change of the job that begins with cairn_srv_lease_check fails, by busy, once
 *              another server has taken the job.
 *          6   where a catalog is one process's alone (SQLite) nothing is written for it.
 *          7   by at most the boot clock's time since this server last saw it change, and at most
 *              60 s at once; who finds that another has raised it has only seen it change.
 * Limits:  16 commits at once; 65,536 versions in work; job-lease of 1 s at least.
 * Threads: commit and sweep are asked for on any thread; an idle one has one thread. A lease
 *          belongs to one thread.
 * Next:    server/commit/commit.c, server/sweep/sweep.c, server/ledger/leases.h; E2 in
 *          server/README.md.
 */
#pragma once

#include "server/ledger/leases.h"
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

/* ---- leases ---- */

struct cairn_srv_lease {
    struct cairn_srv *server;
    char job[CAIRN_SRV_JOB_BYTES];
    uint64_t fence;
    bool held;
    bool dropped; /* set by the caller when the change of drop_in was kept */
};

enum cairn_code cairn_srv_leases_new(struct cairn_srv *server, struct cairn_srv_leases **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_leases_free(struct cairn_srv_leases *leases); /* NULL is fine */

void cairn_srv_lease_init(struct cairn_srv_lease *lease, struct cairn_srv *server, const char *kind,
                          const char *id);
/* Inside a change of its own, or of the job; CAIRN_BUSY: another server has it. The first undoes
 * nothing: held says whether it was taken. */
enum cairn_code cairn_srv_lease_take_in(struct cairn_srv_tx *tx, struct cairn_srv_lease *lease,
                                        struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_lease_take(struct cairn_srv_lease *lease,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* What take_in will look at (server/db/sql.h). */
enum cairn_code cairn_srv_lease_take_expect(struct cairn_srv_tx *tx,
                                            const struct cairn_srv_lease *lease,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Inside a change. lease NULL: of nobody's job. */
enum cairn_code cairn_srv_lease_check(struct cairn_srv_tx *tx, const struct cairn_srv_lease *lease,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* What check will look at (server/db/sql.h). */
enum cairn_code cairn_srv_lease_check_expect(struct cairn_srv_tx *tx,
                                             const struct cairn_srv_lease *lease,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* Before something is done in the store that no change guards. */
enum cairn_code cairn_srv_lease_still(const struct cairn_srv_lease *lease,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Inside the job's last change; and after it, whatever became of it. */
enum cairn_code cairn_srv_lease_drop_in(struct cairn_srv_tx *tx, struct cairn_srv_lease *lease,
                                        struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_lease_end(struct cairn_srv_lease *lease);

/* ---- catalog time ---- */

enum cairn_code cairn_srv_ticks_advance(struct cairn_srv_tx *tx, struct cairn_srv *server,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* As that has left it. */
uint64_t cairn_srv_ticks_now(const struct cairn_srv *server);
