/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c: the one checksum of Cairn (Castagnoli, reflected, as in iSCSI and S3).
 *
 * Why:     a block's checksum is made once, when it is staged, and follows the bytes to the
 *          store and back; part and shard checksums are combined from it without a second pass.
 *          Our own code and not ISA-L, because Debian has no static ISA-L and libcairn may need
 *          libc and jansson only. Which instructions are fastest is measured, since neither the
 *          CPU's features nor its maker say so: carry-less multiplication of 512 or 256 bits, or
 *          of 128 with words taken beside it, or words alone.
 * Promise: 1   crc("123456789") == 0xe3069283; crc of 32 zero bytes == 0x8a9136aa.
 *          2   combine(crc(a), crc(b), |b|) == crc(ab), for any length below 2^62.
 *          3   copy() moves the bytes and returns the checksum of what it read, in one pass over
 *              memory; from 256 KiB on the destination is not left in the cache.
 * Limits:  none.
 * Threads: any; the implementation in use may change at any time, since all make the same sums.
 * Next:    common/crc32c_loops.h; docs/format.md, checksums.bin.
 */
#pragma once

#include "common/base.h"

/* Start with crc 0; feed the previous result to go on. */
uint32_t cairn_crc32c(uint32_t crc, const void *data, size_t size);
uint32_t cairn_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);
uint32_t cairn_crc32c_copy(uint32_t crc, void *to, const void *from, size_t size);
/* Once in a process, some 3 ms: times the implementations that this CPU has, and uses the fastest
 * one from then on. Before that, the first one of crc32c.c's list that the CPU has. The first large
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

/* ---- for crc32c_loops.c, and for a device that makes checksums ---- */
/* x^bits modulo the polynomial; x^32 is the polynomial without its highest coefficient. */
uint32_t cairn_crc32c_power_of_x(uint64_t bits);
/* ---- for crc32c_loops.c ---- */
/* By the implementation in use, a piece of the cache's size at a time; crc is inverted on both
 * sides. */
uint32_t cairn_crc32c_copy_blocks(uint32_t crc, uint8_t *to, const uint8_t *from, size_t size);
