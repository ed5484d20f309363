/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget: memory is reserved before work starts, or the work is refused with the numbers.
 *
 * Why:     a save that waits for memory in its middle can wait for ever; a node that takes what
 *          it needs is killed. So one budget per node, asked once.
 * Promise: 1   reserved never exceeds total.
 *          2   a refusal says what was asked, what is in use and what the total is.
 * Limits:  2^62 bytes.
 * Threads: locked by memory_budget.
 * Next:    common/slab.h.
 */
#pragma once

#include "common/error.h"
#include "common/lock.h"

struct cairn_budget {
    struct cairn_lock lock;
    uint64_t total_bytes;
    struct {
        uint64_t reserved_bytes;
        uint64_t highest_bytes;
    } locked;
};
void cairn_budget_init(struct cairn_budget *budget, uint64_t total_bytes);
void cairn_budget_release(struct cairn_budget *budget);
/* what names the purpose in the refusal ("slabs of llm/7b rank 3"). CAIRN_NO_MEMORY when refused.
 */
enum cairn_code cairn_budget_take(struct cairn_budget *budget, uint64_t bytes, const char *what,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_budget_give(struct cairn_budget *budget, uint64_t bytes);
uint64_t cairn_budget_free_bytes(struct cairn_budget *budget);
/* Memory that this process may use: the RAM, or the smallest limit of its control group and the
 * groups above it (v1 and v2), as far as its container shows them. Below `root`, "" but for tests.
 */
uint64_t cairn_memory_limit(const char *root);
