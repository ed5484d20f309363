/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that run tasks; see pool.h. Due tasks are a list in order, delayed ones a short list that
 * is looked through when its earliest is due. */
#include "server/http/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/process.h"

/* Whichever is free takes the next task: all wait on the pool's condition, none on its own bell. */
struct pool_thread {
    struct cairn_thread thread;
    struct cairn_srv_pool *pool;
    struct cairn_store_worker *worker;
};
struct cairn_srv_pool {
    char name[16];
    int nice;
    struct pool_thread *threads;
    uint32_t count;
    struct cairn_lock lock;
    struct cairn_condition work;
    struct {
        struct cairn_srv_task *first, **last;
        struct cairn_srv_task *delayed;
        bool stopping;
    } locked;
};

static void append(struct cairn_srv_pool *pool, struct cairn_srv_task *task) {
    task->next = NULL;
    *pool->locked.last = task;
    pool->locked.last = &task->next;
}

/* Move what is due to the queue; returns when the next one will be. The lock is held. */
static uint64_t take_due(struct cairn_srv_pool *pool) {
    uint64_t now = cairn_mono_ms(), next_ms = UINT64_MAX;
    struct cairn_srv_task **at = &pool->locked.delayed;
    while (*at) {
        struct cairn_srv_task *task = *at;
        if (task->due_ms > now) {
            next_ms = cairn_min_u64(next_ms, task->due_ms);
            at = &task->next;
            continue;
        }
        *at = task->next;
        append(pool, task);
    }
    return next_ms;
}

static struct cairn_srv_task *next_task(struct cairn_srv_pool *pool) {
    CAIRN_HOLD(&pool->lock);
    for (;;) {
        uint64_t next_ms = take_due(pool);
        struct cairn_srv_task *task = pool->locked.first;
        if (task) {
            pool->locked.first = task->next;
            if (!task->next) pool->locked.last = &pool->locked.first;
            return task;
        }
        if (pool->locked.stopping) return NULL;
        (void)cairn_condition_wait(&pool->work, &pool->lock, next_ms);
    }
}

static void pool_loop(struct cairn_thread *thread, void *owner) {
    const struct pool_thread *own = owner;
    (void)thread;
    /* Linux has a priority for each thread, which is that of the process so far. Nothing depends on
     * it: where it is refused, others wait a little longer. */
    int nice = getpriority(PRIO_PROCESS, 0) + own->pool->nice;
    if (own->pool->nice) (void)setpriority(PRIO_PROCESS, (id_t)gettid(), nice);
    for (struct cairn_srv_task *task; (task = next_task(own->pool));) task->run(task, own->worker);
}

bool cairn_srv_pool_push(struct cairn_srv_pool *pool, struct cairn_srv_task *task) {
    CAIRN_HOLD(&pool->lock);
    if (pool->locked.stopping) return false;
    if (task->due_ms > cairn_mono_ms()) {
        task->next = pool->locked.delayed;
        pool->locked.delayed = task;
    } else {
        append(pool, task);
    }
    cairn_condition_signal(&pool->work);
    return true;
}

enum cairn_code cairn_srv_pool_new(const struct cairn_srv_pool_options *options,
                                   struct cairn_srv_pool **ret, struct cairn_error *err) {
    struct cairn_srv_pool *pool = calloc(1, sizeof(*pool));
    if (!pool) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a thread pool");
    snprintf(pool->name, sizeof(pool->name), "cairn-%.9s", options->name);
    pool->nice = options->nice;
    pool->locked.last = &pool->locked.first;
    cairn_lock_init(&pool->lock, CAIRN_LOCK_server_jobs);
    cairn_condition_init(&pool->work);
    pool->threads = calloc(options->threads, sizeof(*pool->threads));
    enum cairn_code code = CAIRN_OK;
    if (!pool->threads) code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a thread pool");
    while (!code && pool->count < options->threads) {
        struct pool_thread *own = &pool->threads[pool->count++];
        own->pool = pool;
        own->thread = (struct cairn_thread){.name = pool->name, .run = pool_loop, .owner = own};
        code = cairn_store_worker_new(options->store, &own->worker, err);
        if (!code) code = cairn_thread_start(&own->thread, err);
    }
    if (code)
        cairn_srv_pool_free(pool);
    else
        *ret = pool;
    return code;
}

void cairn_srv_pool_stop(struct cairn_srv_pool *pool) {
    struct cairn_srv_task *delayed = NULL;
    {
        CAIRN_HOLD(&pool->lock);
        pool->locked.stopping = true;
        delayed = CAIRN_TAKE(pool->locked.delayed);
        cairn_condition_broadcast(&pool->work);
    }
    while (delayed) {
        struct cairn_srv_task *task = delayed;
        delayed = task->next;
        if (task->drop) task->drop(task);
    }
    for (uint32_t i = 0; i < pool->count; i++) cairn_thread_stop(&pool->threads[i].thread);
}

void cairn_srv_pool_free(struct cairn_srv_pool *pool) {
    if (!pool) return;
    cairn_srv_pool_stop(pool);
    for (uint32_t i = 0; i < pool->count; i++) cairn_store_worker_free(pool->threads[i].worker);
    free(pool->threads);
    cairn_condition_release(&pool->work);
    cairn_lock_release(&pool->lock);
    free(pool);
}
