/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copying: one shard, with as many threads as help on this machine.
 *
 * Why:     the setting says how many where there is one; else they are learned from what copies
 *          took, which needs a clock, the cores that the process may use, and a memory of it.
 * Promise: 1   copy_threads of the session is the number of threads, and nothing is tried.
 *          2   a rank's limit is its share of the cores that the process may use; the first guess
 *              is half of that, since with the other half others send, and at most 4.
 *          3   two numbers are learned: of shards of plain memory, and of those of which more than
 *              one part in 64 is gathered or converted. Of the latter whole shards are compared,
 *              since one part of them is not like another. Where more than one part in 64 is put
 *              there by functions, devices or the caller, the first guess counts and nothing is
 *              learned. The same of a copy behind the trainer's back (cairn_save_stage_begin): what
 *              it takes is not what a copy takes for which training stands still.
 *          4   what was learned is the process's: another session, also a renewed one, goes on with
 *              it as long as cores and ranks of the node are the same.
 * Limits:  as client/save/threads.h.
 * Threads: any; the numbers are guarded by a plain mutex, which a forked child has anew.
 * Next:    client/save/threads.h decides, client/save/copy.h copies.
 *
 * It ends with the process. A restarted trainer learns it within its first saves, at the cost of a
 * few legs of 128 MiB a thread; and the job that comes next on a machine may have other ranks,
 * cores and neighbours, so a number that outlives the process would have to be tried anyway.
 */
#pragma once

#include "client/save/copy.h"

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
