/* SPDX-License-Identifier: Apache-2.0 */
/* Parked requests in a hash table; see waiters.h. Each bucket keeps the count of its last change,
 * so a change between look and park is never missed; sharing a bucket costs a needless wake. */
#include "server/http/waiters.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/process.h"

#define BUCKETS 1024
#define CANDIDATES_MAX 16 /* more at once have one cause */

struct srv_waiters {
    struct cairn_thread thread; /* wakes timed-out waiters */
    struct cairn_lock lock;
    struct {
        struct {
            struct srv_waiter *first;
            uint64_t changed;
        } buckets[BUCKETS];
        uint64_t changes;
        uint64_t earliest_ms; /* no waiter is due earlier */
        struct candidate {
            uint64_t key, since_ms;
        } candidates[CANDIDATES_MAX];
        size_t candidate_count;
        bool stopping;
    } locked;
    void (*late)(void *owner); /* NULL: no callback */
    void *late_owner;
};

static void unlink_waiter(struct srv_waiter *waiter) {
    *waiter->at = waiter->next;
    if (waiter->next) waiter->next->at = waiter->at;
    waiter->at = NULL;
}

static void wake_all(struct srv_waiter *first) {
    while (first) {
        struct srv_waiter *waiter = first;
        first = waiter->next;
        waiter->wake(waiter);
    }
}

/* Takes the due waiters (or all); the lock is held. */
static struct srv_waiter *take_due(struct srv_waiters *waiters, uint64_t now_ms) {
    struct srv_waiter *due = NULL;
    uint64_t earliest_ms = UINT64_MAX;
    for (size_t i = 0; i < BUCKETS; i++) {
        struct srv_waiter *next = NULL;
        for (struct srv_waiter *one = waiters->locked.buckets[i].first; one; one = next) {
            next = one->next;
            if (one->wake_ms > now_ms) {
                earliest_ms = cairn_min_u64(earliest_ms, one->wake_ms);
                continue;
            }
            unlink_waiter(one);
            one->timed_out = true;
            one->next = due;
            due = one;
        }
    }
    waiters->locked.earliest_ms = earliest_ms;
    return due;
}

/* ---- late wakes (waiters.h#5) ---- */

void srv_waiters_on_late(struct srv_waiters *waiters, void (*late)(void *owner), void *owner) {
    waiters->late = late;
    waiters->late_owner = owner;
}

void srv_waiters_late(struct srv_waiters *waiters, const struct srv_waiter *waiter) {
    CAIRN_HOLD(&waiters->lock);
    bool rung = waiters->locked.buckets[waiter->key % BUCKETS].changed > waiter->seen;
    if (rung || waiters->locked.stopping || waiters->locked.candidate_count == CANDIDATES_MAX)
        return;
    waiters->locked.candidates[waiters->locked.candidate_count++] =
        (struct candidate){waiter->key, cairn_mono_ms()};
    cairn_thread_wake(&waiters->thread);
}

/* A notification of key followed: its candidates were not late. The lock is held. */
static void forget_candidates(struct srv_waiters *waiters, uint64_t key) {
    size_t left = 0;
    for (size_t i = 0; i < waiters->locked.candidate_count; i++)
        if (key != SRV_NOTIFY_ALL && waiters->locked.candidates[i].key != key)
            waiters->locked.candidates[left++] = waiters->locked.candidates[i];
    waiters->locked.candidate_count = left;
}

/* Counts candidates older than CAIRN_LATE_MS; returns when the next one is. */
static uint64_t count_late(struct srv_waiters *waiters, uint64_t now_ms) {
    size_t found = 0, left = 0;
    uint64_t next_ms = UINT64_MAX;
    {
        CAIRN_HOLD(&waiters->lock);
        for (size_t i = 0; i < waiters->locked.candidate_count; i++) {
            struct candidate one = waiters->locked.candidates[i];
            bool old = now_ms >= one.since_ms + CAIRN_LATE_MS;
            found += old;
            if (old) continue;
            waiters->locked.candidates[left++] = one;
            next_ms = cairn_min_u64(next_ms, one.since_ms + CAIRN_LATE_MS);
        }
        waiters->locked.candidate_count = left;
    }
    for (; found && waiters->late; found--) waiters->late(waiters->late_owner);
    return next_ms;
}

/* Wakes waiters that are due; returns the next due time. */
static uint64_t wake_due(struct srv_waiters *waiters, uint64_t now_ms) {
    struct srv_waiter *due = NULL;
    uint64_t earliest_ms = UINT64_MAX;
    {
        CAIRN_HOLD(&waiters->lock);
        if (waiters->locked.earliest_ms <= now_ms) due = take_due(waiters, now_ms);
        earliest_ms = waiters->locked.earliest_ms;
    }
    wake_all(due);
    return earliest_ms;
}

static void wait_loop(struct cairn_thread *thread, void *owner) {
    struct srv_waiters *waiters = owner;
    uint64_t next_ms = UINT64_MAX;
    while (cairn_thread_wait(thread, next_ms)) {
        uint64_t now_ms = cairn_mono_ms(), late_ms = count_late(waiters, now_ms);
        next_ms = cairn_min_u64(late_ms, wake_due(waiters, now_ms));
    }
    (void)wake_due(waiters, UINT64_MAX);
}

enum cairn_code srv_waiters_new(struct srv_waiters **ret, struct cairn_error *err) {
    struct srv_waiters *waiters = calloc(1, sizeof(*waiters));
    if (!waiters) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for waiting requests");
    cairn_lock_init(&waiters->lock, CAIRN_LOCK_server_waiters);
    waiters->locked.earliest_ms = UINT64_MAX;
    waiters->thread =
        (struct cairn_thread){.name = "cairn-waiters", .run = wait_loop, .owner = waiters};
    enum cairn_code code = cairn_thread_start(&waiters->thread, err);
    if (code)
        srv_waiters_free(waiters);
    else
        *ret = waiters;
    return code;
}

uint64_t srv_waiters_look(struct srv_waiters *waiters) {
    CAIRN_HOLD(&waiters->lock);
    return waiters->locked.changes;
}

/* False: it must not wait. */
static bool park(struct srv_waiters *waiters, struct srv_waiter *waiter) {
    CAIRN_HOLD(&waiters->lock);
    size_t bucket = waiter->key % BUCKETS;
    if (waiters->locked.stopping || waiters->locked.buckets[bucket].changed > waiter->seen)
        return false;
    waiter->next = waiters->locked.buckets[bucket].first;
    waiter->at = &waiters->locked.buckets[bucket].first;
    if (waiter->next) waiter->next->at = &waiter->next;
    waiters->locked.buckets[bucket].first = waiter;
    if (waiter->wake_ms < waiters->locked.earliest_ms) {
        waiters->locked.earliest_ms = waiter->wake_ms;
        cairn_thread_wake(&waiters->thread); /* under the lock: the thread still runs */
    }
    return true;
}

void srv_waiters_park(struct srv_waiters *waiters, struct srv_waiter *waiter) {
    uint64_t last_ms = cairn_mono_ms() + CAIRN_WAIT_MS_MAX;
    waiter->wake_ms = cairn_min_u64(waiter->wake_ms, last_ms);
    if (!park(waiters, waiter)) waiter->wake(waiter);
}

bool srv_waiters_cancel(struct srv_waiters *waiters, struct srv_waiter *waiter) {
    CAIRN_HOLD(&waiters->lock);
    if (!waiter->at) return false;
    unlink_waiter(waiter);
    return true;
}

/* The lock is held; key SRV_NOTIFY_ALL: takes the whole bucket. */
static struct srv_waiter *take_changed(struct srv_waiters *waiters, size_t bucket, uint64_t key,
                                       struct srv_waiter *woken) {
    struct srv_waiter *next = NULL;
    waiters->locked.buckets[bucket].changed = waiters->locked.changes;
    for (struct srv_waiter *one = waiters->locked.buckets[bucket].first; one; one = next) {
        next = one->next;
        if (key != SRV_NOTIFY_ALL && one->key != key) continue;
        unlink_waiter(one);
        one->next = woken;
        woken = one;
    }
    return woken;
}

void srv_waiters_wake_key(struct srv_waiters *waiters, uint64_t key) {
    struct srv_waiter *woken = NULL;
    {
        CAIRN_HOLD(&waiters->lock);
        waiters->locked.changes++;
        forget_candidates(waiters, key);
        if (key != SRV_NOTIFY_ALL) woken = take_changed(waiters, key % BUCKETS, key, NULL);
        for (size_t i = 0; key == SRV_NOTIFY_ALL && i < BUCKETS; i++)
            woken = take_changed(waiters, i, key, woken);
    }
    wake_all(woken);
}

void srv_waiters_wake(struct srv_waiters *waiters, const char *text) {
    srv_waiters_wake_key(waiters, srv_key_of(text));
}

void srv_waiters_wake_run(struct srv_waiters *waiters, const struct cairn_run_name *name) {
    srv_waiters_wake_key(waiters, srv_key_of_run(name));
}

void srv_waiters_wake_version(struct srv_waiters *waiters, const struct cairn_version_id *id,
                              const struct cairn_run_name *name) {
    srv_waiters_wake(waiters, id->text);
    srv_waiters_wake_run(waiters, name);
}

void srv_waiters_stop(struct srv_waiters *waiters) {
    {
        CAIRN_HOLD(&waiters->lock);
        waiters->locked.stopping = true;
    }
    cairn_thread_stop(&waiters->thread);
}

void srv_waiters_free(struct srv_waiters *waiters) {
    if (!waiters) return;
    srv_waiters_stop(waiters);
    cairn_lock_release(&waiters->lock);
    free(waiters);
}

/* ---- the pool: due tasks in an ordered list, delayed ones in a short one ---- */

/* Any idle thread takes the next task: all wait on the pool's condition, none on its own bell. */
struct pool_thread {
    struct cairn_thread thread;
    struct srv_pool *pool;
    struct cairn_store_worker *worker;
};
struct srv_pool {
    char name[16];
    int nice;
    struct pool_thread *threads;
    uint32_t count;
    struct cairn_lock lock;
    struct cairn_condition work;
    struct {
        struct srv_task *first, **last;
        struct srv_task *delayed;
        bool stopping;
    } locked;
};

static void append(struct srv_pool *pool, struct srv_task *task) {
    task->next = NULL;
    *pool->locked.last = task;
    pool->locked.last = &task->next;
}

/* Moves due tasks to the queue; returns the next due time. The lock is held. */
static uint64_t pop_task(struct srv_pool *pool) {
    uint64_t now = cairn_mono_ms(), next_ms = UINT64_MAX;
    struct srv_task **at = &pool->locked.delayed;
    while (*at) {
        struct srv_task *task = *at;
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

static struct srv_task *next_task(struct srv_pool *pool) {
    CAIRN_HOLD(&pool->lock);
    for (;;) {
        uint64_t next_ms = pop_task(pool);
        struct srv_task *task = pool->locked.first;
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
    /* Linux has a nice value per thread. Setting it may fail: others then wait a little longer. */
    int nice = getpriority(PRIO_PROCESS, 0) + own->pool->nice;
    if (own->pool->nice) (void)setpriority(PRIO_PROCESS, (id_t)gettid(), nice);
    for (struct srv_task *task; (task = next_task(own->pool));) task->run(task, own->worker);
}

bool srv_pool_push(struct srv_pool *pool, struct srv_task *task) {
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

enum cairn_code srv_pool_new(const struct srv_pool_options *options, struct srv_pool **ret,
                             struct cairn_error *err) {
    struct srv_pool *pool = calloc(1, sizeof(*pool));
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
        srv_pool_free(pool);
    else
        *ret = pool;
    return code;
}

void srv_pool_stop(struct srv_pool *pool) {
    struct srv_task *delayed = NULL;
    {
        CAIRN_HOLD(&pool->lock);
        pool->locked.stopping = true;
        delayed = CAIRN_TAKE(pool->locked.delayed);
        cairn_condition_broadcast(&pool->work);
    }
    while (delayed) {
        struct srv_task *task = delayed;
        delayed = task->next;
        if (task->drop) task->drop(task);
    }
    for (uint32_t i = 0; i < pool->count; i++) cairn_thread_stop(&pool->threads[i].thread);
}

void srv_pool_free(struct srv_pool *pool) {
    if (!pool) return;
    srv_pool_stop(pool);
    for (uint32_t i = 0; i < pool->count; i++) cairn_store_worker_free(pool->threads[i].worker);
    free(pool->threads);
    cairn_condition_release(&pool->work);
    cairn_lock_release(&pool->lock);
    free(pool);
}
