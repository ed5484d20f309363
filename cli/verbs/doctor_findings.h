/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_findings: what `cairn doctor` has found, one line each.
 *
 * Why:     the checks of the store, the bucket and the machine report in one form, which is printed
 *          when all of them are done.
 * Promise: 1   a finding is ok, WARN (it works, with less) or FAIL (saves or restores will fail);
 *              one that is not ok says what to do.
 * Limits:  64 findings; more are dropped.
 * Threads: main thread.
 * Next:    cli/verbs/doctor.h.
 */
#pragma once

#include "cli/shell/verb.h"

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
size_t cairn_cli_doctor_count(const struct cairn_cli_doctor *doctor, enum cairn_cli_level level);
/* On standard output, as a table or as the object of docs/command.md. */
enum cairn_code cairn_cli_doctor_print(const struct cairn_cli_doctor *doctor,
                                       struct cairn_error *err) CAIRN_MUST_USE;
