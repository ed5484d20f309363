/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread: one thread with a name that waits for work and stops when it is told.
 *
 * Why:     each background thread had a lock, a condition, two flags and a join of its own, and
 *          each got one of them wrong once.
 * Promise: 1   a wake that comes while the thread works is not lost: its next wait returns at once.
 *          2   after stop has returned, run() has; a zeroed or a stopped one may be stopped again.
 *          3   wake and wait take no lock but their own, so they may be called under any other.
 * Limits:  names of at most 15 bytes.
 * Threads: wake and stop from any other thread; wait from run() alone.
 * Next:    server/health.c, server/guard/jobs.c.
 */
#pragma once

#include "common/error.h"
#include "common/lock.h"

struct cairn_thread {
    const char *name;
    void (*run)(struct cairn_thread *thread, void *owner);
    void *owner;
    bool started;
    pthread_t id;
    struct cairn_lock lock;
    struct cairn_condition bell;
    struct {
        bool woken, stopping;
    } locked;
};
/* name, run and owner are set. */
enum cairn_code cairn_thread_start(struct cairn_thread *thread,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Until it is woken, until_ms (mono clock; UINT64_MAX: no end) or a stop; false: it must return. */
bool cairn_thread_wait(struct cairn_thread *thread, uint64_t until_ms);
void cairn_thread_wake(struct cairn_thread *thread);
void cairn_thread_stop(struct cairn_thread *thread);
