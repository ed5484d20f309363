/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress: what a command that takes long needs: how far it is, workers, and signals.
 *
 * Why:     a bar is useless in a log file and a silent hour is useless everywhere; an interrupted
 *          command must say what it leaves and how to go on, which no signal handler can do.
 * Promise: 1   on a terminal one line is redrawn; elsewhere a whole line is printed every 5 s and
 *              at the end, never a carriage return.
 *          2   it counts acknowledged bytes; 100 % is shown by _end alone, after the phase named.
 *          3   of workers that share out a list the failure that came first is returned, and it
 *              ends the others at their next look. _run returns when every thread has ended.
 *              CAIRN_OK: each piece that was taken is done, which is asserted.
 *          4   signals are taken on a thread that holds no lock, one after the other; one that was
 *              ignored when the command began (nohup) stays so. The exit status is 128 and the
 *              signal's number: 130 for Ctrl-C, 143 for SIGTERM.
 * Limits:  one meter at a time; CAIRN_CLI_WORKERS_MAX threads; signals once a process, before any
 *          other thread is started.
 * Threads: a meter is locked by log_line: any thread may add. `lock` of workers guards `locked`,
 *          and what they share. take() of an interrupt runs beside everything else.
 * Next:    cli/convert/export.c, cli/tree/get.c.
 */
#pragma once

#include <signal.h>
#include <stdio.h>

#include "cli/shell/options.h"
#include "common/error.h"
#include "common/lock.h"

struct cairn_cli_meter {
    struct cairn_lock lock;
    enum cairn_cli_progress form; /* never AUTO */
    const char *job;              /* "put llm/7b@1000" */
    const char *unit;             /* NULL: bytes; "versions": what stands as bytes are those */
    uint64_t total_bytes, total_items, started_ms;
    struct {
        uint64_t done_bytes, done_items, shown_ms;
        const char *phase;
    } locked;
};
/* Cells of a bar, of which `full` are; in ASCII where the locale is not UTF-8. */
void cairn_cli_bar(FILE *to, int cells, int full);
void cairn_cli_meter_init(struct cairn_cli_meter *meter, const struct cairn_cli *cli,
                          const char *job, uint64_t total_bytes, uint64_t total_items);
void cairn_cli_meter_add(struct cairn_cli_meter *meter, uint64_t bytes, uint64_t items);
void cairn_cli_meter_set(struct cairn_cli_meter *meter, uint64_t done_bytes, const char *phase);
/* Last line; ended_well false leaves the reached state standing. */
void cairn_cli_meter_end(struct cairn_cli_meter *meter, bool ended_well);

/* ---- workers ---- */

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

/* ---- signals ---- */

struct cairn_cli_interrupt {
    void (*take)(void *owner, int signal);
    void *owner;
};
/* interrupt must live as long as the process. */
enum cairn_code cairn_cli_interrupt_start(struct cairn_cli_interrupt *interrupt,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* The same for a command that has nothing to end: the text is printed as it is by then. */
enum cairn_code cairn_cli_interrupt_says(const char *text, struct cairn_error *err) CAIRN_MUST_USE;
/* Only blocks these signals, for a command that waits for them itself. */
void cairn_cli_interrupt_block(sigset_t *ret);
_Noreturn void cairn_cli_interrupt_exit(int signal);
