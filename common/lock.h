/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock: a mutex with a rank, and a condition with a deadline.
 *
 * Why:     lock order is written once (common/locks.def) and checked by every test run, because a
 *          deadlock in production is rare and hard to reproduce.
 * Promise: 1   a thread that takes a lock ranked at or above one it holds aborts at once, in
 *              builds with CAIRN_DEBUG_LOCKS (dev and tsan).
 *          2   in these builds so does one that takes a lock before its init or after its release.
 *          3   cairn_condition_wait returns false when the deadline passed.
 * Limits:  at most 63 ranks.
 * Threads: any.
 * Next:    common/locks.def.
 */
#pragma once

#include <pthread.h>

#include "common/base.h"

enum cairn_lock_rank {
    CAIRN_LOCK_NONE, /* of zeroed memory, and of a released lock */
#define LOCK(name) CAIRN_LOCK_##name,
#include "common/locks.def"
#undef LOCK
    CAIRN_LOCK_RANKS
};

struct cairn_lock {
    pthread_mutex_t mutex;
    enum cairn_lock_rank rank;
};
struct cairn_condition {
    pthread_cond_t condition;
};

void cairn_lock_init(struct cairn_lock *lock, enum cairn_lock_rank rank);
void cairn_lock_release(struct cairn_lock *lock); /* destroys it */
void cairn_lock_take(struct cairn_lock *lock);
void cairn_lock_give(struct cairn_lock *lock);
void cairn_condition_init(struct cairn_condition *condition); /* on the monotonic clock */
void cairn_condition_release(struct cairn_condition *condition);
void cairn_condition_signal(struct cairn_condition *condition);
void cairn_condition_broadcast(struct cairn_condition *condition);
/* deadline_ms on the real mono clock (common/clock.h); UINT64_MAX: no deadline. */
bool cairn_condition_wait(struct cairn_condition *condition, struct cairn_lock *lock,
                          uint64_t deadline_ms);

static inline void cairn_lock_give_at(struct cairn_lock **lock) {
    cairn_lock_give(*lock);
}
#define CAIRN_HOLD_NAME_(line) cairn_held_##line
#define CAIRN_HOLD_NAME(line) CAIRN_HOLD_NAME_(line)
/* Holds the lock until the end of the scope. */
#define CAIRN_HOLD(lock)                                                                           \
    __attribute__((cleanup(cairn_lock_give_at))) CAIRN_UNUSED struct cairn_lock *CAIRN_HOLD_NAME(  \
        __LINE__) = (cairn_lock_take(lock), (lock))
