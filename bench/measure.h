/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure: shared by all measured programs of the bench.
 *
 * Why:     both sides of a pair must measure alike: the same bytes, touched before the clock
 *          starts, the same clock, CPU time of their own process only.
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
    uint64_t memory_bytes; /* besides the slab; 0: not measured */
    uint64_t took_us;      /* 0: the whole call */
    const char *note;
};

void bench_pattern(uint8_t *data, uint64_t bytes);
/* Memory as trainers' allocators have it: anonymous, with huge pages where possible, filled with
 * the pattern so that all pages exist before the clock starts. NULL: no memory. Never freed. */
uint8_t *bench_memory(uint64_t bytes);
/* Sets cubic and TCP_NODELAY where possible: the default congestion control may pace (bbr). */
void bench_be_steady(int fd);
/* Peak resident memory of this process, without shared memory (slabs). */
uint64_t bench_private_bytes(void);
/* User and system time of this process. */
double bench_cpu_seconds(void);
/* Passes each input line to `one`, which answers on stdout, until end of input or a failure. */
enum cairn_code bench_lines(enum cairn_code (*one)(void *owner, const char *line,
                                                   struct cairn_error *err),
                            void *owner, struct cairn_error *err) CAIRN_MUST_USE;
/* Measures `once` for each "go" line until end of input. */
int bench_loop(enum cairn_code (*once)(void *owner, struct bench_result *ret,
                                       struct cairn_error *err),
               void *owner);
/* Value of --name, or fallback. */
const char *bench_flag(int count, char **values, const char *name, const char *fallback);
uint64_t bench_flag_number(int count, char **values, const char *name, uint64_t fallback);
