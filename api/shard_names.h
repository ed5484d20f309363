/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_names: the names of shards that stand beside each other, none a folder of another.
 *
 * Why:     "opt" and "opt/state" are two keys of a bucket, but a file and a folder of one name in a
 *          folder; a job that saves to the one must be able to save to the other.
 * Promise: 1   a name is refused when it is a folder of one that was taken, or one of those is a
 *              folder of it; client, uploader and server ask here (and the server its rows, for
 *              the names of other ranks), whatever the store is.
 *          2   the same name may be added again.
 * Limits:  2^31 names with their folders.
 * Threads: one owner.
 * Next:    api/keys.h for what one name may be.
 */
#pragma once

#include "api/names.h"

struct cairn_shard_names {
    struct cairn_names names, folders;
};
void cairn_shard_names_release(struct cairn_shard_names *set);
/* CAIRN_INVALID names both. The name must be a good one (cairn_shard_name_check). */
enum cairn_code cairn_shard_names_add(struct cairn_shard_names *set, struct cairn_view name,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The folder of a name that comes after `folder` (size 0: its first one); false: there is none.
 * "a/b/c" has "a" and "a/b". */
bool cairn_shard_name_folder(struct cairn_view name, struct cairn_view *folder);
