/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_leases: who reads a version, and until when nothing of it may be deleted for that.
 *
 * Why:     a restore takes minutes, and retention does not wait; a version that goes while somebody
 *          reads it fails a restart of the whole job.
 * Promise: Q29  a lease is taken in one transaction, on a committed version only; what is leased is
 *               trashed by nobody and does not leave the trash for `deleting`.
 *          1    a lease is named by its version and its job: the same call gives the same lease, so
 *               that a lost answer may be asked for again, and all processes of a job share one.
 *          2    it never becomes shorter by being taken or renewed.
 *          3    it ends in catalog time (Q34): an hour in which no server runs does not end it.
 * Limits:  CAIRN_SRV_READ_LEASES_MAX of a version; jobs of CAIRN_JOB_BYTES_MAX.
 * Threads: inside a transaction.
 * Next:    server/reads/plans.c; uploader/fetch/inside.h and cli/bucket/bucket.h take them.
 */
#pragma once

#include "common/json.h"
#include "server/ledger/lists.h"

#define CAIRN_SRV_READ_LEASES_MAX 16384
#define CAIRN_SRV_READ_LEASE_BYTES 39 /* "lease_", 32 digits, NUL */

void cairn_srv_read_lease_name(const char *version, const char *job,
                               char ret[CAIRN_SRV_READ_LEASE_BYTES]);
struct cairn_srv_read_lease {
    char id[CAIRN_SRV_READ_LEASE_BYTES];
    const char *version, *job;
    uint64_t until_tick;
    int64_t wall_ms;
};
/* *ret_made: there was none. CAIRN_BUSY: the version has too many. */
enum cairn_code cairn_srv_read_lease_take(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_read_lease *lease, bool *ret_made,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Of this version; *ret_found false: there is none, or it has ended and is forgotten. */
enum cairn_code cairn_srv_read_lease_renew(struct cairn_srv_tx *tx, const char *id,
                                           const char *version, uint64_t until_tick,
                                           bool *ret_found, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_read_lease_drop(struct cairn_srv_tx *tx, const char *id,
                                          const char *version, bool *ret_found,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Does one last beyond this moment? */
enum cairn_code cairn_srv_version_leased(struct cairn_srv_tx *tx, const char *version, bool *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* A JSON array of lease_row (api/messages.def), at most 1,000, the one that ends last first. */
enum cairn_code cairn_srv_read_leases_of(struct cairn_srv_tx *tx, const char *version,
                                         uint64_t step, json_t **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Those that have ended are forgotten. */
enum cairn_code cairn_srv_read_leases_trim(struct cairn_srv_tx *tx,
                                           struct cairn_error *err) CAIRN_MUST_USE;
