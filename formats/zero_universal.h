/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_universal: the tensors of a DeepSpeed universal checkpoint.
 *
 * Why:     ds_to_universal makes a folder zero/<parameter> of each parameter, with a file of torch
 *          for its values (fp32.pt) and for each thing that the optimizer keeps of it.
 * Promise: 1   every parameter that has a folder is in the assembly, in the shape that its file
 *              has; of ZeRO stage 3, whose files are flat, in the shape that the models' files
 *              beside zero/ tell. One without fp32.pt is CAIRN_INVALID, by name.
 *          2   what the optimizer keeps is optimizer.state.<parameter>.<file>, where it is wanted;
 *              a plain number, and files of no parameter, are in left_out.
 *          3   what has no folder and is in the models' files (frozen parameters, buffers, further
 *              names) is in the assembly or in left_out. Without these files a checkpoint of
 *              stage 3 is CAIRN_NOT_FOUND.
 * Limits:  as formats/torch.h for each file.
 * Threads: one owner.
 * Next:    formats/zero.h for the checkpoints of which it is made; cli/convert/inside.h.
 */
#pragma once

#include "formats/zero.h"

#define CAIRN_ZERO_UNIVERSAL "zero/"

/* Is it one? By the names of its files, those of the folders below zero/ with their path. */
bool cairn_zero_universal_is(const struct cairn_zero_folder *folder);
/* Adds to the assembly, whose inputs are the folder's; its names are sorted. */
enum cairn_code cairn_zero_universal_open(const struct cairn_zero_folder *folder, bool optimizer,
                                          struct cairn_assembly *assembly,
                                          struct cairn_error *err) CAIRN_MUST_USE;
