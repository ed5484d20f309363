/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One small set of process-wide facts. A plain mutex and not a ranked lock: it is taken by the
 * fork handlers, where a thread may hold any other lock.
 */
#include "client/session/process.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define WATCHED_MAX 256

struct step_count {
    uint64_t step;
    uint32_t n;
};
struct counter {
    struct counter *next;
    char *nonce;
    uint32_t rank;
    struct step_count *steps;
    size_t step_count, step_capacity;
};
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    char nonce[CAIRN_UUID_TEXT_BYTES];
    struct counter *counters;
    int watched[WATCHED_MAX]; /* fd + 1; 0 is an empty place */
} process;

static void before_fork(void) {
    pthread_mutex_lock(&guard);
}

static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&guard);
}

static void after_fork_in_child(void) {
    for (size_t i = 0; i < WATCHED_MAX; i++) {
        if (process.watched[i]) close(process.watched[i] - 1);
        process.watched[i] = 0;
    }
    process.nonce[0] = 0;
    pthread_mutex_unlock(&guard);
}

static void start(void) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void guard_take(void) {
    pthread_once(&once, start);
    pthread_mutex_lock(&guard);
}

void cairn_client_process_nonce(char ret_text[CAIRN_UUID_TEXT_BYTES]) {
    guard_take();
    if (!process.nonce[0]) cairn_uuid_random(process.nonce);
    memcpy(ret_text, process.nonce, CAIRN_UUID_TEXT_BYTES);
    pthread_mutex_unlock(&guard);
}

void cairn_client_process_watch(int fd) {
    guard_take();
    for (size_t i = 0; i < WATCHED_MAX; i++) {
        if (process.watched[i]) continue;
        process.watched[i] = fd + 1;
        break;
    }
    pthread_mutex_unlock(&guard);
}

void cairn_client_process_unwatch(int fd) {
    guard_take();
    for (size_t i = 0; i < WATCHED_MAX; i++)
        if (process.watched[i] == fd + 1) process.watched[i] = 0;
    pthread_mutex_unlock(&guard);
}

static struct counter *counter_find(const struct cairn_client_counter *wanted) {
    for (struct counter *at = process.counters; at; at = at->next)
        if (at->rank == wanted->rank && strcmp(at->nonce, wanted->nonce) == 0) return at;
    struct counter *made = calloc(1, sizeof *made);
    char *nonce = made ? strdup(wanted->nonce) : NULL;
    if (!nonce) {
        free(made);
        return NULL;
    }
    made->nonce = nonce;
    made->rank = wanted->rank;
    made->next = process.counters;
    process.counters = made;
    return made;
}

/* Steps mostly grow, so the newest is looked at first. */
static struct step_count *step_find(struct counter *counter, uint64_t step) {
    for (size_t i = counter->step_count; i > 0; i--)
        if (counter->steps[i - 1].step == step) return &counter->steps[i - 1];
    if (counter->step_count == counter->step_capacity) {
        size_t capacity = counter->step_capacity ? counter->step_capacity * 2 : 16;
        struct step_count *more = realloc(counter->steps, capacity * sizeof *more);
        if (!more) return NULL;
        counter->steps = more;
        counter->step_capacity = capacity;
    }
    struct step_count *added = &counter->steps[counter->step_count++];
    *added = (struct step_count){.step = step};
    return added;
}

enum cairn_code cairn_client_process_count(const struct cairn_client_counter *counter,
                                           uint64_t step, uint32_t *ret_n,
                                           struct cairn_error *err) {
    guard_take();
    struct counter *found = counter_find(counter);
    struct step_count *count = found ? step_find(found, step) : NULL;
    if (count) *ret_n = ++count->n;
    pthread_mutex_unlock(&guard);
    if (!count) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to count the begins of a step");
    return CAIRN_OK;
}
