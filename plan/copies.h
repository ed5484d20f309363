/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies: which versions of a run a policy wants in one store.
 *
 * Why:     what is copied and removed after each commit must be a function of its arguments, so
 *          that it can be compared with a plain model and means the same a moment later.
 * Promise: 1   rules add up: the newest N, and every step that K divides.
 *          2   what is in flight or superseded is wanted nowhere.
 *          3   the order of the items changes nothing.
 * Limits:  CAIRN_PLAN_ITEMS_MAX versions; O(n log n).
 * Threads: stateless.
 * Next:    plan/retention.h; server/copies/tiering.c; tests/plan/test_copies.c.
 */
#pragma once

#include "plan/retention.h"

/* ret: one for each item. */
enum cairn_code cairn_plan_copies(const struct cairn_policy_copies *rules,
                                  const struct cairn_plan_item *items, size_t count, bool *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
