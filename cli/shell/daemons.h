/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemons: a server or an uploader that lives as long as one command.
 *
 * Why:     `cairn up` is the whole service on a folder, and `cairn put` brings its own uploader
 *          where none listens, so that there is one write path only.
 * Promise: 1   what was started here is ended here, by pid: SIGTERM, then SIGKILL after 30 s.
 *              A daemon whose starter is killed ends itself (its setting `parent`).
 *          2   _start returns only when the daemon says it is ready, or with its own last words.
 *          3   _own_uploader_stop ends the uploader and removes its folder below TMPDIR, whatever
 *              _start came to or is at; after it nothing is made any more.
 *          4   _own_uploader_start removes the folders below the same TMPDIR that killed commands
 *              of this user left: those in which neither a command nor an uploader holds its lock.
 *              A folder of a living one or of another user is never touched.
 * Limits:  12 settings a daemon; one own uploader in a process. A TMPDIR whose path is too long
 *          for a socket's (107 bytes) is passed over for /tmp.
 * Threads: main thread; _stop also on that of signals (cli/shell/progress.h).
 * Next:    cli/verbs/up.c, cli/tree/save_tree.c.
 */
#pragma once

#include <sys/types.h>

#include "cli/shell/options.h"
#include "common/error.h"

struct cairn_cli_daemon {
    pid_t pid; /* 0: not running */
    char name[32];
    char ready_file[512];
};
/* program stands beside this binary; settings are pairs, as {"--store", url}, and end with {NULL};
 * ready_file tells that it is ready. */
enum cairn_code cairn_cli_daemon_start(struct cairn_cli_daemon *daemon, const char *folder,
                                       const char *program, const char *const (*settings)[2],
                                       const char *ready_file, uint32_t timeout_ms,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* 0 while it runs; else its wait status was taken and pid is 0. */
bool cairn_cli_daemon_ended(struct cairn_cli_daemon *daemon, int *ret_status);
void cairn_cli_daemon_stop(struct cairn_cli_daemon *daemon);

/* ---- the uploader of one command ---- */

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
