/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_uploader: the uploader of one command, in a private folder below TMPDIR.
 *
 * Why:     `cairn put --store` saves where no uploader listens, on the same write path as all
 *          others.
 * Promise: 1   _stop ends the uploader and removes its folder, whatever _start came to or is at;
 *              after it nothing is made any more.
 *          2   _start removes the folders below the same TMPDIR that killed commands of this user
 *              left: those in which neither a command nor an uploader holds its lock. A folder of
 *              a living one or of another user is never touched.
 * Limits:  one in a process. A TMPDIR whose path is too long for a socket's (107 bytes) is passed
 *          over for /tmp.
 * Threads: _start on the main thread; _stop also on that of signals (cli/shell/interrupt.h).
 * Next:    cli/shell/daemons.h, cli/tree/put.c.
 */
#pragma once

#include "cli/shell/daemons.h"
#include "cli/shell/verb.h"

struct cairn_cli_own_uploader {
    struct cairn_cli_daemon daemon;
    int lock_fd;     /* of the lock in the folder that the command holds */
    char folder[93]; /* with /uploader.sock behind it; "": there is none */
    char socket[128];
};
/* store: what the uploader sends to. */
enum cairn_code cairn_cli_own_uploader_start(const struct cairn_cli *cli, const char *store,
                                             struct cairn_cli_own_uploader *uploader,
                                             struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_own_uploader_stop(struct cairn_cli_own_uploader *uploader);
