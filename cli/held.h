/* SPDX-License-Identifier: Apache-2.0 */
/*
 * held: a version that a command reads through the server, leased for as long.
 *
 * Why:     a get of a terabyte takes longer than a policy waits.
 * Promise: Q29  the version is leased before a byte of it is asked for, renewed three times in the
 *               life of the lease, and given back at the end; after an end in the middle (Ctrl-C)
 *               the lease ends by itself, so that the command can be given again.
 *          1    without a lease it goes on, and says so once: the server may be of an older
 *               release. CAIRN_DELETED, CAIRN_ABORTED: it is too late.
 * Limits:  5 min without a word of this command.
 * Threads: one of its own for renewals.
 * Next:    cli/source.c; api/wire/rest.h.
 */
#pragma once

#include "api/documents/keys.h"
#include "cli/verb.h"

struct cairn_cli_held;
enum cairn_code cairn_cli_held_begin(const struct cairn_cli *cli,
                                     const struct cairn_version_place *place,
                                     struct cairn_cli_held **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_held_end(struct cairn_cli_held *held);
