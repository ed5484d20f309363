/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_key: the key of a dict as a text, as Python's str() gives it.
 *
 * Why:     torch.distributed.checkpoint names the items of a nested state dict by the texts of
 *          their keys: a job finds them under these names only.
 * Promise: 1   None, booleans, numbers of any size, texts, bytes, element types, and tuples, lists
 *              and sets of these are as Python writes them; a text alone is itself.
 *          2   of another key the caller is told that it has no text.
 * Limits:  16 levels. Sets have the order of the file, since Python's own is by its hashes. Code
 *          points of a text in a tuple that no character has yet stay as they are, where Python
 *          decides by its version.
 * Threads: stateless.
 * Next:    formats/torch_tree.c.
 */
#pragma once

#include "formats/torch.h"

/* Appends; *ret: false where the key has no text, then what was appended means nothing. */
enum cairn_code cairn_torch_key_text(const struct cairn_pickle *values, cairn_pickle_ref key,
                                     struct cairn_buf *into, bool *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
