/* SPDX-License-Identifier: Apache-2.0 */
/* A search is a series of comparisons; each ends in learn(), which starts the next. */
#include "client/save/threads.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#define ROUNDS CAIRN_CLIENT_THREADS_ROUNDS
#define SHARE_BYTES_MIN (32 * CAIRN_MIB) /* per thread, to be worth its start */
#define LEARN_BYTES (64 * CAIRN_MIB)     /* per thread, for the rate to be the memory's */
#define LEG_BYTES (128 * CAIRN_MIB)
#define NEAR 0.93   /* a rate this near the best counts as equal, with fewer threads */
#define RISING 1.03 /* growth above which the count is doubled again */
#define ROUNDS_MIN 3
#define ROUNDS_CLEAR 4
#define TIGHT 1.05 /* legs this close were not disturbed */
#define OFF 1.25
#define OFF_IN_ROW 3
#define COPIES_BETWEEN 16
#define TRIES_SHARE 20 /* at most 1/20 of the time goes to tries */
#define TRIES_SHARE_OFF 4
#define FIRST_MAX 4
#define PART_OTHER 64 /* at most 1/64 may come from other sources */

/* ---- rates ---- */

static void note(struct cairn_client_rates *rates, double rate) {
    unsigned at = rates->count;
    CAIRN_PROMISE(at < ROUNDS, return );
    for (; at > 0 && rates->at[at - 1] < rate; at--) rates->at[at] = rates->at[at - 1];
    rates->at[at] = rate; /* best first */
    rates->count++;
}

static double best(const struct cairn_client_rates *rates) {
    return rates->at[0];
}

static double worst(const struct cairn_client_rates *rates) {
    return rates->at[rates->count - 1];
}

static double typical(const struct cairn_client_rates *rates) {
    unsigned half = (rates->count + 1) / 2;
    double sum = 0;
    for (unsigned i = 0; i < half; i++) sum += rates->at[i];
    return sum / half;
}

static bool is_tight(const struct cairn_client_rates *rates) {
    return best(rates) <= worst(rates) * TIGHT;
}

/* Enough equal numbers of legs for a decision? */
static bool is_plain(const struct cairn_client_rates *own, const struct cairn_client_rates *other) {
    double apart = own->count >= ROUNDS_CLEAR ? 1.1 : OFF;
    if (own->count < ROUNDS_MIN) return false;
    if (own->count == ROUNDS || (is_tight(own) && is_tight(other))) return true;
    return worst(other) > apart * best(own) || worst(own) > apart * best(other);
}

/* ---- the search ---- */

static double rate_of(const struct cairn_client_threads *threads, uint32_t count) {
    for (unsigned i = 0; i < threads->known_count; i++)
        if (threads->known[i].threads == count) return threads->known[i].rate;
    return 0;
}

static void know(struct cairn_client_threads *threads, uint32_t count, double rate) {
    CAIRN_PROMISE(threads->known_count < CAIRN_CLIENT_THREADS_KNOWN, return );
    threads->known[threads->known_count].threads = count;
    threads->known[threads->known_count++].rate = rate;
}

/* The smallest count with a rate near the best. */
static uint32_t pick(const struct cairn_client_threads *threads) {
    double most = 0;
    uint32_t ret = UINT32_MAX;
    for (unsigned i = 0; i < threads->known_count; i++)
        if (threads->known[i].rate > most) most = threads->known[i].rate;
    for (unsigned i = 0; i < threads->known_count; i++)
        if (threads->known[i].rate >= NEAR * most && threads->known[i].threads < ret)
            ret = threads->known[i].threads;
    return ret;
}

/* The series 1, 2, 3, 4, 6, 8, 12, 16 ...: the last below count; 0: none. */
static uint32_t fewer(uint32_t count) {
    uint32_t ret = 0;
    for (uint32_t two = 1; two < count; two *= 2) {
        ret = two;
        if (two > 1 && two / 2 * 3 < count) ret = two / 2 * 3;
    }
    return ret;
}

static bool is_room(const struct cairn_client_threads *threads, uint32_t count) {
    return threads->largest_bytes / LEARN_BYTES >= count;
}

static void compare(struct cairn_client_threads *threads, uint32_t tried) {
    CAIRN_PROMISE(tried >= 1, return );
    CAIRN_PROMISE(tried <= threads->limit, return );
    threads->tried = tried;
    threads->own = threads->other = (struct cairn_client_rates){0};
}

static void settle(struct cairn_client_threads *threads) {
    threads->tried = 0;
    threads->settled = true;
    threads->calm = (struct cairn_client_rates){0};
    threads->off_above = threads->off_below = 0;
    threads->copied_us = threads->copies = 0;
    threads->settled_bytes = threads->largest_bytes;
}

static void try_fewer(struct cairn_client_threads *threads) {
    threads->down = true;
    threads->kept = pick(threads);
    uint32_t count = fewer(threads->kept);
    if (count && rate_of(threads, count) <= 0)
        compare(threads, count);
    else
        settle(threads); /* a known count would have been picked */
}

static void try_more(struct cairn_client_threads *threads, uint32_t than) {
    uint32_t count = than > threads->limit / 2 ? threads->limit : 2 * than;
    if (count > than && is_room(threads, count))
        compare(threads, count);
    else
        try_fewer(threads);
}

static void search(struct cairn_client_threads *threads) {
    threads->settled = threads->down = false;
    threads->tries_us = 0;
    threads->known_count = 0;
    know(threads, threads->kept, 1);
    try_more(threads, threads->kept);
}

static void decide(struct cairn_client_threads *threads) {
    uint32_t tried = threads->tried;
    double own = rate_of(threads, threads->kept), before = 0;
    for (unsigned i = 0; i < threads->known_count; i++)
        if (threads->known[i].rate > before) before = threads->known[i].rate;
    double rate = own * typical(&threads->other) / typical(&threads->own);
    know(threads, tried, rate);
    if (!threads->down && rate * NEAR > own) threads->kept = tried; /* the new reference */
    if (threads->down && pick(threads) != tried)
        settle(threads);
    else if (threads->down || rate < RISING * before)
        try_fewer(threads);
    else
        try_more(threads, tried);
}

/* ---- once settled ---- */

static void watch(struct cairn_client_threads *threads, double rate) {
    if (threads->calm.count < ROUNDS_CLEAR) {
        note(&threads->calm, rate);
        return;
    }
    double usual = typical(&threads->calm);
    threads->off_above = rate > usual * OFF ? threads->off_above + 1 : 0;
    threads->off_below = rate < usual / OFF ? threads->off_below + 1 : 0;
}

static bool is_due(const struct cairn_client_threads *threads) {
    bool off = threads->off_above >= OFF_IN_ROW || threads->off_below >= OFF_IN_ROW;
    if (threads->largest_bytes >= 2 * threads->settled_bytes) return true; /* more may help now */
    if (off && threads->copied_us >= TRIES_SHARE_OFF * threads->tries_us) return true;
    return threads->copies >= COPIES_BETWEEN &&
           threads->copied_us >= TRIES_SHARE * threads->tries_us;
}

/* ---- the calls ---- */

void cairn_client_threads_init(struct cairn_client_threads *ret, uint32_t first, uint32_t limit) {
    CAIRN_PROMISE(first >= 1, first = 1);
    CAIRN_PROMISE(first <= limit, limit = first);
    *ret = (struct cairn_client_threads){.kept = first, .limit = limit, .settled = true};
}

struct cairn_client_leg cairn_client_threads_next(struct cairn_client_threads *threads,
                                                  uint64_t left_bytes, bool whole) {
    uint64_t worth = cairn_max_u64(left_bytes / SHARE_BYTES_MIN, 1);
    uint32_t count = threads->kept;
    threads->largest_bytes = cairn_max_u64(threads->largest_bytes, left_bytes);
    if (threads->settled && threads->limit > 1 && is_room(threads, count) && is_due(threads))
        search(threads);
    if (threads->tried) {
        unsigned own = threads->own.count, other = threads->other.count;
        /* alternates the order, because a save's first leg may differ */
        bool tries = own > other || (own == other && own % 2);
        count = tries ? threads->tried : threads->kept;
    }
    struct cairn_client_leg leg = {(uint32_t)cairn_min_u64(count, worth), left_bytes};
    bool parts = threads->tried && !whole && left_bytes > count * LEG_BYTES + LEARN_BYTES;
    if (parts) leg.bytes = count * LEG_BYTES;
    return leg;
}

void cairn_client_threads_learn(struct cairn_client_threads *threads,
                                const struct cairn_client_leg *leg, uint64_t us) {
    double rate = (double)leg->bytes / (double)cairn_max_u64(us, 1);
    if (leg->bytes / LEARN_BYTES < leg->threads) return;
    if (threads->settled) {
        if (leg->threads != threads->kept) return;
        threads->copied_us += us;
        threads->copies++;
        watch(threads, rate);
        return;
    }
    if (leg->threads == threads->tried) threads->tries_us += us;
    if (leg->threads == threads->tried && threads->other.count < ROUNDS)
        note(&threads->other, rate);
    if (leg->threads == threads->kept && threads->own.count < ROUNDS) note(&threads->own, rate);
    if (threads->own.count == threads->other.count && is_plain(&threads->own, &threads->other))
        decide(threads);
}

/* ---- results of the process, under a plain mutex instead of a ranked lock ---- */

enum kind { PLAIN, WORKED, KINDS, UNLEARNED = KINDS };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    uint32_t cores, ranks; /* valid for these; 0: nothing learned */
    struct cairn_client_threads kinds[KINDS];
} learned;

/* The guard's holder is not in the child, and may have left half a change. */
static void after_fork_in_child(void) {
    pthread_mutex_init(&guard, NULL);
    learned.cores = 0;
}

static void start(void) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* The guard is held. */
static struct cairn_client_threads *learned_for(enum kind kind, uint32_t cores, uint32_t ranks) {
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

/* Cores of the process, which a job's launcher often cuts to its share of the node. */
static uint32_t cores_allowed(void) {
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return (uint32_t)CPU_COUNT(&set);
    long all = sysconf(_SC_NPROCESSORS_ONLN); /* reads a file */
    return all > 0 ? (uint32_t)all : 1;       /* more cores than a cpu_set_t holds */
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

static struct cairn_client_leg next_leg(const struct copying *copying, uint64_t left_bytes) {
    uint32_t fixed = copying->session->copy_threads;
    if (fixed) return (struct cairn_client_leg){fixed, left_bytes};
    if (copying->kind == UNLEARNED) {
        uint32_t first = cairn_client_copying_bounds(copying->cores, copying->ranks).first;
        uint64_t worth = cairn_max_u64(left_bytes / SHARE_BYTES_MIN, 1);
        return (struct cairn_client_leg){(uint32_t)cairn_min_u64(first, worth), left_bytes};
    }
    pthread_mutex_lock(&guard);
    struct cairn_client_leg ret =
        cairn_client_threads_next(learned_for(copying->kind, copying->cores, copying->ranks),
                                  left_bytes, copying->kind == WORKED);
    pthread_mutex_unlock(&guard);
    return ret;
}

static void learn_leg(const struct copying *copying, const struct cairn_client_leg *leg,
                      uint64_t us) {
    if (copying->session->copy_threads || copying->kind == UNLEARNED) return;
    pthread_mutex_lock(&guard);
    cairn_client_threads_learn(learned_for(copying->kind, copying->cores, copying->ranks), leg, us);
    pthread_mutex_unlock(&guard);
}

static void note_leg(struct cairn_client_copied *copied, const struct cairn_client_leg *leg,
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
        struct cairn_client_leg leg = next_leg(&copying, copy->bytes - at);
        CAIRN_PROMISE(leg.threads >= 1, leg.threads = 1);
        CAIRN_PROMISE(leg.bytes && leg.bytes <= copy->bytes - at, leg.bytes = copy->bytes - at);
        copying.copy.threads = leg.threads;
        copying.copy.from = at;
        at += leg.bytes;
        copying.copy.until = at;
        uint64_t began_us = cairn_mono_us();
        CAIRN_TRY(cairn_client_copy(&copying.copy, err));
        uint64_t us = cairn_mono_us() - began_us;
        learn_leg(&copying, &leg, us);
        note_leg(in_copied, &leg, us);
    }
    return CAIRN_OK;
}
