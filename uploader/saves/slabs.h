/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slabs: shared memory that trainers stage into, out of the node's one budget, and the bytes of the
 * newest versions that it still holds, for restores.
 *
 * Why:     no rank may wait for another rank's memory inside a save, so a session reserves all of
 *          it when it opens, one or two generations for every rank. A restarted job mostly restores
 *          what was staged minutes ago: the uploader, which outlives the job, still has it in
 *          slabs, and in copies for another node (uploader/partner/).
 * Promise: Q13  every rank of a node gets min(2, budget / all ranks' bytes) generations, the second
 *               only beside the least that restores of all these ranks need; none is
 *               CAIRN_NO_MEMORY with the numbers. Ranks are served in the order of requests: memory
 *               awaited by one request is withheld from later ones, even at their deadlines. A
 *               request waits, within its deadline and without a thread, while older attempts of
 *               its run hold slabs, and while enough of the budget is in slabs without sessions or
 *               serves restores: the former come back when their bytes are sent and their pages
 *               released, the latter when the restores end.
 *          Q20  a generation is free again when its save no longer needs it; the memory is released
 *               when neither trainer nor save uses it.
 *          1    a free generation holds the bytes of the last save until another save takes it; a
 *               connected trainer gives up no memory for that.
 *          2    after a trainer disconnects, the newest committed version of each run and its
 *               possible successors are kept for memory_tier_time, within memory_tier. Requests for
 *               slabs and windows take precedence: kept memory is released for them. (They cannot
 *               reuse it: no other process can map it for writing, common/memory.h.)
 *          3    reads here are unverified: trainers may write into the memory at any moment. The
 *               reader copies bytes and compares the copy with the version's checksums.
 *          4    a save that fails or does not become committed is not kept.
 *          5    the copy of an ended version stays until a newer version of its run is known to be
 *               committed, for memory_tier_time after the run's last attempt left this node, and
 *               until partner_memory is needed for a newer copy.
 *          6    kept memory counts as free: a request waits only for its pages to be released.
 * Limits:  2 generations a session. Memory alone, no files; nothing outlives this process.
 * Threads: locked by uploader_state, held where the name ends in _locked and for is_spare; helpers
 *          make and release pages without the lock.
 * Next:    common/memory.h; docs/socket.md, "slabs" and "offer"; uploader/fetch/reader.c reads it.
 */
#pragma once

#include "common/buf.h"
#include "common/json.h"
#include "common/memory.h"
#include "uploader/saves/ranks.h"
#include "uploader/state/save.h"

#define CAIRN_UP_GENERATIONS_MAX 2
#define CAIRN_UP_WINDOW_BYTES_MIN (8 * CAIRN_MIB) /* of a rank that restores; none asks for less */

struct cairn_up_slab {
    struct cairn_up_slab *next;
    uint64_t conn;                    /* the trainer's connection; 0: disconnected */
    uint32_t index;                   /* generation */
    struct cairn_up_attempt *attempt; /* NULL: kept without a trainer */
    uint64_t bytes;                   /* charged to the budget while listed */
    struct cairn_slab memory;
    struct cairn_up_slab_state state;
    struct cairn_up_kept *kept; /* while state.kept: its contents */
    uint32_t pins;              /* restores copying from it */
    uint64_t left_ms;           /* mono clock: when its trainer disconnected */
    bool leaving; /* a helper releases its pages without the lock; bytes still count */
    bool evicted; /* a request waits for these pages */
};
/* One session's request for memory. */
struct cairn_up_slab_request {
    struct cairn_up_slab_request *next;
    uint64_t conn;
    struct cairn_up_attempt *attempt; /* the caller holds one use */
    uint32_t rank, local_world_size;
    int numa_node; /* of the trainer; -1: unknown */
    uint64_t bytes, node_bytes;
    uint64_t restores_bytes; /* for windows and readers; set by cairn_up_slabs_request */
    uint64_t deadline_ms;
    /* Called once, on any thread without locks: count generations are reserved, or code. */
    void (*decided)(struct cairn_up_slab_request *request);
    enum cairn_code code;
    struct cairn_error error;
    uint32_t count;
};
/* Requests are decided in order of arrival; waiting takes no thread. */
void cairn_up_slabs_request(struct cairn_up *up, struct cairn_up_slab_request *request);
/* Decides waiting requests where possible; cheap without any. The lock is not held. */
void cairn_up_slabs_serve(struct cairn_up *up);
/* Makes request->count equal generations for conn, on a helper. */
enum cairn_code cairn_up_slabs_make(struct cairn_up *up,
                                    const struct cairn_up_slab_request *request,
                                    struct cairn_up_slab *ret[CAIRN_UP_GENERATIONS_MAX],
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Called instead of make: returns the reserved budget. */
void cairn_up_slabs_unmake(struct cairn_up *up, const struct cairn_up_slab_request *request);
/* Fails with CAIRN_NO_MEMORY: the budget is smaller than the previous uploader's. */
enum cairn_code cairn_up_slabs_no_room(struct cairn_up *up, uint64_t bytes,
                                       struct cairn_error *err);
/* Adopts a slab that a trainer offers again; the caller has checked its claims. */
enum cairn_code cairn_up_slabs_adopt_locked(struct cairn_up *up, uint64_t conn, uint32_t index,
                                            struct cairn_up_attempt *attempt,
                                            struct cairn_slab *take_memory,
                                            struct cairn_up_slab **ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_up_slab *cairn_up_slab_of_locked(struct cairn_up *up, uint64_t conn, uint32_t index);
void cairn_up_slabs_orphan_locked(struct cairn_up *up, uint64_t conn);
/* Gives back unused slabs; a helper releases their pages. */
void cairn_up_slabs_sweep_locked(struct cairn_up *up);
/* What make_room can have for other memory now: free, kept, and being given back for a request. */
uint64_t cairn_up_slabs_room(struct cairn_up *up);
/* Makes room in the budget for other memory, on a helper: releases kept memory. */
void cairn_up_slabs_make_room(struct cairn_up *up, uint64_t bytes);
void cairn_up_slabs_free_all(struct cairn_up *up);

/* ---- kept bytes ---- */

struct cairn_up_save;

struct cairn_up_kept_shard {
    char *name; /* owned */
    uint64_t offset, bytes;
    size_t place; /* index in the save's shards */
};
/* The kept bytes of one rank's save. */
struct cairn_up_kept {
    struct cairn_up_kept *next; /* in the list of copies */
    struct cairn_run_name run;
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2];
    struct cairn_version_id version;
    uint64_t attempt, step; /* with n: the order of versions (Q25) */
    uint32_t n, rank;
    bool committed;
    bool gone;           /* a copy no longer worth its memory */
    const uint8_t *data; /* of a copy; NULL: the bytes are in a slab */
    uint32_t pins;       /* of a copy: restores reading it */
    uint64_t left_ms;    /* of a copy; mono clock: when this node last held an attempt of the run */
    struct {             /* of a slab, due for the partner (uploader/partner/partner.c) */
        struct cairn_buf head; /* its description; empty: no partner, or already copied */
        uint64_t next_ms;      /* mono clock: the next try */
    } gift;
    uint64_t bytes; /* of all shards */
    size_t shard_count;
    struct cairn_up_kept_shard shards[]; /* by name */
};

/* True for a kept slab without a trainer. */
bool cairn_up_kept_is_spare(const struct cairn_up_slab *slab);

/* Frees the save's generation, and keeps its bytes if the save is whole. */
void cairn_up_kept_give_locked(struct cairn_up *up, const struct cairn_up_save *save,
                               struct cairn_up_slab *slab);
/* Marks the kept bytes of the save as committed, or drops them. */
void cairn_up_kept_ended_locked(struct cairn_up *up, const struct cairn_up_save *save);
void cairn_up_kept_forget_locked(struct cairn_up_slab *slab);
/* Releases expired kept memory; called at intervals. */
void cairn_up_kept_tick(struct cairn_up *up);
uint64_t cairn_up_kept_bytes_locked(const struct cairn_up *up); /* of shards */
/* A new array of the run's kept versions, newest first, as node_kept of heartbeats; NULL: none. */
json_t *cairn_up_kept_json_locked(const struct cairn_up *up, const char *run_text);
/* True when a newer version of the run is committed. */
bool cairn_up_kept_is_outdated_locked(const struct cairn_up *up, const struct cairn_up_kept *kept);

/* ---- copies of other nodes, for uploader/partner/ ---- */

struct cairn_up_kept_copy {
    const struct cairn_up_attempt *attempt;
    const struct cairn_version_id *version;
    uint64_t step;
    uint32_t n, rank;
    const uint8_t *data;                      /* valid until remove */
    const struct cairn_up_kept_shard *shards; /* copied; `place` is set here */
    size_t shard_count;
};
/* NULL: no memory tier, or no memory for the record. */
struct cairn_up_kept *cairn_up_kept_copy_add_locked(struct cairn_up *up,
                                                    const struct cairn_up_kept_copy *copy);
/* The copy has no readers. NULL is allowed. */
void cairn_up_kept_copy_remove_locked(struct cairn_up *up, struct cairn_up_kept *kept);
/* Promise 5, for a copy whose version is over. */
bool cairn_up_kept_copy_stays_locked(const struct cairn_up *up, struct cairn_up_kept *kept);

struct cairn_up_kept_bytes {
    struct cairn_up_slab *slab; /* or: */
    struct cairn_up_kept *copy;
    uint64_t kept; /* the slab's kept owner */
    const uint8_t *data;
};
/* False: this node does not hold the shard. The caller unpins soon. */
bool cairn_up_kept_pin(struct cairn_up *up, const char *version, const char *shard,
                       uint64_t shard_bytes, struct cairn_up_kept_bytes *ret);
/* same: the bytes were right. Wrong bytes are dropped, unless a new save owns the slab now. */
void cairn_up_kept_unpin(struct cairn_up *up, const struct cairn_up_kept_bytes *bytes, bool same);
