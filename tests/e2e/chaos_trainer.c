/* SPDX-License-Identifier: Apache-2.0 */
/* One rank that saves a checkpoint of its own making; a victim for kill -9, and a witness of what
 * libcairn tells a job whose uploader or server was killed:  chaos-trainer RUN STEP RANK WORLD */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cairn/cairn.h>

#define ROWS_PER_RANK 16
#define COLUMNS (1024 * 256)
#define TIMEOUT_MS 60000

static uint32_t *memory_of(unsigned rank, uint64_t step) {
    uint64_t count = (uint64_t)ROWS_PER_RANK * COLUMNS;
    uint32_t *memory = malloc(count * sizeof *memory);
    if (!memory) exit(1);
    for (uint64_t i = 0; i < count; i++)
        memory[i] = (uint32_t)((i + step) * 2654435761u) ^ (rank << 20);
    return memory;
}

static enum cairn_code save_step(struct cairn_session *session, uint64_t step, unsigned rank,
                                 unsigned ranks, const uint32_t *memory, struct cairn_error *err) {
    struct cairn_save *save = NULL;
    uint64_t shape[2] = {(uint64_t)ROWS_PER_RANK * ranks, COLUMNS};
    uint64_t start[2] = {(uint64_t)ROWS_PER_RANK * rank, 0}, count[2] = {ROWS_PER_RANK, COLUMNS};
    struct cairn_tensor_piece piece = {.name = "w",
                                       .dtype = "U32",
                                       .dimension_count = 2,
                                       .shape = shape,
                                       .kind = CAIRN_SHARDED,
                                       .form = CAIRN_BOX,
                                       .start = start,
                                       .count = count,
                                       .source = memory,
                                       .source_bytes = sizeof *memory * ROWS_PER_RANK * COLUMNS};
    enum cairn_code code = cairn_save_begin(session, step, NULL, &save, err);
    if (code == CAIRN_OK) code = cairn_save_tensor(save, &piece, err);
    if (code == CAIRN_OK) code = cairn_save_raw(save, "state", memory, 12345, err);
    if (code == CAIRN_OK) code = cairn_save_stage(save, err);
    if (code == CAIRN_OK) code = cairn_save_wait(save, CAIRN_COMMITTED, TIMEOUT_MS, err);
    cairn_save_free(save);
    return code;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    uint64_t step = strtoull(argv[2], NULL, 10);
    unsigned rank = (unsigned)strtoul(argv[3], NULL, 10);
    unsigned ranks = (unsigned)strtoul(argv[4], NULL, 10);
    struct cairn_session *session = NULL;
    struct cairn_resume resume;
    struct cairn_error err;
    memset(&err, 0, sizeof err);
    uint32_t *memory = memory_of(rank, step);
    struct cairn_open_options options = {.run = argv[1],
                                         .rank = rank,
                                         .world_size = ranks,
                                         .local_world_size = 2,
                                         .bytes = UINT64_C(24) << 20,
                                         .timeout_ms = TIMEOUT_MS};
    enum cairn_code code = cairn_open(&options, &session, &resume, &err);
    if (code == CAIRN_OK) code = save_step(session, step, rank, ranks, memory, &err);
    if (code != CAIRN_OK) fprintf(stderr, "%s\n", err.message);
    cairn_close(session);
    free(memory);
    return code == CAIRN_OK ? 0 : 1;
}
