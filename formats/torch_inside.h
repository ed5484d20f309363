/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_inside: what both forms of a torch file share; for formats/torch*.c alone.
 *
 * Why:     a zip and the form before it name storages and classes alike.
 * Promise: 1   of a class that is not on the closed list nothing is made but a record of its name.
 * Limits:  as formats/torch.h.
 * Threads: stateless.
 * Next:    torch.c (storages), torch_names.c (the list).
 */
#pragma once

#include "formats/torch.h"

/* What a persistent id says of a storage. */
struct cairn_torch_storage_id {
    struct cairn_view key;
    unsigned dtype; /* CAIRN_DTYPE_NONE: bytes */
    uint64_t elements;
};
enum cairn_code cairn_torch_storage_id(const struct cairn_pickle *values, cairn_pickle_ref ref,
                                       struct cairn_torch_storage_id *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* cairn_torch_is_tensor without those of several ranks that are whole: they hold one. */
bool cairn_torch_is_plain_tensor(const struct cairn_torch *file, cairn_pickle_ref ref);
/* cairn_pickle_read with the closed list; strict: a name that it lacks is CAIRN_UNSUPPORTED. A
 * member that was taken from an enumeration of the list by name is that enumeration called with its
 * number, one of an unknown class is as unknown as that; whatever else is taken from an object by
 * name is CAIRN_UNSUPPORTED. */
enum cairn_code cairn_torch_read_pickle(struct cairn_view bytes, bool strict,
                                        struct cairn_pickle *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
