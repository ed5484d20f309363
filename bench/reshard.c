/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_reshard [--from RANKS] [--to RANKS] [--tensors N] [--rank R]
 *
 * Plans one rank's restore: each of N tensors was saved as one row slice per old rank and is read
 * as one per new rank. `bytes` is the layout's number of fragments; every planned byte is checked.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "plan/reads.h"

#define ELEMENTS UINT64_C(201326592) /* per tensor; 16,384 and 12,288 divide it */
#define WIDTH 2                      /* BF16 */

struct job {
    uint64_t from, to, tensors, rank;
    struct cairn_layout layout;
    struct cairn_manifest manifest;
    struct cairn_plan_want *wants;
    char (*names)[48];
    uint64_t start, count;
};

/* Adds a rank's shard with its slices one behind the other. */
static enum cairn_code add_rank(const struct job *job, uint32_t rank, struct cairn_buf *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_PTR(table_builder) builder = NULL;
    uint64_t each = ELEMENTS / job->from;
    char name[32];
    snprintf(name, sizeof name, "rank-%05" PRIu32 ".bin", rank);
    struct cairn_table_shard shard = {.name = cairn_view_of(name),
                                      .size_bytes = job->tensors * each * WIDTH};
    uint32_t number = 0;
    CAIRN_TRY(cairn_table_builder_new(rank, &builder, err));
    CAIRN_TRY(cairn_table_add_shard(builder, &shard, &number, err));
    for (uint64_t t = 0; t < job->tensors; t++) {
        struct cairn_tensor tensor = {.name = cairn_view_of(job->names[t]),
                                      .dtype = CAIRN_DTYPE_BF16,
                                      .dimension_count = 1,
                                      .shape = {ELEMENTS},
                                      .kind = CAIRN_TENSOR_SHARDED};
        struct cairn_fragment fragment = {.form = CAIRN_FRAGMENT_FLAT,
                                          .start = {rank * each},
                                          .count = {each},
                                          .shard = number,
                                          .offset_bytes = t * each * WIDTH,
                                          .size_bytes = each * WIDTH};
        CAIRN_TRY(cairn_table_add_tensor(builder, &tensor, &fragment, 1, err));
    }
    return cairn_table_finish(builder, ret, err);
}

static enum cairn_code make_layout(struct job *job, struct cairn_error *err) {
    struct cairn_buf *bytes = calloc(job->from, sizeof *bytes);
    struct cairn_table *tables = calloc(job->from, sizeof *tables);
    static struct cairn_buf layout = {.limit = CAIRN_GIB};
    job->manifest = (struct cairn_manifest){.world_size = (uint32_t)job->from};
    job->manifest.shards = calloc(job->from, sizeof *job->manifest.shards);
    if (!bytes || !tables || !job->manifest.shards)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for tables");
    for (uint32_t rank = 0; rank < job->from; rank++) {
        struct cairn_manifest_shard *shard = &job->manifest.shards[job->manifest.shard_count++];
        char name[32];
        snprintf(name, sizeof name, "rank-%05" PRIu32 ".bin", rank);
        shard->name = strdup(name);
        shard->rank = rank;
        shard->size_bytes = job->tensors * (ELEMENTS / job->from) * WIDTH;
        CAIRN_TRY(add_rank(job, rank, &bytes[rank], err));
        CAIRN_TRY(cairn_table_open(cairn_buf_view(&bytes[rank]), &tables[rank], err));
    }
    CAIRN_TRY(cairn_layout_build(tables, job->from, &layout, err));
    for (uint32_t rank = 0; rank < job->from; rank++) cairn_buf_release(&bytes[rank]);
    free(bytes);
    free(tables);
    return cairn_layout_open(cairn_buf_view(&layout), &job->layout, err);
}

/* Each byte of each want must come from its place in the rank that saved it. */
static enum cairn_code check(const struct job *job, const struct cairn_plan_pieces *pieces,
                             struct cairn_error *err) {
    uint64_t each = ELEMENTS / job->from * WIDTH, done = 0, at = 0, want = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        const struct cairn_plan_piece *piece = &pieces->pieces[i];
        if (piece->want != want) {
            want++;
            at = 0;
        }
        uint64_t place = job->start * WIDTH + at; /* in the tensor */
        bool right = piece->want == want && piece->at == at && piece->shard == place / each &&
                     piece->offset == want * each + place % each;
        if (!right) return cairn_fail(err, CAIRN_CORRUPT, "piece %zu is not right", i);
        at += piece->bytes;
        done += piece->bytes;
    }
    bool all = done == job->tensors * job->count * WIDTH;
    return all ? CAIRN_OK : cairn_fail(err, CAIRN_CORRUPT, "some bytes are not planned");
}

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    struct job *job = owner;
    struct cairn_plan_pieces pieces = {0};
    enum cairn_code code =
        cairn_plan_reads(&job->manifest, &job->layout, job->wants, job->tensors, &pieces, err);
    ret->bytes = job->from * job->tensors;
    if (code == CAIRN_OK) code = check(job, &pieces, err);
    cairn_plan_pieces_release(&pieces);
    return code;
}

int main(int count, char **values) {
    static struct job job;
    struct cairn_error error = {0};
    job.from = bench_flag_number(count, values, "--from", 16384);
    job.to = bench_flag_number(count, values, "--to", 12288);
    job.tensors = bench_flag_number(count, values, "--tensors", 62);
    job.rank = bench_flag_number(count, values, "--rank", 6789);
    job.count = ELEMENTS / job.to;
    job.start = job.rank * job.count;
    job.names = calloc(job.tensors, sizeof *job.names);
    job.wants = calloc(job.tensors, sizeof *job.wants);
    if (!job.names || !job.wants) return 2;
    for (uint64_t t = 0; t < job.tensors; t++) {
        snprintf(job.names[t], sizeof job.names[t], "layer.%03" PRIu64 ".weight", t);
        job.wants[t] = (struct cairn_plan_want){.tensor = cairn_view_of(job.names[t]),
                                                .form = CAIRN_PLAN_FLAT,
                                                .start = &job.start,
                                                .count = &job.count};
    }
    if (make_layout(&job, &error) != CAIRN_OK) {
        fprintf(stderr, "bench_reshard: %s\n", error.message);
        return 2;
    }
    return bench_loop(once, &job);
}
