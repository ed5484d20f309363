/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slabs: the shared memory that trainers stage into, out of the node's one budget; and what is
 *        still in it of the newest versions, for restores.
 *
 * Why:     no rank may ever wait for another rank's memory inside a save, so all of it is reserved
 *          when a session opens, two generations for everybody or one. And a job that starts again
 *          mostly wants what its processes staged minutes ago: the uploader, which outlives them,
 *          has it in slabs, and in copies that it keeps for another node (uploader/partner/).
 * Promise: Q13  every rank of a node gets min(2, budget / all ranks' bytes) generations; none is
 *               CAIRN_NO_MEMORY with the numbers. Ranks are served in the order of their asking:
 *               what one waits for is kept from those after it, also at their limit. One waits,
 *               within its limit and without a thread, while older attempts of its run hold slabs,
 *               and while enough of the budget is held by slabs whose sessions are gone: they come
 *               back when their bytes are sent and their pages released.
 *          Q20  a generation is free again when its save needs it no longer; the memory goes back
 *               when the trainer and the save are both through with it.
 *          1    a generation that is free holds the bytes of the save before it until another save
 *               takes it; a trainer that is connected gives up nothing for that.
 *          2    when its trainer has gone, the newest committed version of each run is kept, and
 *               what may be it; for memory_tier_time, within memory_tier. Whoever needs memory goes
 *               before it: a rank's slabs and the windows of restores have it given back. (They do
 *               not take it over: no other process can ever map it for writing, common/memory.h.)
 *          3    what is read here is a claim: trainers may write into the memory at any moment. The
 *               reader copies it and compares the copy with the version's checksums.
 *          4    a save that fails or does not become committed leaves nothing.
 *          5    a copy stays, once its version is over, until a newer version of its run is known
 *               to be committed, for memory_tier_time after the run's last attempt has left this
 *               node, and until partner_memory is needed for a newer one.
 *          6    what is kept counts as free: a request has it given back, and waits for the pages
 *               alone.
 * Limits:  2 generations a session. Memory alone, no files; nothing outlives this process.
 * Threads: locked by uploader_state, held where the name ends in _locked and for is_spare;
 *          reserving and giving back (page work) is done by helpers with the lock free.
 * Next:    common/memory.h; docs/socket.md, "slabs" and "offer"; uploader/fetch/reader.c reads it.
 */
#pragma once

#include "common/buf.h"
#include "common/json.h"
#include "common/memory.h"
#include "uploader/saves/ranks.h"
#include "uploader/state/slab.h"

#define CAIRN_UP_GENERATIONS_MAX 2

struct cairn_up_slab {
    struct cairn_up_slab *next;
    uint64_t conn;                    /* the trainer's connection; 0: gone */
    uint32_t index;                   /* generation */
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
/* Decides the waiting requests where possible; cheap without any. The lock is not held. */
void cairn_up_slabs_serve(struct cairn_up *up);
/* On a helper: request->count generations, all of one size; they belong to conn. */
enum cairn_code cairn_up_slabs_make(struct cairn_up *up,
                                    const struct cairn_up_slab_request *request,
                                    struct cairn_up_slab *ret[CAIRN_UP_GENERATIONS_MAX],
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Instead of make: returns the reserved budget. */
void cairn_up_slabs_unmake(struct cairn_up *up, const struct cairn_up_slab_request *request);
/* CAIRN_NO_MEMORY: an uploader with a smaller budget than the one before cannot hold it. */
enum cairn_code cairn_up_slabs_no_room(struct cairn_up *up, uint64_t bytes,
                                       struct cairn_error *err);
/* Takes over a slab that a trainer offers again; the caller has checked its claims. */
enum cairn_code cairn_up_slabs_adopt_locked(struct cairn_up *up, uint64_t conn, uint32_t index,
                                            struct cairn_up_attempt *attempt,
                                            struct cairn_slab *take_memory,
                                            struct cairn_up_slab **ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_up_slab *cairn_up_slab_of_locked(struct cairn_up *up, uint64_t conn, uint32_t index);
void cairn_up_slabs_orphan_locked(struct cairn_up *up, uint64_t conn);
/* Gives back unused slabs; a helper releases their pages. */
void cairn_up_slabs_sweep_locked(struct cairn_up *up);
/* On a helper: so many bytes of the budget, for whatever is not a slab, should be free. What is
 * kept is given back for them, here and now; there may not be enough. */
void cairn_up_slabs_make_room(struct cairn_up *up, uint64_t bytes);
void cairn_up_slabs_free_all(struct cairn_up *up);

/* ---- what is kept ---- */

struct cairn_up_save;

struct cairn_up_kept_shard {
    char *name; /* owned */
    uint64_t offset, bytes;
    size_t place; /* among the shards of its save */
};
/* What is kept of one rank's save. */
struct cairn_up_kept {
    struct cairn_up_kept *next; /* of copies */
    struct cairn_run_name run;
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2];
    struct cairn_version_id version;
    uint64_t attempt, step; /* with n: the order of versions (Q25) */
    uint32_t n, rank;
    bool committed;
    bool gone;           /* a copy that is not worth its memory any more */
    const uint8_t *data; /* a copy's; NULL: it is in a slab */
    uint32_t pins;       /* a copy's: restores that read it */
    uint64_t left_ms;    /* a copy's; mono clock: when an attempt of the run was last held here */
    struct {             /* a slab's, on its way to the partner (uploader/partner/partner.c) */
        struct cairn_buf head; /* its description; empty: it has no partner, or is there */
        uint64_t next_ms;      /* mono clock: the next try */
    } gift;
    uint64_t bytes; /* of all shards */
    size_t shard_count;
    struct cairn_up_kept_shard shards[]; /* by name */
};

/* True for a kept slab without a trainer. */
bool cairn_up_kept_is_spare(const struct cairn_up_slab *slab);

/* Frees the save's generation, and keeps its bytes where the save is whole. */
void cairn_up_kept_give_locked(struct cairn_up *up, const struct cairn_up_save *save,
                               struct cairn_up_slab *slab);
/* Marks what is kept of the save as committed, or forgets it. */
void cairn_up_kept_ended_locked(struct cairn_up *up, const struct cairn_up_save *save);
void cairn_up_kept_forget_locked(struct cairn_up_slab *slab);
/* Gives back what has been kept for too long; called at intervals. */
void cairn_up_kept_tick(struct cairn_up *up);
uint64_t cairn_up_kept_bytes_locked(const struct cairn_up *up); /* of shards */
/* What is kept of the run, newest version first, as heartbeats say it (node_kept of
 * api/messages.def); a new array, or NULL: nothing. */
json_t *cairn_up_kept_json_locked(const struct cairn_up *up, const char *run_text);
/* True when a newer version of the run is committed. */
bool cairn_up_kept_is_outdated_locked(const struct cairn_up *up, const struct cairn_up_kept *kept);

/* ---- copies of other nodes, for uploader/partner/ ---- */

struct cairn_up_kept_copy {
    const struct cairn_up_attempt *attempt;
    const struct cairn_version_id *version;
    uint64_t step;
    uint32_t n, rank;
    const uint8_t *data;                      /* stays until it was removed */
    const struct cairn_up_kept_shard *shards; /* copied; place is set here */
    size_t shard_count;
};
/* NULL: there is no memory tier, or no memory to remember it. */
struct cairn_up_kept *cairn_up_kept_copy_add_locked(struct cairn_up *up,
                                                    const struct cairn_up_kept_copy *copy);
/* Nobody reads it. NULL is fine. */
void cairn_up_kept_copy_remove_locked(struct cairn_up *up, struct cairn_up_kept *kept);
/* Promise 5, for a copy whose version is over. */
bool cairn_up_kept_copy_stays_locked(const struct cairn_up *up, struct cairn_up_kept *kept);

/* ---- reading ---- */

struct cairn_up_kept_bytes {
    struct cairn_up_slab *slab; /* or: */
    struct cairn_up_kept *copy;
    uint64_t kept; /* whose they are, of a slab */
    const uint8_t *data;
};
/* False: this node does not hold that shard. What was pinned must be unpinned soon. */
bool cairn_up_kept_pin(struct cairn_up *up, const char *version, const char *shard,
                       uint64_t shard_bytes, struct cairn_up_kept_bytes *ret);
/* same: the bytes were right. Wrong ones are not kept, unless a new save has them by now. */
void cairn_up_kept_unpin(struct cairn_up *up, const struct cairn_up_kept_bytes *bytes, bool same);
