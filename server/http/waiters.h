/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waiters: requests that wait for a version or a run to change, without a thread each;
 * and the pool that runs requests: threads that run tasks, each with a store worker of its own.
 *
 * Why:     a thousand clients wait for one commit; they are parked and woken by its change, or by
 *          their deadline, whichever comes first.
 * Promise: 1   a change after look() wakes every waiter that parks with that look's answer, also
 *              when the change came before the parking.
 *          2   a parked waiter's wake() is called exactly once, on the thread that changed its key,
 *              or on the waiters' own thread at its deadline or at stop.
 *          3   no waiter stays for longer than CAIRN_WAIT_MS_MAX.
 *          4   after cancel() has returned true there is no wake().
 *          5   a wait that its timer ended, though what it waited for had come and nobody rang for
 *              it until CAIRN_LATE_MS later, is counted (common/process.h).
 *          6   a task that the pool has taken runs exactly once, not before its time, on one
 *              thread; stop runs what was due, drops what was delayed, and returns when all have
 *              ended.
 * Limits:  waiters and tasks are bounded by their users (connections, versions); 256 threads.
 * Threads: any thread, also from a task.
 * Next:    server/http/http.h.
 */
#pragma once

#include "api/wire/routes.h"
#include "server/db/catalog.h"
#include "store/store.h"

struct cairn_srv_waiters;
struct cairn_srv_waiter {
    uint64_t key;     /* cairn_srv_key_of() of the text that is waited for */
    uint64_t seen;    /* cairn_srv_waiters_look() from before the state was read */
    uint64_t wake_ms; /* mono clock */
    void (*wake)(struct cairn_srv_waiter *waiter);
    bool timed_out;                      /* when it is woken: its time was over */
    struct cairn_srv_waiter *next, **at; /* at NULL: it is not parked */
};
enum cairn_code cairn_srv_waiters_new(struct cairn_srv_waiters **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
uint64_t cairn_srv_waiters_look(struct cairn_srv_waiters *waiters);
/* May call wake() before it returns. */
void cairn_srv_waiters_park(struct cairn_srv_waiters *waiters, struct cairn_srv_waiter *waiter);
/* False: it is being woken, or not parked yet. */
bool cairn_srv_waiters_cancel(struct cairn_srv_waiters *waiters,
                              struct cairn_srv_waiter *waiter) CAIRN_MUST_USE;
/* After the waiter was woken by its time: what it waits for is there. */
void cairn_srv_waiters_late(struct cairn_srv_waiters *waiters,
                            const struct cairn_srv_waiter *waiter);
/* Whom each finding is told, on the waiters' own thread; set before anybody parks. */
void cairn_srv_waiters_on_late(struct cairn_srv_waiters *waiters, void (*late)(void *owner),
                               void *owner);
/* What a key of catalog.h names has changed; CAIRN_SRV_NOTIFY_ALL: anything may have. */
void cairn_srv_waiters_wake_key(struct cairn_srv_waiters *waiters, uint64_t key);
/* What the text names has changed. */
void cairn_srv_waiters_wake(struct cairn_srv_waiters *waiters, const char *text);
void cairn_srv_waiters_wake_run(struct cairn_srv_waiters *waiters,
                                const struct cairn_run_name *name);
/* A version has changed: wakes those that wait for it or for its run. After the transaction. */
void cairn_srv_waiters_wake_version(struct cairn_srv_waiters *waiters,
                                    const struct cairn_version_id *id,
                                    const struct cairn_run_name *name);
/* Wakes all waiters, and from now on each that parks. */
void cairn_srv_waiters_stop(struct cairn_srv_waiters *waiters);
void cairn_srv_waiters_free(struct cairn_srv_waiters *waiters); /* stops; NULL is fine */

/* ---- the pool ---- */

struct cairn_srv_pool;
struct cairn_srv_task {
    void (*run)(struct cairn_srv_task *task, struct cairn_store_worker *worker);
    /* Called instead of run when the pool stops before a delayed task is due; may be NULL. */
    void (*drop)(struct cairn_srv_task *task);
    uint64_t due_ms; /* mono clock; 0 = now */
    struct cairn_srv_task *next;
};
struct cairn_srv_pool_options {
    struct cairn_store *store;
    uint32_t threads;
    const char *name; /* of the threads, at most 10 bytes */
    int nice;         /* by how much other threads of the process go before these */
};
enum cairn_code cairn_srv_pool_new(const struct cairn_srv_pool_options *options,
                                   struct cairn_srv_pool **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* False when the pool stops: the task was not taken. */
bool cairn_srv_pool_push(struct cairn_srv_pool *pool, struct cairn_srv_task *task) CAIRN_MUST_USE;
void cairn_srv_pool_stop(struct cairn_srv_pool *pool); /* idempotent */
void cairn_srv_pool_free(struct cairn_srv_pool *pool); /* stops; NULL is fine */
