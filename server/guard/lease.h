/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease: the right of this server to do a job of a catalog that several servers share.
 *
 * Why:     a server that was stopped in the middle of a commit or a sweep and comes back must not
 *          finish what another has taken over; one that is dead must keep nobody waiting.
 * Promise: 1   a lease lasts for job-lease of catalog time and is renewed for as long as the
 *              process runs; who is stopped for longer loses it.
 *          2   a change of the job that begins with cairn_srv_lease_check fails, by busy, once
 *              another server has taken the job.
 *          3   where a catalog is one process's alone (SQLite) nothing is written for it.
 * Limits:  job-lease of 1 s at least.
 * Threads: any thread; a struct belongs to one.
 * Next:    server/ledger/leases.h; E2 in server/README.md.
 */
#pragma once

#include "server/ledger/leases.h"
#include "server/server.h"

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
