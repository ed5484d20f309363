/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_legacy: the form that torch.save wrote before 1.6, and still writes when it is asked to.
 *
 * Why:     old checkpoints, and DeepSpeed with `checkpoint_serialization: false`, are no zips: five
 *          pickles in a row, then each storage behind its length.
 * Promise: 1   for every storage the length in the file and the number of elements in the pickle
 *              agree, or the file is refused with the storage's key.
 * Limits:  as formats/torch.h.
 * Threads: one owner.
 * Next:    formats/torch.h.
 */
#pragma once

#include "formats/torch.h"

struct cairn_torch_legacy_storage {
    struct cairn_view key;
    unsigned width; /* of an element, in bytes */
    uint64_t elements, offset_bytes;
    bool placed;
};
bool cairn_torch_legacy_begins(struct cairn_view first);
/* Fills values and storages of a file whose input is set. */
enum cairn_code cairn_torch_legacy_open(struct cairn_torch *file,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* NULL: no storage has that key. */
const struct cairn_torch_legacy_storage *cairn_torch_legacy_find(const struct cairn_torch *file,
                                                                 struct cairn_view key);
