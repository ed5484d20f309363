/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interrupt: Ctrl-C, SIGTERM and SIGHUP as calls on a thread of their own.
 *
 * Why:     an interrupted command must say what it leaves and how to go on, also while its main
 *          thread waits for a server; in a signal handler nothing of that can be done.
 * Promise: 1   taken on a thread that holds no lock, one after the other; a signal that was ignored
 *              when the command began (nohup) stays so.
 *          2   the exit status is 128 and the signal's number: 130 for Ctrl-C, 143 for SIGTERM.
 * Limits:  once a process; before any other thread is started.
 * Threads: take() runs beside everything else.
 * Next:    cli/tree/get.c, cli/tree/put.c, cli/verbs/up.c.
 */
#pragma once

#include <signal.h>

#include "common/error.h"

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
