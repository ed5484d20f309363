/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor: the checks of a store, a server, an uploader and a machine.
 *
 * Why:     what is wrong with an endpoint or a right is better heard before the first save than
 *          from the one that fails.
 * Promise: 1   every check is a real request or a look at the machine, and ends as a finding.
 *          2   what was written is below .cairn/doctor/ and is removed again, or a finding says why
 *              it could not be; but for .cairn/profile.json, which says what was found.
 *          3   no secret is in a finding.
 * Limits:  as cli/verbs/doctor_findings.h.
 * Threads: main thread.
 * Next:    cli/verbs/doctor_store.c, cli/verbs/doctor_bucket.c, cli/verbs/doctor_way.c,
 *          cli/verbs/doctor_machine.c.
 */
#pragma once

#include "cli/verbs/doctor_findings.h"
#include "store/s3/start.h"

/* When a request of a check is given up: ms from now, or with --timeout. */
uint64_t cairn_cli_doctor_deadline(const struct cairn_cli_doctor *doctor, uint64_t ms);

/* ---- doctor_way.c ---- */

struct cairn_cli_way {
    const struct cairn_store_s3_options *options; /* that the store was opened with */
    struct cairn_store_worker *worker;
    uint64_t bytes; /* of the body that is sent */
};
/* Does a body of such a size reach the store as it was sent? Else a finding names what does not. */
void cairn_cli_doctor_way(struct cairn_cli_doctor *doctor, const struct cairn_cli_way *way);

void cairn_cli_doctor_store(struct cairn_cli_doctor *doctor);
/* doctor_bucket.c: of a store in S3. */
void cairn_cli_doctor_clock(struct cairn_cli_doctor *doctor, struct cairn_store *store);
void cairn_cli_doctor_bucket(struct cairn_cli_doctor *doctor, struct cairn_store *store);
void cairn_cli_doctor_machine(struct cairn_cli_doctor *doctor);
