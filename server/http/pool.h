/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool: threads that run tasks, each with a store worker of its own.
 *
 * Why:     handlers wait for the catalog and the store; the event loops of the HTTP server must
 *          not, so they hand every request over.
 * Promise: 1   a task that was taken runs exactly once, not before its time, on one thread.
 *          2   stop runs what was due, drops what was delayed, and returns when all have ended.
 * Limits:  256 threads; the queue is bounded by its users (connections, versions).
 * Threads: push from any thread, also from a task.
 * Next:    server/http/http.h, server/guard/jobs.h.
 */
#pragma once

#include "common/error.h"
#include "store/store.h"

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
