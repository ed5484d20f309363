/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names: sets of distinct byte strings, numbered in order of arrival and sortable; and sets of
 * shard names without conflicts between files and folders.
 *
 * Why:     tables and layouts hold each name once, sorted; a million lookups while one is built
 *          must not compare long strings a million times. "opt" and "opt/state" can both be keys
 *          of a bucket, but not a file and a folder in a directory; a job must be able to switch
 *          between bucket and directory.
 * Promise: 1   equal strings get the same number; numbers count up from 0.
 *          2   after order, rank[number] is the string's place in byte order.
 *          3   a shard's name is refused if it is a folder of an earlier name or has an earlier
 *              name as a folder, whatever the store; client, uploader and server use this check
 *              (the server uses its rows for names of other ranks).
 *          4   adding a shard's name again succeeds.
 * Limits:  2^31 strings, for shard names including their folders; views are borrowed unless `copy`
 *          is set.
 * Threads: one owner.
 * Next:    api/table/table_build.c, api/table/layout.c; api/documents/keys.h for valid names.
 */
#pragma once

#include "common/error.h"

struct cairn_names_block; /* memory of copied names */

struct cairn_names {
    struct cairn_view *views; /* indexed by number */
    uint64_t *hashes;
    uint32_t *slots; /* open addressing; number + 1, 0: free */
    uint32_t count, capacity;
    uint64_t slot_count; /* a power of two, at least twice capacity */
    bool copy;
    struct cairn_names_block *blocks;
};
void cairn_names_release(struct cairn_names *names);
enum cairn_code cairn_names_add(struct cairn_names *names, struct cairn_view name,
                                uint32_t *ret_number, struct cairn_error *err) CAIRN_MUST_USE;
/* The number of a string of the set; false: not in the set. */
bool cairn_names_find(const struct cairn_names *names, struct cairn_view name,
                      uint32_t *ret_number);
bool cairn_names_has(const struct cairn_names *names, struct cairn_view name);
/* ret_order[place] = number and ret_rank[number] = place, each of names->count entries. */
void cairn_names_order(const struct cairn_names *names, uint32_t *ret_order, uint32_t *ret_rank);
/* Byte order; a prefix sorts before longer strings. */
int cairn_view_compare(struct cairn_view a, struct cairn_view b);

/* ---- names of shards ---- */

struct cairn_shard_names {
    struct cairn_names names, folders;
};
void cairn_shard_names_release(struct cairn_shard_names *set);
/* CAIRN_INVALID names both shards. The name must pass cairn_shard_name_check. */
enum cairn_code cairn_shard_names_add(struct cairn_shard_names *set, struct cairn_view name,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The next folder of a name ("a", "a/b" of "a/b/c"), after `folder`, size 0 at first; or false. */
bool cairn_shard_name_folder(struct cairn_view name, struct cairn_view *folder);
