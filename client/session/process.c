/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process-wide state under a plain mutex instead of a ranked lock, because the fork handlers take
 * it while the thread may hold any other lock.
 */
#include "client/session/process.h"

#include <cairn/cairn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/session/options.h"
#include "common/buf.h"

#define WATCHED_MAX 256
#define SIGNALS_MAX 8
#define GRACE_MS_DEFAULT 30000

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
    int watched[WATCHED_MAX]; /* fd + 1; 0: empty */
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

/* A raw system call: the trainer's C library may be older than pidfd_open. */
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

/* Steps mostly grow, so the search starts at the newest. */
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

/* Number of begins of a step before the first unsettled one. */
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

/* ---- last chance ---- */

/* A signal that announces the end sets a flag, which the trainer polls between steps. The handler
 * only reads the clock and calls the previous handler: a save there would meet held locks. */

static pthread_mutex_t watch_mutex = PTHREAD_MUTEX_INITIALIZER;
/* Changed with the mutex held, while no watched signal has our handler. */
static struct {
    int number;
    struct sigaction before;
} watched[SIGNALS_MAX];
static size_t watched_count;
static uint32_t grace_ms;
static _Atomic pid_t owner; /* the watching process: a forked child ignores the flag; 0: no watch */
static _Atomic int seen;
static _Atomic uint64_t seen_ms;

static uint64_t now_ms(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* async-signal-safe */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void call_before(int number, siginfo_t *info, void *context) {
    for (size_t i = 0; i < watched_count; i++) {
        const struct sigaction *before = &watched[i].before;
        if (watched[i].number != number) continue;
        if (before->sa_flags & SA_SIGINFO)
            before->sa_sigaction(number, info, context);
        else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN)
            before->sa_handler(number);
    }
}

/* Grace counts from the first signal; later ones do not extend it. */
static void on_signal(int number, siginfo_t *info, void *context) {
    int saved_errno = errno, none = 0;
    uint64_t never = 0;
    (void)atomic_compare_exchange_strong(&seen_ms, &never, now_ms());
    (void)atomic_compare_exchange_strong(&seen, &none, number);
    call_before(number, info, context);
    errno = saved_errno;
}

static void unwatch(void) {
    for (size_t i = 0; i < watched_count; i++)
        (void)sigaction(watched[i].number, &watched[i].before, NULL);
    watched_count = 0;
    atomic_store(&owner, 0);
}

static enum cairn_code watch(const int *numbers, size_t count, struct cairn_error *err) {
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < count; i++) {
        watched[i].number = numbers[i];
        if (sigaction(numbers[i], NULL, &watched[i].before))
            return cairn_fail(err, CAIRN_INVALID, "signal %d cannot be watched", numbers[i]);
        watched_count = i + 1; /* before the handler can search it */
        if (sigaction(numbers[i], &action, NULL)) {
            watched_count = i;
            return cairn_fail(err, CAIRN_INVALID, "signal %d cannot be watched", numbers[i]);
        }
    }
    return CAIRN_OK;
}

enum cairn_code cairn_last_chance_watch(const struct cairn_last_chance_options *options,
                                        struct cairn_error *err) {
    static const int usual[] = {SIGTERM, SIGUSR1};
    struct cairn_last_chance_options own;
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    const int *numbers = own.signal_count ? own.signals : usual;
    size_t count = own.signal_count ? own.signal_count : CAIRN_COUNT(usual);
    if (!numbers || count > SIGNALS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%zu signals; up to %d are watched", count,
                          SIGNALS_MAX);
    pthread_mutex_lock(&watch_mutex);
    enum cairn_code code = CAIRN_OK;
    if (watched_count) {
        code = cairn_fail(err, CAIRN_INVALID, "this process watches signals already");
    } else {
        grace_ms = own.grace_ms ? own.grace_ms : GRACE_MS_DEFAULT;
        atomic_store(&seen, 0);
        atomic_store(&seen_ms, 0);
        atomic_store(&owner, getpid());
        code = watch(numbers, count, err);
        if (code) unwatch();
    }
    pthread_mutex_unlock(&watch_mutex);
    return code;
}

int cairn_last_chance(uint32_t *ret_left_ms) {
    int number = atomic_load(&seen);
    if (!number || atomic_load(&owner) != getpid()) return 0;
    uint64_t passed_ms = now_ms() - atomic_load(&seen_ms);
    if (ret_left_ms) *ret_left_ms = passed_ms < grace_ms ? grace_ms - (uint32_t)passed_ms : 0;
    return number;
}

void cairn_last_chance_unwatch(void) {
    pthread_mutex_lock(&watch_mutex);
    if (atomic_load(&owner) == getpid()) unwatch();
    pthread_mutex_unlock(&watch_mutex);
}
