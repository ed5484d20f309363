/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress: how far a long job is, on a terminal, in a log, or for a program.
 *
 * Why:     a bar is useless in a log file and a silent hour is useless everywhere.
 * Promise: 1   on a terminal one line is redrawn; elsewhere a whole line is printed every 5 s and
 *              at the end, never a carriage return.
 *          2   it counts acknowledged bytes; 100 % is shown by _end alone, after the phase named.
 * Limits:  one job at a time.
 * Threads: locked by log_line; any thread may add.
 * Next:    cli/shell/verb.h.
 */
#pragma once

#include <stdio.h>

#include "cli/shell/verb.h"
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
