/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: a daemon's threads, waits, memory budget, parent and service manager.
 *
 * Why:     background threads share one start, wake and stop, since each hand-written copy had a
 *          fault. A timer hides a missing wake: the work is done, up to a timer's length late,
 *          and no test fails; so late waits are counted. A save that waits for memory in its middle
 *          can wait for ever, and a node without a limit is killed: memory is reserved once, before
 *          work starts, or the work is refused.
 * Promise: 1   a wake that comes while a thread works is not lost: its next wait returns at once.
 *          2   after stop has returned, run() has; stopping a zeroed or stopped one does nothing.
 *          3   wake and wait take no lock but their own, so they may be called under any other.
 *          4   a late wait counts once, if its timer ended it, work was found then, and the bell
 *              did not ring from the look before that wait until CAIRN_LATE_MS after its end. So a
 *              ring that is under way while the timer ends does not count.
 *          5   after cairn_parent_follow the process gets SIGTERM when its parent ends (`cairn up`
 *              may be killed with SIGKILL); if it has ended already, CAIRN_UNAVAILABLE.
 *          6   messages to the service manager are those of systemd's sd_notify; they never wait,
 *              and without NOTIFY_SOCKET nothing is sent.
 *          7   reserved memory never exceeds the budget's total.
 *          8   a refusal names the bytes requested, in use and in total.
 * Limits:  names of threads of at most 15 bytes; budgets of 2^62 bytes. One candidate of a late
 *          wait at a time for each waiting thread; another ring within that time hides it, so a
 *          counted wait is a fault, but a zero count is no proof.
 * Threads: wake and stop from any other thread, wait from run() alone. Any thread may ring a late
 *          bell; a struct cairn_late belongs to its waiting thread. A budget is locked by
 *          memory_budget. cairn_parent_follow: the main thread, before others start.
 *          cairn_manager_alive: one owner.
 * Next:    server/health.c, uploader/up.h, packaging/cairn-server.service.
 */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "common/base.h"
#include "common/error.h"
#include "common/lock.h"

struct cairn_thread {
    const char *name;
    void (*run)(struct cairn_thread *thread, void *owner);
    void *owner;
    bool started;
    pthread_t id;
    struct cairn_lock lock;
    struct cairn_condition bell;
    struct {
        bool woken, stopping;
    } locked;
};
/* The caller has set name, run and owner. */
enum cairn_code cairn_thread_start(struct cairn_thread *thread,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Waits for a wake, until_ms (mono clock; UINT64_MAX: no end) or a stop; false: end run(). */
bool cairn_thread_wait(struct cairn_thread *thread, uint64_t until_ms);
void cairn_thread_wake(struct cairn_thread *thread);
void cairn_thread_stop(struct cairn_thread *thread);

/* ---- waits that end late ---- */

#define CAIRN_LATE_MS 1000

struct cairn_late_bell {
    atomic_uint_fast64_t rings;
};
struct cairn_late {
    uint64_t heard;    /* rings at the look before the wait */
    uint64_t seen;     /* rings at this look */
    uint64_t since_ms; /* start of a candidate; 0: none */
    bool timed_out;    /* set by the caller: a timer ended the wait before this look */
};

static inline void cairn_late_ring(struct cairn_late_bell *bell) {
    atomic_fetch_add(&bell->rings, 1);
}

/* Call before each look for work. True: the last wait was late and counts. */
static inline bool cairn_late_before(struct cairn_late *late, const struct cairn_late_bell *bell,
                                     uint64_t now_ms) {
    late->seen = atomic_load(&bell->rings);
    if (!late->since_ms) return false;
    bool counts = late->seen == late->heard && now_ms >= late->since_ms + CAIRN_LATE_MS;
    if (counts || late->seen != late->heard) late->since_ms = 0;
    return counts;
}

/* Call after the look; worked: it found work. */
static inline void cairn_late_after(struct cairn_late *late, const struct cairn_late_bell *bell,
                                    bool worked, uint64_t now_ms) {
    bool rang = atomic_load(&bell->rings) != late->heard;
    if (worked && late->timed_out && !rang && !late->since_ms) late->since_ms = now_ms;
    late->timed_out = false;
    if (!late->since_ms) late->heard = late->seen;
}

void cairn_late_tell(const char *wait);

/* ---- the service manager ---- */

/* Sends "READY=1" or "STOPPING=1". */
void cairn_manager_tell(const char *state);
/* Call at least about once a second from a running loop: feeds the watchdog, if there is one. */
void cairn_manager_alive(void);

/* ---- the parent ---- */

/* parent_pid 0: does nothing. */
enum cairn_code cairn_parent_follow(uint64_t parent_pid, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- other processes ---- */

/* A pidfd of that process; -1 and errno. A raw system call: glibc has pidfd_open from 2.36 on, and
 * the wheel of the programs runs on older ones. */
int cairn_process_fd(pid_t pid);

/* ---- memory ---- */

struct cairn_budget {
    struct cairn_lock lock;
    uint64_t total_bytes;
    struct {
        uint64_t reserved_bytes;
        uint64_t highest_bytes;
    } locked;
};
void cairn_budget_init(struct cairn_budget *budget, uint64_t total_bytes);
void cairn_budget_release(struct cairn_budget *budget);
/* what: the purpose, for the refusal ("slabs of llm/7b rank 3"), which is CAIRN_NO_MEMORY. */
enum cairn_code cairn_budget_take(struct cairn_budget *budget, uint64_t bytes, const char *what,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_budget_give(struct cairn_budget *budget, uint64_t bytes);
uint64_t cairn_budget_free_bytes(struct cairn_budget *budget);
/* Memory this process may use: the RAM, or the smallest limit of its control group and the groups
 * above it (v1 and v2) that its container shows. root: "", except in tests. */
uint64_t cairn_memory_limit(const char *root);
