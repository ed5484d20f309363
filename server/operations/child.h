/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child: one program that is run beside the server, and what it says.
 *
 * Why:     what reads files of strangers runs in a process of its own: it may fail, use up its
 *          memory or be killed, and the server goes on.
 * Promise: 1   it has the environment that is given, descriptors 0 to 2, and folder_fd as 3.
 *          2   its standard error is handed on line by line, its standard output is kept.
 *          3   it is waited for: none is left behind as a zombie.
 * Limits:  1 MiB of output; lines of 64 KiB, longer ones are dropped.
 * Threads: one owner.
 * Next:    server/operations/operations_job.c.
 */
#pragma once

#include <sys/types.h>

#include "common/buf.h"

struct cairn_srv_child_start {
    const char *program;
    char *const *arguments, *const *environment; /* end with NULL */
    int folder_fd;                               /* its descriptor 3 */
    bool inside;                                 /* it works in that folder; else in / */
};
struct cairn_srv_child {
    pid_t pid; /* 0: it has ended */
    int status;
    int output_fd, error_fd;
    struct cairn_buf output, line;
};
enum cairn_code cairn_srv_child_start(const struct cairn_srv_child_start *start,
                                      struct cairn_srv_child *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Takes in what it says, for that long at most; false: it has ended, and all was taken in. */
bool cairn_srv_child_listen(struct cairn_srv_child *child, int timeout_ms,
                            void (*line)(void *owner, struct cairn_view text), void *owner);
void cairn_srv_child_signal(const struct cairn_srv_child *child, int signal);
/* Kills it if it runs. */
void cairn_srv_child_release(struct cairn_srv_child *child);
