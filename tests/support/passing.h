/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passing: time that passes for daemons when a test says so.
 *
 * Why:     a deadline of a daemon is reached by its clock, not by sleeping as long; a busy machine
 *          changes nothing about it.
 * Promise: 1   daemons that are started with `env` have the machine's clocks, on which as much
 *              more has passed as pass() has said; their waits end accordingly (libclock.c).
 *          2   it is as if they had been suspended: what was under way is late.
 *          3   looked() ends when the daemon's main loop has gone round since the last pass of a
 *              second or more: it then tells its service manager, this test, that it lives.
 * Limits:  nanosleep of a daemon lasts as long as it does; this process keeps the machine's time.
 * Threads: pass from any; the rest from the main thread.
 * Next:    tests/support/libclock.c.
 */
#pragma once

#include <sys/types.h>

#include "common/base.h"

struct cairn_passing {
    int64_t *passed_ms; /* shared with the daemons */
    int manager_fd;
    char preload[300], libraries[600], file[600], sanitizer[300], manager[100];
    const char *env[7]; /* for cairn_daemon_options, NULL-terminated */
};
/* In the folder of the test. */
bool cairn_passing_open(struct cairn_passing *ret);
void cairn_passing_release(struct cairn_passing *passing);
void cairn_passing_pass(struct cairn_passing *passing, uint64_t ms);
bool cairn_passing_looked(struct cairn_passing *passing, pid_t daemon);
