/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor: the checks of a store, a server, an uploader and a machine, and what they found.
 *
 * Why:     what is wrong with an endpoint or a right is better heard before the first save than
 *          from the one that fails.
 * Promise: 1   every check is a real request or a look at the machine, and ends as a finding: ok,
 *              WARN (it works, with less) or FAIL (saves or restores will fail); one that is not ok
 *              says what to do.
 *          2   what was written is below .cairn/doctor/ and is removed again, or a finding says why
 *              it could not be; but for .cairn/profile.json, which says what was found.
 *          3   no secret is in a finding.
 * Limits:  64 findings; more are dropped.
 * Threads: main thread.
 * Next:    cli/verbs/doctor_store.c, cli/verbs/doctor.c.
 */
#pragma once

#include "cli/shell/options.h"
#include "store/s3/start.h"

#define CAIRN_CLI_FINDINGS_MAX 64

enum cairn_cli_level { CAIRN_CLI_FINE, CAIRN_CLI_WARN, CAIRN_CLI_FAIL };
struct cairn_cli_finding {
    enum cairn_cli_level level;
    char check[32], text[400], hint[300];
};
struct cairn_cli_doctor {
    const struct cairn_cli *cli;
    const char *url; /* of the store */
    bool for_uploader;
    uint64_t until_ms; /* mono clock: --timeout; 0: no end */
    struct cairn_cli_finding findings[CAIRN_CLI_FINDINGS_MAX];
    size_t count;
};
/* hint: what to do; "" for a finding that is ok. */
void cairn_cli_doctor_say(struct cairn_cli_doctor *doctor, enum cairn_cli_level level,
                          const char *check, const char *hint, const char *format, ...)
    CAIRN_PRINTF(5, 6);

/* When a request of a check is given up: ms from now, or with --timeout. */
uint64_t cairn_cli_doctor_deadline(const struct cairn_cli_doctor *doctor, uint64_t ms);

void cairn_cli_doctor_store(struct cairn_cli_doctor *doctor);
