/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patience: says what a command waits for, when it waits long.
 *
 * Why:     a store that is away is asked again for minutes before it is given up, and until then
 *          nobody knows why nothing happens.
 * Promise: 1   after 5 s, and then every 30 s, one line on standard error names what is waited
 *              for and for how long already; before that, nothing.
 * Limits:  none.
 * Threads: a thread of its own from _start to _end; without memory for one it is silent.
 * Next:    cli/source.c.
 */
#pragma once

#include "common/lock.h"

struct cairn_cli_patience {
    const char *kind, *name; /* "store", "s3://bucket/prefix" */
    uint64_t started_ms;
    pthread_t thread;
    bool running;
    struct cairn_lock lock;
    struct cairn_condition ended;
    struct {
        bool over;
    } locked;
};
/* kind and name must last until _end. */
void cairn_cli_patience_start(struct cairn_cli_patience *patience, const char *kind,
                              const char *name);
void cairn_cli_patience_end(struct cairn_cli_patience *patience);
