/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the filters of a version list, and the next index place where a row can pass them.
 *
 * Why:     a list of a million versions is read in index order: filters on that order (an attempt,
 *          a range of steps) are jumped to, and only the others are evaluated for each row.
 * Promise: 1   _wants defines the filters: a listed row passes all of them.
 *          2   _jump skips no row that passes.
 * Limits:  one jump per attempt that has steps on both sides of the range.
 * Threads: one owner.
 * Next:    server/versions/version_list.c.
 */
#pragma once

#include "api/wire/routes.h"
#include "server/ledger/version_lists.h"

struct srv_version_filter {
    struct cairn_selector labels;
    uint64_t step_ge, step_lt, attempt;
    bool of_attempt, by_trash, trashed;
    bool by_step; /* ordered by step across attempts */
    int64_t since_ms;
    int64_t state; /* as shown (Q24); -1: all but gone */
    /* The last labels and their match: neighbouring rows mostly have the same labels. */
    struct cairn_buf seen_labels;
    bool seen, seen_matches;
};
void srv_version_filter_release(struct srv_version_filter *filter);

enum srv_wanted {
    SRV_WANTED,
    SRV_UNWANTED,
    SRV_ELSEWHERE, /* the next row may not pass either: call _jump */
};
/* *ret_cost: the cost of the decision, in rows read. */
enum cairn_code srv_version_filter_wants(struct srv_version_filter *filter,
                                         const struct srv_version_brief *row, enum srv_wanted *ret,
                                         uint64_t *ret_cost,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Moves *place to just before the next row that can pass; false: none can. */
bool srv_version_filter_jump(const struct srv_version_filter *filter, bool rising,
                             struct srv_version_place *place);
