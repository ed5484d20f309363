/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patience: the calls of a verb that waits, and what it does about a server that is away.
 *
 * Why:     one of two servers behind a balancer restarts, a proxy cuts a call or answers 502: a
 *          wait of an hour must not end for that.
 * Promise: 1   a call that fails in a way that passes (no answer, unavailable, busy, timeout, and
 *              what somebody between says) is made again until the deadline; then its failure is
 *              the answer.
 *          2   before the first answer, only a 5xx is waited out: where nobody listens the address
 *              is more likely wrong, and that is said at once.
 *          3   that the server is away is noted once, and so is that it answers again.
 *          4   no call is to be held for longer than CAIRN_CLI_LONG_POLL_MS, less than proxies wait
 *              for an answer (docs/proxies.md).
 * Limits:  a pause of half a second between two calls.
 * Threads: main thread.
 * Next:    cli/shell/call.h, cli/verbs/wait.c.
 */
#pragma once

#include "cli/shell/call.h"

#define CAIRN_CLI_LONG_POLL_MS 10000

struct cairn_cli_patience {
    uint64_t deadline; /* mono clock; UINT64_MAX: none */
    bool answered;     /* the server has been heard at least once */
    bool away;         /* it did not answer the last call */
};
/* patience.h#1 and 2, of one failure; answered: the server has been heard before. */
bool cairn_cli_failure_passes(bool answered, enum cairn_code code, const struct cairn_error *why);
/* As cairn_cli_call, with patience. wait_ms of call: at most so long is asked for, and never beyond
 * the deadline; at the deadline the answer is not waited for. */
enum cairn_code cairn_cli_patient_call(struct cairn_cli_patience *patience,
                                       const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                       struct cairn_cli_call call, json_t **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
