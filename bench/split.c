/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_split --socket PATH --run PROJECT/RUN --width N --rank R --ranks N
 *             --by first|layer|tensor|slice
 *
 * One rank of the job of DeepSpeed's pull request 1419, scaled: 8 layers, tensor parallelism of 2,
 * data parallelism for the rest, ZeRO 1. A rank holds its half of the BF16 weights, equal within
 * its data-parallel group, and its own part of the FP32 optimizer. Each line on standard input is a
 * command, answered by one JSON line:
 *     save      {"stall": s, "durable": s, "weights": bytes of this rank's share}
 *     restore   {"wrong": weights that differ}
 */
#include <cairn/cairn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "common/clock.h"

#define WAIT_MS 300000
#define LAYERS 8
#define TENSOR_PARALLEL 2
#define WEIGHTS (LAYERS * 4)
#define STATES 3 /* Adam: FP32 weights, two moments */

struct weight {
    char name[48];
    uint64_t shape[2], start[2], count[2], offset, bytes;
};
struct job {
    struct cairn_session *session;
    struct cairn_split *split;
    struct cairn_save *last;
    struct weight weights[WEIGHTS];
    uint32_t rank, ranks;
    uint64_t weight_bytes, state_elements, step;
    uint8_t *memory, *restored; /* weights, then optimizer states */
};

/* Column-parallel weights are cut by rows, row-parallel ones by columns. */
static void add(struct job *job, size_t at, const char *name, uint64_t rows, uint64_t columns,
                bool by_rows) {
    struct weight *weight = &job->weights[at];
    uint32_t part = job->rank % TENSOR_PARALLEL;
    snprintf(weight->name, sizeof weight->name, "layers.%zu.%s", at / 4, name);
    weight->shape[0] = rows;
    weight->shape[1] = columns;
    weight->count[0] = by_rows ? rows / TENSOR_PARALLEL : rows;
    weight->count[1] = by_rows ? columns : columns / TENSOR_PARALLEL;
    weight->start[0] = by_rows ? part * weight->count[0] : 0;
    weight->start[1] = by_rows ? 0 : part * weight->count[1];
    weight->offset = job->weight_bytes;
    weight->bytes = 2 * weight->count[0] * weight->count[1];
    job->weight_bytes += weight->bytes;
}

static void describe_model(struct job *job, uint64_t width) {
    for (size_t layer = 0; layer < LAYERS; layer++) {
        add(job, 4 * layer, "qkv", 3 * width, width, true);
        add(job, 4 * layer + 1, "out", width, width, false);
        add(job, 4 * layer + 2, "up", 4 * width, width, true);
        add(job, 4 * layer + 3, "down", width, 4 * width, false);
    }
    uint64_t group = job->ranks / TENSOR_PARALLEL;
    job->state_elements = job->weight_bytes / 2 / group * STATES;
}

static struct cairn_tensor_piece piece_of(const struct job *job, size_t i) {
    const struct weight *weight = &job->weights[i];
    return (struct cairn_tensor_piece){.size = sizeof(struct cairn_tensor_piece),
                                       .name = weight->name,
                                       .dtype = "BF16",
                                       .dimension_count = 2,
                                       .shape = weight->shape,
                                       .kind = CAIRN_SHARDED,
                                       .form = CAIRN_BOX,
                                       .start = weight->start,
                                       .count = weight->count,
                                       .source = job->memory + weight->offset,
                                       .source_bytes = weight->bytes};
}

static enum cairn_code make_split(struct job *job, const char *by, struct cairn_error *err) {
    static const char *const names[] = {"first", "layer", "tensor", "slice"};
    char group[16];
    struct cairn_split_options options = {.size = sizeof options,
                                          .group = group,
                                          .member = job->rank / TENSOR_PARALLEL,
                                          .members = job->ranks / TENSOR_PARALLEL};
    snprintf(group, sizeof group, "tp%u", job->rank % TENSOR_PARALLEL);
    while (strcmp(names[options.by], by) != 0)
        if (++options.by > CAIRN_SPLIT_SLICE)
            return cairn_fail(err, CAIRN_INVALID, "--by %s is none of the four", by);
    CAIRN_TRY(cairn_split_new(&options, &job->split, err));
    for (size_t i = 0; i < WEIGHTS; i++) {
        struct cairn_tensor_piece piece = piece_of(job, i);
        CAIRN_TRY(cairn_split_add(job->split, &piece, err));
    }
    return CAIRN_OK;
}

static enum cairn_code describe(struct job *job, struct cairn_error *err) {
    struct cairn_tensor_piece state = {.size = sizeof state,
                                       .name = "optimizer",
                                       .dtype = "F32",
                                       .dimension_count = 1,
                                       .shape = &job->state_elements,
                                       .kind = CAIRN_LOCAL,
                                       .source = job->memory + job->weight_bytes,
                                       .source_bytes = 4 * job->state_elements};
    for (size_t i = 0; i < WEIGHTS; i++) {
        struct cairn_tensor_piece piece = piece_of(job, i);
        CAIRN_TRY(cairn_save_tensor(job->last, &piece, err));
    }
    return cairn_save_tensor(job->last, &state, err);
}

static enum cairn_code save(struct job *job, struct cairn_error *err) {
    const struct cairn_save_options options = {
        .size = sizeof options, .splits = &job->split, .split_count = 1};
    uint64_t bytes = 0;
    cairn_save_free(job->last);
    job->last = NULL;
    uint64_t began_us = cairn_mono_us();
    CAIRN_TRY(cairn_save_begin(job->session, ++job->step, &options, &job->last, err));
    CAIRN_TRY(describe(job, err));
    CAIRN_TRY(cairn_save_stage(job->last, err));
    double stall = (double)(cairn_mono_us() - began_us) / 1e6;
    CAIRN_TRY(cairn_save_wait(job->last, CAIRN_DURABLE, WAIT_MS, err));
    double durable = (double)(cairn_mono_us() - began_us) / 1e6;
    CAIRN_TRY(cairn_save_wait(job->last, CAIRN_COMMITTED, WAIT_MS, err));
    CAIRN_TRY(cairn_split_bytes(job->split, job->rank / TENSOR_PARALLEL, &bytes, err));
    printf("{\"stall\": %.6f, \"durable\": %.6f, \"weights\": %llu}\n", stall, durable,
           (unsigned long long)bytes);
    return CAIRN_OK;
}

static enum cairn_code restore(struct job *job, struct cairn_error *err) {
    struct cairn_restore *from = NULL;
    char ref[24];
    size_t wrong = 0;
    snprintf(ref, sizeof ref, "%llu", (unsigned long long)job->step);
    struct cairn_restore_options options = {.size = sizeof options, .ref = ref};
    CAIRN_TRY(cairn_restore_open(job->session, &options, &from, NULL, err));
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < WEIGHTS && !code; i++) {
        const struct weight *weight = &job->weights[i];
        const struct cairn_read read = {.size = sizeof read,
                                        .tensor = weight->name,
                                        .form = CAIRN_BOX,
                                        .start = weight->start,
                                        .count = weight->count,
                                        .into = job->restored,
                                        .into_bytes = weight->bytes};
        code = cairn_restore_read(from, &read, 1, WAIT_MS, err);
        wrong += !code && memcmp(job->restored, job->memory + weight->offset, weight->bytes) != 0;
    }
    cairn_restore_free(from);
    if (!code) printf("{\"wrong\": %zu}\n", wrong);
    return code;
}

static enum cairn_code do_line(void *owner, const char *line, struct cairn_error *err) {
    return !strncmp(line, "save", 4) ? save(owner, err) : restore(owner, err);
}

static enum cairn_code open_job(struct job *job, int count, char **values,
                                struct cairn_error *err) {
    job->rank = (uint32_t)bench_flag_number(count, values, "--rank", 0);
    job->ranks = (uint32_t)bench_flag_number(count, values, "--ranks", TENSOR_PARALLEL);
    describe_model(job, bench_flag_number(count, values, "--width", 256));
    uint64_t bytes = job->weight_bytes + 4 * job->state_elements;
    job->memory = bench_memory(bytes);
    job->restored = bench_memory(job->weight_bytes);
    if (!job->memory || !job->restored) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory");
    /* Members of a group hold equal weights, the two groups different ones. */
    for (size_t i = 0; i < WEIGHTS; i++)
        job->memory[job->weights[i].offset] = (uint8_t)(job->rank % TENSOR_PARALLEL + 1);
    uint64_t share = 0;
    CAIRN_TRY(make_split(job, bench_flag(count, values, "--by", "slice"), err));
    CAIRN_TRY(cairn_split_bytes(job->split, job->rank / TENSOR_PARALLEL, &share, err));
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = bench_flag(count, values, "--run", "bench/split"),
                                         .job = "bench",
                                         .rank = job->rank,
                                         .world_size = job->ranks,
                                         .local_rank = job->rank,
                                         .local_world_size = job->ranks,
                                         .bytes = share + 4 * job->state_elements + CAIRN_MIB,
                                         .node_bytes =
                                             TENSOR_PARALLEL * job->weight_bytes +
                                             job->ranks * (4 * job->state_elements + CAIRN_MIB),
                                         .timeout_ms = WAIT_MS,
                                         .socket = bench_flag(count, values, "--socket", NULL)};
    CAIRN_TRY(cairn_open(&options, &job->session, NULL, err));
    printf("{\"ready\": true, \"bytes\": %llu}\n", (unsigned long long)bytes);
    return CAIRN_OK;
}

int main(int count, char **values) {
    static struct job job;
    struct cairn_error error = {0};
    enum cairn_code code = open_job(&job, count, values, &error);
    fflush(stdout);
    if (code == CAIRN_OK) code = bench_lines(do_line, &job, &error);
    if (code != CAIRN_OK) fprintf(stderr, "bench_split: %s\n", error.message);
    cairn_save_free(job.last);
    if (job.session) (void)cairn_close(job.session, NULL);
    cairn_split_free(job.split);
    return code == CAIRN_OK ? 0 : 2;
}
