/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operation: the end of what the server does for somebody, as `cairn operation wait` and
 *            `cairn wait` wait for it.
 *
 * Why:     an operation is waited for as a checkpoint is, and its end is the same to both commands.
 * Promise: 1   when it has ended it is printed, and its end is the command's: its own code where it
 *              failed, CAIRN_CANCELLED where it was cancelled or interrupted, CAIRN_TIMEOUT where
 *              cli->timeout_ms (10 minutes where nobody says) was over before.
 * Limits:  none.
 * Threads: main thread.
 * Next:    cli/verbs/operation.c, cli/verbs/wait.c.
 */
#pragma once

#include "cli/shell/output.h"

bool cairn_cli_is_operation(const char *text); /* an id of one, and no run */
enum cairn_code cairn_cli_operation_wait(struct cairn_cli *cli, const char *id,
                                         struct cairn_error *err) CAIRN_MUST_USE;
