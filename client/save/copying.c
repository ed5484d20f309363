/* SPDX-License-Identifier: Apache-2.0 */
/* A plain mutex and not a ranked lock: it is the process's, and exists before any session. */
#include "client/save/copying.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "client/save/threads.h"

#define FIRST_MAX 4
#define PART_OTHER 64 /* one part in so many may come from elsewhere */
#define SHARE_BYTES_MIN (32 * CAIRN_MIB)

enum kind { PLAIN, WORKED, KINDS, UNLEARNED = KINDS };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    uint32_t cores, ranks; /* for which it was learned; 0: nothing was */
    struct cairn_client_threads kinds[KINDS];
} learned;

/* ---- what the process has learned ---- */

/* Whoever held the guard is not in the child, and may have left half of a change. */
static void after_fork_in_child(void) {
    pthread_mutex_init(&guard, NULL);
    learned.cores = 0;
}

static void start(void) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* With the guard held. */
static struct cairn_client_threads *of(enum kind kind, uint32_t cores, uint32_t ranks) {
    if (learned.cores != cores || learned.ranks != ranks) {
        struct cairn_client_bounds bounds = cairn_client_copying_bounds(cores, ranks);
        for (int i = 0; i < KINDS; i++)
            cairn_client_threads_init(&learned.kinds[i], bounds.first, bounds.limit);
        learned.cores = cores;
        learned.ranks = ranks;
    }
    return &learned.kinds[kind];
}

/* ---- one shard ---- */

struct copying {
    struct cairn_client_copy copy;
    const struct cairn_session *session;
    enum kind kind;
    uint32_t cores, ranks;
};

/* What the process may use, which a job's launcher often cuts to its share of the node already. */
static uint32_t cores_allowed(void) {
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return (uint32_t)CPU_COUNT(&set);
    long all = sysconf(_SC_NPROCESSORS_ONLN); /* reads a file */
    return all > 0 ? (uint32_t)all : 1;       /* more cores than a set has room for */
}

struct cairn_client_bounds cairn_client_copying_bounds(uint32_t cores, uint32_t ranks) {
    uint64_t share = cairn_max_u64(cores / cairn_max_u64(ranks, 1), 1);
    uint64_t limit = cairn_min_u64(share, CAIRN_CLIENT_COPY_THREADS_MAX);
    uint64_t half = cairn_max_u64(share / 2, 1);
    return (struct cairn_client_bounds){.first = (uint32_t)cairn_min_u64(half, FIRST_MAX),
                                        .limit = (uint32_t)limit};
}

static enum kind kind_of(const struct cairn_client_copy *copy) {
    struct cairn_client_sources sources = cairn_client_copy_sources(copy);
    uint64_t few = copy->bytes / PART_OTHER;
    if (copy->behind || sources.others > few) return UNLEARNED;
    return sources.worked + sources.others > few ? WORKED : PLAIN;
}

static struct cairn_client_leg next(const struct copying *copying, uint64_t left_bytes) {
    uint32_t fixed = copying->session->copy_threads;
    if (fixed) return (struct cairn_client_leg){fixed, left_bytes};
    if (copying->kind == UNLEARNED) {
        uint32_t first = cairn_client_copying_bounds(copying->cores, copying->ranks).first;
        uint64_t worth = cairn_max_u64(left_bytes / SHARE_BYTES_MIN, 1);
        return (struct cairn_client_leg){(uint32_t)cairn_min_u64(first, worth), left_bytes};
    }
    pthread_mutex_lock(&guard);
    struct cairn_client_leg ret = cairn_client_threads_next(
        of(copying->kind, copying->cores, copying->ranks), left_bytes, copying->kind == WORKED);
    pthread_mutex_unlock(&guard);
    return ret;
}

static void learn(const struct copying *copying, const struct cairn_client_leg *leg, uint64_t us) {
    if (copying->session->copy_threads || copying->kind == UNLEARNED) return;
    pthread_mutex_lock(&guard);
    cairn_client_threads_learn(of(copying->kind, copying->cores, copying->ranks), leg, us);
    pthread_mutex_unlock(&guard);
}

static void note(struct cairn_client_copied *copied, const struct cairn_client_leg *leg,
                 uint64_t us) {
    copied->bytes += leg->bytes;
    copied->us += us;
    if (leg->bytes <= copied->part_bytes) return;
    copied->part_bytes = leg->bytes;
    copied->threads = leg->threads;
}

uint64_t cairn_client_copied_rate(const struct cairn_client_copied *copied) {
    return (uint64_t)((double)copied->bytes * 1e6 / (double)cairn_max_u64(copied->us, 1));
}

enum cairn_code cairn_client_copying(const struct cairn_session *session,
                                     const struct cairn_client_copy *copy,
                                     struct cairn_client_copied *in_copied,
                                     struct cairn_error *err) {
    struct copying copying = {.copy = *copy,
                              .session = session,
                              .kind = kind_of(copy),
                              .cores = cores_allowed(),
                              .ranks = session->local_world_size};
    pthread_once(&once, start);
    for (uint64_t at = 0; at < copy->bytes;) {
        struct cairn_client_leg leg = next(&copying, copy->bytes - at);
        CAIRN_PROMISE(leg.threads >= 1, leg.threads = 1);
        CAIRN_PROMISE(leg.bytes && leg.bytes <= copy->bytes - at, leg.bytes = copy->bytes - at);
        copying.copy.threads = leg.threads;
        copying.copy.from = at;
        at += leg.bytes;
        copying.copy.until = at;
        uint64_t began_us = cairn_mono_us();
        CAIRN_TRY(cairn_client_copy(&copying.copy, err));
        uint64_t us = cairn_mono_us() - began_us;
        learn(&copying, &leg, us);
        note(in_copied, &leg, us);
    }
    return CAIRN_OK;
}
