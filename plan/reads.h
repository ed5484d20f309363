/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reads: plan which bytes of which objects make up a want, and the blocks around them.
 *
 * Why:     a job restarts with other ranks and another split; its wants must be found in the old
 *          job's pieces without reading more than needed. Reads are verified in whole blocks, so
 *          client, uploader and server widen ranges to blocks, join ranges that share one, and cut
 *          long ranges at block borders.
 * Promise: 1   a want's pieces fill its destination exactly once, without hole or overlap; a region
 *              that the layout lacks is CAIRN_NOT_FOUND, naming tensor and region.
 *          2   pieces are sorted by want, then destination; pieces adjacent in both object and
 *              destination are merged.
 *          3   the same input gives the same pieces on every machine; a REPLICATED tensor is read
 *              from one rank's copy, the same for a given layout.
 *          4   every fragment lies in its tensor and in a shard of the manifest with that size;
 *              ranks that describe a tensor differently are CAIRN_CORRUPT.
 *          5   widen returns the smallest range that holds the given one, lies within the object,
 *              and begins and ends at block borders or the object's end.
 *          6   within returns the largest range of whole blocks in the range (the object's shorter
 *              last block counts as whole); empty if there is none.
 *          7   two ranges join exactly if reading them separately would read a block twice or leave
 *              no gap between them.
 *          8   a cut is at the range's end if room allows, else at the last block border within
 *              room; at the begin, fitting nothing, if there is none. With room for one block
 *              something always fits.
 * Limits:  CAIRN_PLAN_PIECES_MAX pieces in total (more: CAIRN_TOO_LARGE); sub-byte elements are cut
 *          only at byte borders (else CAIRN_UNSUPPORTED). Ranges: end >= begin, and no end within a
 *          block of UINT64_MAX.
 * Threads: stateless.
 * Next:    client/restore/restore.h, uploader/fetch/fetch.c, server/reads/plans.c; plan/cover.h;
 *          tests/plan/test_reads.c, tests/plan/test_near.c, tests/plan/test_ranges.c.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/table/layout.h"
#include "common/base.h"
#include "plan/boxes.h"

/* ---- ranges of an object, and blocks ---- */

struct cairn_plan_range {
    uint64_t begin, end; /* end: exclusive */
};
struct cairn_plan_range cairn_plan_range_widen(struct cairn_plan_range range,
                                               uint64_t object_bytes);
struct cairn_plan_range cairn_plan_range_within(struct cairn_plan_range range,
                                                uint64_t object_bytes);
/* Ranges of one object, ordered by begin; `before` may already be a joined range. */
bool cairn_plan_range_joins(struct cairn_plan_range before, struct cairn_plan_range next);
/* Where a read that starts at range.begin with `room` bytes must end. */
uint64_t cairn_plan_range_cut(struct cairn_plan_range range, uint64_t room);

/* ---- the stored fragments of one tensor ---- */

#define CAIRN_PLAN_NAME_SHOWN 80
/* Arguments for "%.*s": a name truncated for a message. */
#define CAIRN_PLAN_SHOWN(name)                                                                     \
    (name).size > CAIRN_PLAN_NAME_SHOWN ? CAIRN_PLAN_NAME_SHOWN : (int)(name).size,                \
        (const char *)(name).data

/* A region of a tensor and the layout of its elements, in elements from a base. */
struct cairn_plan_span {
    bool flat; /* [start, end) of the flattened tensor; else box */
    uint64_t start, end;
    struct cairn_plan_box box;
    uint64_t strides[CAIRN_DIMENSIONS_MAX];
};
struct cairn_plan_fragment {
    struct cairn_plan_span span;
    uint64_t low, high; /* the flat range that contains it */
    uint64_t reach;     /* largest high of this and all earlier ones */
    uint32_t shard;     /* index into the manifest */
    uint64_t offset_bytes;
};
struct cairn_plan_fragments { /* a zeroed one is empty */
    bool loaded;
    uint32_t name, local_rank;
    uint32_t ref_first, ref_count; /* the listings to read */
    struct cairn_tensor tensor;
    uint64_t elements, strides[CAIRN_DIMENSIONS_MAX];
    struct cairn_plan_fragment *list; /* owned; sorted by low */
    size_t count, capacity;
};
void cairn_plan_fragments_release(struct cairn_plan_fragments *fragments);
/* Chooses a tensor of the layout, without loading fragments. local_rank: the owner, if LOCAL. */
enum cairn_code cairn_plan_fragments_choose(struct cairn_plan_fragments *fragments,
                                            const struct cairn_layout *layout, uint32_t name,
                                            uint32_t local_rank,
                                            struct cairn_error *err) CAIRN_MUST_USE;

#define CAIRN_PLAN_PIECES_MAX (UINT32_C(16) << 20)

enum cairn_plan_form { /* numbered as enum cairn_form of cairn/cairn.h */
                       CAIRN_PLAN_WHOLE = 0,
                       CAIRN_PLAN_FLAT =
                           1, /* elements [start[0], start[0] + count[0]) of the flattened tensor */
                       CAIRN_PLAN_BOX = 2 /* start[d], count[d] for each dimension of the tensor */
};
/* Either a range of a shard (shard.data is not NULL), or a tensor or a slice of one. */
struct cairn_plan_want {
    struct cairn_view shard;
    uint64_t offset, bytes; /* in the shard; bytes UINT64_MAX = to its end */
    struct cairn_view tensor;
    uint32_t local_rank; /* LOCAL tensors: the owner */
    enum cairn_plan_form form;
    const uint64_t *start, *count; /* borrowed; unused for WHOLE */
};
struct cairn_plan_piece {
    uint32_t want;
    uint32_t shard;  /* index into manifest->shards */
    uint64_t offset; /* in the shard's object */
    uint64_t bytes;
    uint64_t at; /* offset in the want's destination */
};
struct cairn_plan_pieces {
    struct cairn_plan_piece *pieces; /* owned */
    size_t count, capacity;
    uint64_t *want_bytes; /* owned: destination bytes per want */
    size_t want_count;
};
void cairn_plan_pieces_release(struct cairn_plan_pieces *pieces);

/* Plans the wants. layout NULL: a version with shards only. Branch on CAIRN_NOT_FOUND (no such
 * tensor or shard, or a region without a fragment) and CAIRN_RANGE (the want exceeds the tensor or
 * shard). CAIRN_CORRUPT: layout and manifest contradict each other. */
enum cairn_code cairn_plan_reads(const struct cairn_manifest *manifest,
                                 const struct cairn_layout *layout,
                                 const struct cairn_plan_want *wants, size_t want_count,
                                 struct cairn_plan_pieces *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* The same with less memory: at most pieces_max pieces before merging. */
enum cairn_code cairn_plan_reads_most(const struct cairn_manifest *manifest,
                                      const struct cairn_layout *layout,
                                      const struct cairn_plan_want *wants, size_t want_count,
                                      size_t pieces_max, struct cairn_plan_pieces *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Resolves a name, aliases followed, to its index in the layout. */
enum cairn_code cairn_plan_resolve(const struct cairn_layout *layout, struct cairn_view name,
                                   uint32_t *ret_index, struct cairn_error *err) CAIRN_MUST_USE;
