/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_job --socket PATH --run PROJECT/RUN --width N --rank R --ranks N [--job TEXT] [--step N]
 *
 * One rank of a training job with the tensors of a small transformer, split by rows among the
 * ranks, like bench/peers/job_torch.py. Each line on standard input is a command, answered by one
 * JSON line:
 *     save      {"stall": s, "durable": s, "cpu": s}
 *     restore   {"restore": s, "cpu": s}: into other memory, compared with the saved bytes
 * --step: a former process of this rank has saved the same bytes up to this step.
 */
#include <cairn/cairn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "common/clock.h"

#define WAIT_MS 300000
#define LAYERS 5
#define TENSORS_MAX 64

struct tensor {
    char name[48];
    uint64_t shape[2], start[2], count[2], offset, bytes;
    unsigned dimensions;
};
struct job {
    struct cairn_session *session;
    struct tensor tensors[TENSORS_MAX];
    size_t tensor_count;
    uint64_t rank, ranks, bytes, step;
    uint8_t *memory, *restored;
    struct cairn_save *last;
};

static void add(struct job *job, const char *name, uint64_t rows, uint64_t columns) {
    struct tensor *tensor = &job->tensors[job->tensor_count++];
    uint64_t own = rows / job->ranks;
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    *tensor->shape = rows;
    *tensor->start = own * job->rank;
    *tensor->count = own;
    tensor->dimensions = columns ? 2 : 1;
    tensor->shape[1] = tensor->count[1] = columns;
    tensor->bytes = own * (columns ? columns : 1) * 4;
    tensor->offset = job->bytes;
    job->bytes += cairn_round_up(tensor->bytes, 4096);
}

static void describe_model(struct job *job, uint64_t width) {
    static const char *const square[] = {"wq", "wk", "wv", "wo"}, *const up[] = {"w1", "w3"};
    uint64_t hidden = width * 43 / 16;
    char name[48];
    add(job, "embed", 4 * width, width);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (size_t i = 0; i < CAIRN_COUNT(square); i++) {
            snprintf(name, sizeof name, "layers.%d.%s", layer, square[i]);
            add(job, name, width, width);
        }
        for (size_t i = 0; i < CAIRN_COUNT(up); i++) {
            snprintf(name, sizeof name, "layers.%d.%s", layer, up[i]);
            add(job, name, hidden, width);
        }
        snprintf(name, sizeof name, "layers.%d.w2", layer);
        add(job, name, width, hidden);
        snprintf(name, sizeof name, "layers.%d.norm", layer);
        add(job, name, width, 0);
    }
}

/* Excludes the job's own work (clearing, comparing). */
struct figures {
    double stall, durable, restore, cpu;
};

static enum cairn_code save(struct job *job, struct figures *ret, struct cairn_error *err) {
    struct cairn_save_status status = {0};
    cairn_save_free(job->last);
    job->last = NULL;
    uint64_t began_us = cairn_mono_us();
    double used = bench_cpu_seconds();
    CAIRN_TRY(cairn_save_begin(job->session, ++job->step, NULL, &job->last, err));
    for (size_t i = 0; i < job->tensor_count; i++) {
        const struct tensor *tensor = &job->tensors[i];
        struct cairn_tensor_piece piece = {.size = sizeof piece,
                                           .name = tensor->name,
                                           .dtype = "F32",
                                           .dimension_count = tensor->dimensions,
                                           .shape = tensor->shape,
                                           .kind = CAIRN_SHARDED,
                                           .form = CAIRN_BOX,
                                           .start = tensor->start,
                                           .count = tensor->count,
                                           .source = job->memory + tensor->offset,
                                           .source_bytes = tensor->bytes};
        CAIRN_TRY(cairn_save_tensor(job->last, &piece, err));
    }
    CAIRN_TRY(cairn_save_stage(job->last, err));
    ret->stall = (double)(cairn_mono_us() - began_us) / 1e6;
    CAIRN_TRY(cairn_save_wait(job->last, CAIRN_DURABLE, WAIT_MS, err));
    ret->durable = (double)(cairn_mono_us() - began_us) / 1e6;
    cairn_save_status(job->last, &status);
    CAIRN_TRY(cairn_save_wait(job->last, CAIRN_COMMITTED, WAIT_MS, err));
    ret->cpu = bench_cpu_seconds() - used;
    return CAIRN_OK;
}

static enum cairn_code restore(struct job *job, struct figures *ret, struct cairn_error *err) {
    struct cairn_read reads[TENSORS_MAX];
    struct cairn_restore *from = NULL;
    struct cairn_restore_info info;
    char ref[24];
    memset(job->restored, 0, job->bytes);
    snprintf(ref, sizeof ref, "%llu", (unsigned long long)job->step);
    struct cairn_restore_options options = {.size = sizeof options, .ref = ref};
    for (size_t i = 0; i < job->tensor_count; i++) {
        const struct tensor *tensor = &job->tensors[i];
        reads[i] = (struct cairn_read){.size = sizeof(struct cairn_read),
                                       .tensor = tensor->name,
                                       .form = CAIRN_BOX,
                                       .start = tensor->start,
                                       .count = tensor->count,
                                       .into = job->restored + tensor->offset,
                                       .into_bytes = tensor->bytes};
    }
    uint64_t began_us = cairn_mono_us();
    double used = bench_cpu_seconds();
    CAIRN_TRY(cairn_restore_open(job->session, &options, &from, &info, err));
    enum cairn_code code = cairn_restore_read(from, reads, job->tensor_count, WAIT_MS, err);
    ret->restore = (double)(cairn_mono_us() - began_us) / 1e6;
    ret->cpu = bench_cpu_seconds() - used;
    cairn_restore_free(from);
    for (size_t i = 0; code == CAIRN_OK && i < job->tensor_count; i++)
        if (memcmp(job->memory + job->tensors[i].offset, job->restored + job->tensors[i].offset,
                   job->tensors[i].bytes) != 0)
            return cairn_fail(err, CAIRN_CORRUPT, "%s came back otherwise", job->tensors[i].name);
    return code;
}

static enum cairn_code do_line(void *owner, const char *line, struct cairn_error *err) {
    struct job *job = owner;
    struct figures figures = {0};
    if (!strncmp(line, "save", 4)) {
        CAIRN_TRY(save(job, &figures, err));
        printf("{\"stall\": %.6f, \"durable\": %.6f, \"cpu\": %.6f}\n", figures.stall,
               figures.durable, figures.cpu);
    } else {
        CAIRN_TRY(restore(job, &figures, err));
        printf("{\"restore\": %.6f, \"cpu\": %.6f}\n", figures.restore, figures.cpu);
    }
    return CAIRN_OK;
}

int main(int count, char **values) {
    static struct job job;
    struct cairn_error error = {0};
    struct cairn_resume resume;
    job.rank = bench_flag_number(count, values, "--rank", 0);
    job.ranks = bench_flag_number(count, values, "--ranks", 1);
    job.step = bench_flag_number(count, values, "--step", 0);
    describe_model(&job, bench_flag_number(count, values, "--width", 256));
    job.memory = bench_memory(job.bytes);
    job.restored = bench_memory(job.bytes);
    if (job.memory) job.memory[0] = (uint8_t)(job.rank + 1); /* differs by rank */
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = bench_flag(count, values, "--run", "bench/job"),
                                         .job = bench_flag(count, values, "--job", "bench"),
                                         .rank = (uint32_t)job.rank,
                                         .world_size = (uint32_t)job.ranks,
                                         .local_rank = (uint32_t)job.rank,
                                         .local_world_size = (uint32_t)job.ranks,
                                         .bytes = job.bytes + 4 * CAIRN_MIB,
                                         .timeout_ms = WAIT_MS,
                                         .socket = bench_flag(count, values, "--socket", NULL)};
    enum cairn_code code = job.memory && job.restored
                               ? cairn_open(&options, &job.session, &resume, &error)
                               : cairn_fail(&error, CAIRN_NO_MEMORY, "no memory");
    if (code == CAIRN_OK)
        printf("{\"ready\": true, \"bytes\": %llu}\n", (unsigned long long)job.bytes);
    fflush(stdout);
    if (code == CAIRN_OK) code = bench_lines(do_line, &job, &error);
    if (code != CAIRN_OK) fprintf(stderr, "bench_job: %s\n", error.message);
    cairn_save_free(job.last);
    if (job.session) (void)cairn_close(job.session, NULL);
    return code == CAIRN_OK ? 0 : 2;
}
