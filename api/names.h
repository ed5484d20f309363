/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names: a set of distinct byte strings that are numbered as they come and can be put in order.
 *
 * Why:     tables and layouts hold each name once, sorted; a million look-ups while one is built
 *          must not cost a million comparisons of long strings each.
 * Promise: 1   equal strings get the same number; numbers count up from 0.
 *          2   after order, rank[number] is the string's place in byte order.
 * Limits:  2^31 strings; the views are borrowed unless `copy` is set.
 * Threads: one owner.
 * Next:    api/table_build.c, api/layout.c, formats/assembly/assembly.c.
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
