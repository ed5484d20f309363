/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liveness: a few lines on whether a run gets on.
 *
 * Why:     who asks for a run wants to know first whether it still commits, and else what it waits
 *          for.
 * Promise: none of its own; what is printed is GET {R}/liveness and GET {C}/why.
 * Limits:  of an open save 4 ranks and 4 shards are named.
 * Threads: main thread.
 * Next:    cli/verbs/show.c.
 */
#pragma once

#include "cli/shell/ref.h"
#include "cli/shell/verb.h"

/* What a version waits for: GET {C}/why; of a run, its newest save that is open, or else what is
 * latest. */
enum cairn_code cairn_cli_print_why(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_print_liveness(const struct cairn_cli *cli,
                                         const struct cairn_cli_ref *run,
                                         struct cairn_error *err) CAIRN_MUST_USE;
