/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon: start a real program of this build, wait until it listens, and end it again.
 *
 * Why:     promises about kill -9, restart and lost replies are only proven on the program that is
 *          shipped, not on a function that was called in the test's own process.
 * Promise: 1   start returns when the port file is there (or the program ended, or time is up).
 *          2   release kills and reaps; nothing that a test started outlives the test program.
 *          3   end lets it end by itself, so that its leaks are reported (tests/reports.h), and
 *              fails the test when it died of a signal that nobody sent.
 * Limits:  64 daemons at a time; 32 arguments each.
 * Threads: main thread only.
 * Next:    tests/support/raw.h for talking to it byte by byte.
 */
#pragma once

#include <sys/types.h>

#include "common/error.h"

struct cairn_daemon {
    pid_t pid;     /* 0: not running */
    uint16_t port; /* from the port file; 0 when there is none */
    char log[600]; /* file that holds its standard error */
    char url[64];  /* "http://127.0.0.1:PORT" */
    int status;    /* of waitpid, once it was reaped */
};

struct cairn_daemon_options {
    const char *program; /* "cairn-server": looked up in $CAIRN_BIN_DIR */
    const char *folder;  /* where port file and log go */
    const char *const
        *args; /* NULL-terminated; both port and parent flags are added unless no_port */
    const char *const *env; /* NULL-terminated "NAME=value", added to the environment; or NULL */
    bool no_port;           /* started when spawned; nothing to wait for */
    uint32_t ready_ms;      /* 0 = 20,000 */
};

/* CAIRN_UNAVAILABLE when it ended instead of listening; the message holds the end of its log. */
enum cairn_code cairn_daemon_start(const struct cairn_daemon_options *options,
                                   struct cairn_daemon *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Send signal_number and wait; SIGKILL after wait_ms. Returns the wait status. */
int cairn_daemon_stop(struct cairn_daemon *daemon, int signal_number, uint32_t wait_ms);
/* True when it ended by itself within wait_ms (then it is reaped and status is set). */
bool cairn_daemon_ended(struct cairn_daemon *daemon, uint32_t wait_ms);
/* The end of a test: SIGTERM, reap; SIGKILL when it has not ended after three seconds. */
void cairn_daemon_end(struct cairn_daemon *daemon);
/* SIGKILL and reap. */
void cairn_daemon_release(struct cairn_daemon *daemon);
/* CPU time that it has used, of all its threads. */
uint64_t cairn_daemon_cpu_ms(const struct cairn_daemon *daemon);
/* From now on it may open so many files more than it holds; -1: as many as ever. */
bool cairn_daemon_spare_files(const struct cairn_daemon *daemon, int spare);
/* Does its log hold this text? */
bool cairn_daemon_logged(const struct cairn_daemon *daemon, const char *text);
/* How often; of two that overlap the first. */
unsigned cairn_daemon_logged_times(const struct cairn_daemon *daemon, const char *text);
