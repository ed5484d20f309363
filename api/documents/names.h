/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names: sets of distinct byte strings that are numbered as they come and can be put in order, and
 * names of shards that stand beside each other.
 *
 * Why:     tables and layouts hold each name once, sorted; a million look-ups while one is built
 *          must not cost a million comparisons of long strings each. "opt" and "opt/state" are two
 *          keys of a bucket, but a file and a folder of one name in a folder; a job that saves to
 *          the one must be able to save to the other.
 * Promise: 1   equal strings get the same number; numbers count up from 0.
 *          2   after order, rank[number] is the string's place in byte order.
 *          3   a shard's name is refused when it is a folder of one that was taken, or one of those
 *              is a folder of it; client, uploader and server ask here (and the server its rows,
 *              for the names of other ranks), whatever the store is.
 *          4   the same shard's name may be added again.
 * Limits:  2^31 strings, of shards' names with their folders; the views are borrowed unless `copy`
 *          is set.
 * Threads: one owner.
 * Next:    api/table/table_build.c, api/table/layout.c; api/documents/keys.h for what a name is.
 */
#pragma once

#include "common/error.h"

struct cairn_names_block; /* memory of copied names */

struct cairn_names {
    struct cairn_view *views; /* by number */
    uint64_t *hashes;
    uint32_t *slots; /* open addressing; number + 1, 0 is free */
    uint32_t count, capacity;
    uint64_t slot_count; /* a power of two, at least twice capacity */
    bool copy;
    struct cairn_names_block *blocks;
};
void cairn_names_release(struct cairn_names *names);
enum cairn_code cairn_names_add(struct cairn_names *names, struct cairn_view name,
                                uint32_t *ret_number, struct cairn_error *err) CAIRN_MUST_USE;
/* The number of a string that was added; false: it was not. */
bool cairn_names_find(const struct cairn_names *names, struct cairn_view name,
                      uint32_t *ret_number);
bool cairn_names_has(const struct cairn_names *names, struct cairn_view name);
/* ret_order[place] = number and ret_rank[number] = place, each of names->count entries. */
void cairn_names_order(const struct cairn_names *names, uint32_t *ret_order, uint32_t *ret_rank);
/* Byte order, a shorter string before a longer one that it begins. */
int cairn_view_compare(struct cairn_view a, struct cairn_view b);

/* ---- names of shards ---- */

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
