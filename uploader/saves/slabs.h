/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slabs: the shared memory that trainers stage into, out of the node's one budget.
 *
 * Why:     no rank may ever wait for another rank's memory inside a save, so all of it is reserved
 *          when a session opens, two generations for everybody or one.
 * Promise: Q13  every rank of a node gets min(2, budget / all ranks' bytes) generations; none is
 *               CAIRN_NO_MEMORY with the numbers. Ranks are served in the order of their asking:
 *               what one waits for is kept from those after it, also at their limit. One waits,
 *               within its limit and without a thread, while older attempts of its run hold slabs,
 *               and while enough of the budget is held by slabs whose sessions are gone: they come
 *               back when their bytes are sent and their pages released.
 *          1    what is kept for restores (uploader/saves/kept.h) counts as free here: a request
 *               has it given back, and waits for the pages alone.
 *          Q20  a generation is free again when its save needs it no longer; the memory goes back
 *               when the trainer and the save are both through with it.
 * Limits:  2 generations a session.
 * Threads: locked by uploader_state; reserving and giving back (page work) is done by helper
 *          threads with the lock free.
 * Next:    uploader/saves/kept.h; common/memory.h; docs/socket.md, "slabs" and "offer".
 */
#pragma once

#include "common/memory.h"
#include "uploader/saves/attempt.h"
#include "uploader/state/slab.h"

#define CAIRN_UP_GENERATIONS_MAX 2

struct cairn_up_slab {
    struct cairn_up_slab *next;
    uint64_t conn;  /* the trainer's connection; 0: gone */
    uint32_t index; /* generation */
    struct cairn_up_attempt *attempt; /* NULL: kept, and no trainer has it */
    uint64_t bytes;                   /* of the budget, as long as it is in the list */
    struct cairn_slab memory;
    struct cairn_up_slab_state state;
    struct cairn_up_kept *kept; /* while state.kept: what is in it */
    uint32_t pins;              /* restores that copy out of it */
    uint64_t left_ms;           /* mono clock: when its trainer had gone */
    bool leaving; /* a helper gives its pages back, without the lock; its bytes count until then */
    bool evicted; /* and some request waits for them */
};
/* One session's request for memory. */
struct cairn_up_slab_request {
    struct cairn_up_slab_request *next;
    uint64_t conn;
    struct cairn_up_attempt *attempt; /* kept in use by the caller */
    uint32_t rank, local_world_size;
    uint64_t bytes, node_bytes;
    uint64_t deadline_ms;
    /* Called once, with no lock held, on any thread: count generations are reserved in the budget
     * and must be made, or code says why not. */
    void (*decided)(struct cairn_up_slab_request *request);
    enum cairn_code code;
    struct cairn_error error;
    uint32_t count;
};
/* Requests are decided in the order in which they came; waiting takes no thread. */
void cairn_up_slabs_request(struct cairn_up *up, struct cairn_up_slab_request *request);
/* Decide what can be decided; cheap when nobody waits. The lock is not held. */
void cairn_up_slabs_serve(struct cairn_up *up);
/* On a helper: request->count generations, all of one size; they belong to conn. */
enum cairn_code cairn_up_slabs_make(struct cairn_up *up,
                                    const struct cairn_up_slab_request *request,
                                    struct cairn_up_slab *ret[CAIRN_UP_GENERATIONS_MAX],
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Instead of make: the budget is given back. */
void cairn_up_slabs_unmake(struct cairn_up *up, const struct cairn_up_slab_request *request);
/* CAIRN_NO_MEMORY: an uploader with a smaller budget than the one before cannot hold it. */
enum cairn_code cairn_up_slabs_no_room(struct cairn_up *up, uint64_t bytes,
                                       struct cairn_error *err);
/* A slab that a trainer brought again; checked by the caller against what it claims. */
enum cairn_code cairn_up_slabs_adopt_locked(struct cairn_up *up, uint64_t conn, uint32_t index,
                                            struct cairn_up_attempt *attempt,
                                            struct cairn_slab *take_memory,
                                            struct cairn_up_slab **ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_up_slab *cairn_up_slab_of_locked(struct cairn_up *up, uint64_t conn, uint32_t index);
void cairn_up_slabs_orphan_locked(struct cairn_up *up, uint64_t conn);
/* Give back what nobody needs; the page work is left to a helper. */
void cairn_up_slabs_sweep_locked(struct cairn_up *up);
/* On a helper: so many bytes of the budget, for whatever is not a slab, should be free. What is
 * kept is given back for them, here and now; there may not be enough. */
void cairn_up_slabs_make_room(struct cairn_up *up, uint64_t bytes);
void cairn_up_slabs_free_all(struct cairn_up *up);
