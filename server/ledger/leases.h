/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leases: which server works on a job, and until when.
 *
 * Why:     a version is committed or swept by one server of several, also when that one stops in
 *          the middle: another takes over, and the first must then finish nothing.
 * Promise: 1   a job has at most one holder: a server, and a number (fence) that no later one has.
 *          2   one that is over, or whose server no longer lives, goes to whoever asks next.
 * Limits:  job names of up to CAIRN_SRV_JOB_BYTES - 1.
 * Threads: inside a change.
 * Next:    server/guard/lease.h.
 */
#pragma once

#include "common/trace.h"
#include "server/db/sql.h"

#define CAIRN_SRV_JOB_BYTES 96

struct cairn_srv_holder {
    const char *job, *server;
    uint64_t fence; /* set by take */
};
/* Who has it now. */
struct cairn_srv_lease_row {
    bool there;
    char server[CAIRN_UUID_TEXT_BYTES];
    uint64_t fence, until_tick;
};
enum cairn_code cairn_srv_lease_row_find(struct cairn_srv_tx *tx, const char *job,
                                         struct cairn_srv_lease_row *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* What find will look at (sql.h). */
enum cairn_code cairn_srv_lease_row_expect(struct cairn_srv_tx *tx, const char *job,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* From whom find has found in the same change. until_tick: of the new holder. *ret_taken false:
 * another one has it. */
enum cairn_code cairn_srv_lease_row_take(struct cairn_srv_tx *tx, struct cairn_srv_holder *holder,
                                         const struct cairn_srv_lease_row *found, uint64_t now_tick,
                                         uint64_t until_tick, bool *ret_taken,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_lease_row_is(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_holder *holder, bool *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* What is will look at (sql.h). */
enum cairn_code cairn_srv_lease_row_is_expect(struct cairn_srv_tx *tx,
                                              const struct cairn_srv_holder *holder,
                                              struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_lease_row_drop(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_holder *holder,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* All that the server holds. */
enum cairn_code cairn_srv_lease_rows_renew(struct cairn_srv_tx *tx, const char *server,
                                           uint64_t until_tick,
                                           struct cairn_error *err) CAIRN_MUST_USE;
