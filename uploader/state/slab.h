/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab: who owns a generation of a rank's shared memory.
 *
 * Why:     after an uploader's death the trainer offers its memory again; by device and inode alone
 *          the bytes of one save were joined to another that had used the same memory before.
 * Promise: Q41 a generation is free or has one owner. The owner's number is its save's; the trainer
 *              hears it with `begun`, and `stage`, `offer`, `free` and the journal's `stage` record
 *              carry it. Only its present owner gives a generation back.
 *          1   kept: a generation that is free may still hold the durable bytes of its last owner.
 *              Nobody waits for that: the next owner takes it as any free one, and they are gone.
 * Limits:  none of its own.
 * Threads: the caller's; the daemon holds uploader_state.
 * Next:    uploader/state/save.h says when a generation is due back; uploader/saves/slabs.h.
 */
#pragma once

#include "common/base.h"

struct cairn_up_slab_state {
    uint64_t owner; /* 0: free */
    uint64_t kept;  /* while it is free: the owner before, whose bytes it holds; 0: nobody's */
};
/* `stage`: false when another save owns it. An owner may take what it owns already. */
bool cairn_up_slab_state_take(struct cairn_up_slab_state *slab, uint64_t owner);
/* `free`: of the owner alone. */
void cairn_up_slab_state_give(struct cairn_up_slab_state *slab, uint64_t owner);
/* `free` too, and its bytes are kept. */
void cairn_up_slab_state_keep(struct cairn_up_slab_state *slab, uint64_t owner);
void cairn_up_slab_state_forget(struct cairn_up_slab_state *slab);

/* One offered generation: what the trainer says of it and what the journal says of the save. */
struct cairn_up_slab_claim {
    uint64_t offered_owner;   /* who owns the memory, by the trainer; 0: nobody */
    uint64_t save_owner;      /* number of the save that claims it */
    uint64_t journaled_owner; /* by the save's `stage` record; 0: it has none */
    bool same_memory;         /* size, device and inode are those of the `stage` record */
    bool needed;              /* cairn_up_save_state_needs_slab */
};
enum cairn_up_claimed {
    CAIRN_UP_CLAIM_JOINED,
    CAIRN_UP_CLAIM_NOT_NEEDED, /* the save is done with its memory */
    CAIRN_UP_CLAIM_NOT_OWNER,  /* the memory belongs to another save */
    CAIRN_UP_CLAIM_NOT_THERE   /* it is not the memory in which the save was staged */
};
enum cairn_up_claimed cairn_up_slab_state_claim(struct cairn_up_slab_state *slab,
                                                const struct cairn_up_slab_claim *claim);
