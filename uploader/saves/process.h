/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: which process a trainer is, and whether it still lives.
 *
 * Why:     a connection that ends says nothing (the process may come back), and a number is used
 *          again; the kernel is asked about the process itself, also by the uploader after this
 *          one.
 * Promise: 1   a process is called ended only when that very process has ended: another one with
 *              its number, another boot or another namespace of numbers is told apart.
 *          2   a process of another PID namespace is watched like one of the uploader's own, by a
 *              descriptor of it.
 * Limits:  a process of another PID namespace has no number here, so that the next uploader finds
 *          it when it connects again and not otherwise; one that was named before the uploader's
 *          own namespace changed cannot be told.
 * Threads: any.
 * Next:    uploader/saves/ended.h.
 */
#pragma once

#include <sys/types.h>

#include "common/base.h"

#define CAIRN_UP_PROCESS_BYTES 128

enum cairn_up_process {
    CAIRN_UP_PROCESS_UNSEEN, /* nobody here can tell */
    CAIRN_UP_PROCESS_LIVES,
    CAIRN_UP_PROCESS_ENDED
};

/* Whom the kernel and the process itself name: a descriptor of cairn_net_peer_process, its number
 * in this namespace (0: it has none here), and the descriptor that came with `hello`; -1: none. */
struct cairn_up_process_names {
    int peer;
    pid_t pid;
    int told;
};
/* A descriptor that becomes readable with the end of that process; -1: it cannot be seen. The
 * kernel's word counts more than the process's. Takes both descriptors of *take_names. */
int cairn_up_process_watch(struct cairn_up_process_names *take_names);
/* What cairn_up_process_find knows it by, for the journal; "": it cannot be told apart. */
void cairn_up_process_name(pid_t pid, char ret[CAIRN_UP_PROCESS_BYTES]);
/* *ret_fd as of cairn_up_process_watch when it lives, else -1. */
enum cairn_up_process cairn_up_process_find(const char *name, int *ret_fd);
