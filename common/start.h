/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start: what the main function of each program does first; a daemon's arguments, from main's argv
 *        to its settings.
 *
 * Why:     --help, --version, --print-config and --print-docs, and what is said of a mistake, must
 *          be the same for all daemons.
 * Promise: 1   what only prints is done before anything else is read, and says so.
 *          2   an argument that is no setting is CAIRN_INVALID naming it.
 *          3   a write to a closed pipe, or beyond RLIMIT_FSIZE, fails (EPIPE, EFBIG) and ends no
 *              program by its signal.
 *          4   a process whose memory is hidden leaves no core file, and no other process of its
 *              user can read what it holds: keys, tokens, what it was started with.
 * Limits:  those of common/config.h.
 * Threads: main thread, at start.
 * Next:    server/settings.c, uploader/main.c.
 */
#pragma once

#include "common/config.h"

/* start.h#3 */
void cairn_start_signals(void);
/* start.h#4. Not in libcairn: the process is the trainer's. */
enum cairn_code cairn_start_hide_memory(struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_start {
    const char *version; /* one line */
    const char *usage;   /* before the settings, with its empty line */
    const struct cairn_config_row *rows;
    size_t row_count;
    void *values; /* the program's struct */
};
/* *ret_done: it was printed what was asked for, and there is nothing to start. config is to be
 * released in any case. */
enum cairn_code cairn_start_settings(const struct cairn_start *start, int argc, char **argv,
                                     struct cairn_config *config, bool *ret_done,
                                     struct cairn_error *err) CAIRN_MUST_USE;
