/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last chance: a signal that announces the end sets a flag, which the trainer looks at between
 * its steps. The handler calls nothing but clock_gettime and the handler that was there before it,
 * since a save inside of a handler would find locks taken and tensors half written.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include <cairn/cairn.h>

#include "client/session/options.h"

#define SIGNALS_MAX 8
#define GRACE_MS_DEFAULT 30000

static pthread_mutex_t watch_mutex = PTHREAD_MUTEX_INITIALIZER;
/* Changed with the mutex held, while none of these signals has our handler. */
static struct {
    int number;
    struct sigaction before;
} watched[SIGNALS_MAX];
static size_t watched_count;
static uint32_t grace_ms;
static _Atomic pid_t owner; /* a forked child has not been told of its own end; 0: no watch */
static _Atomic int seen;
static _Atomic uint64_t seen_ms;

static uint64_t now_ms(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* may be called in a handler */
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

/* The time counts from the first signal: further ones do not move the end. */
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
        watched_count = i + 1; /* before the handler can look for it */
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
