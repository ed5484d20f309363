/* SPDX-License-Identifier: Apache-2.0 */
/* slab: the present or last owner of a generation. */
#include "uploader/state/slab.h"

bool cairn_up_slab_state_take(struct cairn_up_slab_state *slab, uint64_t owner) {
    CAIRN_ASSERT(owner != 0);
    if (slab->owner && slab->owner != owner) return false;
    slab->owner = owner;
    slab->kept = 0;
    return true;
}

void cairn_up_slab_state_give(struct cairn_up_slab_state *slab, uint64_t owner) {
    CAIRN_ASSERT(owner != 0);
    CAIRN_ASSERT(slab->owner == owner);
    slab->owner = 0;
}

void cairn_up_slab_state_keep(struct cairn_up_slab_state *slab, uint64_t owner) {
    cairn_up_slab_state_give(slab, owner);
    slab->kept = owner;
}

void cairn_up_slab_state_forget(struct cairn_up_slab_state *slab) {
    CAIRN_ASSERT(!slab->owner || !slab->kept);
    slab->kept = 0;
}

enum cairn_up_claimed cairn_up_slab_state_claim(struct cairn_up_slab_state *slab,
                                                const struct cairn_up_slab_claim *claim) {
    if (!claim->needed) return CAIRN_UP_CLAIM_NOT_NEEDED;
    if (!claim->offered_owner || claim->offered_owner != claim->save_owner)
        return CAIRN_UP_CLAIM_NOT_OWNER;
    if (claim->journaled_owner && claim->journaled_owner != claim->save_owner)
        return CAIRN_UP_CLAIM_NOT_OWNER;
    if (claim->journaled_owner && !claim->same_memory) return CAIRN_UP_CLAIM_NOT_THERE;
    return cairn_up_slab_state_take(slab, claim->save_owner) ? CAIRN_UP_CLAIM_JOINED
                                                             : CAIRN_UP_CLAIM_NOT_OWNER;
}
