/* SPDX-License-Identifier: Apache-2.0 */
/* One thread that waits for work; see thread.h. */
#include "common/thread.h"

static void *enter(void *argument) {
    struct cairn_thread *thread = argument;
    pthread_setname_np(pthread_self(), thread->name);
    thread->run(thread, thread->owner);
    return NULL;
}

enum cairn_code cairn_thread_start(struct cairn_thread *thread, struct cairn_error *err) {
    CAIRN_ASSERT(!thread->started);
    CAIRN_ASSERT(strlen(thread->name) < 16);
    cairn_lock_init(&thread->lock, CAIRN_LOCK_thread_bell);
    cairn_condition_init(&thread->bell);
    thread->locked.woken = thread->locked.stopping = false;
    thread->started = true; /* before it runs: its own work may wake it */
    if (!pthread_create(&thread->id, NULL, enter, thread)) return CAIRN_OK;
    thread->started = false;
    cairn_condition_release(&thread->bell);
    cairn_lock_release(&thread->lock);
    return cairn_fail(err, CAIRN_NO_MEMORY, "no thread %s", thread->name);
}

bool cairn_thread_wait(struct cairn_thread *thread, uint64_t until_ms) {
    CAIRN_HOLD(&thread->lock);
    while (!thread->locked.woken && !thread->locked.stopping)
        if (!cairn_condition_wait(&thread->bell, &thread->lock, until_ms)) break;
    thread->locked.woken = false;
    return !thread->locked.stopping;
}

void cairn_thread_wake(struct cairn_thread *thread) {
    CAIRN_HOLD(&thread->lock);
    thread->locked.woken = true;
    cairn_condition_signal(&thread->bell);
}

void cairn_thread_stop(struct cairn_thread *thread) {
    if (!thread->started) return;
    {
        CAIRN_HOLD(&thread->lock);
        thread->locked.stopping = true;
        cairn_condition_signal(&thread->bell);
    }
    pthread_join(thread->id, NULL);
    cairn_condition_release(&thread->bell);
    cairn_lock_release(&thread->lock);
    thread->started = false;
}
