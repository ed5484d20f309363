/* SPDX-License-Identifier: Apache-2.0 */
/* Clock and CPU time of one transfer; the line protocol between bench/run and its programs. */
#include "bench/measure.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "common/clock.h"

void bench_pattern(uint8_t *data, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += 8) {
        uint64_t x = (at / 8 + 1) * UINT64_C(0x9e3779b97f4a7c15);
        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        x ^= x >> 27;
        memcpy(data + at, &x, cairn_min_u64(8, bytes - at));
    }
}

uint8_t *bench_memory(uint64_t bytes) {
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE);
    bench_pattern(memory, bytes);
    return memory;
}

void bench_be_steady(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", strlen("cubic"));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

uint64_t bench_private_bytes(void) {
    FILE *status = fopen("/proc/self/status", "re");
    char line[256];
    unsigned long long highest = 0, shared = 0, number;
    while (status && fgets(line, sizeof line, status)) {
        if (sscanf(line, "VmHWM: %llu kB", &number) == 1) highest = number;
        if (sscanf(line, "RssShmem: %llu kB", &number) == 1) shared = number;
    }
    if (status) fclose(status);
    return highest > shared ? (highest - shared) * CAIRN_KIB : 0;
}

double bench_cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

enum cairn_code bench_lines(enum cairn_code (*one)(void *owner, const char *line,
                                                   struct cairn_error *err),
                            void *owner, struct cairn_error *err) {
    char line[64];
    enum cairn_code code = CAIRN_OK;
    while (code == CAIRN_OK && fgets(line, sizeof line, stdin)) {
        code = one(owner, line, err);
        fflush(stdout);
    }
    return code;
}

int bench_loop(enum cairn_code (*once)(void *owner, struct bench_result *ret,
                                       struct cairn_error *err),
               void *owner) {
    char line[256];
    printf("{\"ready\":true}\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        struct bench_result result = {0};
        struct cairn_error error = {0};
        double cpu = bench_cpu_seconds();
        uint64_t start_us = cairn_mono_us();
        enum cairn_code code = once(owner, &result, &error);
        uint64_t took_us = cairn_mono_us() - start_us;
        cpu = bench_cpu_seconds() - cpu;
        if (result.took_us) took_us = result.took_us;
        if (code != CAIRN_OK) {
            fprintf(stderr, "bench: %s\n", error.message);
            printf("{\"ok\":false}\n");
        } else {
            printf("{\"ok\":true,\"seconds\":%.6f,\"cpu\":%.6f,\"bytes\":%llu,"
                   "\"crc32c\":\"%08x\",\"memory\":%llu,\"note\":\"%s\"}\n",
                   (double)took_us / 1e6, cpu, (unsigned long long)result.bytes, result.crc32c,
                   (unsigned long long)result.memory_bytes, result.note ? result.note : "");
        }
        fflush(stdout);
    }
    return 0;
}

const char *bench_flag(int count, char **values, const char *name, const char *fallback) {
    for (int i = 1; i + 1 < count; i++)
        if (!strcmp(values[i], name)) return values[i + 1];
    return fallback;
}

uint64_t bench_flag_number(int count, char **values, const char *name, uint64_t fallback) {
    const char *text = bench_flag(count, values, name, NULL);
    return text ? strtoull(text, NULL, 10) : fallback;
}
