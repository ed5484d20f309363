/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split: tensors that the members of a group hold alike, and who saves what of them.
 *
 * Why:     replicas that each save the whole write everything as often as there are of them.
 * Promise: 1   every member that describes the same tensors plans the same shares, without a
 *              message.
 * Limits:  as plan/split.h.
 * Threads: its caller's until a begin plans it; fixed from then on, so that the session's thread
 *          may look at it, for as long as a save keeps it.
 * Next:    client/save/share.h, plan/split.h; include/cairn/cairn.h, cairn_split_new.
 */
#pragma once

#include "client/save/save.h"
#include "plan/split.h"

#define CAIRN_CLIENT_MARKED_BEGINS 4

struct cairn_split {
    char *group; /* owned */
    uint32_t member, members;
    enum cairn_plan_split_by by;
    uint32_t *weights;                 /* owned; NULL: equal */
    struct cairn_client_piece *pieces; /* owned, with their names; bytes: of the region */
    size_t count, capacity;
    bool planned;
    struct cairn_plan_split plan;
    uint32_t *sorted; /* owned: pieces by name */
    uint32_t *share;  /* owned: 1 + place in the plan of this rank's share of a piece; 0: none */
    uint32_t begins;
    _Atomic uint32_t users; /* its caller, and saves whose end may ask for a look at it */
};
struct cairn_plan_split_item cairn_client_split_item(const struct cairn_client_piece *piece);
/* Plan it, unless it is planned. */
enum cairn_code cairn_client_split_plan(struct cairn_split *split,
                                        struct cairn_error *err) CAIRN_MUST_USE;
