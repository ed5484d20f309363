/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call: one question to the server about one run or checkpoint, as verbs ask it.
 *
 * Why:     most verbs are one or two calls about what their argument names.
 * Promise: none of the path's parts is made anywhere else (cli/ref.h).
 * Limits:  one connection a call.
 * Threads: main thread.
 * Next:    cli/verbs/ask.c, cli/verbs/rm.c, cli/verbs/show.c.
 */
#pragma once

#include "cli/ref.h"
#include "cli/verb.h"

struct cairn_cli_call {
    const char *method; /* NULL: GET */
    const char *tail;   /* NULL: none; begins with "/" or "?" */
    uint32_t timeout_ms;
};
enum cairn_code cairn_cli_call(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                               struct cairn_cli_call call, json_t **ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* The first argument; without a version it means the latest. */
enum cairn_code cairn_cli_ref_latest(const struct cairn_cli *cli, struct cairn_cli_ref *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
