/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers: the threads of one command that share out a list of work, and the first failure of them.
 *
 * Why:     what is written or compared in windows is shared out alike; a failure of one worker ends
 *          the others at their next look.
 * Promise: 1   the failure that came first is the one that is returned.
 *          2   _run returns when every thread has ended. CAIRN_OK: each piece that was taken is
 *              done, which is asserted; that the list is at its end is the caller's assert.
 * Limits:  CAIRN_CLI_WORKERS_MAX threads.
 * Threads: `lock` guards `locked`, and of the owner what its workers share.
 * Next:    cli/convert/export.c, cli/convert/compare.c.
 */
#pragma once

#include "common/error.h"
#include "common/lock.h"

#define CAIRN_CLI_WORKERS_MAX 64

struct cairn_cli_workers {
    struct cairn_lock lock; /* from _run on */
    struct {
        enum cairn_code code; /* CAIRN_OK: none has failed */
        struct cairn_error error;
        uint64_t taken, done; /* pieces of the list: equal at the end, unless a worker has failed */
    } locked;
};
/* Counts a piece of the list for the thread that takes it; `lock` is held. */
void cairn_cli_workers_take_locked(struct cairn_cli_workers *workers);
void cairn_cli_workers_done(struct cairn_cli_workers *workers);
void cairn_cli_workers_failed(struct cairn_cli_workers *workers, enum cairn_code code,
                              const struct cairn_error *why);
/* count: 0 is 4; more than the most is the most. */
enum cairn_code cairn_cli_workers_run(struct cairn_cli_workers *workers, uint64_t count,
                                      void *(*work)(void *argument), void *argument,
                                      struct cairn_error *err) CAIRN_MUST_USE;
