/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fragments: the stored fragments of one tensor, sorted for looking up what a read wants of it.
 *
 * Why:     wants often come in groups about one tensor; its fragments are looked up, checked
 *          against the manifest and sorted once for all of them.
 * Promise: 1   every fragment lies in its tensor and in a shard that the manifest has with that
 *              size; ranks that describe the tensor differently are CAIRN_CORRUPT.
 *          2   of a REPLICATED tensor one rank's copy is taken, always the same for one layout.
 * Limits:  those of api/table/table.h; memory O(fragments of the tensor).
 * Threads: one owner.
 * Next:    plan/reads.c.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/table/layout.h"
#include "plan/boxes.h"

#define CAIRN_PLAN_NAME_SHOWN 80
/* For "%.*s": at most as much of a name as a message can hold. */
#define CAIRN_PLAN_SHOWN(name)                                                                     \
    (name).size > CAIRN_PLAN_NAME_SHOWN ? CAIRN_PLAN_NAME_SHOWN : (int)(name).size,                \
        (const char *)(name).data

/* A region of a tensor and where its elements lie, in elements from a base. */
struct cairn_plan_span {
    bool flat; /* [start, end) of the flattened tensor; else box */
    uint64_t start, end;
    struct cairn_plan_box box;
    uint64_t strides[CAIRN_DIMENSIONS_MAX];
};
struct cairn_plan_fragment { /* one stored fragment */
    struct cairn_plan_span span;
    uint64_t low, high; /* the flat range that it lies in */
    uint64_t reach;     /* largest high of this and all before it */
    uint32_t shard;     /* index into the manifest */
    uint64_t offset_bytes;
};
struct cairn_plan_fragments { /* a zeroed one is empty */
    bool loaded;
    uint32_t name, local_rank;
    uint32_t ref_first, ref_count; /* that are read */
    struct cairn_tensor tensor;
    uint64_t elements, strides[CAIRN_DIMENSIONS_MAX];
    struct cairn_plan_fragment *list; /* owned; sorted by low */
    size_t count, capacity;
};
void cairn_plan_fragments_release(struct cairn_plan_fragments *fragments);
/* The tensor of that name in the layout, without its fragments. local_rank: whose, if LOCAL. */
enum cairn_code cairn_plan_fragments_choose(struct cairn_plan_fragments *fragments,
                                            const struct cairn_layout *layout, uint32_t name,
                                            uint32_t local_rank,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* The fragments of the tensor that was chosen. */
enum cairn_code cairn_plan_fragments_load(struct cairn_plan_fragments *fragments,
                                          const struct cairn_layout *layout,
                                          const struct cairn_manifest *manifest,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Of many ranks' fragments only those that can hold anything of [low, high) of the flattened
 * tensor, if fragments rise with the ranks that list them, as most jobs save them: found by
 * bisection. That is not checked. So what they fill exactly once is right, and what they do not
 * fill wants the others, too. *ret false: that is not worth it, or not to be told, and nothing is
 * loaded. */
enum cairn_code cairn_plan_fragments_load_near(struct cairn_plan_fragments *fragments,
                                               const struct cairn_layout *layout,
                                               const struct cairn_manifest *manifest, uint64_t low,
                                               uint64_t high, bool *ret,
                                               struct cairn_error *err) CAIRN_MUST_USE;

void cairn_plan_span_flat(const struct cairn_plan_fragments *fragments, uint64_t start,
                          uint64_t count, struct cairn_plan_span *ret);
void cairn_plan_span_box(unsigned dimensions, const uint64_t *start, const uint64_t *count,
                         struct cairn_plan_span *ret);
/* Where the element stands in the flattened tensor. */
uint64_t cairn_plan_flat_index(const struct cairn_plan_fragments *fragments, const uint64_t *point);
/* The flat range from a span's first to its last element. */
void cairn_plan_flat_bounds(const struct cairn_plan_fragments *fragments,
                            const struct cairn_plan_span *span, uint64_t *ret_low,
                            uint64_t *ret_high);
