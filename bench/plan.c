/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_plan --socket PATH --run PROJECT/RUN --ranks N --fragments F
 *
 * All ranks of a job in one process, with F small tensor fragments in total. Each line on standard
 * input is one save of all ranks, answered after the commit by one JSON line:
 *     {"cpu": s, "describe": s, "stage": s, "committed": s, "socket": bytes}
 * cpu is this process's, socket counts bytes sent to the uploader; `describe` and `stage` sum the
 * calls' seconds over all ranks.
 */
#include <cairn/cairn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/measure.h"
#include "common/clock.h"

#define WAIT_MS 300000
#define RANKS_MAX 16
#define TENSORS 1000
#define COLUMNS 4 /* F32: 16 bytes a fragment */

struct job {
    uint64_t ranks, rows, step; /* rows: one rank's fragments in one tensor */
    struct cairn_session *sessions[RANKS_MAX];
    struct cairn_save *saves[RANKS_MAX];
    uint8_t *memory;
};

static _Atomic uint64_t sent_bytes;

/* Replaces libc's sendmsg, also for libcairn, to count bytes sent to the uploader. */
__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *message,
                                                       int flags) {
    ssize_t sent = syscall(SYS_sendmsg, fd, message, flags);
    if (sent > 0) sent_bytes += (uint64_t)sent;
    return sent;
}

/* Row r belongs to rank r modulo ranks, so that no two pieces of a rank are adjacent. */
static enum cairn_code describe(struct job *job, uint64_t rank, struct cairn_error *err) {
    const uint64_t shape[2] = {job->rows * job->ranks, COLUMNS}, count[2] = {1, COLUMNS};
    char name[32];
    for (uint64_t t = 0; t < TENSORS; t++) {
        snprintf(name, sizeof name, "layers.%03u.weight", (unsigned)t);
        for (uint64_t row = 0; row < job->rows; row++) {
            const uint64_t start[2] = {row * job->ranks + rank, 0};
            struct cairn_tensor_piece piece = {.size = sizeof piece,
                                               .name = name,
                                               .dtype = "F32",
                                               .dimension_count = 2,
                                               .shape = shape,
                                               .kind = CAIRN_SHARDED,
                                               .form = CAIRN_BOX,
                                               .start = start,
                                               .count = count,
                                               .source = job->memory + 4 * COLUMNS * row,
                                               .source_bytes = 4 * COLUMNS};
            CAIRN_TRY(cairn_save_tensor(job->saves[rank], &piece, err));
        }
    }
    return CAIRN_OK;
}

static enum cairn_code save(void *owner, const char *line, struct cairn_error *err) {
    struct job *job = owner;
    (void)line;
    double used = bench_cpu_seconds(), describing = 0, staging = 0;
    uint64_t before = sent_bytes, began_us = cairn_mono_us();
    job->step++;
    for (uint64_t rank = 0; rank < job->ranks; rank++) {
        CAIRN_TRY(cairn_save_begin(job->sessions[rank], job->step, NULL, &job->saves[rank], err));
        uint64_t at_us = cairn_mono_us();
        CAIRN_TRY(describe(job, rank, err));
        describing += (double)(cairn_mono_us() - at_us) / 1e6;
        at_us = cairn_mono_us();
        CAIRN_TRY(cairn_save_stage(job->saves[rank], err));
        staging += (double)(cairn_mono_us() - at_us) / 1e6;
    }
    for (uint64_t rank = 0; rank < job->ranks; rank++) {
        CAIRN_TRY(cairn_save_wait(job->saves[rank], CAIRN_COMMITTED, WAIT_MS, err));
        cairn_save_free(job->saves[rank]);
        job->saves[rank] = NULL;
    }
    printf("{\"cpu\": %.6f, \"describe\": %.6f, \"stage\": %.6f, \"committed\": %.6f, "
           "\"socket\": %llu}\n",
           bench_cpu_seconds() - used, describing, staging,
           (double)(cairn_mono_us() - began_us) / 1e6, (unsigned long long)(sent_bytes - before));
    return CAIRN_OK;
}

static enum cairn_code open_all(struct job *job, int count, char **values,
                                struct cairn_error *err) {
    for (uint64_t rank = 0; rank < job->ranks; rank++) {
        struct cairn_open_options options = {
            .size = sizeof options,
            .run = bench_flag(count, values, "--run", "bench/plan"),
            .job = "bench",
            .rank = (uint32_t)rank,
            .world_size = (uint32_t)job->ranks,
            .local_rank = (uint32_t)rank,
            .local_world_size = (uint32_t)job->ranks,
            /* A fragment takes about 192 bytes of the header, plus its 16 bytes. */
            .bytes = TENSORS * job->rows * 192 + 4 * CAIRN_MIB,
            .timeout_ms = WAIT_MS,
            .socket = bench_flag(count, values, "--socket", NULL)};
        CAIRN_TRY(cairn_open(&options, &job->sessions[rank], NULL, err));
    }
    return CAIRN_OK;
}

int main(int count, char **values) {
    static struct job job;
    struct cairn_error error = {0};
    uint64_t fragments = bench_flag_number(count, values, "--fragments", 1000000);
    job.ranks = bench_flag_number(count, values, "--ranks", 4);
    job.rows = fragments / (job.ranks ? job.ranks : 1) / TENSORS;
    enum cairn_code code = CAIRN_OK;
    if (job.ranks < 1 || job.ranks > RANKS_MAX || !job.rows)
        code = cairn_fail(&error, CAIRN_INVALID, "1 to 16 ranks, at least 1,000 fragments each");
    if (!code && !(job.memory = bench_memory(job.rows * COLUMNS * 4)))
        code = cairn_fail(&error, CAIRN_NO_MEMORY, "no memory");
    if (!code) code = open_all(&job, count, values, &error);
    if (!code)
        printf("{\"ready\": true, \"fragments\": %llu}\n",
               (unsigned long long)(job.ranks * job.rows * TENSORS));
    fflush(stdout);
    if (!code) code = bench_lines(save, &job, &error);
    if (code) fprintf(stderr, "bench_plan: %s\n", error.message);
    for (uint64_t rank = 0; rank < job.ranks && rank < RANKS_MAX; rank++) {
        cairn_save_free(job.saves[rank]);
        if (job.sessions[rank]) (void)cairn_close(job.sessions[rank], NULL);
    }
    return code ? 2 : 0;
}
