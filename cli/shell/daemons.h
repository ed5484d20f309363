/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemons: start a server or an uploader for the life of one command, and stop it cleanly.
 *
 * Why:     `cairn up` is the whole service on a folder, and `cairn put` brings its own uploader
 *          where none listens, so that there is one write path only.
 * Promise: 1   what was started here is ended here, by pid: SIGTERM, then SIGKILL after 30 s.
 *              A daemon whose starter is killed ends itself (its setting `parent`).
 *          2   _start and _await return only when the daemon says it is ready, or with its own last
 *              words.
 * Limits:  16 arguments a daemon.
 * Threads: main thread; _stop also on another one, once _spawn has returned.
 * Next:    cli/verbs/up.c, cli/shell/own_uploader.h.
 */
#pragma once

#include <sys/types.h>

#include "common/error.h"

struct cairn_cli_daemon {
    pid_t pid; /* 0: not running */
    char name[32];
    char ready_file[512];
};
/* program stands beside this binary; arguments end with NULL; ready_file tells that it is ready. */
enum cairn_code cairn_cli_daemon_spawn(struct cairn_cli_daemon *daemon, const char *folder,
                                       const char *program, const char *const *arguments,
                                       const char *ready_file,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* One that is not ready in time is ended. */
enum cairn_code cairn_cli_daemon_await(struct cairn_cli_daemon *daemon, uint32_t timeout_ms,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Both. */
enum cairn_code cairn_cli_daemon_start(struct cairn_cli_daemon *daemon, const char *folder,
                                       const char *program, const char *const *arguments,
                                       const char *ready_file, uint32_t timeout_ms,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* 0 while it runs; else its wait status was taken and pid is 0. */
bool cairn_cli_daemon_ended(struct cairn_cli_daemon *daemon, int *ret_status);
void cairn_cli_daemon_stop(struct cairn_cli_daemon *daemon);
