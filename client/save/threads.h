/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads: choose the number of copy threads from the rates of earlier copies.
 *
 * Why:     one core saturates one machine's memory, sixteen do not saturate another's; the useful
 *          number depends on the memory, on the node's other ranks and on other load, and only
 *          copying shows it.
 * Promise: 1   from the first guess on, two counts are compared in alternating legs of real shards:
 *              the count doubles while that helps, then steps down while nothing is lost. The
 *              smallest count whose rate is within 7 % of the best is kept.
 *          2   a count's rate is the mean of the better half of eight legs, because disturbances
 *              only slow a copy down; fewer legs suffice, but at least three each, if the rates are
 *              alike or far apart.
 *          3   no count exceeds the limit or gives a thread less than 32 MiB; copies with less than
 *              64 MiB per thread teach nothing.
 *          4   a settled search restarts after copies of 20 times its last duration and 16 shards;
 *              after 4 times, if three consecutive shards deviate by more than a quarter; and at
 *              once if a shard is twice as large as any before, because more threads may then help.
 *          5   the same copies and times give the same decisions.
 *          6   a session's copy_threads fixes the number; nothing is tried.
 *          7   a rank's limit is its share of the cores that the process may use; the first guess
 *              is half of that, at most 4, because the other half serves the senders.
 *          8   two numbers are learned: for shards of plain memory, and for shards of which more
 *              than 1/64 is gathered or converted. The latter compare whole shards, because their
 *              parts differ. If more than 1/64 comes from functions, devices or the caller, the
 *              first guess is used and nothing is learned; the same for copies during training
 *              (cairn_save_stage_begin), whose times differ from those of a stall.
 *          9   results belong to the process: another session, also a renewed one, reuses them
 *              while the node's cores and ranks are the same.
 * Limits:  64 threads.
 * Threads: struct cairn_client_threads: its caller's lock; cairn_client_copying: any thread, a
 *          plain mutex guards its numbers, re-initialised in a forked child.
 * Next:    client/save/copy.h copies; tests/client/test_threads.c simulates machines.
 *
 * A leg is 128 MiB per thread: about 15 ms, of which starting the threads takes 1 %. Short legs
 * keep a bad try cheap, and alternating legs see the same load. Ranks of a node save together,
 * start from the same guess and try the same counts at about the same time; so a comparison
 * measures the node with all ranks doing so, and no rank gains what others lose.
 *
 * Results are not stored beyond the process. A restarted trainer relearns them within its first
 * saves for a few legs; the next job on a machine may have other ranks, cores and neighbours, so a
 * stored number would have to be tried anyway.
 */
#pragma once

#include "client/save/copy.h"

#define CAIRN_CLIENT_THREADS_ROUNDS 8
#define CAIRN_CLIENT_THREADS_KNOWN 24

struct cairn_client_leg {
    uint32_t threads;
    uint64_t bytes;
};
struct cairn_client_rates { /* bytes per microsecond */
    double at[CAIRN_CLIENT_THREADS_ROUNDS];
    unsigned count;
};
struct cairn_client_threads {
    uint32_t limit;
    uint32_t kept;          /* the count settled on so far */
    uint32_t tried;         /* the count compared with it; 0: none */
    bool down;              /* comparing with fewer threads */
    uint64_t largest_bytes; /* largest shard so far; counts it is too small for are not tried */
    struct cairn_client_rates own, other;
    struct {
        uint32_t threads;
        double rate; /* relative to the count at the search's start */
    } known[CAIRN_CLIENT_THREADS_KNOWN];
    unsigned known_count;
    bool settled;
    struct cairn_client_rates calm;       /* first rates after settling */
    unsigned off_above, off_below;        /* consecutive copies far from them */
    uint64_t tries_us, copied_us, copies; /* tries_us: of the last search; the others: since then */
    uint64_t settled_bytes;               /* largest_bytes at its end */
};
/* first: the initial guess, at most limit. */
void cairn_client_threads_init(struct cairn_client_threads *ret, uint32_t first, uint32_t limit);
/* Chooses threads and bytes for the next leg of a shard with left_bytes left. whole: the shard's
 * parts differ, so only whole shards are compared. */
struct cairn_client_leg cairn_client_threads_next(struct cairn_client_threads *threads,
                                                  uint64_t left_bytes, bool whole);
void cairn_client_threads_learn(struct cairn_client_threads *threads,
                                const struct cairn_client_leg *leg, uint64_t us);

/* ---- copying one shard with the best number of threads ---- */

/* Statistics of a save's copy so far. */
struct cairn_client_copied {
    uint32_t threads; /* of the largest part copied at once */
    uint64_t part_bytes;
    uint64_t bytes, us; /* of all parts */
};
/* Bytes per second; 0: nothing was copied. */
uint64_t cairn_client_copied_rate(const struct cairn_client_copied *copied);
struct cairn_client_bounds {
    uint32_t first, limit;
};
struct cairn_client_bounds cairn_client_copying_bounds(uint32_t cores, uint32_t ranks);
/* As cairn_client_copy; sets copy->threads, from and until itself. */
enum cairn_code cairn_client_copying(const struct cairn_session *session,
                                     const struct cairn_client_copy *copy,
                                     struct cairn_client_copied *in_copied,
                                     struct cairn_error *err) CAIRN_MUST_USE;
