/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups: what a rank says of the replica groups that it saves shares of.
 *
 * Why:     members of a group split its tensors by the same list, without a word between them; a
 *          member with another list would leave holes that nobody sees before all is durable (Q10).
 * Promise: 1   a group's list is its first rank's; a rank whose digest differs is told which rank
 *              that was and, where both sent marks, the tensors between which the lists part: of
 *              lists whose tensors all have marks, the first that differs. Of others both ranks are
 *              asked for it (lists.h), where they can be.
 * Limits:  CAIRN_SRV_GROUPS_MAX groups a rank, CAIRN_SRV_GROUP_MARKS_MAX marks a group.
 * Threads: join inside a transaction; check is stateless.
 * Next:    plan/split.h makes digests and marks; server/ledger/shards.h keeps them.
 */
#pragma once

#include "server/ledger/shards.h"

#define CAIRN_SRV_GROUPS_MAX 64
#define CAIRN_SRV_GROUP_MARKS_MAX 256

/* splits: of a begin; NULL is none. */
enum cairn_code cairn_srv_groups_check(const json_t *splits, const char *pointer,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* ret_differ: "" or in what this rank and *ret_first differ. splits were checked. */
enum cairn_code cairn_srv_groups_join(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                      const json_t *splits, uint64_t *ret_first,
                                      char ret_differ[CAIRN_SRV_REASON_BYTES],
                                      struct cairn_error *err) CAIRN_MUST_USE;
