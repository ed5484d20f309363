/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c_loops: CRC32C and copies by a CPU's own instructions, for crc32c.c to choose from.
 *
 * Why:     the loops are several for each kind of CPU, and what chooses among them is one.
 * Promise: 1   each loop makes the sum that crc32c.c's table makes; crc is inverted on both sides.
 *          2   copy stores past the cache from 256 KiB on.
 * Limits:  x86-64 with SSE4.2 and PCLMULQDQ, 64-bit ARM under Linux with CRC32 and PMULL; elsewhere
 *          the list is empty.
 * Threads: stateless after cairn_crc32c_loops_prepare.
 * Next:    common/crc32c.h.
 */
#pragma once

#include "common/crc32c.h"

#define CAIRN_CRC32C_LOOPS_MAX 8

struct cairn_crc32c_loop {
    const char *name;
    bool (*usable)(void); /* NULL: always */
    uint32_t (*update)(uint32_t crc, const uint8_t *data, size_t size);
    uint32_t (*copy)(uint32_t crc, uint8_t *to, const uint8_t *from, size_t size);
};

/* Once, before a loop runs; needs cairn_crc32c_power_of_x. */
void cairn_crc32c_loops_prepare(void);
/* The one that is used until another was measured to be faster comes first. */
const struct cairn_crc32c_loop *cairn_crc32c_loops(size_t *ret_count);

/* For measuring them. A clock that costs no system call, in units of its own. */
uint64_t cairn_crc32c_ticks(void);
/* Takes memory out of the CPU's caches, where a program may. */
void cairn_crc32c_forget_cached(const uint8_t *at, size_t size);
