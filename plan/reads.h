/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reads: which bytes of which objects make up what a caller wants, and the blocks around them.
 *
 * Why:     a job restarts with another number of ranks and another split; what it asks for must be
 *          found in the pieces that the old job wrote, without reading more than that. A read is
 *          verified by whole blocks, so client, uploader and server all widen what is wanted to
 *          blocks, join what shares one, and cut what is too long at a border of blocks.
 * Promise: 1   the pieces of a want fill its destination exactly once, without hole or overlap;
 *              what the layout does not hold is CAIRN_NOT_FOUND naming tensor and region.
 *          2   pieces are sorted by want, then by place in the destination; neighbours in both the
 *              object and the destination are one piece.
 *          3   the same input gives the same pieces on every machine; of a REPLICATED tensor one
 *              rank's copy is taken, always the same for one layout.
 *          4   every fragment lies in its tensor and in a shard that the manifest has with that
 *              size; ranks that describe the tensor differently are CAIRN_CORRUPT.
 *          5   widen holds the range, lies within the object, and begins and ends at borders of
 *              blocks or at the object's end; no smaller range does.
 *          6   within is the largest range of whole blocks in the range (the object's last, shorter
 *              block is whole); empty where there is none.
 *          7   two ranges join exactly when reading them apart would read a block twice or leave no
 *              gap between them.
 *          8   a cut is at the end where that is within reach, else at the last border of blocks
 *              within room; it is the begin itself, and nothing fits, where there is none.
 *              With room for a block something always fits.
 * Limits:  CAIRN_PLAN_PIECES_MAX pieces in all (more: CAIRN_TOO_LARGE); elements narrower than a
 *          byte can be cut at byte borders only (else CAIRN_UNSUPPORTED). Of a range: end >= begin,
 *          and no end within a block of UINT64_MAX.
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
    uint64_t begin, end; /* the byte behind the last */
};
struct cairn_plan_range cairn_plan_range_widen(struct cairn_plan_range range,
                                               uint64_t object_bytes);
struct cairn_plan_range cairn_plan_range_within(struct cairn_plan_range range,
                                                uint64_t object_bytes);
/* Of one object, in the order of their begins; `before` may be several that were joined already. */
bool cairn_plan_range_joins(struct cairn_plan_range before, struct cairn_plan_range next);
/* Where a read from range.begin on must end that may have room bytes. */
uint64_t cairn_plan_range_cut(struct cairn_plan_range range, uint64_t room);

/* ---- the stored fragments of one tensor ---- */

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

#define CAIRN_PLAN_PIECES_MAX (UINT32_C(16) << 20)

enum cairn_plan_form { /* the same numbers as enum cairn_form of cairn/cairn.h */
                       CAIRN_PLAN_WHOLE = 0,
                       CAIRN_PLAN_FLAT =
                           1, /* elements [start[0], start[0] + count[0]) of the flattened tensor */
                       CAIRN_PLAN_BOX = 2 /* start[d], count[d] for each dimension of the tensor */
};
/* A range of a shard (shard.data is not NULL), else a tensor or a slice of it. */
struct cairn_plan_want {
    struct cairn_view shard;
    uint64_t offset, bytes; /* of the shard; bytes UINT64_MAX = to its end */
    struct cairn_view tensor;
    uint32_t local_rank; /* LOCAL tensors: whose */
    enum cairn_plan_form form;
    const uint64_t *start, *count; /* borrowed; not read for WHOLE */
};
struct cairn_plan_piece {
    uint32_t want;   /* index of the want */
    uint32_t shard;  /* index into manifest->shards */
    uint64_t offset; /* in the shard's object */
    uint64_t bytes;
    uint64_t at; /* in the destination of that want */
};
struct cairn_plan_pieces {
    struct cairn_plan_piece *pieces; /* owned */
    size_t count, capacity;
    uint64_t *want_bytes; /* owned: size of each want's destination */
    size_t want_count;
};
void cairn_plan_pieces_release(struct cairn_plan_pieces *pieces);

/* layout may be NULL (a version without one: shards only). Branch on: CAIRN_NOT_FOUND (no such
 * tensor or shard, or a region that no fragment holds), CAIRN_RANGE (the want reaches outside the
 * tensor or shard). CAIRN_CORRUPT: layout and manifest contradict each other. */
enum cairn_code cairn_plan_reads(const struct cairn_manifest *manifest,
                                 const struct cairn_layout *layout,
                                 const struct cairn_plan_want *wants, size_t want_count,
                                 struct cairn_plan_pieces *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* The same for whoever is trusted with less memory: pieces_max before neighbours are joined. */
enum cairn_code cairn_plan_reads_most(const struct cairn_manifest *manifest,
                                      const struct cairn_layout *layout,
                                      const struct cairn_plan_want *wants, size_t want_count,
                                      size_t pieces_max, struct cairn_plan_pieces *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Size of one want's destination alone, without planning it. Same codes. */
enum cairn_code cairn_plan_want_bytes(const struct cairn_manifest *manifest,
                                      const struct cairn_layout *layout,
                                      const struct cairn_plan_want *want, uint64_t *ret_bytes,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The tensor that a name stands for, aliases followed: the name's index in the layout. */
enum cairn_code cairn_plan_resolve(const struct cairn_layout *layout, struct cairn_view name,
                                   uint32_t *ret_index, struct cairn_error *err) CAIRN_MUST_USE;
