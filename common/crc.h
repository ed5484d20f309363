/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc: the one checksum of Cairn, CRC32C (Castagnoli, reflected, as in iSCSI and S3), and that of
 * zip entries (IEEE 802.3, reflected).
 *
 * Why:     a block's checksum is made once, when it is staged, and follows the bytes to the
 *          store and back; part and shard checksums are combined from it without a second pass.
 *          Our own code and not ISA-L, because Debian has no static ISA-L and libcairn may need
 *          libc and jansson only. Which instructions are fastest is measured, since neither the
 *          CPU's features nor its maker say so: carry-less multiplication of 512 or 256 bits, or
 *          of 128 with words taken beside it, or words alone. torch writes zip's checksum for every
 *          tensor's bytes; it is compared as the bytes are read, in any order and by several
 *          threads, so the checksums of parts are joined.
 * Promise: 1   crc32c("123456789") == 0xe3069283; crc32c of 32 zero bytes == 0x8a9136aa;
 *              crc32("123456789") == 0xcbf43926.
 *          2   combine(crc(a), crc(b), |b|) == crc(ab), for any length below 2^62.
 *          3   copy() moves the bytes and returns the checksum of what it read, in one pass over
 *              memory; from 256 KiB on the destination is not left in the cache.
 *          4   remainders of parts, each shifted by the bytes behind it, add up (xor) to the
 *              remainder of the whole: cairn_crc32_of_remainder makes it the checksum.
 * Limits:  none. Instructions of x86-64 with SSE4.2 and PCLMULQDQ, of 64-bit ARM under Linux with
 *          CRC32 and PMULL (CRC32C alone); elsewhere tables.
 * Threads: any; the implementation in use may change at any time, since all make the same sums.
 * Next:    docs/format.md, checksums.bin; formats/assembly/pieces.h, formats/torch/zip.h.
 */
#pragma once

#include "common/base.h"

/* Start with crc 0; feed the previous result to go on. */
uint32_t cairn_crc32c(uint32_t crc, const void *data, size_t size);
uint32_t cairn_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);
uint32_t cairn_crc32c_copy(uint32_t crc, void *to, const void *from, size_t size);
/* Once in a process, some 3 ms: times the implementations that this CPU has, and uses the fastest
 * one from then on. Before that, the first one of crc.c's list that the CPU has. The first large
 * call does it, too; whoever cannot wait there calls it before. */
void cairn_crc32c_measure(void);
/* Names of the implementations in use for checksums and for copies. */
const char *cairn_crc32c_implementation(void);
const char *cairn_crc32c_copier(void);

/* For tests and measurements: use that one, or for NULL what a process begins with; false where
 * this CPU or this build has it not. */
bool cairn_crc32c_choose(const char *name);
/* Which of these times (0: not measured; one is) wins: the first, or one 10 % faster than it. */
size_t cairn_crc32c_fastest(const uint64_t *ticks, size_t count);
/* For tests: the portable implementation, to compare the one in use with. */
uint32_t cairn_crc32c_with_table(uint32_t crc, const void *data, size_t size);

/* For a device that makes checksums: x^bits modulo the polynomial; x^32 is the polynomial without
 * its highest coefficient. */
uint32_t cairn_crc32c_power_of_x(uint64_t bits);

/* ---- of zip entries ---- */

uint32_t cairn_crc32(const void *data, size_t size);
/* Of the bytes as a polynomial, without the checksum's complements. */
uint32_t cairn_crc32_remainder(const void *data, size_t size);
/* The same with so many bytes of zero behind it. */
uint32_t cairn_crc32_shift(uint32_t remainder, uint64_t bytes);
/* The checksum of `bytes` bytes of this remainder. */
uint32_t cairn_crc32_of_remainder(uint32_t remainder, uint64_t bytes);
/* For tests: the portable implementation, from a state on. */
uint32_t cairn_crc32_with_table(uint32_t state, const void *data, size_t size);
