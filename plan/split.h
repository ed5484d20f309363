/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split: divide tensors that all members of a replica group hold into one share per member.
 *
 * Why:     if one rank writes for its data-parallel group, the other ranks and their links are
 *          idle. Each member computes the same split from its own data, so no messages are needed.
 * Promise: 1   all members' shares together hold each element of each item exactly once.
 *          2   the same group gives the same shares on every member and machine, in any order of
 *              items; digests are equal exactly if the shares' inputs are (except with probability
 *              2^-128: this detects mistakes, not malice).
 *          3   SLICE: a share's bytes differ from total * weight / sum of weights by at most half
 *              of CAIRN_PLAN_SPLIT_BLOCK_BYTES, so two of equal weight differ by at most one block;
 *              cuts lie between whole elements and whole bytes. A box of sub-byte elements is not
 *              cut.
 *          4   TENSOR, LAYER: tensors, or layers, are not cut. With equal weights no member exceeds
 *              the mean by more than one unit.
 *          5   a member of weight 0 gets nothing. An empty item is in one share.
 * Limits:  CAIRN_PLAN_SPLIT_ITEMS_MAX items, CAIRN_PLAN_SPLIT_MEMBERS_MAX members, 2^62 bytes;
 *          O(n log n + n log members).
 * Threads: stateless.
 * Next:    client/save/split.h; tests/plan/test_split.c checks the promises.
 */
#pragma once

#include "plan/reads.h"

#define CAIRN_PLAN_SPLIT_ITEMS_MAX (UINT32_C(1) << 20)
#define CAIRN_PLAN_SPLIT_MEMBERS_MAX (UINT32_C(1) << 16)
#define CAIRN_PLAN_SPLIT_BLOCK_BYTES 4096
#define CAIRN_PLAN_SPLIT_MARKS 32
#define CAIRN_PLAN_SPLIT_PARTS 32
#define CAIRN_PLAN_SPLIT_FRAGMENTS_MAX CAIRN_PLAN_SPLIT_MAX

enum cairn_plan_split_by { /* numbered as enum cairn_split_by of cairn/cairn.h */
                           CAIRN_PLAN_SPLIT_FIRST = 0,  /* everything to member 0 */
                           CAIRN_PLAN_SPLIT_LAYER = 1,  /* each layer to one member: names up to
                                                           their first all-digit component */
                           CAIRN_PLAN_SPLIT_TENSOR = 2, /* each tensor to one member */
                           CAIRN_PLAN_SPLIT_SLICE = 3   /* ranges of elements */
};
/* The part of a tensor that every member holds. All fields are borrowed. */
struct cairn_plan_split_item {
    struct cairn_view name;
    unsigned dtype, dimension_count;
    const uint64_t *shape;
    enum cairn_plan_form form;
    const uint64_t *start, *count; /* as in struct cairn_plan_want; unused for WHOLE */
};
struct cairn_plan_group {
    enum cairn_plan_split_by by;
    uint32_t members;
    const uint32_t *weights; /* one per member; NULL: equal */
    const struct cairn_plan_split_item *items;
    size_t item_count;
};
/* Elements [start, start + count) of an item's flattened region. */
struct cairn_plan_share {
    uint32_t item;
    uint64_t start, count;
};
/* Marks locate the difference between two lists: an item, and the digest of all items up to it.
 * Items are chosen by name only, so that different lists mostly mark the same items. */
struct cairn_plan_mark {
    uint32_t item;
    uint64_t digest;
};
struct cairn_plan_split {
    struct cairn_plan_share *shares; /* by member, then by name; owned */
    uint32_t *first;                 /* member m has shares first[m] up to first[m + 1]; owned */
    uint64_t *bytes;                 /* of each member's share; owned */
    uint32_t members;
    uint8_t digest[32];
    uint64_t how; /* digest of the split mode, members and weights */
    struct cairn_plan_mark marks[CAIRN_PLAN_SPLIT_MARKS]; /* in order of names */
    uint32_t mark_count;
};
void cairn_plan_split_release(struct cairn_plan_split *split);

/* CAIRN_INVALID: a duplicate name, a region outside its tensor or with a partial byte, all weights
 * 0, or more members or items than the limits. */
enum cairn_code cairn_plan_split(const struct cairn_plan_group *group, struct cairn_plan_split *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Looks find where two lists, ordered by name, differ: they compare digests of the items from
 * `from` to the end of each part of cairn_plan_split_part items. Before the first difference both
 * lists have the same item at the same place, so the first differing digest locates the part, even
 * if the difference shifts all later items. */
struct cairn_plan_split_list {
    size_t count;
    struct cairn_plan_split_item (*at)(const void *owner, size_t place);
    const void *owner;
};
uint32_t cairn_plan_split_part(uint32_t from, uint32_t to);
unsigned cairn_plan_split_look(const struct cairn_plan_split_list *list, uint32_t from, uint32_t to,
                               uint64_t ret[CAIRN_PLAN_SPLIT_PARTS]);
/* Converts a share to fragments of the whole tensor: one FLAT for a flat region, else boxes.
 * Returns their number; 0 for an empty share. Sets only form, start and count. */
unsigned cairn_plan_share_fragments(const struct cairn_plan_split_item *item,
                                    const struct cairn_plan_share *share,
                                    struct cairn_fragment ret[CAIRN_PLAN_SPLIT_FRAGMENTS_MAX]);
