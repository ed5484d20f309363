/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab: ownership of one generation of a rank's shared memory.
 *
 * Why:     a trainer offers its memory again after an uploader's death. Matching by device and
 *          inode alone once joined a save to the bytes of a later save in the same memory.
 * Promise: Q41 a generation is free or has one owner, by its save's number; `begun`, `stage`,
 *              `offer`, `free` and the journal's `stage` record carry it. Its owner alone gives it
 *              back.
 *          1   kept: a free generation may still hold the durable bytes of its last owner. The next
 *              owner takes it like any free one and overwrites them.
 * Limits:  none of its own.
 * Threads: the caller's; the daemon holds uploader_state.
 * Next:    uploader/state/save.h says when a generation is due back; uploader/saves/slabs.h.
 */
#pragma once

#include "common/base.h"

struct cairn_up_slab_state {
    uint64_t owner; /* 0: free */
    uint64_t kept;  /* while free: the last owner, whose bytes it holds; 0: none */
};
/* `stage`: false when another save owns the generation. Its owner may take it again. */
bool cairn_up_slab_state_take(struct cairn_up_slab_state *slab, uint64_t owner);
/* `free`: no effect unless owner owns it. */
void cairn_up_slab_state_give(struct cairn_up_slab_state *slab, uint64_t owner);
/* `free`, but the bytes stay readable. */
void cairn_up_slab_state_keep(struct cairn_up_slab_state *slab, uint64_t owner);
void cairn_up_slab_state_forget(struct cairn_up_slab_state *slab);

/* One offered generation: the trainer's claim and the journal's record of the save. */
struct cairn_up_slab_claim {
    uint64_t offered_owner;   /* the memory's owner by the trainer; 0: none */
    uint64_t save_owner;      /* number of the claiming save */
    uint64_t journaled_owner; /* by the save's `stage` record; 0: no such record */
    bool same_memory;         /* size, device and inode are those of the `stage` record */
    bool needed;              /* cairn_up_save_state_needs_slab */
};
enum cairn_up_claimed {
    CAIRN_UP_CLAIM_JOINED,
    CAIRN_UP_CLAIM_NOT_NEEDED, /* the save no longer needs its memory */
    CAIRN_UP_CLAIM_NOT_OWNER,  /* the memory belongs to another save */
    CAIRN_UP_CLAIM_NOT_THERE   /* not the memory in which the save was staged */
};
enum cairn_up_claimed cairn_up_slab_state_claim(struct cairn_up_slab_state *slab,
                                                const struct cairn_up_slab_claim *claim);
