/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32: the checksum of zip entries (IEEE 802.3, reflected).
 *
 * Why:     torch writes one for every tensor's bytes; it is compared as the bytes are read, in any
 *          order and by several threads, so the checksums of parts are joined.
 * Promise: 1   crc("123456789") == 0xcbf43926.
 *          2   remainders of parts, each shifted by the bytes behind it, add up (xor) to the
 *              remainder of the whole: cairn_crc32_of_remainder makes it the checksum.
 * Limits:  none.
 * Threads: stateless; the CPU's instructions are chosen once, at load.
 * Next:    formats/assembly/pieces.h, formats/torch/zip.h.
 */
#pragma once

#include "common/base.h"

uint32_t cairn_crc32(const void *data, size_t size);
/* Of the bytes as a polynomial, without the checksum's complements. */
uint32_t cairn_crc32_remainder(const void *data, size_t size);
/* The same with so many bytes of zero behind it. */
uint32_t cairn_crc32_shift(uint32_t remainder, uint64_t bytes);
/* The checksum of `bytes` bytes of this remainder. */
uint32_t cairn_crc32_of_remainder(uint32_t remainder, uint64_t bytes);
/* For tests: the portable implementation, from a state on. */
uint32_t cairn_crc32_with_table(uint32_t state, const void *data, size_t size);
