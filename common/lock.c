/* SPDX-License-Identifier: Apache-2.0 */
/* The rank is checked before the mutex is locked, so an inversion aborts instead of hanging. */
#include "common/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

_Static_assert(CAIRN_LOCK_RANKS <= 64, "one bit per rank");

#ifdef CAIRN_DEBUG_LOCKS
static const char *const rank_names[] = {
    "a lock that is not there",
#define LOCK(name) #name,
#include "common/locks.def"
#undef LOCK
};

static _Thread_local uint64_t held_ranks;

static _Noreturn void order_broken(const char *deed, enum cairn_lock_rank rank) {
    fprintf(stderr, "cairn: lock order: %s %s while this thread holds:", deed, rank_names[rank]);
    for (unsigned i = 0; i < CAIRN_LOCK_RANKS; i++) {
        if (held_ranks >> i & 1) fprintf(stderr, " %s", rank_names[i]);
    }
    fputs("\n", stderr);
    abort();
}

static void rank_take(enum cairn_lock_rank rank) {
    if (rank == CAIRN_LOCK_NONE || held_ranks >> rank) order_broken("taking", rank);
    held_ranks |= UINT64_C(1) << rank;
}

static void rank_give(enum cairn_lock_rank rank) {
    if (!(held_ranks >> rank & 1)) order_broken("giving", rank);
    held_ranks &= ~(UINT64_C(1) << rank);
}

/* A wait relocks at its end, so no lock of a later rank may be held during it. */
static void rank_wait(enum cairn_lock_rank rank) {
    if (held_ranks >> rank != 1) order_broken("waiting with", rank);
}
#else
#define rank_take(rank) ((void)(rank))
#define rank_give(rank) ((void)(rank))
#define rank_wait(rank) ((void)(rank))
#endif

/* These calls fail only on misuse of a lock or condition, such as releasing a held one. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        int failed = (call);                                                                       \
        CAIRN_PROMISE(!failed, (void)0);                                                           \
    } while (0)

void cairn_lock_init(struct cairn_lock *lock, enum cairn_lock_rank rank) {
    CAIRN_PROMISE(rank && (unsigned)rank < CAIRN_LOCK_RANKS, rank = (enum cairn_lock_rank)1);
    MUST(pthread_mutex_init(&lock->mutex, NULL));
    lock->rank = rank;
}

void cairn_lock_release(struct cairn_lock *lock) {
    int refused = pthread_mutex_destroy(&lock->mutex);
    MUST(refused);
    if (!refused) lock->rank = CAIRN_LOCK_NONE; /* one that is held stays */
}

void cairn_lock_take(struct cairn_lock *lock) {
    rank_take(lock->rank);
    MUST(pthread_mutex_lock(&lock->mutex));
}

void cairn_lock_give(struct cairn_lock *lock) {
    rank_give(lock->rank);
    MUST(pthread_mutex_unlock(&lock->mutex));
}

void cairn_condition_init(struct cairn_condition *condition) {
    pthread_condattr_t attributes;
    MUST(pthread_condattr_init(&attributes));
    MUST(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
    MUST(pthread_cond_init(&condition->condition, &attributes));
    pthread_condattr_destroy(&attributes);
}

void cairn_condition_release(struct cairn_condition *condition) {
    pthread_cond_destroy(&condition->condition);
}

void cairn_condition_signal(struct cairn_condition *condition) {
    pthread_cond_signal(&condition->condition);
}

void cairn_condition_broadcast(struct cairn_condition *condition) {
    pthread_cond_broadcast(&condition->condition);
}

bool cairn_condition_wait(struct cairn_condition *condition, struct cairn_lock *lock,
                          uint64_t deadline_ms) {
    rank_wait(lock->rank);
    if (deadline_ms == UINT64_MAX) {
        MUST(pthread_cond_wait(&condition->condition, &lock->mutex));
        return true;
    }
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ms / 1000),
                                .tv_nsec = (long)(deadline_ms % 1000) * 1000000};
    int failed = pthread_cond_timedwait(&condition->condition, &lock->mutex, &deadline);
    CAIRN_PROMISE(failed == 0 || failed == ETIMEDOUT, (void)0);
    return failed == 0;
}
