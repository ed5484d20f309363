/* SPDX-License-Identifier: Apache-2.0 */
/* Threads are made while all are busy and the limit allows, and stay. */
#include "uploader/tasks.h"

#include <stdlib.h>

#define WAITING_MAX 65536
#define AGAIN_MS 100
#define ANSWER_MARGIN_MS 1000 /* at most; for the answer's way, and a socket thread that is busy */

struct task {
    struct task *next;
    void (*run)(struct cairn_up_helper *helper, void *owner);
    void (*drop)(void *owner);
    void *owner;
};
struct cairn_up_tasks {
    struct cairn_up *up;
    struct cairn_lock lock;
    struct cairn_condition work;
    struct {
        struct task *first, **last;
        size_t waiting, idle, busy, thread_count;
        pthread_t threads[CAIRN_UP_TASK_THREADS_MAX];
        bool stopping;
    } locked;
};

enum cairn_code cairn_up_helper_rest(struct cairn_up_helper *helper, struct cairn_rest **ret,
                                     struct cairn_error *err) {
    if (!helper->rest) {
        struct cairn_rest_options options = {.url = helper->up->settings.server,
                                             .token = helper->up->token,
                                             .token_file = helper->up->settings.token_file,
                                             .ca_bundle = helper->up->settings.ca_file,
                                             .seen = &helper->up->servers_seen};
        CAIRN_TRY(cairn_rest_new(&options, &helper->rest, err));
    }
    *ret = helper->rest;
    return CAIRN_OK;
}

uint64_t cairn_up_answer_by_ms(uint64_t timeout_ms) {
    if (!timeout_ms) return 0;
    return cairn_mono_ms() + timeout_ms - cairn_min_u64(timeout_ms / 4, ANSWER_MARGIN_MS);
}

uint32_t cairn_up_call_ms(uint64_t answer_by_ms, uint32_t usual_ms) {
    if (!answer_by_ms) return usual_ms;
    uint64_t left_ms = cairn_max_u64(cairn_deadline_left_ms(&cairn_clock_real, answer_by_ms), 1);
    return (uint32_t)cairn_min_u64(left_ms, usual_ms ? usual_ms : CAIRN_REST_TIMEOUT_MS);
}

bool cairn_up_helper_again(struct cairn_up_helper *helper, enum cairn_code code,
                           uint64_t answer_by_ms) {
    struct cairn_up *up = helper->up;
    uint64_t until_ms = cairn_mono_ms() + AGAIN_MS;
    if (code != CAIRN_UNAVAILABLE || until_ms >= answer_by_ms) return false;
    CAIRN_HOLD(&up->lock);
    while (!up->locked.draining && cairn_condition_wait(&up->changed, &up->lock, until_ms))
        continue;
    return !up->locked.draining;
}

enum cairn_code cairn_up_helper_store(struct cairn_up_helper *helper,
                                      struct cairn_store_worker **ret, struct cairn_error *err) {
    if (!helper->store) CAIRN_TRY(cairn_store_worker_new(helper->up->store, &helper->store, err));
    *ret = helper->store;
    return CAIRN_OK;
}

static void *helper_main(void *argument) {
    struct cairn_up_tasks *tasks = argument;
    struct cairn_up_helper helper = {.up = tasks->up};
    cairn_lock_take(&tasks->lock);
    for (;;) {
        while (!tasks->locked.first && !tasks->locked.stopping) {
            tasks->locked.idle++;
            (void)cairn_condition_wait(&tasks->work, &tasks->lock, UINT64_MAX);
            tasks->locked.idle--;
        }
        if (tasks->locked.stopping) break;
        struct task *task = tasks->locked.first;
        tasks->locked.first = task->next;
        if (!tasks->locked.first) tasks->locked.last = &tasks->locked.first;
        tasks->locked.waiting--;
        tasks->locked.busy++;
        cairn_lock_give(&tasks->lock);
        task->run(&helper, task->owner);
        free(task);
        cairn_lock_take(&tasks->lock);
        tasks->locked.busy--;
        if (tasks->locked.stopping) cairn_condition_broadcast(&tasks->work);
    }
    cairn_lock_give(&tasks->lock);
    if (helper.rest) cairn_rest_free(helper.rest);
    if (helper.store) cairn_store_worker_free(helper.store);
    return NULL;
}

enum cairn_code cairn_up_tasks_new(struct cairn_up *up, struct cairn_up_tasks **ret,
                                   struct cairn_error *err) {
    struct cairn_up_tasks *tasks = calloc(1, sizeof(*tasks));
    if (!tasks) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for helper threads");
    tasks->up = up;
    cairn_lock_init(&tasks->lock, CAIRN_LOCK_uploader_tasks);
    cairn_condition_init(&tasks->work);
    tasks->locked.last = &tasks->locked.first;
    *ret = tasks;
    return CAIRN_OK;
}

bool cairn_up_tasks_stop(struct cairn_up_tasks *tasks, uint64_t wait_ms) {
    if (!tasks) return true;
    uint64_t until_ms = cairn_mono_ms() + wait_ms;
    CAIRN_HOLD(&tasks->lock);
    tasks->locked.stopping = true;
    cairn_condition_broadcast(&tasks->work);
    while (tasks->locked.busy && cairn_condition_wait(&tasks->work, &tasks->lock, until_ms))
        continue;
    return !tasks->locked.busy;
}

void cairn_up_tasks_free(struct cairn_up_tasks *tasks) {
    if (!tasks) return;
    cairn_lock_take(&tasks->lock);
    tasks->locked.stopping = true;
    cairn_condition_broadcast(&tasks->work);
    size_t count = tasks->locked.thread_count;
    cairn_lock_give(&tasks->lock);
    for (size_t i = 0; i < count; i++) pthread_join(tasks->locked.threads[i], NULL);
    for (struct task *task = tasks->locked.first, *next; task; task = next) {
        next = task->next;
        if (task->drop) task->drop(task->owner);
        free(task);
    }
    cairn_condition_release(&tasks->work);
    cairn_lock_release(&tasks->lock);
    free(tasks);
}

enum cairn_code cairn_up_tasks_add(struct cairn_up_tasks *tasks,
                                   void (*run)(struct cairn_up_helper *helper, void *owner),
                                   void (*drop)(void *owner), void *owner,
                                   struct cairn_error *err) {
    struct task *task = calloc(1, sizeof(*task));
    if (!task) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a task");
    *task = (struct task){.run = run, .drop = drop, .owner = owner};
    CAIRN_HOLD(&tasks->lock);
    if (tasks->locked.waiting >= WAITING_MAX || tasks->locked.stopping) {
        free(task);
        return cairn_fail(err, CAIRN_BUSY, "%zu tasks are waiting already", tasks->locked.waiting);
    }
    bool wanted = tasks->locked.idle <= tasks->locked.waiting &&
                  tasks->locked.thread_count < CAIRN_UP_TASK_THREADS_MAX;
    if (wanted && pthread_create(&tasks->locked.threads[tasks->locked.thread_count], NULL,
                                 helper_main, tasks) == 0)
        tasks->locked.thread_count++;
    if (!tasks->locked.thread_count) {
        free(task);
        return cairn_fail(err, CAIRN_BUSY, "no thread for a task");
    }
    *tasks->locked.last = task;
    tasks->locked.last = &task->next;
    tasks->locked.waiting++;
    cairn_condition_signal(&tasks->work);
    return CAIRN_OK;
}
