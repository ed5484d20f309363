/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a job that saves the example model: flat ZeRO-like pieces, a replicated buffer, a
 * tied tensor and a raw shard. Start one per rank:  save RUN STEP RANK WORLD_SIZE  */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cairn/cairn.h>

#include "examples/transformer/model.h"

#define RAW_BYTES 20011
#define TIMEOUT_MS 120000

struct job {
    const char *run;
    uint64_t step;
    unsigned rank, ranks;
    struct model_tensor tensors[MODEL_TENSORS_MAX];
    unsigned tensor_count;
    uint64_t group_totals[4];
    uint64_t bytes;
    unsigned char *memory; /* this rank's pieces, contiguous */
    unsigned char raw[RAW_BYTES];
};

static int failed(const char *what, const struct cairn_error *err, enum cairn_code code) {
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, cairn_code_info(code)->slug);
    return cairn_code_info(code)->exit_status;
}

/* Every rank has the whole replicated buffer; the rest is split. */
static void piece_of(const struct job *job, const struct model_tensor *tensor, uint64_t *start,
                     uint64_t *count) {
    *start = 0;
    *count = tensor->elements;
    if (tensor->kind == MODEL_SHARDED)
        model_group_split(tensor, job->group_totals[tensor->group], job->rank, job->ranks, start,
                          count);
}

static void fill(struct job *job) {
    uint64_t start, count;
    job->tensor_count = model_tensors(job->tensors);
    model_lay_out(job->tensors, job->tensor_count, job->group_totals);
    for (unsigned t = 0; t < job->tensor_count; t++) {
        if (job->tensors[t].kind == MODEL_ALIAS) continue;
        piece_of(job, &job->tensors[t], &start, &count);
        job->bytes += (count * job->tensors[t].element_bytes + 63) / 64 * 64;
    }
    job->memory =
        mmap(NULL, job->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (job->memory == MAP_FAILED) {
        perror("memory");
        exit(1);
    }
    unsigned char *at = job->memory;
    for (unsigned t = 0; t < job->tensor_count; t++) {
        const struct model_tensor *tensor = &job->tensors[t];
        if (tensor->kind == MODEL_ALIAS) continue;
        piece_of(job, tensor, &start, &count);
        model_fill(tensor->name, tensor->element_bytes, start, count, at);
        at += (count * tensor->element_bytes + 63) / 64 * 64;
    }
    char name[64];
    snprintf(name, sizeof name, "raw of rank %u", job->rank);
    for (unsigned i = 0; i < RAW_BYTES; i++)
        job->raw[i] = (unsigned char)model_element(model_seed(name), i);
}

static enum cairn_code describe(const struct job *job, struct cairn_save *save,
                                struct cairn_error *err) {
    const unsigned char *at = job->memory;
    enum cairn_code code = CAIRN_OK;
    for (unsigned t = 0; code == CAIRN_OK && t < job->tensor_count; t++) {
        const struct model_tensor *tensor = &job->tensors[t];
        uint64_t start, count;
        piece_of(job, tensor, &start, &count);
        struct cairn_tensor_piece piece = {.size = sizeof piece,
                                           .name = tensor->name,
                                           .dtype = tensor->dtype,
                                           .dimension_count = tensor->dimension_count,
                                           .shape = tensor->shape,
                                           .kind = CAIRN_SHARDED,
                                           .form = CAIRN_FLAT,
                                           .start = &start,
                                           .count = &count,
                                           .source = at,
                                           .source_bytes = count * tensor->element_bytes};
        if (tensor->kind == MODEL_REPLICATED) {
            piece.kind = CAIRN_REPLICATED;
            piece.form = CAIRN_WHOLE;
        }
        if (tensor->kind == MODEL_ALIAS) {
            piece.kind = CAIRN_ALIAS;
            piece.alias_of = tensor->alias_of;
            piece.form = CAIRN_WHOLE;
            piece.source = NULL;
            piece.source_bytes = 0;
        } else {
            at += (piece.source_bytes + 63) / 64 * 64;
        }
        if (tensor->kind == MODEL_SHARDED && !count) continue; /* nothing of it is ours */
        code = cairn_save_tensor(save, &piece, err);
    }
    return code;
}

static enum cairn_code save_step(const struct job *job, struct cairn_session *session,
                                 struct cairn_error *err) {
    struct cairn_save *save = NULL;
    struct cairn_save_status status;
    struct cairn_save_options options = {.size = sizeof options, .format = "transformer-example-1"};
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    enum cairn_code code = cairn_save_begin(session, job->step, &options, &save, err);
    if (code != CAIRN_OK) return code;
    code = describe(job, save, err);
    if (code == CAIRN_OK) code = cairn_save_raw(save, "rng_state.bin", job->raw, RAW_BYTES, err);
    if (code == CAIRN_OK) code = cairn_save_stage(save, err);
    /* Training would go on here: the sources may change now. */
    if (code == CAIRN_OK) memset(job->memory, 0xff, job->bytes);
    if (code == CAIRN_OK) code = cairn_save_wait(save, CAIRN_COMMITTED, TIMEOUT_MS, err);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    long long committed_us =
        (ended.tv_sec - begun.tv_sec) * 1000000LL + (ended.tv_nsec - begun.tv_nsec) / 1000;
    cairn_save_status(save, &status);
    if (code == CAIRN_OK)
        printf("{\"rank\":%u,\"version\":\"%s\",\"bytes\":%llu,\"stall_us\":%llu,"
               "\"committed_us\":%lld}\n",
               job->rank, status.version, (unsigned long long)status.total_bytes,
               (unsigned long long)status.stall_us, committed_us);
    cairn_save_free(save);
    return code;
}

int main(int argc, char **argv) {
    static struct job job;
    struct cairn_session *session = NULL;
    struct cairn_resume resume;
    struct cairn_error err = {0};
    if (argc != 5) {
        fprintf(stderr,
                "usage: save RUN STEP RANK WORLD_SIZE (CAIRN_JOB and CAIRN_SOCKET are used)\n");
        return 2;
    }
    job.run = argv[1];
    job.step = strtoull(argv[2], NULL, 10);
    job.rank = (unsigned)strtoul(argv[3], NULL, 10);
    job.ranks = (unsigned)strtoul(argv[4], NULL, 10);
    fill(&job);
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = job.run,
                                         .rank = job.rank,
                                         .world_size = job.ranks,
                                         .local_rank = job.rank,
                                         .local_world_size = job.ranks,
                                         .bytes = job.bytes + (UINT64_C(4) << 20)};
    enum cairn_code code = cairn_open(&options, &session, &resume, &err);
    if (code != CAIRN_OK) return failed("open", &err, code);
    code = save_step(&job, session, &err);
    (void)cairn_close(session, NULL);
    if (code != CAIRN_OK) return failed("save", &err, code);
    return 0;
}
