/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ended: ranks that are connected no longer, until the server knows that their process has ended.
 *
 * Why:     nobody can take a rank's place inside its attempt (Q2), so a version that it has not
 *          sealed can never become whole; the others would wait for it until the version is a day
 *          old (V41). Only this node sees the process and knows what its journal still holds.
 * Promise: 1    the end of a process that had an attempt here is reported within a second (Q54),
 *               and as settled once nothing of that rank is under way (Q56), again and again until
 *               the server has taken it; it may be away meanwhile, this uploader too.
 *          2    the end of a connection says nothing, nor does a `bye`: the process may come back.
 *               The kernel is asked about the process itself.
 *          3    what was taken is reported again to a catalog of another generation.
 *          4    for a moment after a connection ended, and after a restart for as long as offers
 *               are awaited, its rank still holds the attempt (Q7); after a `bye` it does not.
 * Limits:  256 ranks; beyond that the oldest is forgotten. A process that this uploader cannot
 *          see (uploader/saves/process.h) is not noticed; nor is one that had not opened its
 *          attempt, whose place is still free. What was taken is forgotten with this process.
 * Threads: _locked: uploader_state is held; tick: the main thread; taken, again: any.
 * Next:    uploader/trainers/session.h, uploader/server/heartbeat.h, server/nodes/node_calls.c.
 */
#pragma once

#include "common/json.h"
#include "uploader/saves/attempt.h"
#include "uploader/saves/process.h"

/* A rank of an attempt, its process, and its session's entry in the journal. */
struct cairn_up_rank {
    struct cairn_up_attempt *attempt; /* one use of it */
    uint32_t rank, world_size;
    const char *proc, *name; /* name: of cairn_up_process_name */
    uint64_t entry;          /* 0: none */
    int process;             /* of cairn_up_process_watch */
    bool ended;              /* as is known already */
};

/* Its connection ended, after a `bye` or without. Takes over attempt, entry and process. */
void cairn_up_ended_add_locked(struct cairn_up *up, const struct cairn_up_rank *take, bool bye);
/* A session of the uploader before this one, whose entry is in the journal. */
void cairn_up_ended_recover_locked(struct cairn_up *up, const struct cairn_up_rank *take, bool bye);
/* The rank is connected again. */
void cairn_up_ended_back_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt,
                                uint32_t rank);
/* Does anybody but ranks that have left hold this attempt? */
bool cairn_up_ended_holds_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt);
/* Ranks of that attempt whose process has ended (Q54), for the server; a new array. */
json_t *cairn_up_ended_ranks_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt);
/* What a heartbeat says of processes that have ended; a new array, or NULL. */
json_t *cairn_up_ended_report_locked(struct cairn_up *up);
/* The server took those of that report; indexes: array of numbers, or NULL. */
void cairn_up_ended_taken(struct cairn_up *up, const json_t *report, const json_t *indexes);
/* The server has another catalog. */
void cairn_up_ended_again(struct cairn_up *up);
/* Looks at the processes; true: a heartbeat is due at once, to report an end. Cheap
 * when there are none. */
bool cairn_up_ended_tick(struct cairn_up *up) CAIRN_MUST_USE;
void cairn_up_ended_free(struct cairn_up *up);
