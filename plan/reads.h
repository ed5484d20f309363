/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reads: which bytes of which objects make up what a caller wants.
 *
 * Why:     a job restarts with another number of ranks and another split; what it asks for must be
 *          found in the pieces that the old job wrote, without reading more than that.
 * Promise: 1   the pieces of a want fill its destination exactly once, without hole or overlap;
 *              what the layout does not hold is CAIRN_NOT_FOUND naming tensor and region.
 *          2   pieces are sorted by want, then by place in the destination; neighbours in both the
 *              object and the destination are one piece.
 *          3   the same input gives the same pieces on every machine.
 * Limits:  CAIRN_PLAN_PIECES_MAX pieces in all (more: CAIRN_TOO_LARGE); elements narrower than a
 *          byte can be cut at byte borders only (else CAIRN_UNSUPPORTED).
 * Threads: stateless.
 * Next:    client/restore/restore.h, plan/cover.h.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/table/layout.h"
#include "api/table/table.h"

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
