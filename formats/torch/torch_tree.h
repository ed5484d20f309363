/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_tree: the values of a torch file as a tree of maps, lists, tensors and plain values.
 *
 * Why:     a state dict consists of dict-like objects (OrderedDict, Namespace, torch.Size);
 *          listing, import and printing need one kind of each.
 * Promise: 1   a walk visits every leaf once for each path to it, in the file's order.
 *          2   it ends: depth and steps are bounded, whatever the values hold (pickle.h#4).
 *          3   a walk over items follows torch.distributed.checkpoint's flattening of a state dict:
 *              into each map, into a list with a map or a tensor, and, since tensors are taken by
 *              name wherever they lie, into any value with a tensor; all else is one item. A
 *              foreign class's instance is split like a map: readers may lack the class.
 *          4   a key in a path is Python's str() of it, since jobs find items by these names: None,
 *              booleans, numbers of any size, texts, bytes, element types, and tuples, lists and
 *              sets of these; a text by itself is unquoted.
 * Limits:  64 levels; paths of 4 KiB, together 8 MiB and 64 bytes for each byte of the pickle;
 *          4,000,000 leaves, and 65,536 and 4 for each value of the pickle. Keys of 16 levels; sets
 *          keep the file's order, since Python's follows its hashes. Unassigned code points of a
 *          text in a tuple are kept, where Python's version decides.
 * Threads: as formats/torch/torch.h.
 * Next:    cli/convert/inspect.c.
 */
#pragma once

#include "formats/torch/torch.h"

enum cairn_torch_kind {
    CAIRN_TORCH_LEAF_TENSOR,
    CAIRN_TORCH_LEAF_PLAIN,  /* none, bool, number, text, bytes, dtype: see the value */
    CAIRN_TORCH_LEAF_EMPTY,  /* a map or a list without items */
    CAIRN_TORCH_LEAF_OPAQUE, /* only its name is known */
    CAIRN_TORCH_ITEM,        /* in a walk over items: anything but a tensor or a map */
};
/* path: keys and positions from the root, joined by dots; "" is the root. */
typedef enum cairn_code cairn_torch_visit(void *context, const char *path,
                                          enum cairn_torch_kind kind, cairn_pickle_ref ref,
                                          struct cairn_error *err);
enum cairn_code cairn_torch_walk(const struct cairn_torch *file, cairn_torch_visit *visit,
                                 void *context, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_torch_walk_items(const struct cairn_torch *file, cairn_torch_visit *visit,
                                       void *context, struct cairn_error *err) CAIRN_MUST_USE;
