/* SPDX-License-Identifier: Apache-2.0 */
/* budget: one counter under one lock; the numbers of a refusal are taken under it too. */
#include "common/budget.h"

#include "common/text.h"

void cairn_budget_init(struct cairn_budget *budget, uint64_t total_bytes) {
    cairn_lock_init(&budget->lock, CAIRN_LOCK_memory_budget);
    budget->total_bytes = cairn_min_u64(total_bytes, UINT64_C(1) << 62);
    budget->locked.reserved_bytes = 0;
    budget->locked.highest_bytes = 0;
}

void cairn_budget_release(struct cairn_budget *budget) {
    cairn_lock_release(&budget->lock);
}

enum cairn_code cairn_budget_take(struct cairn_budget *budget, uint64_t bytes, const char *what,
                                  struct cairn_error *err) {
    uint64_t in_use;
    {
        CAIRN_HOLD(&budget->lock);
        in_use = budget->locked.reserved_bytes;
        CAIRN_ASSERT(in_use <= budget->total_bytes); /* budget.h#1 */
        /* The free part is what is compared, so that no sum can wrap. */
        if (bytes <= budget->total_bytes - in_use) {
            budget->locked.reserved_bytes += bytes;
            budget->locked.highest_bytes =
                cairn_max_u64(budget->locked.highest_bytes, budget->locked.reserved_bytes);
            return CAIRN_OK;
        }
    }
    char asked[24], used[24], total[24];
    cairn_size_text(bytes, asked);
    cairn_size_text(in_use, used);
    cairn_size_text(budget->total_bytes, total);
    return cairn_fail(err, CAIRN_NO_MEMORY, "%s asks for %s, but %s of %s are in use", what, asked,
                      used, total);
}

void cairn_budget_give(struct cairn_budget *budget, uint64_t bytes) {
    CAIRN_HOLD(&budget->lock);
    CAIRN_ASSERT(bytes <= budget->locked.reserved_bytes);
    budget->locked.reserved_bytes -= bytes;
}

uint64_t cairn_budget_free_bytes(struct cairn_budget *budget) {
    CAIRN_HOLD(&budget->lock);
    return budget->total_bytes - budget->locked.reserved_bytes;
}
