/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads: with how many threads the next bytes are copied, learned from the copies before.
 *
 * Why:     one core uses up the memory of one machine, and sixteen do not use up another's; how
 *          many help depends on the memory, on the node's other ranks and on what else runs, and
 *          is known only by copying.
 * Promise: 1   from the first guess on, two counts are compared in turns, leg by leg of real
 *              shards: twice as many for as long as that helps, then a step down for as long as
 *              nothing is lost. The smallest count is kept whose rate is near the best one's (7 %).
 *          2   a count's rate is the mean of the better half of eight legs, since what disturbs a
 *              copy makes it slower; fewer legs are enough, but never less than three of each,
 *              where they are alike or far apart.
 *          3   no count is above the limit, and none has less than 32 MiB for each thread; copies
 *              with less than 64 MiB for each thread teach nothing.
 *          4   once settled it tries again when 20 times the time of the last tries was copied, and
 *              16 shards; after 4 times that time where three shards in a row took a time that is
 *              off by more than a quarter; and at once where a shard is twice as large as any
 *              before, since more threads are worth a try then.
 *          5   the same copies and times make the same decisions.
 *          6   copy_threads of the session is the number of threads, and nothing is tried.
 *          7   a rank's limit is its share of the cores that the process may use; the first guess
 *              is half of that, since with the other half others send, and at most 4.
 *          8   two numbers are learned: of shards of plain memory, and of those of which more than
 *              one part in 64 is gathered or converted. Of the latter whole shards are compared,
 *              since one part of them is not like another. Where more than one part in 64 is put
 *              there by functions, devices or the caller, the first guess counts and nothing is
 *              learned. The same of a copy behind the trainer's back (cairn_save_stage_begin): what
 *              it takes is not what a copy takes for which training stands still.
 *          9   what was learned is the process's: another session, also a renewed one, goes on with
 *              it as long as cores and ranks of the node are the same.
 * Limits:  64 threads.
 * Threads: of struct cairn_client_threads the caller's lock; cairn_client_copying is any thread's,
 *          its numbers are guarded by a plain mutex, which a forked child has anew.
 * Next:    client/save/copy.h copies; tests/client/test_threads.c has machines of all kinds.
 *
 * A leg is 128 MiB a thread: some 15 ms, of which starting the threads is a percent. Short legs
 * keep a bad try cheap, and legs in turns see the same load. Ranks of a node save together, begin
 * with the same guess and try the same at about the same time; so what is compared is what the node
 * has if all of them do it, and no rank wins what the others lose.
 *
 * What was learned ends with the process. A restarted trainer learns it within its first saves, at
 * the cost of a few legs; and the job that comes next on a machine may have other ranks, cores and
 * neighbours, so a number that outlives the process would have to be tried anyway.
 */
#pragma once

#include "client/save/copy.h"

#define CAIRN_CLIENT_THREADS_ROUNDS 8
#define CAIRN_CLIENT_THREADS_KNOWN 24

struct cairn_client_leg {
    uint32_t threads;
    uint64_t bytes;
};
struct cairn_client_rates { /* bytes a microsecond */
    double at[CAIRN_CLIENT_THREADS_ROUNDS];
    unsigned count;
};
struct cairn_client_threads {
    uint32_t limit;
    uint32_t kept;          /* what is settled on so far */
    uint32_t tried;         /* compared with it; 0: nothing is */
    bool down;              /* the comparisons with fewer have begun */
    uint64_t largest_bytes; /* of the shards so far; more threads than these are good for are not
                               tried */
    struct cairn_client_rates own, other; /* of this comparison */
    struct {
        uint32_t threads;
        double rate; /* in multiples of the rate of the count with which the search began */
    } known[CAIRN_CLIENT_THREADS_KNOWN]; /* of this search */
    unsigned known_count;
    bool settled;
    struct cairn_client_rates calm;       /* first rates once settled */
    unsigned off_above, off_below;        /* copies in a row that are far from these */
    uint64_t tries_us, copied_us, copies; /* of the last search; since it */
    uint64_t settled_bytes;               /* largest_bytes when it ended */
};
/* first: the guess, at most limit. */
void cairn_client_threads_init(struct cairn_client_threads *ret, uint32_t first, uint32_t limit);
/* How the next bytes of a shard are to be copied, of which `left` are left. whole: they are not
 * alike, so that only whole shards are compared. */
struct cairn_client_leg cairn_client_threads_next(struct cairn_client_threads *threads,
                                                  uint64_t left_bytes, bool whole);
/* What it took. */
void cairn_client_threads_learn(struct cairn_client_threads *threads,
                                const struct cairn_client_leg *leg, uint64_t us);

/* ---- one shard, with as many threads as help on this machine ---- */

/* How a save was copied, so far. */
struct cairn_client_copied {
    uint32_t threads;    /* that copied the greatest part at once ... */
    uint64_t part_bytes; /* ... which is this */
    uint64_t bytes, us;  /* of all parts */
};
/* Bytes a second; 0: nothing was copied. */
uint64_t cairn_client_copied_rate(const struct cairn_client_copied *copied);
struct cairn_client_bounds {
    uint32_t first, limit;
};
struct cairn_client_bounds cairn_client_copying_bounds(uint32_t cores, uint32_t ranks);
/* As cairn_client_copy; copy->threads, from and until are this function's. */
enum cairn_code cairn_client_copying(const struct cairn_session *session,
                                     const struct cairn_client_copy *copy,
                                     struct cairn_client_copied *in_copied,
                                     struct cairn_error *err) CAIRN_MUST_USE;
