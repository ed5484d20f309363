/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inflate: the bytes of a deflated zip entry (RFC 1951), from its begin on, some at a time.
 *
 * Why:     a torch file that was packed again by a zip program has its tensors compressed, and the
 *          largest may not fit into memory.
 * Promise: 1   what is given is what was packed, or CAIRN_CORRUPT with the place; no byte beyond
 *              the packed ones is read, no distance reaches before the first byte.
 * Limits:  240 KiB for each that is open.
 * Threads: one owner.
 * Next:    formats/unpacked.h.
 */
#pragma once

#include "formats/input.h"

struct cairn_inflate;
/* input must outlive it. */
enum cairn_code cairn_inflate_new(const struct cairn_input *input, uint64_t offset_bytes,
                                  uint64_t packed_bytes, struct cairn_inflate **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_inflate_free(struct cairn_inflate *inflate);
/* The next `size` bytes. CAIRN_CORRUPT: there are fewer. */
enum cairn_code cairn_inflate_read(struct cairn_inflate *inflate, void *into, size_t size,
                                   struct cairn_error *err) CAIRN_MUST_USE;
