/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split: which member of a replica group saves what of the tensors that all members hold alike.
 *
 * Why:     where one rank writes for its whole data-parallel group, the others and their links to
 *          the store stand idle. Each member computes the same split from what it holds anyway, so
 *          nothing is sent between them.
 * Promise: 1   the shares of all members together hold each element of each item exactly once.
 *          2   the same group gives the same shares at every member, on every machine, in whatever
 *              order the items are listed; the digest is equal exactly where the shares are made of
 *              the same (but for a chance of 2^-128: it protects from mistakes, not from malice).
 *          3   SLICE: a share's bytes differ from total * weight / sum of weights by at most half
 *              of CAIRN_PLAN_SPLIT_BLOCK_BYTES, so two of equal weight by one block; cuts lie
 *              between whole elements that fill whole bytes. A box of elements narrower than a byte
 *              is not cut.
 *          4   TENSOR, LAYER: tensors, or layers, are not cut. With equal weights no member has
 *              more than the mean and one unit.
 *          5   a member of weight 0 gets nothing. An item without elements is in one share.
 * Limits:  CAIRN_PLAN_SPLIT_ITEMS_MAX items, CAIRN_PLAN_SPLIT_MEMBERS_MAX members, 2^62 bytes;
 *          O(n log n + n log members).
 * Threads: stateless.
 * Next:    client/save/split.h; tests/plan/test_split.c compares it with the promises.
 */
#pragma once

#include "plan/reads.h"

#define CAIRN_PLAN_SPLIT_ITEMS_MAX (UINT32_C(1) << 20)
#define CAIRN_PLAN_SPLIT_MEMBERS_MAX (UINT32_C(1) << 16)
#define CAIRN_PLAN_SPLIT_BLOCK_BYTES 4096
#define CAIRN_PLAN_SPLIT_MARKS 32
#define CAIRN_PLAN_SPLIT_PARTS 32
#define CAIRN_PLAN_SPLIT_FRAGMENTS_MAX CAIRN_PLAN_SPLIT_MAX

enum cairn_plan_split_by { /* the same numbers as enum cairn_split_by of cairn/cairn.h */
                           CAIRN_PLAN_SPLIT_FIRST = 0,  /* all to member 0 */
                           CAIRN_PLAN_SPLIT_LAYER = 1,  /* a layer goes to one member: names up to
                                                           their first component of digits */
                           CAIRN_PLAN_SPLIT_TENSOR = 2, /* a tensor goes to one member */
                           CAIRN_PLAN_SPLIT_SLICE = 3   /* ranges of elements */
};
/* What every member holds of a tensor: all of it, a flat range or a box. All is borrowed. */
struct cairn_plan_split_item {
    struct cairn_view name;
    unsigned dtype, dimension_count;
    const uint64_t *shape;
    enum cairn_plan_form form;
    const uint64_t *start, *count; /* as in struct cairn_plan_want; not read for WHOLE */
};
struct cairn_plan_group {
    enum cairn_plan_split_by by;
    uint32_t members;
    const uint32_t *weights; /* one a member; NULL: all are equal */
    const struct cairn_plan_split_item *items;
    size_t item_count;
};
/* Elements [start, start + count) of the flattened region that an item's members hold. */
struct cairn_plan_share {
    uint32_t item;
    uint64_t start, count;
};
/* Of lists that differ, marks tell where: an item, and the digest of the items up to it. Items are
 * chosen by their names alone, so that members with other lists choose mostly the same ones. */
struct cairn_plan_mark {
    uint32_t item;
    uint64_t digest;
};
struct cairn_plan_split {
    struct cairn_plan_share *shares; /* member by member, in the order of the names; owned */
    uint32_t *first;                 /* member m has shares first[m] up to first[m + 1]; owned */
    uint64_t *bytes;                 /* of each member's share; owned */
    uint32_t members;
    uint8_t digest[32];
    uint64_t how; /* digest of what is not items: the way to split, members and weights */
    struct cairn_plan_mark marks[CAIRN_PLAN_SPLIT_MARKS]; /* in the order of the names */
    uint32_t mark_count;
};
void cairn_plan_split_release(struct cairn_plan_split *split);

/* CAIRN_INVALID: a name that stands twice, a region outside its tensor or without a whole number of
 * bytes, weights that are all 0, more members or items than the limits. */
enum cairn_code cairn_plan_split(const struct cairn_plan_group *group, struct cairn_plan_split *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Where two lists part is found by looks at equal parts of them: the digests of the items from
 * `from` up to the end of each part of cairn_plan_split_part items, of a list in the order of its
 * names. Before the first item that differs both have the same item at the same place, so the first
 * digest that differs is of the part that holds it, also where it moves all others on. */
struct cairn_plan_split_list {
    size_t count;
    struct cairn_plan_split_item (*at)(const void *owner, size_t place);
    const void *owner;
};
uint32_t cairn_plan_split_part(uint32_t from, uint32_t to);
/* Returns how many parts there are. */
unsigned cairn_plan_split_look(const struct cairn_plan_split_list *list, uint32_t from, uint32_t to,
                               uint64_t ret[CAIRN_PLAN_SPLIT_PARTS]);
/* The elements of a share as fragments of the whole tensor: one FLAT for what is flat, else boxes.
 * Returns how many; 0 for a share without elements. Only form, start and count are set. */
unsigned cairn_plan_share_fragments(const struct cairn_plan_split_item *item,
                                    const struct cairn_plan_share *share,
                                    struct cairn_fragment ret[CAIRN_PLAN_SPLIT_FRAGMENTS_MAX]);
