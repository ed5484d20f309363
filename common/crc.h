/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc: Cairn's checksum CRC32C (Castagnoli, reflected, as in iSCSI and S3), and CRC-32 of zip
 * entries (IEEE 802.3, reflected).
 *
 * Why:     a block's checksum is made once, when it is staged, and follows the bytes to the
 *          store and back; part and shard checksums are combined from it without a second pass.
 *          Not ISA-L: Debian has no static ISA-L, and libcairn links libc and jansson only.
 *          The fastest implementation is measured, since neither the CPU's features nor its maker
 *          predict it: carry-less multiplication of 512 or 256 bits, or of 128 with words beside
 *          it, or words alone. torch writes a CRC-32 for every tensor; it is verified while
 *          several threads read in any order, so the checksums of parts are joined.
 * Promise: 1   crc32c("123456789") == 0xe3069283; crc32c of 32 zero bytes == 0x8a9136aa;
 *              crc32("123456789") == 0xcbf43926.
 *          2   combine(crc(a), crc(b), |b|) == crc(ab), for any length below 2^62.
 *          3   copy() moves the bytes and returns the checksum of what it read, in one pass over
 *              memory; from 256 KiB on the destination is not left in the cache.
 *          4   remainders of parts, each shifted by the bytes behind it, add up (xor) to the
 *              remainder of the whole: cairn_crc32_of_remainder makes it the checksum.
 * Limits:  special instructions on x86-64 (SSE4.2 and PCLMULQDQ) and 64-bit ARM Linux (CRC32 and
 *          PMULL; CRC32C only); elsewhere tables.
 * Threads: any; the implementation may change at any time, since all compute the same sums.
 * Next:    docs/format.md, checksums.bin; formats/assembly/pieces.h, formats/torch/zip.h.
 */
#pragma once

#include "common/base.h"

/* Start with crc 0; pass the previous result to continue. */
uint32_t cairn_crc32c(uint32_t crc, const void *data, size_t size);
uint32_t cairn_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);
uint32_t cairn_crc32c_copy(uint32_t crc, void *to, const void *from, size_t size);
/* A part of a copy that is large as a whole: not left in the cache from 4 KiB on. */
uint32_t cairn_crc32c_copy_part(uint32_t crc, void *to, const void *from, size_t size);
/* Once per process, about 3 ms: times this CPU's implementations and selects the fastest. The first
 * large call measures, too; call this earlier where that delay matters. Until then the first usable
 * entry of crc.c's list is in use. */
void cairn_crc32c_measure(void);
/* Names of the implementations in use for checksums and for copies. */
const char *cairn_crc32c_implementation(void);
const char *cairn_crc32c_copier(void);

/* For tests and benchmarks: selects an implementation, or with NULL the initial one; false if this
 * CPU or this build lacks it. */
bool cairn_crc32c_choose(const char *name);
/* Index of the winner: the first time, unless another is 10 % faster. 0: not measured. */
size_t cairn_crc32c_fastest(const uint64_t *ticks, size_t count);
/* For tests: the portable implementation, as reference. */
uint32_t cairn_crc32c_with_table(uint32_t crc, const void *data, size_t size);

/* For a device that makes checksums: x^bits modulo the polynomial; x^32 is the polynomial without
 * its highest coefficient. */
uint32_t cairn_crc32c_power_of_x(uint64_t bits);

/* ---- of zip entries ---- */

uint32_t cairn_crc32(const void *data, size_t size);
/* Remainder of the bytes as a polynomial, without the complements of a CRC-32. */
uint32_t cairn_crc32_remainder(const void *data, size_t size);
/* Remainder after `bytes` more zero bytes. */
uint32_t cairn_crc32_shift(uint32_t remainder, uint64_t bytes);
/* CRC-32 of data of `bytes` bytes with this remainder. */
uint32_t cairn_crc32_of_remainder(uint32_t remainder, uint64_t bytes);
/* For tests: the portable implementation, starting at `state`. */
uint32_t cairn_crc32_with_table(uint32_t state, const void *data, size_t size);
