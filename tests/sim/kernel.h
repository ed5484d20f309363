/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel: processes, threads, locks and time that a seed decides.
 *
 * Why:     a fault that needs three threads and a kill in the right order is seen once in a
 *          thousand real runs and can never be repeated; here the seed is the order.
 * Promise: 1   one thread of the machine runs everything: every "thread" of the product is a fiber,
 *              and only one runs, until it locks, waits, polls or ends.
 *          2   the next fiber, every delay and every random byte come from the seed; no real clock
 *              is read, so a seed gives the same run again.
 *          3   a killed process never runs again; its descriptors are closed, its heap is left as
 *              it is, so that bytes "on the wire" can be looked at after it.
 *          4   time stands still while fibers can run (but for a few microseconds each turn) and
 *              jumps to the next deadline when none can.
 * Limits:  FIBERS_MAX at once, descriptors below 4,096.
 * Threads: one.
 * Next:    calls.c (what the product calls instead of libc), world.h.
 */
#pragma once

#include <poll.h>
#include <stdio.h>

#include "common/base.h"

enum sim_kind { SIM_WORLD, SIM_SERVER, SIM_UPLOADER, SIM_TRAINER };

struct sim_process {
    int pid;
    enum sim_kind kind;
    int number; /* node or rank */
    char name[24];
    bool alive;
    uint64_t stopped_until_us; /* SIGSTOP */
    int64_t wall_offset_ms;    /* a clock that jumped */
    char nonce[40];            /* libcairn's, of this process */
    int ended_fds[16];         /* descriptors that say that it has ended */
    size_t ended_count;
    bool disk_full;       /* writes fail */
    uint64_t kill_chance; /* per mille at each crash point */
    struct sim_process *next;
};

void sim_kernel_start(uint64_t seed, bool trace);
/* From now on a fiber that becomes ready waits, with that chance, for up to us_max. */
void sim_kernel_stall(uint64_t per_mille, uint64_t us_max);
/* Runs until the world's first fiber ends or `limit_us` is over; false: the limit. */
bool sim_kernel_run(uint64_t limit_us);
void sim_kernel_stop(void); /* from a fiber: end the run */

uint64_t sim_now_us(void);
uint64_t sim_steps(void);
uint64_t sim_random(void);
uint64_t sim_below(uint64_t bound);               /* 0 when bound is 0 */
uint64_t sim_between(uint64_t from, uint64_t to); /* both may come */
bool sim_chance(uint64_t per_mille);

struct sim_process *sim_process_new(enum sim_kind kind, int number, const char *name);
struct sim_process *sim_process_of(int pid);
struct sim_process *sim_self(void);
/* Of the running fiber: what a thread's own variable is to a thread. */
bool *sim_looking(void);
/* kill -9. When it is the caller's own process this does not return. */
void sim_kill(struct sim_process *process);
void sim_stop(struct sim_process *process, uint64_t us); /* SIGSTOP for so long */
void sim_continue_all(void);

struct sim_fiber;
struct sim_fiber *sim_spawn(struct sim_process *process, void *(*run)(void *), void *argument);
void *sim_join(struct sim_fiber *fiber);
/* Nobody joins it: it is gone when it ends. */
void sim_spawn_alone(struct sim_process *process, void *(*run)(void *), void *argument);
void sim_yield(void);
void sim_looked_at_clock(void);
void sim_sleep_us(uint64_t us);
/* Until somebody wakes the channel (true) or the deadline (false); UINT64_MAX: no deadline. */
bool sim_wait(const void *channel, uint64_t deadline_us);
void sim_wake_one(const void *channel);
void sim_wake_all(const void *channel);
int sim_poll(struct pollfd *fds, nfds_t count, int timeout_ms);

/* Descriptors belong to the process that made them. */
int sim_fd_mine(int fd);
void sim_fd_closed(int fd);

/* A line of the trace; printed with --trace, else dropped. */
void sim_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool sim_tracing(void);

/* calls.c */
void sim_calls_kill(struct sim_process *process); /* SQLite's connections of a killed server */
struct sim_calls {
    uint64_t fsync_us_max, copy_us_max;
    bool crash_points;                  /* processes may be killed at named points */
    bool (*dies_at)(const char *point); /* NULL, or who is told of each and may say so, too */
};
extern struct sim_calls sim_calls;
