/* SPDX-License-Identifier: Apache-2.0 */
/*
 * items: what becomes of a version's items (include/cairn/items.h) where its tensors are written as
 *        files of another program.
 *
 * Why:     items are pickles, tokenizers, the state of a data loader: no reader of tensors expects
 *          them as one, and torch.distributed.checkpoint has a place for those that it wrote.
 * Promise: 1   an item that is a file of torch.save is an object of the assembly where objects are
 *              kept; every other one is in left_out, by name.
 * Limits:  an item of several pieces is left out: an object is one range of a file.
 * Threads: one owner, as the assembly.
 * Next:    cli/export_plan.h, which writes no tensor of that type.
 */
#pragma once

#include "formats/assembly/assembly.h"

enum cairn_code cairn_cli_items_take(struct cairn_assembly *assembly, bool keeps_objects,
                                     struct cairn_error *err) CAIRN_MUST_USE;
