/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor: findings about a store, a server, an uploader and a machine, one line each.
 *
 * Why:     what is wrong with an endpoint or a right is better heard before the first save than
 *          from the one that fails.
 * Promise: 1   every check is a real request or a look at the machine, and ends as ok, WARN (it
 *              works, with less) or FAIL (saves or restores will fail), with what to do.
 *          2   what was written is below .cairn/doctor/ and is removed again, or a finding says why
 *              it could not be; but for .cairn/profile.json, which says what was found.
 *          3   no secret is in a finding.
 * Limits:  64 findings.
 * Threads: main thread.
 * Next:    cli/verbs/doctor_store.c, cli/verbs/doctor_bucket.c, cli/verbs/doctor_machine.c.
 */
#pragma once

#include "cli/verb.h"
#include "store/s3/settings.h"

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
    struct cairn_cli_finding findings[CAIRN_CLI_FINDINGS_MAX];
    size_t count;
};
/* The new finding, to which hint may be written; more than there is room for are dropped. */
void cairn_cli_doctor_say(struct cairn_cli_doctor *doctor, enum cairn_cli_level level,
                          const char *check, const char *hint, const char *format, ...)
    CAIRN_PRINTF(5, 6);
void cairn_cli_doctor_store(struct cairn_cli_doctor *doctor);
/* doctor_bucket.c: of a store in S3. */
void cairn_cli_doctor_clock(struct cairn_cli_doctor *doctor, struct cairn_store *store);
void cairn_cli_doctor_bucket(struct cairn_cli_doctor *doctor, struct cairn_store *store);
void cairn_cli_doctor_machine(struct cairn_cli_doctor *doctor);
