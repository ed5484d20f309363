/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: which versions of a run a list is about, and where the next of them can be.
 *
 * Why:     a list of a million versions is read by the order of its index; what its filters say of
 *          that order (an attempt, a range of steps) is jumped to, and only the rest is asked of
 *          each row.
 * Promise: 1   _wants is the meaning: filters add up, and each is asked of every row that is shown.
 *          2   _jump passes no row that is wanted by.
 * Limits:  a jump for each attempt that has steps on both sides of the range.
 * Threads: one owner.
 * Next:    server/versions/version_list.c.
 */
#pragma once

#include "api/wire/policy.h"
#include "api/wire/routes.h"
#include "server/ledger/version_lists.h"

struct cairn_srv_version_filter {
    struct cairn_selector labels;
    uint64_t step_ge, step_lt, attempt;
    bool of_attempt, by_trash, trashed;
    bool by_step; /* the list is in the order of steps, whatever their attempts */
    int64_t since_ms;
    int64_t state; /* as it is shown (Q24); -1: all but gone */
    /* What was said of the labels before: those of neighbours are mostly the same. */
    struct cairn_buf seen_labels;
    bool seen, seen_matches;
};
void cairn_srv_version_filter_release(struct cairn_srv_version_filter *filter);

enum cairn_srv_wanted {
    CAIRN_SRV_WANTED,
    CAIRN_SRV_UNWANTED,
    CAIRN_SRV_ELSEWHERE, /* nor is the next one, perhaps: _jump says where to look */
};
/* *ret_cost: in rows, what it took to tell. */
enum cairn_code cairn_srv_version_filter_wants(struct cairn_srv_version_filter *filter,
                                               const struct cairn_srv_version_brief *row,
                                               enum cairn_srv_wanted *ret, uint64_t *ret_cost,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* The place behind which the next row is that can be wanted; false: there is none. */
bool cairn_srv_version_filter_jump(const struct cairn_srv_version_filter *filter, bool rising,
                                   struct cairn_srv_version_place *place);
