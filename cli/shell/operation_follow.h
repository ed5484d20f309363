/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operation_follow: an operation of the server is followed to its end.
 *
 * Why:     who asks for a copy, a repair or a removal waits for it, and wants to see how far it is.
 * Promise: 1   one that failed, was cancelled or interrupted is an error with its code and words.
 *          2   where the time is over CAIRN_TIMEOUT: the server goes on.
 * Limits:  `timeout` of the whole wait; an hour without it. Looked at once a second.
 * Threads: one.
 * Next:    cli/verbs/promote.c, cli/verbs/rm.c, cli/verbs/verify.c.
 */
#pragma once

#include "cli/shell/progress.h"

/* ret: NULL, or its row when it was done. job: "verify", for the progress. */
enum cairn_code cairn_cli_operation_follow(const struct cairn_cli *cli, const char *job,
                                           const char *id, json_t **ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
