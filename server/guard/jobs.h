/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs: work outside of requests (commits, records, sweeps), and leases that say which of the
 * servers of a catalog does it.
 *
 * Why:     a commit writes to the store for seconds; a request must not carry it, and after a crash
 *          it must be resumed. A server suspended during a commit or a sweep must not finish work
 *          that another server took over; a dead server must not block work.
 * Promise: 1   one version is committed by one job at a time.
 *          2   work that failed (an unreachable store) is retried with growing pauses, and at each
 *              sweep; the reason is logged when it changes.
 *          3   two commits of 8 MiB or more of rows and tables run at once, so that memory does not
 *              grow with the number of threads.
 *          4   a lease lasts for job-lease of catalog time and is renewed while the process runs; a
 *              server suspended for longer loses it.
 *          5   a transaction that begins with srv_lease_check fails with busy once another
 *              server has taken the job.
 *          6   a catalog of a single process (SQLite) stores no leases.
 *          7   catalog time advances by at most the boot clock's time since this server last saw it
 *              change, and at most 60 s at once; an advance by another server counts as seen only.
 * Limits:  16 commits at once; 65,536 versions in work; job-lease of at least 1 s.
 * Threads: commits and sweeps are requested on any thread; an idle one has one thread. A lease
 *          belongs to one thread.
 * Next:    server/commit/commit.c, server/sweep/sweep.c, server/ledger/leases.h; E2 in
 *          server/README.md.
 */
#pragma once

#include "server/ledger/leases.h"
#include "server/server.h"

/* What the threads run, handed in, since commits request sweeps and sweeps commits. */
struct srv_work {
    enum cairn_code (*commit)(struct srv *server, struct cairn_store_worker *worker,
                              const char *version_id, struct cairn_error *err);
    bool (*sweep)(struct srv_sweep *sweep, struct cairn_store_worker *worker);
    /* may be NULL */
    void (*leave)(struct srv_sweep *sweep, struct cairn_store_worker *worker);
};
/* *ret is server->jobs: its threads read it there. */
enum cairn_code srv_jobs_new(struct srv *server, const struct srv_work *work, struct srv_jobs **ret,
                             struct cairn_error *err) CAIRN_MUST_USE;
/* Without threads: srv_jobs_step runs due commits on the calling thread; the caller
 * sweeps. */
enum cairn_code srv_jobs_new_idle(struct srv *server, const struct srv_work *work,
                                  struct srv_jobs **ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Returns the number of commits it ran; for an idle one only. */
size_t srv_jobs_step(struct srv_jobs *jobs, struct cairn_store_worker *worker);
void srv_jobs_free(struct srv_jobs *jobs); /* accepts NULL */
/* Requests a check whether the version can be committed, or its record written. */
void srv_jobs_commit(struct srv *server, const char *version_id);
/* Waits, before a commit loads that many bytes of rows and tables, until a large commit may run.
 * True: call give_room afterwards. */
bool srv_jobs_take_room(struct srv *server, uint64_t bytes);
void srv_jobs_give_room(struct srv *server);
/* Q53: counts versions that wait for an operator, since the store has different bytes under their
 * keys; ret describes the first. */
#define SRV_STUCK_BYTES 512
size_t srv_jobs_stuck(struct srv *server, char ret[SRV_STUCK_BYTES]);
/* Why the version cannot be committed; false: no reason known. */
bool srv_jobs_stuck_of(struct srv *server, const char *version, char ret[SRV_STUCK_BYTES]);
/* Starts a sweep now instead of at the next interval. */
void srv_jobs_sweep(struct srv *server);

/* ---- leases ---- */

struct srv_lease {
    struct srv *server;
    char job[SRV_JOB_BYTES];
    uint64_t fence;
    bool held;
    bool dropped; /* the caller sets this once the transaction with drop_in committed */
};

enum cairn_code srv_leases_new(struct srv *server, struct srv_leases **ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
void srv_leases_free(struct srv_leases *leases); /* accepts NULL */

void srv_lease_init(struct srv_lease *lease, struct srv *server, const char *kind, const char *id);
/* take_in: in a transaction of the job; take: in its own. CAIRN_BUSY: another server has the job;
 * take_in then returns CAIRN_OK without `held`. */
enum cairn_code srv_lease_take_in(struct srv_tx *tx, struct srv_lease *lease,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_lease_take(struct srv_lease *lease, struct cairn_error *err) CAIRN_MUST_USE;
/* Announces the reads of take_in (server/db/sql.h). */
enum cairn_code srv_lease_take_expect(struct srv_tx *tx, const struct srv_lease *lease,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* In a transaction. lease NULL: no job, no check. */
enum cairn_code srv_lease_check(struct srv_tx *tx, const struct srv_lease *lease,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Announces the reads of check (server/db/sql.h). */
enum cairn_code srv_lease_check_expect(struct srv_tx *tx, const struct srv_lease *lease,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Before a change of the store that no transaction guards. */
enum cairn_code srv_lease_still(const struct srv_lease *lease,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* drop_in: in the job's last transaction; end: after it, whatever its result. */
enum cairn_code srv_lease_drop_in(struct srv_tx *tx, struct srv_lease *lease,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void srv_lease_end(struct srv_lease *lease);

/* ---- catalog time ---- */

enum cairn_code srv_ticks_advance(struct srv_tx *tx, struct srv *server,
                                  struct cairn_error *err) CAIRN_MUST_USE;
uint64_t srv_ticks_now(const struct srv *server);
/* When `ms` from now will have passed at the earliest, whichever server counts them. In the
 * transaction of srv_ticks_advance, after it. */
uint64_t srv_ticks_after(const struct srv *server, uint64_t ms);
