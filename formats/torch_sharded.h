/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_sharded: a tensor of which a torch file has the pieces of one rank alone.
 *
 * Why:     who saves the state dict of FSDP or of tensor parallelism by torch.save writes one file
 *          for each rank, with DTensors (or, before FSDP2, ShardedTensors) in it: a piece, and how
 *          all pieces lie in the whole.
 * Promise: 1   the box of a DTensor's piece follows from its mesh, the rank's place there and the
 *              placements, as torch computes it: chunks of the first dimensions of the mesh first,
 *              with _StridedShard and shard_order in the order that they say. The piece in the file
 *              has exactly that shape, else it is CAIRN_INVALID.
 *          2   a piece that another rank has, too (Replicate), is the one's alone that stands first
 *              in that dimension of the mesh.
 *          3   a sum that was not added up yet (Partial), and a mesh or placements that are not
 *              known, are CAIRN_UNSUPPORTED.
 *          4   the boxes of a ShardedTensor are what it says of itself.
 *          5   one whose only piece is all of it, as of a job of one rank, is a tensor like others
 *              (formats/torch.h) wherever it is met.
 * Limits:  8 dimensions of the tensor, 8 of the mesh.
 * Threads: stateless.
 * Next:    formats/torch_ranks.h puts them together.
 */
#pragma once

#include "formats/boxes.h"
#include "formats/torch.h"

struct cairn_torch_sharded {
    unsigned dtype, dimension_count; /* of the whole */
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    cairn_pickle_ref members; /* of a DTensor a dict, of a ShardedTensor its list of pieces */
    bool listed;              /* it is a ShardedTensor */
    uint32_t count;           /* of pieces */
};
bool cairn_torch_is_sharded(const struct cairn_torch *file, cairn_pickle_ref ref);
enum cairn_code cairn_torch_sharded(const struct cairn_torch *file, cairn_pickle_ref ref,
                                    struct cairn_torch_sharded *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Is its only piece all of it? *ret: that piece, a plain tensor. */
bool cairn_torch_sharded_whole(const struct cairn_torch *file, cairn_pickle_ref ref,
                               cairn_pickle_ref *ret);
/* Piece number `index`. *ret_has: it has elements, and is not left to another rank. */
enum cairn_code cairn_torch_sharded_piece(const struct cairn_torch *file,
                                          const struct cairn_torch_sharded *sharded,
                                          uint32_t index, struct cairn_box *ret_box,
                                          struct cairn_torch_tensor *ret_piece, bool *ret_has,
                                          struct cairn_error *err) CAIRN_MUST_USE;
