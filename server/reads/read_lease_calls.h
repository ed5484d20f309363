/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_leases: taking a lease for a reader, by its own call or with a restore plan.
 *
 * Why:     a plan's ranges and URLs are worth nothing when what they name may be deleted meanwhile.
 * Promise: Q29  the version is found, judged and leased in one transaction.
 * Limits:  CAIRN_LEASE_S_MAX; 5 min where nobody says how long.
 * Threads: the request's.
 * Next:    server/ledger/leases.h.
 */
#pragma once

#include "server/http/request.h"
#include "server/ledger/leases.h"

#define CAIRN_SRV_READ_LEASE_S 300

struct cairn_srv_leased {
    const char *ref, *job;
    uint64_t ttl_s; /* 0: the usual */
    bool made;
    struct cairn_version_id version;
    uint64_t step;
    char id[CAIRN_SRV_READ_LEASE_BYTES];
};
/* ref, job and ttl_s are set. */
enum cairn_code cairn_srv_read_lease(struct cairn_srv_request *request,
                                     struct cairn_srv_leased *leased,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Its REST form; NULL: no memory. */
json_t *cairn_srv_leased_json(const struct cairn_srv_leased *leased);
