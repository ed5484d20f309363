/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait_notice: a line on standard error while a command waits long for a store.
 *
 * Why:     a store that does not answer is retried for minutes before the command fails, and until
 *          then nothing else tells why it prints nothing.
 * Promise: 1   after 5 s, and then every 30 s, one line names what is waited for and for how long
 *              already; a wait of less than 5 s prints nothing.
 * Limits:  none.
 * Threads: a thread of its own from _start to _stop; without memory for one it prints nothing.
 * Next:    cli/bucket/source.c.
 */
#pragma once

#include "common/lock.h"

struct cairn_cli_wait_notice {
    const char *kind, *name; /* "store", "s3://bucket/prefix" */
    uint64_t started_ms;
    pthread_t thread;
    bool running;
    struct cairn_lock lock;
    struct cairn_condition stopped;
    struct {
        bool stop;
    } locked;
};
/* kind and name must last until _stop. */
void cairn_cli_wait_notice_start(struct cairn_cli_wait_notice *notice, const char *kind,
                                 const char *name);
void cairn_cli_wait_notice_stop(struct cairn_cli_wait_notice *notice);
