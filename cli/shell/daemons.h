/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemons: a server or an uploader that lives as long as one command.
 *
 * Why:     `cairn up` runs the whole service on a folder, and `cairn put` starts its own uploader
 *          where none listens, so that there is only one write path.
 * Promise: 1   daemons are stopped by pid: SIGTERM, then SIGKILL after 30 s. A daemon whose parent
 *              is killed ends itself (setting `parent`).
 *          2   _start returns when the daemon is ready, or with the daemon's last log lines.
 *          3   _own_uploader_stop ends the uploader and removes its folder below TMPDIR at any
 *              stage of _start; after it _start creates nothing.
 *          4   _own_uploader_start removes folders that killed commands of this user left below the
 *              same TMPDIR: those in which neither command nor uploader holds a lock. Folders in
 *              use or of other users stay.
 * Limits:  12 settings a daemon; one own uploader per process. If TMPDIR is too long for a socket
 *          path (107 bytes), /tmp is used.
 * Threads: main thread; _stop also on the signal thread (cli/shell/progress.h).
 * Next:    cli/verbs/up.c, cli/tree/save_tree.c.
 */
#pragma once

#include <sys/types.h>

#include "cli/shell/options.h"
#include "common/error.h"

struct cli_daemon {
    pid_t pid; /* 0: not running */
    char name[32];
    char ready_file[512];
};
/* program: beside this binary; settings: pairs {"--store", url}, then {NULL}; the daemon creates
 * ready_file when it is ready. */
enum cairn_code cli_daemon_start(struct cli_daemon *daemon, const char *folder, const char *program,
                                 const char *const (*settings)[2], const char *ready_file,
                                 uint32_t timeout_ms, struct cairn_error *err) CAIRN_MUST_USE;
/* False while the daemon runs. True: *ret_status is its wait status, and pid becomes 0. */
bool cli_daemon_ended(struct cli_daemon *daemon, int *ret_status);
void cli_daemon_stop(struct cli_daemon *daemon);

/* ---- the command's own uploader ---- */

struct cli_own_uploader {
    struct cli_daemon daemon;
    int lock_fd;     /* the command's lock in the folder */
    char folder[93]; /* leaves room for /uploader.sock in a socket path; "": none */
    char socket[128];
};
/* store: where the uploader sends to. */
enum cairn_code cli_own_uploader_start(const struct cli *cli, const char *store,
                                       struct cli_own_uploader *uploader,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cli_own_uploader_stop(struct cli_own_uploader *uploader);
