/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target: elements of a read are put where its caller wants them, as the type that it wants.
 *
 * Why:     a job keeps BF16 of what was saved as F32, and reads into views of its tensors; a copy
 *          of the whole tensor in between would need as much memory again.
 * Promise: 1   correctly rounded, as formats/convert.h.
 *          2   an element whose bytes come in several turns is put once all of them are there.
 *          3   no element of the memory between the strides is written.
 * Limits:  elements of whole bytes; host memory; the bytes of one read come from a piece in
 *          ascending order.
 * Threads: one thread, which has the window.
 * Next:    client/restore/landing.c.
 */
#pragma once

#include <cairn/cairn.h>

#include "api/table/table.h"
#include "common/strided.h"

struct cairn_client_target {
    bool plain; /* the bytes as they are stored, one behind the other */
    unsigned from_dtype, to_dtype;
    uint32_t from_width, to_width; /* of an element, in bytes */
    bool apart;
    struct cairn_strided strided; /* of the destination, where it is apart */
    struct {
        uint64_t element;
        uint32_t have; /* bytes of it; 0: none is under way */
        uint8_t bytes[16];
    } part;
};
/* How the elements of `tensor` come to `read`; CAIRN_INVALID, CAIRN_UNSUPPORTED. */
enum cairn_code cairn_client_target_make(const struct cairn_tensor *tensor,
                                         const struct cairn_read *read,
                                         struct cairn_client_target *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Size of the destination for so many bytes of the store. */
uint64_t cairn_client_target_bytes(const struct cairn_client_target *target, uint64_t stored_bytes);
/* The stored bytes [at, at + size) of the read. False: they did not come in order, a bug. */
bool cairn_client_target_put(struct cairn_client_target *target, void *into, uint64_t at,
                             const void *from, size_t size) CAIRN_MUST_USE;
