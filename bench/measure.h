/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure: what every measured program of the bench shares.
 *
 * Why:     both sides of a pair must count the same way: the same bytes, touched before the clock
 *          starts, the same clock, CPU of their own process alone.
 * Promise: 1   bench_loop answers each line "go" on stdin with one JSON line on stdout; memory,
 *              connections and code stay warm between them.
 *          2   bench_pattern makes the same bytes in every program; no 4 KiB of them repeat.
 * Limits:  one measured program per process.
 * Threads: main thread only.
 * Next:    bench/run, bench/programs.py.
 */
#pragma once

#include "common/error.h"

struct bench_result {
    uint64_t bytes;
    uint32_t crc32c;
    uint64_t memory_bytes; /* held beside the slab; 0: not asked */
    uint64_t took_us;      /* 0: the whole call */
    const char *note;
};

void bench_pattern(uint8_t *data, uint64_t bytes);
/* Memory as trainers' allocators have it: anonymous, huge pages where the kernel gives them. It has
 * the pattern, so each page is there before the clock starts. NULL: no memory. Kept until the
 * process ends. */
uint8_t *bench_memory(uint64_t bytes);
/* cubic and no delay, where the socket takes it: the machine's default may pace (bbr). */
void bench_be_steady(int fd);
/* Highest resident memory of this process so far, without shared memory (slabs). */
uint64_t bench_private_bytes(void);
/* User and system time of this process so far. */
double bench_cpu_seconds(void);
/* Each line of the input is given to `one`, which answers it on stdout, until the end of input or
 * the first that fails. */
enum cairn_code bench_lines(enum cairn_code (*one)(void *owner, const char *line,
                                                   struct cairn_error *err),
                            void *owner, struct cairn_error *err) CAIRN_MUST_USE;
/* Reads "go" lines until the end of input. */
int bench_loop(enum cairn_code (*once)(void *owner, struct bench_result *ret,
                                       struct cairn_error *err),
               void *owner);
/* Value of --name in the arguments, or fallback. */
const char *bench_flag(int count, char **values, const char *name, const char *fallback);
uint64_t bench_flag_number(int count, char **values, const char *name, uint64_t fallback);
