/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors: the tensors of the safetensors files in a tree, described to a save.
 *
 * Why:     a model directory that was put must be readable tensor by tensor afterwards.
 * Promise: 1   a file that is named .safetensors and is none is kept as raw bytes, with a note.
 *          2   a name that stands in two files is listed as "file:name" in both.
 *          3   in a folder with an index (formats/assembly/models.h) the tensors are those that it
 *              names, each in the file that it names; other files there are kept as raw bytes.
 *          4   pieces of torch's distributed checkpointing are one tensor where the files of their
 *              folder make it whole, else raw bytes, with a note.
 *          5   what is not described is in left_out.
 * Limits:  as formats/safetensors.h.
 * Threads: one owner.
 * Next:    formats/safetensors.h.
 */
#pragma once

#include "cli/save_tree.h"

/* Call cairn_save_tensor for each tensor of each file. */
enum cairn_code cairn_cli_describe_tensors(struct cairn_save *save,
                                           const struct cairn_cli_tree *tree,
                                           struct cairn_cli_described *ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
