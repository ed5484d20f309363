/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c: the one checksum of Cairn (Castagnoli, reflected, as in iSCSI and S3).
 *
 * Why:     a block's checksum is made once, when it is staged, and follows the bytes to the
 *          store and back; part and shard checksums are combined from it without a second pass.
 *          Our own code and not ISA-L, because Debian has no static ISA-L and libcairn may need
 *          libc and jansson only; carry-less multiplication 512 bits wide reaches the same speed,
 *          and three interleaved SSE4.2 streams, on AMD with it beside them, half of it elsewhere.
 * Promise: 1   crc("123456789") == 0xe3069283; crc of 32 zero bytes == 0x8a9136aa.
 *          2   combine(crc(a), crc(b), |b|) == crc(ab), for any length below 2^62.
 *          3   copy() moves the bytes and returns the checksum of what it read, in one pass over
 *              memory; from 256 KiB on the destination is not left in the cache.
 * Limits:  none.
 * Threads: stateless; the CPU's instructions are chosen once, at load.
 * Next:    docs/format.md, checksums.bin.
 */
#pragma once

#include "common/base.h"

/* Start with crc 0; feed the previous result to go on. */
uint32_t cairn_crc32c(uint32_t crc, const void *data, size_t size);
uint32_t cairn_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);
uint32_t cairn_crc32c_copy(uint32_t crc, void *to, const void *from, size_t size);
/* Name of the implementation in use: "avx512", "pclmul", "sse4.2", "armv8" or "table". */
const char *cairn_crc32c_implementation(void);

/* For tests and measurements, while nobody else computes: use that one, or the best for NULL; false
 * where this CPU or this build has it not. */
bool cairn_crc32c_choose(const char *name);
/* For tests: the portable implementation, to compare the one in use with. */
uint32_t cairn_crc32c_with_table(uint32_t crc, const void *data, size_t size);
