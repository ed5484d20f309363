/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_behind beside --socket PATH --run PROJECT/RUN --bytes N --tensors N --work-ms N
 *                     --threads N
 * bench_behind describe --socket PATH --run PROJECT/RUN --pieces N
 *
 * One round for each line on standard input.
 *     beside     runs a loop that stands for training three times: alone, beside --threads threads
 *                that only copy the bytes (memcpy), and beside a save, which as many copy: begin,
 *                describe and cairn_save_stage_begin before the loop, cairn_save_fence after it.
 *                {"begin_us", "describe_us", "stage_begin_us", "fence_us", "blocked_us",
 *                "alone_us", "memcpy_us", "beside_us"}. blocked_us is the copy's cost: all but
 *                begin_us, the uploader's reply after a journal sync. Rounds wait for the commit.
 *     describe   {"tensors_us", "known_us", "again_us"}: cairn_save_tensors of N pieces, and the
 *                second cairn_save_pieces and cairn_save_again with other addresses, when their
 *                memory is allocated.
 */
#include <cairn/pieces.h>
#include <cairn/stage.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "common/clock.h"

#define WAIT_MS 300000
#define PIECE_BYTES 64
#define THREADS_MAX 64

struct behind {
    bool beside;
    struct cairn_session *session;
    uint64_t step, bytes, rounds;
    size_t count;
    uint32_t threads; /* that copy */
    uint8_t *source, *copy;
    struct cairn_tensor_piece *pieces;
    const void **addresses[2];
    uint64_t *shapes;
    char (*names)[48];
};

static enum cairn_code make_pieces(struct behind *behind, struct cairn_error *err) {
    uint64_t each = behind->bytes / behind->count;
    behind->pieces = calloc(behind->count, sizeof *behind->pieces);
    behind->names = calloc(behind->count, sizeof *behind->names);
    behind->shapes = calloc(behind->count, sizeof *behind->shapes);
    for (int half = 0; half < 2; half++)
        behind->addresses[half] = calloc(behind->count, sizeof(void *));
    behind->source = bench_memory(behind->bytes);
    if (!behind->pieces || !behind->names || !behind->shapes || !behind->addresses[1] ||
        !behind->addresses[0] || !behind->source)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for what is saved");
    for (size_t i = 0; i < behind->count; i++) {
        snprintf(behind->names[i], sizeof behind->names[i], "model.layers.%zu.w", i);
        behind->shapes[i] = each;
        behind->addresses[0][i] = behind->addresses[1][behind->count - 1 - i] =
            behind->source + each * i;
        behind->pieces[i] = (struct cairn_tensor_piece){.size = sizeof *behind->pieces,
                                                        .name = behind->names[i],
                                                        .dtype = "U8",
                                                        .dimension_count = 1,
                                                        .shape = &behind->shapes[i],
                                                        .kind = CAIRN_SHARDED,
                                                        .source = behind->source + each * i,
                                                        .source_bytes = each};
    }
    return CAIRN_OK;
}

static enum cairn_code settle(struct cairn_save *save, enum cairn_code code,
                              struct cairn_error *err) {
    while (!code) {
        enum cairn_code now = cairn_save_wait(save, CAIRN_COMMITTED, WAIT_MS, err);
        if (now != CAIRN_UPLOADER_GONE) code = now;
        if (!now) break;
    }
    cairn_save_free(save);
    return code;
}

/* ---- beside ---- */

/* Arithmetic over a little memory, as a training step's host code does. */
static uint64_t train(uint64_t rounds) {
    uint64_t state[512], began_us = cairn_mono_us();
    for (size_t i = 0; i < 512; i++) state[i] = i;
    for (uint64_t round = 0; round < rounds; round++)
        for (size_t i = 0; i < 512; i++)
            state[i] = state[i] * UINT64_C(6364136223846793005) + state[(i + 7) % 512];
    __asm__ volatile("" : : "r"(state[0])); /* prevents optimizing the loop away */
    return cairn_mono_us() - began_us;
}

struct part {
    uint8_t *to;
    const uint8_t *from;
    uint64_t bytes;
};

static void *only_copy(void *owner) {
    const struct part *part = owner;
    memcpy(part->to, part->from, part->bytes);
    return NULL;
}

static enum cairn_code train_beside_memcpy(struct behind *behind, uint64_t *ret_us,
                                           struct cairn_error *err) {
    pthread_t threads[THREADS_MAX];
    struct part parts[THREADS_MAX];
    uint32_t count = 0;
    for (; count < behind->threads; count++) {
        uint64_t begin = behind->bytes * count / behind->threads;
        uint64_t end = behind->bytes * (count + 1) / behind->threads;
        parts[count] = (struct part){behind->copy + begin, behind->source + begin, end - begin};
        if (pthread_create(&threads[count], NULL, only_copy, &parts[count])) break;
    }
    *ret_us = train(behind->rounds);
    for (uint32_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    return count == behind->threads ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no thread");
}

static enum cairn_code train_beside_save(struct behind *behind, uint64_t us[5],
                                         struct cairn_error *err) {
    struct cairn_save *save = NULL;
    uint64_t at[6] = {cairn_mono_us()};
    CAIRN_TRY(cairn_save_begin(behind->session, ++behind->step, NULL, &save, err));
    at[1] = cairn_mono_us();
    enum cairn_code code = cairn_save_tensors(save, behind->pieces, behind->count, NULL, err);
    at[2] = cairn_mono_us();
    if (!code) code = cairn_save_stage_begin(save, err);
    at[3] = cairn_mono_us();
    if (!code) (void)train(behind->rounds);
    at[4] = cairn_mono_us();
    if (!code) code = cairn_save_fence(save, WAIT_MS, err);
    at[5] = cairn_mono_us();
    for (int i = 0; i < 5; i++) us[i] = at[i + 1] - at[i];
    return settle(save, code, err);
}

static enum cairn_code beside(struct behind *behind, struct cairn_error *err) {
    uint64_t us[5], memcpy_us = 0, alone_us = train(behind->rounds);
    CAIRN_TRY(train_beside_memcpy(behind, &memcpy_us, err));
    CAIRN_TRY(train_beside_save(behind, us, err));
    printf("{\"begin_us\": %llu, \"describe_us\": %llu, \"stage_begin_us\": %llu, "
           "\"fence_us\": %llu, \"blocked_us\": %llu, \"alone_us\": %llu, \"memcpy_us\": %llu, "
           "\"beside_us\": %llu}\n",
           (unsigned long long)us[0], (unsigned long long)us[1], (unsigned long long)us[2],
           (unsigned long long)us[4], (unsigned long long)(us[1] + us[2] + us[4]),
           (unsigned long long)alone_us, (unsigned long long)memcpy_us, (unsigned long long)us[3]);
    return CAIRN_OK;
}

/* ---- describe ---- */

static enum cairn_code describe(struct behind *behind, struct cairn_error *err) {
    struct cairn_pieces *known = NULL;
    struct cairn_save *save = NULL, *last = NULL;
    uint64_t us[3] = {0};
    CAIRN_TRY(
        cairn_pieces_new(behind->session, behind->pieces, behind->count, NULL, NULL, &known, err));
    enum cairn_code code = CAIRN_OK;
    for (int round = 0; round < 7 && !code; round++) {
        const void *const *addresses = behind->addresses[round % 2];
        bool again = round >= 4;
        uint64_t began_us = cairn_mono_us();
        if (again)
            code = cairn_save_again(behind->session, ++behind->step, NULL, last, addresses,
                                    behind->count, &save, err);
        else
            code = cairn_save_begin(behind->session, ++behind->step, NULL, &save, err);
        if (!again) began_us = cairn_mono_us();
        if (!code && round < 1)
            code = cairn_save_tensors(save, behind->pieces, behind->count, NULL, err);
        else if (!code && !again)
            code = cairn_save_pieces(save, known, addresses, behind->count, err);
        us[round < 1 ? 0 : again ? 2 : 1] = cairn_mono_us() - began_us;
        if (!code) code = cairn_save_stage(save, err);
        cairn_save_free(last);
        last = save;
        while (!code && (code = cairn_save_wait(save, CAIRN_COMMITTED, WAIT_MS, err)) ==
                            CAIRN_UPLOADER_GONE) {
        }
    }
    cairn_save_free(last);
    cairn_pieces_free(known);
    if (!code)
        printf("{\"tensors_us\": %llu, \"known_us\": %llu, \"again_us\": %llu}\n",
               (unsigned long long)us[0], (unsigned long long)us[1], (unsigned long long)us[2]);
    return code;
}

static enum cairn_code measure(void *owner, const char *line, struct cairn_error *err) {
    struct behind *behind = owner;
    (void)line;
    return behind->beside ? beside(behind, err) : describe(behind, err);
}

/* Rounds of the loop in work_ms. */
static uint64_t rounds_of(uint64_t work_ms) {
    uint64_t rounds = 1000, us = train(rounds);
    for (; us < 20000; us = train(rounds)) rounds *= 2;
    return rounds * work_ms * 1000 / us + 1;
}

int main(int count, char **values) {
    static struct behind behind;
    struct cairn_error error = {0};
    behind.beside = count > 1 && !strcmp(values[1], "beside");
    behind.count = bench_flag_number(count, values, behind.beside ? "--tensors" : "--pieces", 300);
    behind.bytes = behind.beside ? bench_flag_number(count, values, "--bytes", CAIRN_GIB)
                                 : behind.count * PIECE_BYTES;
    enum cairn_code code = make_pieces(&behind, &error);
    if (!code && behind.beside) {
        uint64_t threads = bench_flag_number(count, values, "--threads", 1);
        behind.threads = (uint32_t)cairn_min_u64(cairn_max_u64(threads, 1), THREADS_MAX);
        behind.copy = bench_memory(behind.bytes);
        behind.rounds = rounds_of(bench_flag_number(count, values, "--work-ms", 1000));
    }
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = bench_flag(count, values, "--run", "bench/behind"),
                                         .job = "bench",
                                         .world_size = 1,
                                         .bytes = behind.bytes + 64 * CAIRN_MIB,
                                         .copy_threads = behind.threads,
                                         .timeout_ms = WAIT_MS,
                                         .socket = bench_flag(count, values, "--socket", NULL)};
    if (!code) code = cairn_open(&options, &behind.session, NULL, &error);
    if (!code) printf("{\"ready\": true}\n");
    fflush(stdout);
    if (!code) code = bench_lines(measure, &behind, &error);
    if (code) fprintf(stderr, "bench_behind: %s\n", error.message);
    if (behind.session) (void)cairn_close(behind.session, NULL);
    return code ? 2 : 0;
}
