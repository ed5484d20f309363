/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_all: every version of a run, or of a whole site, one after the other.
 *
 * Why:     a site is read in days, and what ends in between must not begin anew.
 * Promise: 1   a damaged version is told and the next one read; the answer is CAIRN_CORRUPT at the
 *              end, with how many there are.
 *          2   with --resume FILE each version that was found good is noted there, synced, before
 *              the next one is read, and is passed over by a later call that reads as much.
 *          3   what goes meanwhile is passed over.
 * Limits:  CAIRN_CLI_VERIFY_MAX versions; a file of 256 MiB.
 * Threads: one owner.
 * Next:    cli/verbs/verify.c.
 */
#pragma once

#include "cli/shell/ref.h"
#include "cli/shell/verb.h"

#define CAIRN_CLI_VERIFY_MAX 10000000

/* one: of a version that is named by its id. */
enum cairn_code cairn_cli_verify_all(const struct cairn_cli *cli,
                                     enum cairn_code (*one)(const struct cairn_cli *cli,
                                                            const struct cairn_cli_ref *ref,
                                                            struct cairn_error *err),
                                     struct cairn_error *err) CAIRN_MUST_USE;
