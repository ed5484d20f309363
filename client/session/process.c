/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One small set of process-wide facts. A plain mutex and not a ranked lock: it is taken by the
 * fork handlers, where a thread may hold any other lock.
 */
#include "client/session/process.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/buf.h"

#define WATCHED_MAX 256

struct step_count {
    uint64_t step;
    uint32_t n;
};
struct steps {
    struct step_count *at;
    size_t count, capacity;
};
struct counter {
    struct counter *next;
    char *nonce;
    uint32_t rank;
    struct steps counted;
    struct steps unsettled; /* begins that may still reach an uploader */
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

/* By its number: the C library of a trainer may be older than its function pidfd_open. */
int cairn_client_process_fd(void) {
    return (int)syscall(SYS_pidfd_open, getpid(), 0);
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

static struct step_count *steps_add(struct steps *steps) {
    if (CAIRN_ARRAY_ROOM(steps->at, steps->count, steps->capacity, UINT32_MAX, "steps", NULL))
        return NULL;
    return &steps->at[steps->count++];
}

/* Steps mostly grow, so the newest is looked at first. */
static struct step_count *step_find(struct counter *counter, uint64_t step) {
    struct steps *counted = &counter->counted;
    for (size_t i = counted->count; i > 0; i--)
        if (counted->at[i - 1].step == step) return &counted->at[i - 1];
    struct step_count *added = steps_add(counted);
    if (added) *added = (struct step_count){.step = step};
    return added;
}

enum cairn_code cairn_client_process_count(const struct cairn_client_counter *counter,
                                           uint64_t step, uint32_t *ret_n,
                                           struct cairn_error *err) {
    guard_take();
    struct counter *found = counter_find(counter);
    struct step_count *count = found ? step_find(found, step) : NULL;
    struct step_count *begun = count ? steps_add(&found->unsettled) : NULL;
    if (begun) {
        *ret_n = ++count->n;
        *begun = *count;
    }
    pthread_mutex_unlock(&guard);
    if (!begun) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to count the begins of a step");
    return CAIRN_OK;
}

void cairn_client_process_settle(const struct cairn_client_counter *counter, uint64_t step,
                                 uint32_t n) {
    guard_take();
    struct counter *found = counter_find(counter);
    struct steps *unsettled = found ? &found->unsettled : NULL;
    for (size_t i = 0; unsettled && i < unsettled->count; i++) {
        if (unsettled->at[i].step != step || unsettled->at[i].n != n) continue;
        unsettled->at[i] = unsettled->at[--unsettled->count];
        break;
    }
    pthread_mutex_unlock(&guard);
}

/* How many begins of a step there were before the first that is not settled. */
static uint32_t settled_of(const struct counter *counter, const struct step_count *count) {
    uint32_t n = count->n;
    for (size_t i = 0; i < counter->unsettled.count; i++) {
        const struct step_count *begun = &counter->unsettled.at[i];
        if (begun->step == count->step && begun->n <= n) n = begun->n - 1;
    }
    return n;
}

static json_t *settled_steps(const struct counter *counter) {
    const struct steps *counted = &counter->counted;
    json_t *steps = json_array();
    size_t first = counted->count > CAIRN_CLIENT_REPORTED_STEPS_MAX
                       ? counted->count - CAIRN_CLIENT_REPORTED_STEPS_MAX
                       : 0;
    for (size_t i = first; i < counted->count; i++) {
        uint32_t n = settled_of(counter, &counted->at[i]);
        if (n)
            json_array_append_new(
                steps, json_pack("[I, I]", (json_int_t)counted->at[i].step, (json_int_t)n));
    }
    return steps;
}

json_t *cairn_client_process_counts(uint32_t rank) {
    json_t *counts = json_object();
    guard_take();
    size_t left = CAIRN_CLIENT_REPORTED_ATTEMPTS_MAX;
    for (const struct counter *at = process.counters; at && left; at = at->next) {
        if (at->rank != rank) continue;
        json_object_set_new(counts, at->nonce, settled_steps(at));
        left--;
    }
    pthread_mutex_unlock(&guard);
    return counts;
}
