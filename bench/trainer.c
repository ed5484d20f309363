/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_trainer --socket PATH --run PROJECT/RUN --bytes N
 *
 * A training job of one rank against real daemons. Each "go" is one save, timed by its stall (begin
 * and stage); then it waits until the save is durable, for which training would leave time.
 * It never waits for the commit: the server may be away.
 */
#include <cairn/cairn.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/measure.h"

#define TENSOR_BYTES (4 * CAIRN_MIB)
#define WAIT_MS 120000

struct trainer {
    struct cairn_session *session;
    uint8_t *memory;
    uint64_t bytes, step;
    struct cairn_save *saves[4096]; /* kept open: freeing an unfinished save fails it */
};

static enum cairn_code describe(struct trainer *trainer, struct cairn_save *save,
                                struct cairn_error *err) {
    for (uint64_t at = 0, index = 0; at < trainer->bytes; at += TENSOR_BYTES, index++) {
        char name[64];
        uint64_t count = cairn_min_u64(TENSOR_BYTES, trainer->bytes - at) / 4;
        snprintf(name, sizeof name, "block%llu", (unsigned long long)index);
        struct cairn_tensor_piece piece = {.size = sizeof piece,
                                           .name = name,
                                           .dtype = "U32",
                                           .dimension_count = 1,
                                           .shape = &count,
                                           .kind = CAIRN_SHARDED,
                                           .source = trainer->memory + at,
                                           .source_bytes = count * 4};
        CAIRN_TRY(cairn_save_tensor(save, &piece, err));
    }
    return CAIRN_OK;
}

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    struct trainer *trainer = owner;
    struct cairn_save_options options = {.size = sizeof options, .timeout_ms = WAIT_MS};
    struct cairn_save_status status = {0};
    struct cairn_save *save = NULL;
    if (trainer->step == CAIRN_COUNT(trainer->saves))
        return cairn_fail(err, CAIRN_TOO_LARGE, "too many saves");
    CAIRN_TRY(cairn_save_begin(trainer->session, trainer->step + 1, &options, &save, err));
    trainer->saves[trainer->step++] = save;
    CAIRN_TRY(describe(trainer, save, err));
    CAIRN_TRY(cairn_save_stage(save, err));
    CAIRN_TRY(cairn_save_wait(save, CAIRN_DURABLE, WAIT_MS, err));
    cairn_save_status(save, &status);
    *ret = (struct bench_result){.bytes = trainer->bytes, .took_us = status.stall_us};
    return CAIRN_OK;
}

int main(int count, char **values) {
    static struct trainer trainer;
    struct cairn_error error = {0};
    struct cairn_resume resume;
    trainer.bytes = bench_flag_number(count, values, "--bytes", 256 * CAIRN_MIB);
    trainer.memory = bench_memory(trainer.bytes);
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = bench_flag(count, values, "--run", "bench/stall"),
                                         .job = "bench",
                                         .bytes = trainer.bytes + 4 * CAIRN_MIB,
                                         .socket = bench_flag(count, values, "--socket", NULL)};
    if (!trainer.memory || cairn_open(&options, &trainer.session, &resume, &error) != CAIRN_OK) {
        fprintf(stderr, "bench_trainer: %s\n", error.message);
        return 2;
    }
    int status = bench_loop(once, &trainer);
    for (uint64_t i = 0; i < trainer.step; i++) cairn_save_free(trainer.saves[i]);
    (void)cairn_close(trainer.session, NULL);
    return status;
}
