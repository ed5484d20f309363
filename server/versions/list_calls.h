/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lists: in which tensor the lists of two ranks of a replica group differ (Q10).
 *
 * Why:     a begin says one digest and at most a few marks of a list of up to a million tensors, so
 *          that equal lists cost next to nothing; who differs wants to know in which tensor.
 * Promise: 1   the version has ended before it is asked, and nothing of what is said here changes
 *              anything but the words of its reason.
 *          2   both ranks look at 32 equal parts of the same places of their lists, in the order of
 *              the names, until one place is left, and then say the name that they have there: the
 *              lesser of two that differ is what the other list lacks.
 *          3   looks that tell nothing (a list that is gone, of another length than was asked for)
 *              settle it with the reason that the begin gave.
 * Limits:  CAIRN_PLAN_SPLIT_ITEMS_MAX tensors: four looks and the name, each at most 1.6 KiB. One
 *          dispute a version, of the first rank that differed.
 * Threads: inside a transaction, or any.
 * Next:    plan/split.h, uploader/server/lists.h.
 */
#pragma once

#include "server/ledger/shards.h"

struct cairn_srv_parties {
    const char *group;
    uint64_t first, second;
};
/* From now on the two are asked. */
enum cairn_code cairn_srv_lists_dispute(struct cairn_srv_tx *tx, const char *version,
                                        const struct cairn_srv_parties *parties,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* In what they differ, as the reason of the version. */
void cairn_srv_differ_text(uint64_t first, uint64_t second, const char *what,
                           char ret[CAIRN_SRV_REASON_BYTES]);
/* That this is the tensor, for `what`. */
void cairn_srv_lists_first(const char *group, const char *tensor, char ret[CAIRN_SRV_REASON_BYTES]);
