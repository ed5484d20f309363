/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_ranks: the tensors of a checkpoint of which each rank wrote a file of torch.save.
 *
 * Why:     verl, and jobs with FSDP that write no DCP, save model_world_size_8_rank_3.pt or
 *          ep1-ba1-rank3.pt: state dicts with DTensors (or, before FSDP2, ShardedTensors) in them:
 *          a piece, and how all pieces lie in the whole.
 * Promise: 1   files of one name but for the number behind "rank" are a set. It has each rank from
 *              0 on, and as many as "world_size" in its name says: CAIRN_NOT_FOUND names one that
 *              is missing.
 *          2   of several sets that of the model is taken, whose files begin with "model" or
 *              "pytorch_model", and with `optimizer` that whose files begin with "optim", below
 *              "optimizer."; other files of sets are left out by name. Where no set or more than
 *              one is the model's, CAIRN_INVALID names two.
 *          3   a tensor is put together from the pieces of all ranks; holes, overlaps and ranks
 *              that disagree on shape or element type are CAIRN_INVALID, by name.
 *          4   a tensor that ranks have whole is taken where all have the same bytes, and is else
 *              left out by name, as are pieces that cannot be placed.
 *          5   the box of a DTensor's piece follows from its mesh, the rank's place there and the
 *              placements, as torch computes it: chunks of the first dimensions of the mesh first,
 *              with _StridedShard and shard_order in the order that they say. The piece in the file
 *              has exactly that shape, else it is CAIRN_INVALID. The boxes of a ShardedTensor are
 *              what it says of itself.
 *          6   a piece that another rank has, too (Replicate), is the one's alone that stands first
 *              in that dimension of the mesh. A sum that was not added up yet (Partial), and a mesh
 *              or placements that are not known, are CAIRN_UNSUPPORTED.
 *          7   one whose only piece is all of it, as of a job of one rank, is a tensor like others
 *              (formats/torch/torch.h) wherever it is met.
 * Limits:  65,536 ranks; 4,194,304 pieces; 8 dimensions of a tensor, 8 of the mesh; as
 *          formats/assembly/assembly.h. Zips with compression are CAIRN_UNSUPPORTED.
 * Threads: one owner.
 * Next:    cli/convert/weights.c.
 */
#pragma once

#include "formats/torch/torch.h"
#include "formats/zero/zero.h"

#define CAIRN_TORCH_RANKS_FORMAT "torch-ranks"
/* What precedes the names of the optimizer's values. */
#define CAIRN_TORCH_RANKS_OPTIMIZER "optimizer."

/* Is one of them there? By names alone. */
bool cairn_torch_ranks_is(const struct cairn_zero_folder *folder);
/* Adds to the assembly, whose inputs are the folder's. */
enum cairn_code cairn_torch_ranks_assemble(const struct cairn_zero_folder *folder, bool optimizer,
                                           struct cairn_assembly *assembly,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* The numbers in the folder of rank 0's files; *ret_optimizer: SIZE_MAX where there is none. */
enum cairn_code cairn_torch_ranks_first(const struct cairn_zero_folder *folder, size_t *ret_model,
                                        size_t *ret_optimizer,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* ---- a tensor of which a torch file has the pieces of one rank alone ---- */

bool cairn_torch_is_sharded(const struct cairn_torch *file, cairn_pickle_ref ref);
/* Is its only piece all of it? *ret: that piece, a plain tensor. */
bool cairn_torch_sharded_whole(const struct cairn_torch *file, cairn_pickle_ref ref,
                               cairn_pickle_ref *ret);
