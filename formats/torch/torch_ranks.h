/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_ranks: tensors of a checkpoint with one torch.save file per rank.
 *
 * Why:     verl, and FSDP jobs without DCP, save model_world_size_8_rank_3.pt or ep1-ba1-rank3.pt:
 *          state dicts with DTensors (before FSDP2: ShardedTensors), in pieces with their places.
 * Promise: 1   files whose names differ only in the number after "rank" are a set. It has ranks
 *              from 0 on, "world_size" of them: CAIRN_NOT_FOUND names a missing one.
 *          2   of several sets the model's is used, whose files begin with "model" or
 *              "pytorch_model", and with `optimizer` the one whose files begin with "optim", below
 *              "optimizer."; other sets are left out by name. No or several model sets:
 *              CAIRN_INVALID names two.
 *          3   a tensor is joined from the pieces of all ranks; holes, overlaps and ranks that
 *              disagree on shape or element type are CAIRN_INVALID, by name.
 *          4   a tensor that ranks hold whole is taken if all have the same bytes, and else left
 *              out by name, as are pieces without a place.
 *          5   the box of a DTensor's piece follows from its mesh, the rank's place there and the
 *              placements, as torch computes it: chunks of the mesh's first dimensions first, or
 *              the order of _StridedShard and shard_order. The piece in the file must have exactly
 *              that shape, else it is CAIRN_INVALID. A ShardedTensor states its boxes itself.
 *          6   of replicated pieces (Replicate) the first rank's in that dimension of the mesh
 *              counts. A pending sum (Partial) and unknown meshes or placements are
 *              CAIRN_UNSUPPORTED.
 *          7   a tensor whose only piece is all of it, as in a job of one rank, is an ordinary
 *              tensor (formats/torch/torch.h) everywhere.
 * Limits:  65,536 ranks; 4,194,304 pieces; 8 dimensions of a tensor, 8 of the mesh; as
 *          formats/assembly/assembly.h. Zips with compression are CAIRN_UNSUPPORTED.
 * Threads: one owner.
 * Next:    cli/convert/weights.c.
 */
#pragma once

#include "formats/torch/torch.h"
#include "formats/zero/zero.h"

/* Prefix of the optimizer's names. */
#define CAIRN_TORCH_RANKS_OPTIMIZER "optimizer."

/* True if the names of the files contain a set. */
bool cairn_torch_ranks_is(const struct cairn_zero_folder *folder);
/* Adds to the assembly, with the folder's inputs. */
enum cairn_code cairn_torch_ranks_assemble(const struct cairn_zero_folder *folder, bool optimizer,
                                           struct cairn_assembly *assembly,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Indexes in the folder of rank 0's files; *ret_optimizer: SIZE_MAX for none. */
enum cairn_code cairn_torch_ranks_first(const struct cairn_zero_folder *folder, size_t *ret_model,
                                        size_t *ret_optimizer,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* ---- a tensor of which a torch file has one rank's pieces ---- */

bool cairn_torch_is_sharded(const struct cairn_torch *file, cairn_pickle_ref ref);
/* True if its only piece is the whole tensor; *ret: that piece, a plain tensor. */
bool cairn_torch_sharded_whole(const struct cairn_torch *file, cairn_pickle_ref ref,
                               cairn_pickle_ref *ret);
