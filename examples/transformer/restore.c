/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a job of another size that restores the example model into files:
 *   restore RUN RANK WORLD_SIZE FOLDER
 * Reads weights as slices of rows, optimizer state as flat ranges, raw shards whole, and lists each
 * piece in FOLDER/pieces-RANK.txt for the checker, which is independent of Cairn. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cairn/cairn.h>

#include "examples/transformer/model.h"

#define TIMEOUT_MS 120000

struct piece {
    const char *name;
    unsigned element_bytes;
    uint64_t first, elements; /* of the flattened tensor */
    uint64_t start[2], count[2];
    void *memory;
};
struct job {
    unsigned rank, ranks;
    const char *folder;
    struct model_tensor tensors[MODEL_TENSORS_MAX];
    struct piece pieces[MODEL_TENSORS_MAX];
    struct cairn_read reads[MODEL_TENSORS_MAX];
    unsigned piece_count;
    uint64_t bytes;
};

static int failed(const char *what, const struct cairn_error *err, enum cairn_code code) {
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, cairn_code_info(code)->slug);
    return cairn_code_info(code)->exit_status;
}

/* This rank's part of a tensor; false: none. */
static int want(struct job *job, const struct model_tensor *tensor) {
    struct piece *piece = &job->pieces[job->piece_count];
    struct cairn_read *read = &job->reads[job->piece_count];
    memset(piece, 0, sizeof *piece);
    memset(read, 0, sizeof *read);
    read->size = sizeof *read;
    piece->name = tensor->name;
    piece->element_bytes = tensor->element_bytes;
    piece->elements = tensor->elements;
    read->tensor = tensor->name;
    if (tensor->kind != MODEL_REPLICATED && tensor->dimension_count == 2) { /* rows */
        model_split(tensor->shape[0], job->rank, job->ranks, &piece->start[0], &piece->count[0]);
        piece->count[1] = tensor->shape[1];
        piece->first = piece->start[0] * tensor->shape[1];
        piece->elements = piece->count[0] * tensor->shape[1];
        read->form = CAIRN_BOX;
    } else if (tensor->kind != MODEL_REPLICATED) { /* a flat range */
        model_split(tensor->elements, job->rank, job->ranks, &piece->start[0], &piece->count[0]);
        piece->first = piece->start[0];
        piece->elements = piece->count[0];
        read->form = CAIRN_FLAT;
    }
    if (!piece->elements) return 0;
    read->start = piece->start;
    read->count = piece->count;
    read->into_bytes = piece->elements * piece->element_bytes;
    piece->memory = read->into = malloc(read->into_bytes);
    job->bytes += read->into_bytes;
    job->piece_count++;
    return piece->memory != NULL;
}

static int write_piece(const char *path, const void *memory, size_t bytes) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(memory, 1, bytes, file) != bytes || fclose(file)) {
        perror(path);
        return 0;
    }
    return 1;
}

static int write_pieces(struct job *job, FILE *list) {
    char path[4096];
    for (unsigned p = 0; p < job->piece_count; p++) {
        const struct piece *piece = &job->pieces[p];
        snprintf(path, sizeof path, "%s/rank%u-%u.bin", job->folder, job->rank, p);
        if (!write_piece(path, piece->memory, piece->elements * piece->element_bytes)) return 0;
        fprintf(list, "%s %u %llu %llu %s\n", piece->name, piece->element_bytes,
                (unsigned long long)piece->first, (unsigned long long)piece->elements, path);
    }
    return 1;
}

/* Whole raw shards of the old ranks, distributed over the new ones. */
static enum cairn_code get_raw(struct job *job, struct cairn_restore *restore,
                               const struct cairn_restore_info *info, FILE *list,
                               struct cairn_error *err) {
    char path[4096];
    for (uint32_t i = 0; i < info->shard_count; i++) {
        struct cairn_shard_info shard;
        enum cairn_code code = cairn_restore_shard_at(restore, i, &shard, err);
        if (code != CAIRN_OK) return code;
        if (shard.rank % job->ranks != job->rank || !strstr(shard.name, "rng_state")) continue;
        void *memory = malloc(shard.bytes);
        struct cairn_read read = {.size = sizeof(struct cairn_read),
                                  .shard = shard.name,
                                  .bytes = shard.bytes,
                                  .into = memory,
                                  .into_bytes = shard.bytes};
        code = cairn_restore_read(restore, &read, 1, TIMEOUT_MS, err);
        snprintf(path, sizeof path, "%s/raw-%u.bin", job->folder, shard.rank);
        if (code == CAIRN_OK && !write_piece(path, memory, shard.bytes)) code = CAIRN_IO;
        if (code == CAIRN_OK)
            fprintf(list, "raw:%u 1 0 %llu %s\n", shard.rank, (unsigned long long)shard.bytes,
                    path);
        job->bytes += shard.bytes;
        free(memory);
        if (code != CAIRN_OK) return code;
    }
    return CAIRN_OK;
}

static enum cairn_code restore_all(struct job *job, struct cairn_session *session, FILE *list,
                                   struct cairn_error *err) {
    struct cairn_restore *restore = NULL;
    struct cairn_restore_info info;
    struct cairn_restore_options options = {.size = sizeof options,
                                            .format = "transformer-example-1"};
    enum cairn_code code = cairn_restore_open(session, &options, &restore, &info, err);
    if (code != CAIRN_OK) return code;
    code = cairn_restore_read(restore, job->reads, job->piece_count, TIMEOUT_MS, err);
    if (code == CAIRN_OK) code = get_raw(job, restore, &info, list, err);
    if (code == CAIRN_OK)
        printf("{\"rank\":%u,\"version\":\"%s\",\"step\":%llu,\"bytes\":%llu}\n", job->rank,
               info.version, (unsigned long long)info.step, (unsigned long long)job->bytes);
    cairn_restore_free(restore);
    return code;
}

int main(int argc, char **argv) {
    static struct job job;
    struct cairn_session *session = NULL;
    struct cairn_error err = {0};
    char path[4096];
    if (argc != 5) {
        fprintf(stderr, "usage: restore RUN RANK WORLD_SIZE FOLDER\n");
        return 2;
    }
    job.rank = (unsigned)strtoul(argv[2], NULL, 10);
    job.ranks = (unsigned)strtoul(argv[3], NULL, 10);
    job.folder = argv[4];
    unsigned count = model_tensors(job.tensors);
    for (unsigned t = 0; t < count; t++) (void)want(&job, &job.tensors[t]);
    struct cairn_open_options options = {.size = sizeof(struct cairn_open_options),
                                         .run = argv[1],
                                         .rank = job.rank,
                                         .world_size = job.ranks,
                                         .read_only = 1};
    enum cairn_code code = cairn_open(&options, &session, NULL, &err);
    if (code != CAIRN_OK) return failed("open", &err, code);
    snprintf(path, sizeof path, "%s/pieces-%u.txt", job.folder, job.rank);
    FILE *list = fopen(path, "w");
    if (!list) {
        perror(path);
        return 1;
    }
    code = restore_all(&job, session, list, &err);
    (void)cairn_close(session, NULL);
    if (code != CAIRN_OK) return failed("restore", &err, code);
    if (!write_pieces(&job, list) || fclose(list)) return 1;
    for (unsigned p = 0; p < job.piece_count; p++) free(job.pieces[p].memory);
    return 0;
}
