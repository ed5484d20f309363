/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_lease: a reader's lease on a version, over HTTP: taken, renewed and given back.
 *
 * Why:     the uploader and the command both read for minutes, and what they read must stay.
 * Promise: Q29  while renew answers CAIRN_OK in time, nothing of the version is deleted.
 *          1    renew takes the lease again where the server has forgotten it; CAIRN_DELETED and
 *               CAIRN_ABORTED say that it came too late, any other failure that nothing is known.
 * Limits:  jobs of CAIRN_JOB_BYTES_MAX, one reader each, or one that shares it on purpose.
 * Threads: one owner.
 * Next:    uploader/fetch/inside.h, cli/bucket/bucket.h; server/ledger/leases.h.
 */
#pragma once

#include "api/messages.h"
#include "api/rest.h"

struct cairn_read_lease {
    struct cairn_run_name name;
    struct cairn_version_id version;
    char job[CAIRN_JOB_BYTES_MAX + 1];
    uint32_t ttl_s;
    char id[CAIRN_NAME_BYTES_MAX + 1]; /* "": not taken */
};
/* How often to renew: two that fail in a row are still in time. */
static inline uint64_t cairn_read_lease_every_ms(const struct cairn_read_lease *lease) {
    return (uint64_t)lease->ttl_s * 1000 / 3;
}
/* Take it, or renew it where it is taken. */
enum cairn_code cairn_read_lease_keep(struct cairn_read_lease *lease, struct cairn_rest *rest,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Nothing where it was not taken, or has ended. */
enum cairn_code cairn_read_lease_give(struct cairn_read_lease *lease, struct cairn_rest *rest,
                                      struct cairn_error *err) CAIRN_MUST_USE;
