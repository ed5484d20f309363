/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler is the main context: a fiber always switches to it and never to another fiber. */
#include "tests/sim/kernel.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/lock.h"
#include "common/trace.h"
#include "server/db/catalog.h"
#include "tests/sim/switch.h"

int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __real_close(int fd);
ssize_t __real_write(int fd, const void *from, size_t size);

#if defined(__has_feature) /* clang's */
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define FIBERS_MAX 1024
#define STACK_BYTES (SANITIZED ? 512 * CAIRN_KIB : 256 * CAIRN_KIB)
#define FDS_MAX 4096
#define POLLS_MAX 1024
#define TURN_US_MAX 20
#define POLL_EVERY 6
#define LOOKS_PER_TURN 1000

enum state { READY, WAITING, POLLING, FINISHED };

struct sim_fiber {
    struct sim_context context;
    void *stack, *fake_stack;
    enum state state;
    const void *channel;
    uint64_t deadline_us, stalled_until_us;
    bool woken;
    struct pollfd *polled;
    nfds_t polled_count;
    uint64_t held_ranks;
    bool looking; /* has a look at a catalog */
    struct sim_process *process;
    void *(*run)(void *);
    void *argument, *result;
    bool joined, dead, alone;
};

static struct {
    uint64_t random[2], now_us, steps, preempt, looks;
    uint64_t stall_chance, stall_us_max;
    bool trace, stopped;
    struct sim_process *processes;
    int pid_last;
    struct sim_fiber *fibers[FIBERS_MAX];
    size_t fiber_count;
    struct sim_fiber *running, *first;
    struct sim_context scheduler;
    void *stacks[FIBERS_MAX]; /* that nobody uses */
    size_t stack_count;
    void *scheduler_fake;
    const void *scheduler_stack;
    size_t scheduler_stack_bytes;
    int fd_owner[FDS_MAX];
} sim;

/* ---- random, time, trace ---- */

uint64_t sim_random(void) {
    uint64_t a = sim.random[0], b = sim.random[1]; /* xorshift128+ */
    sim.random[0] = b;
    a ^= a << 23;
    sim.random[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
    return sim.random[1] + b;
}

uint64_t sim_below(uint64_t bound) {
    return bound ? sim_random() % bound : 0;
}

uint64_t sim_between(uint64_t from, uint64_t to) {
    return from + sim_below(to - from + 1);
}

bool sim_chance(uint64_t per_mille) {
    return per_mille && sim_below(1000) < per_mille;
}

uint64_t sim_now_us(void) {
    return sim.now_us;
}

/* Who looks at the clock again and again lets others run. */
void sim_looked_at_clock(void) {
    if (sim.running && ++sim.looks % LOOKS_PER_TURN == 0) sim_yield();
}

uint64_t sim_steps(void) {
    return sim.steps;
}

bool sim_tracing(void) {
    return sim.trace;
}

void sim_note(const char *format, ...) {
    if (!sim.trace) return;
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stdout, "%11.6f %-10s %s\n", (double)sim.now_us / 1e6,
            sim.running ? sim.running->process->name : "-", text);
}

/* ---- switching ---- */

static void to_scheduler(bool for_ever) {
    struct sim_fiber *self = sim.running;
    (void)for_ever;
#if SANITIZED
    __sanitizer_start_switch_fiber(for_ever ? NULL : &self->fake_stack, sim.scheduler_stack,
                                   sim.scheduler_stack_bytes);
#endif
    const struct cairn_trace *trace = cairn_trace_get(); /* a thread's own, both */
    const struct srv_actor *actor = srv_actor_get();
    cairn_trace_set(NULL);
    srv_actor_set(NULL);
    sim_switch(&self->context, &sim.scheduler);
    cairn_trace_set(trace);
    srv_actor_set(actor);
#if SANITIZED
    __sanitizer_finish_switch_fiber(self->fake_stack, NULL, NULL);
#endif
}

static void fiber_main(void) {
#if SANITIZED
    __sanitizer_finish_switch_fiber(NULL, &sim.scheduler_stack, &sim.scheduler_stack_bytes);
#endif
    struct sim_fiber *self = sim.running;
    self->result = self->run(self->argument);
    self->state = FINISHED;
    sim_wake_all(self);
    to_scheduler(true);
    abort();
}

static void to_fiber(struct sim_fiber *fiber) {
    sim.running = fiber;
    sim.looks = 0;
#if SANITIZED
    __sanitizer_start_switch_fiber(&sim.scheduler_fake, fiber->stack, STACK_BYTES);
#endif
    sim_switch(&sim.scheduler, &fiber->context);
#if SANITIZED
    __sanitizer_finish_switch_fiber(sim.scheduler_fake, NULL, NULL);
#endif
    sim.running = NULL;
}

static void *stack_new(void) {
    if (sim.stack_count) return sim.stacks[--sim.stack_count];
    void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CAIRN_ASSERT(stack != MAP_FAILED);
    return stack;
}

struct sim_fiber *sim_spawn(struct sim_process *process, void *(*run)(void *), void *argument) {
    struct sim_fiber *fiber = calloc(1, sizeof *fiber);
    CAIRN_ASSERT(fiber && sim.fiber_count < FIBERS_MAX);
    fiber->stack = stack_new();
    fiber->run = run;
    fiber->argument = argument;
    fiber->process = process;
    sim_context_make(&fiber->context, fiber->stack, STACK_BYTES, fiber_main);
    sim.fibers[sim.fiber_count++] = fiber;
    if (!sim.first) sim.first = fiber;
    return fiber;
}

void sim_spawn_alone(struct sim_process *process, void *(*run)(void *), void *argument) {
    sim_spawn(process, run, argument)->alone = true;
}

static void fiber_free(struct sim_fiber *fiber) {
#if SANITIZED
    __asan_unpoison_memory_region(fiber->stack, STACK_BYTES);
#endif
    sim.stacks[sim.stack_count++] = fiber->stack;
    free(fiber);
}

/* ---- waiting ---- */

bool *sim_looking(void) {
    static bool outside; /* the world's own looks, between fibers */
    return sim.running ? &sim.running->looking : &outside;
}

struct sim_process *sim_self(void) {
    return sim.running ? sim.running->process : NULL;
}

void sim_yield(void) {
    if (!sim.running) return;
    sim.running->state = READY;
    to_scheduler(false);
}

bool sim_wait(const void *channel, uint64_t deadline_us) {
    struct sim_fiber *self = sim.running;
    CAIRN_ASSERT(self);
    self->state = WAITING;
    self->channel = channel;
    self->deadline_us = deadline_us;
    self->woken = false;
    to_scheduler(false);
    self->channel = NULL;
    return self->woken;
}

void sim_sleep_us(uint64_t us) {
    (void)sim_wait(NULL, sim.now_us + us);
}

static bool waits_for(const struct sim_fiber *fiber, const void *channel) {
    return fiber->state == WAITING && fiber->channel == channel && !fiber->dead;
}

void sim_kernel_stall(uint64_t per_mille, uint64_t us_max) {
    sim.stall_chance = per_mille;
    sim.stall_us_max = us_max;
}

/* It could run from now on; on a busy machine it waits for a core. */
static void get_ready(struct sim_fiber *fiber) {
    fiber->state = READY;
    if (fiber->process->kind != SIM_WORLD && sim_chance(sim.stall_chance))
        fiber->stalled_until_us = sim.now_us + sim_below(sim.stall_us_max);
}

static void wake(struct sim_fiber *fiber) {
    fiber->woken = true;
    get_ready(fiber);
}

void sim_wake_one(const void *channel) {
    size_t count = 0;
    for (size_t i = 0; i < sim.fiber_count; i++) count += waits_for(sim.fibers[i], channel);
    size_t chosen = count ? sim_below(count) : 0;
    for (size_t i = 0; count && i < sim.fiber_count; i++) {
        if (!waits_for(sim.fibers[i], channel) || chosen--) continue;
        wake(sim.fibers[i]);
        return;
    }
}

void sim_wake_all(const void *channel) {
    for (size_t i = 0; i < sim.fiber_count; i++)
        if (waits_for(sim.fibers[i], channel)) wake(sim.fibers[i]);
}

void *sim_join(struct sim_fiber *fiber) {
    while (fiber->state != FINISHED) (void)sim_wait(fiber, UINT64_MAX);
    fiber->joined = true;
    return fiber->result;
}

int sim_poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    int found = __real_poll(fds, count, 0);
    if (found || !timeout_ms || !sim.running) return found;
    struct sim_fiber *self = sim.running;
    self->deadline_us =
        timeout_ms < 0 ? UINT64_MAX : sim.now_us + (uint64_t)timeout_ms * UINT64_C(1000);
    self->polled = fds;
    self->polled_count = count;
    self->state = POLLING;
    to_scheduler(false);
    self->polled = NULL;
    return __real_poll(fds, count, 0);
}

/* ---- processes ---- */

struct sim_process *sim_process_new(enum sim_kind kind, int number, const char *name) {
    struct sim_process *process = calloc(1, sizeof *process);
    CAIRN_ASSERT(process);
    process->kind = kind;
    process->number = number;
    process->pid = ++sim.pid_last;
    process->alive = true;
    snprintf(process->name, sizeof process->name, "%s", name);
    process->next = sim.processes;
    sim.processes = process;
    return process;
}

struct sim_process *sim_process_of(int pid) {
    struct sim_process *process = sim.processes;
    while (process && process->pid != pid) process = process->next;
    return process;
}

int sim_fd_mine(int fd) {
    if (fd >= 0 && fd < FDS_MAX) sim.fd_owner[fd] = sim_self() ? sim_self()->pid : 0;
    return fd;
}

void sim_fd_closed(int fd) {
    if (fd >= 0 && fd < FDS_MAX) sim.fd_owner[fd] = 0;
}

static void close_all(const struct sim_process *process) {
    for (int fd = 0; fd < FDS_MAX; fd++) {
        if (sim.fd_owner[fd] != process->pid) continue;
        sim.fd_owner[fd] = 0;
        __real_close(fd);
    }
}

void sim_kill(struct sim_process *process) {
    if (!process->alive) return;
    sim_note("KILL %s", process->name);
    process->alive = false;
    for (size_t i = 0; i < sim.fiber_count; i++)
        if (sim.fibers[i]->process == process) sim.fibers[i]->dead = true;
    sim_calls_kill(process);
    close_all(process);
    for (size_t i = 0; i < process->ended_count; i++) {
        uint64_t one = 1;
        if (process->ended_fds[i] >= 0 && __real_write(process->ended_fds[i], &one, sizeof one) < 0)
            sim_note("nobody looks at the end of %s", process->name);
        if (process->ended_fds[i] >= 0) __real_close(process->ended_fds[i]);
    }
    process->ended_count = 0;
    sim_wake_all(process);
    if (sim.running && sim.running->dead) to_scheduler(true);
}

void sim_stop(struct sim_process *process, uint64_t us) {
    sim_note("STOP %s for %.3f s", process->name, (double)us / 1e6);
    process->stopped_until_us = sim.now_us + us;
}

void sim_continue_all(void) {
    for (struct sim_process *at = sim.processes; at; at = at->next)
        at->stopped_until_us = cairn_min_u64(at->stopped_until_us, sim.now_us);
}

/* ---- the scheduler ---- */

static bool may_run(const struct sim_fiber *fiber) {
    return !fiber->dead && fiber->process->stopped_until_us <= sim.now_us &&
           fiber->stalled_until_us <= sim.now_us;
}

static void reap(void) {
    size_t kept = 0;
    for (size_t i = 0; i < sim.fiber_count; i++) {
        struct sim_fiber *fiber = sim.fibers[i];
        bool over = fiber->dead || (fiber->state == FINISHED && (fiber->joined || fiber->alone));
        if (over && fiber != sim.first)
            fiber_free(fiber);
        else
            sim.fibers[kept++] = fiber;
    }
    sim.fiber_count = kept;
}

/* Fibers whose time is over, or whose descriptors are ready, can run again. */
static void wake_due(void) {
    for (size_t i = 0; i < sim.fiber_count; i++) {
        struct sim_fiber *fiber = sim.fibers[i];
        bool sleeps = fiber->state == WAITING || fiber->state == POLLING;
        if (sleeps && fiber->deadline_us <= sim.now_us && may_run(fiber)) get_ready(fiber);
    }
}

static void wake_polled(void) {
    static struct pollfd fds[POLLS_MAX];
    static struct sim_fiber *whose[POLLS_MAX];
    nfds_t count = 0;
    for (size_t i = 0; i < sim.fiber_count; i++) {
        struct sim_fiber *fiber = sim.fibers[i];
        if (fiber->state != POLLING || !may_run(fiber)) continue;
        for (nfds_t k = 0; k < fiber->polled_count && count < POLLS_MAX; k++, count++) {
            fds[count] = fiber->polled[k];
            whose[count] = fiber;
        }
    }
    if (!count || __real_poll(fds, count, 0) <= 0) return;
    for (nfds_t i = 0; i < count; i++)
        if (fds[i].revents && whose[i]->state == POLLING) get_ready(whose[i]);
}

static struct sim_fiber *choose(void) {
    struct sim_fiber *ready[FIBERS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < sim.fiber_count; i++)
        if (sim.fibers[i]->state == READY && may_run(sim.fibers[i])) ready[count++] = sim.fibers[i];
    return count ? ready[sim_below(count)] : NULL;
}

/* To the next moment at which anything can happen; false: nothing ever will. */
static bool advance(uint64_t limit_us) {
    uint64_t next_us = UINT64_MAX;
    for (size_t i = 0; i < sim.fiber_count; i++) {
        const struct sim_fiber *fiber = sim.fibers[i];
        if (fiber->dead || fiber->state == FINISHED) continue;
        uint64_t at_us = fiber->state == READY ? 0 : fiber->deadline_us;
        at_us = cairn_max_u64(at_us, fiber->process->stopped_until_us);
        at_us = cairn_max_u64(at_us, fiber->stalled_until_us);
        if (fiber->state == POLLING && fiber->process->stopped_until_us > sim.now_us)
            at_us = fiber->process->stopped_until_us;
        next_us = cairn_min_u64(next_us, at_us);
    }
    if (next_us == UINT64_MAX || next_us > limit_us) return false;
    sim.now_us = cairn_max_u64(sim.now_us, next_us);
    return true;
}

bool sim_kernel_run(uint64_t limit_us) {
    while (!sim.stopped && sim.first->state != FINISHED) {
        sim.steps++;
        wake_due();
        if (sim.steps % POLL_EVERY == 0) wake_polled();
        struct sim_fiber *next = choose();
        if (!next) {
            wake_polled();
            next = choose();
        }
        if (!next) {
            reap();
            if (!advance(limit_us)) return false;
            continue;
        }
        sim.now_us += 1 + sim_below(TURN_US_MAX);
        if (sim.now_us > limit_us) return false;
        to_fiber(next);
        if (next->dead || sim.steps % 256 == 0) reap();
    }
    return true;
}

void sim_kernel_stop(void) {
    sim.stopped = true;
    sim_yield();
}

void sim_kernel_start(uint64_t seed, bool trace) {
    sim.random[0] = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    sim.random[1] = (seed ^ UINT64_C(0xd1b54a32d192ed03)) + 1;
    for (int i = 0; i < 20; i++) (void)sim_random();
    sim.trace = trace;
    sim.now_us = 1000 * UINT64_C(1000000);
    sim.preempt = sim_between(5, 200);
}

/* ---- common/lock.h, for fibers ---- */

struct sim_lock {
    struct sim_fiber *owner;
    uint64_t waiters; /* those that were killed are counted for ever: a needless look, no more */
};
_Static_assert(sizeof(struct sim_lock) <= sizeof(pthread_mutex_t), "it lies in the mutex's place");

static struct sim_lock *inside(struct cairn_lock *lock) {
    return (struct sim_lock *)(void *)&lock->mutex;
}

void cairn_lock_init(struct cairn_lock *lock, enum cairn_lock_rank rank) {
    *lock = (struct cairn_lock){.rank = rank};
}

void cairn_lock_release(struct cairn_lock *lock) {
    CAIRN_ASSERT(!inside(lock)->owner);
}

static void take(struct cairn_lock *lock) {
    while (inside(lock)->owner) {
        inside(lock)->waiters++;
        (void)sim_wait(lock, UINT64_MAX);
        inside(lock)->waiters--;
    }
    inside(lock)->owner = sim.running;
}

/* A trace logs more and must not change what happens. */
static bool may_preempt(const struct cairn_lock *lock) {
    return lock->rank != CAIRN_LOCK_log_line && sim_chance(sim.preempt);
}

void cairn_lock_take(struct cairn_lock *lock) {
    if (!sim.running) return;
    CAIRN_ASSERT(sim.running->held_ranks >> lock->rank == 0);
    sim.running->held_ranks |= UINT64_C(1) << lock->rank;
    if (may_preempt(lock)) sim_yield();
    take(lock);
}

void cairn_lock_give(struct cairn_lock *lock) {
    if (!sim.running) return;
    CAIRN_ASSERT(inside(lock)->owner == sim.running);
    inside(lock)->owner = NULL;
    sim.running->held_ranks &= ~(UINT64_C(1) << lock->rank);
    if (inside(lock)->waiters) sim_wake_all(lock);
    if (may_preempt(lock)) sim_yield();
}

void cairn_condition_init(struct cairn_condition *condition) {
    *condition = (struct cairn_condition){0};
}

void cairn_condition_release(struct cairn_condition *condition) {
    (void)condition;
}

void cairn_condition_signal(struct cairn_condition *condition) {
    sim_wake_one(condition);
}

void cairn_condition_broadcast(struct cairn_condition *condition) {
    sim_wake_all(condition);
}

bool cairn_condition_wait(struct cairn_condition *condition, struct cairn_lock *lock,
                          uint64_t deadline_ms) {
    CAIRN_ASSERT(sim.running->held_ranks >> lock->rank == 1);
    uint64_t deadline_us = deadline_ms > UINT64_MAX / 1000 ? UINT64_MAX : deadline_ms * 1000;
    inside(lock)->owner = NULL;
    if (inside(lock)->waiters) sim_wake_all(lock);
    bool woken = sim_wait(condition, deadline_us);
    take(lock);
    return woken;
}
