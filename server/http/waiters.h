/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waiters: parks requests that wait for a version or run to change, without a thread each;
 * and the pool: threads that run tasks, each with its own store worker.
 *
 * Why:     a thousand clients wait for one commit, and need no thread each.
 * Promise: 1   a change after look() also wakes waiters that park later with that look's answer.
 *          2   a parked waiter's wake() is called exactly once, on the thread that changed its key,
 *              or on the waiters' own thread at its deadline or at stop.
 *          3   no waiter stays for longer than CAIRN_WAIT_MS_MAX.
 *          4   after cancel() has returned true wake() is not called.
 *          5   a late wake is counted (common/process.h): a timer ended a wait whose condition was
 *              met, and no notification followed within CAIRN_LATE_MS.
 *          6   an accepted task runs exactly once, not before its time, on one thread; stop runs
 *              due tasks, drops delayed ones, and returns when all have ended.
 * Limits:  waiters and tasks are bounded by their users (connections, versions); 256 threads.
 * Threads: any thread, also from a task.
 * Next:    server/http/http.h.
 */
#pragma once

#include "api/wire/routes.h"
#include "server/db/catalog.h"
#include "store/store.h"

struct srv_waiters;
struct srv_waiter {
    uint64_t key;     /* srv_key_of() the text to wait for */
    uint64_t seen;    /* srv_waiters_look() from before the state was read */
    uint64_t wake_ms; /* mono clock */
    void (*wake)(struct srv_waiter *waiter);
    bool timed_out;                /* set at wake: the deadline passed */
    struct srv_waiter *next, **at; /* at NULL: not parked */
};
enum cairn_code srv_waiters_new(struct srv_waiters **ret, struct cairn_error *err) CAIRN_MUST_USE;
uint64_t srv_waiters_look(struct srv_waiters *waiters);
/* May call wake() before it returns. */
void srv_waiters_park(struct srv_waiters *waiters, struct srv_waiter *waiter);
/* False: wake() is under way, or it is not parked yet. */
bool srv_waiters_cancel(struct srv_waiters *waiters, struct srv_waiter *waiter) CAIRN_MUST_USE;
/* Call after a timed-out wait whose condition is met. */
void srv_waiters_late(struct srv_waiters *waiters, const struct srv_waiter *waiter);
/* `late` is called for each late wake, on the waiters' own thread; set before the first park. */
void srv_waiters_on_late(struct srv_waiters *waiters, void (*late)(void *owner), void *owner);
/* Notifies of a change to a key of catalog.h; SRV_NOTIFY_ALL: anything may have changed. */
void srv_waiters_wake_key(struct srv_waiters *waiters, uint64_t key);
/* Notifies of a change to what the text names. */
void srv_waiters_wake(struct srv_waiters *waiters, const char *text);
void srv_waiters_wake_run(struct srv_waiters *waiters, const struct cairn_run_name *name);
/* Notifies of a changed version: wakes waiters of it and of its run. Call after the transaction. */
void srv_waiters_wake_version(struct srv_waiters *waiters, const struct cairn_version_id *id,
                              const struct cairn_run_name *name);
/* Wakes all waiters; later parks wake at once. */
void srv_waiters_stop(struct srv_waiters *waiters);
void srv_waiters_free(struct srv_waiters *waiters); /* stops; NULL is fine */

/* ---- the pool ---- */

struct srv_pool;
struct srv_task {
    void (*run)(struct srv_task *task, struct cairn_store_worker *worker);
    /* Called instead of run when the pool stops before a delayed task is due; may be NULL. */
    void (*drop)(struct srv_task *task);
    uint64_t due_ms; /* mono clock; 0 = now */
    struct srv_task *next;
};
struct srv_pool_options {
    struct cairn_store *store;
    uint32_t threads;
    const char *name; /* of the threads, at most 10 bytes */
    int nice;         /* added to the threads' nice value */
};
enum cairn_code srv_pool_new(const struct srv_pool_options *options, struct srv_pool **ret,
                             struct cairn_error *err) CAIRN_MUST_USE;
/* False: the pool stops and has not taken the task. */
bool srv_pool_push(struct srv_pool *pool, struct srv_task *task) CAIRN_MUST_USE;
void srv_pool_stop(struct srv_pool *pool); /* idempotent */
void srv_pool_free(struct srv_pool *pool); /* stops; NULL is fine */
