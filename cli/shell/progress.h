/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress: progress meter, worker threads and signals of long-running commands.
 *
 * Why:     a progress bar is useless in a log file, silence everywhere; an interrupted command must
 *          say what it leaves and how to resume, which no signal handler can do.
 * Promise: 1   a terminal gets one line, redrawn; elsewhere a whole line is printed every 5 s and
 *              at the end, never a carriage return.
 *          2   the meter counts acknowledged bytes; only _end shows 100 %.
 *          3   workers share one list; the first failure is returned and stops the others at their
 *              next piece. _run returns when every thread has ended. CAIRN_OK: every piece taken is
 *              done, which is asserted.
 *          4   a thread that holds no lock handles signals one by one; a signal ignored at start
 *              (nohup) stays ignored. Exit status: 128 + signal (130 for Ctrl-C, 143 for SIGTERM).
 * Limits:  one meter at a time; CLI_WORKERS_MAX threads; signals once per process, before
 *          any other thread starts.
 * Threads: a meter is locked by log_line: any thread may add. `lock` of workers guards `locked` and
 *          what they share. take() of an interrupt runs beside everything else.
 * Next:    cli/convert/export.c, cli/tree/get.c.
 */
#pragma once

#include <signal.h>
#include <stdio.h>

#include "cli/shell/options.h"
#include "common/error.h"
#include "common/lock.h"

struct cli_meter {
    struct cairn_lock lock;
    enum cli_progress form; /* never AUTO */
    const char *job;        /* "put llm/7b@1000" */
    const char *unit;       /* NULL: bytes; else the unit of the counts, "versions" */
    uint64_t total_bytes, total_items, started_ms;
    struct {
        uint64_t done_bytes, done_items, shown_ms;
        const char *phase;
    } locked;
};
/* A bar of `cells`, `full` of them filled; ASCII where the locale is not UTF-8. */
void cli_bar(FILE *to, int cells, int full);
void cli_meter_init(struct cli_meter *meter, const struct cli *cli, const char *job,
                    uint64_t total_bytes, uint64_t total_items);
void cli_meter_add(struct cli_meter *meter, uint64_t bytes, uint64_t items);
void cli_meter_set(struct cli_meter *meter, uint64_t done_bytes, const char *phase);
/* Prints the last line; ended_well false: the progress reached stays on screen. */
void cli_meter_end(struct cli_meter *meter, bool ended_well);

/* ---- workers ---- */

#define CLI_WORKERS_MAX 64

struct cli_workers {
    struct cairn_lock lock; /* initialized by _run */
    struct {
        enum cairn_code code; /* CAIRN_OK: no failure */
        struct cairn_error error;
        uint64_t taken, done; /* pieces; equal at the end unless a worker failed */
    } locked;
};
/* Counts a piece as taken; `lock` is held. */
void cli_workers_take_locked(struct cli_workers *workers);
void cli_workers_done(struct cli_workers *workers);
void cli_workers_failed(struct cli_workers *workers, enum cairn_code code,
                        const struct cairn_error *why);
/* count 0: 4 workers; larger counts are capped at CLI_WORKERS_MAX. */
enum cairn_code cli_workers_run(struct cli_workers *workers, uint64_t count,
                                void *(*work)(void *argument), void *argument,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* ---- signals ---- */

struct cli_interrupt {
    void (*take)(void *owner, int signal);
    void *owner;
};
/* interrupt must live as long as the process. */
enum cairn_code cli_interrupt_start(struct cli_interrupt *interrupt,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* For a command without cleanup: prints text as it is when the signal comes, then exits. */
enum cairn_code cli_interrupt_says(const char *text, struct cairn_error *err) CAIRN_MUST_USE;
/* Blocks the signals for a command that waits for them itself. */
void cli_interrupt_block(sigset_t *ret);
_Noreturn void cli_interrupt_exit(int signal);
