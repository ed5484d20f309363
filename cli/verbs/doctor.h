/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor: checks of a store, a server, an uploader and a machine, reported as findings.
 *
 * Why:     a wrong endpoint or a missing right should show before the first save fails.
 * Promise: 1   every check is a real request or reads the machine's state; its finding is ok, WARN
 *              (works with limits) or FAIL (saves or restores will fail), and advises unless ok.
 *          2   objects are written below .cairn/doctor/ and removed, or a finding says why not;
 *              .cairn/profile.json stays, with the store's measured capabilities.
 *          3   findings contain no secrets.
 * Limits:  64 findings; more are dropped.
 * Threads: main thread.
 * Next:    cli/verbs/doctor_store.c, cli/verbs/doctor.c.
 */
#pragma once

#include "cli/shell/options.h"
#include "store/s3/start.h"

#define CLI_FINDINGS_MAX 64

enum cli_level { CLI_FINE, CLI_WARN, CLI_FAIL };
struct cli_finding {
    enum cli_level level;
    char check[32], text[400], hint[300];
};
struct cli_doctor {
    const struct cli *cli;
    const char *url;
    bool for_uploader;
    uint64_t until_ms; /* monotonic clock: --timeout; 0: none */
    struct cli_finding findings[CLI_FINDINGS_MAX];
    size_t count;
};
/* hint: advice; "" if ok. */
void cli_doctor_say(struct cli_doctor *doctor, enum cli_level level, const char *check,
                    const char *hint, const char *format, ...) CAIRN_PRINTF(5, 6);

/* Deadline of one request: ms from now, at most until_ms. */
uint64_t cli_doctor_deadline(const struct cli_doctor *doctor, uint64_t ms);

void cli_doctor_store(struct cli_doctor *doctor);
