/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of data, tensor and pipeline parallelism that saves every step and resumes from the newest
 * checkpoint in any layout:
 *
 *     parallel-job demo/parallel JOB-1 STEPS DATA TENSOR PIPELINE [cuda]
 *
 * Weights that several ranks hold are saved once, a slice per rank (cairn_split); moments are saved
 * as the flat parts of ZeRO stage 1. The last line printed is a digest of all weights: equal after
 * the same step for any sequence of layouts.
 *
 * With `cuda` the saved and restored memory is on a CUDA device, written after each step in a
 * stream that the save waits for by itself.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cairn/cairn.h>

#include "examples/parallel/device.h"
#include "examples/parallel/hub.h"
#include "examples/parallel/model.h"

#define RANKS_MAX 64
#define TIMEOUT_MS 120000

struct arguments {
    const char *run, *job;
    uint64_t steps;
    uint32_t data, tensor, pipeline;
    int on_device;
};
struct rank {
    struct model_place place;
    struct hub_rank hub;
    uint32_t number, count;
    float *weights, *gradients, *moments; /* moments: this member's slice */
    uint64_t slice_start, slice;
    float *saved_weights, *saved_moments; /* the same memory, or its copy on a device */
    enum cairn_memory memory;
    void *stream;
    struct cairn_session *session;
    struct cairn_split *split;
    struct cairn_save *save;
};

static int failed(const struct rank *rank, const char *what, enum cairn_code code,
                  const struct cairn_error *err) {
    fprintf(stderr, "rank %u: %s: %s\n", rank->number, what, err->message);
    return cairn_code_info(code)->exit_status;
}

/* ---- a rank's part of the whole model's tensors ---- */

static const uint64_t shape[2] = {MODEL_SIDE, MODEL_SIDE};

struct rows { /* of one layer */
    char name[32];
    uint64_t start[2], count[2];
};

static struct cairn_tensor_piece weight_piece(const struct rank *rank, uint32_t layer,
                                              struct rows *rows) {
    const struct model_place *place = &rank->place;
    snprintf(rows->name, sizeof rows->name, "layers.%u.weight",
             place->pipeline * model_layers(place) + layer);
    rows->start[0] = place->tensor * model_rows(place);
    rows->start[1] = 0;
    rows->count[0] = model_rows(place);
    rows->count[1] = MODEL_SIDE;
    return (struct cairn_tensor_piece){.size = sizeof(struct cairn_tensor_piece),
                                       .name = rows->name,
                                       .dtype = "F32",
                                       .dimension_count = 2,
                                       .shape = shape,
                                       .kind = CAIRN_SHARDED,
                                       .form = CAIRN_BOX,
                                       .start = rows->start,
                                       .count = rows->count,
                                       .source = rank->saved_weights +
                                                 layer * model_layer_elements(place),
                                       .source_bytes = model_layer_elements(place) * sizeof(float),
                                       .memory = rank->memory,
                                       .stream = rank->stream};
}

/* The part of a layer in this member's slice, flat because rows are contiguous; false: none. */
static int moment_part(const struct rank *rank, uint32_t layer, struct rows *rows,
                       uint64_t *ret_at) {
    const struct model_place *place = &rank->place;
    uint64_t elements = model_layer_elements(place), begin = layer * elements,
             end = begin + elements;
    uint64_t from = rank->slice_start > begin ? rank->slice_start : begin;
    uint64_t to = rank->slice_start + rank->slice < end ? rank->slice_start + rank->slice : end;
    if (from >= to) return 0;
    snprintf(rows->name, sizeof rows->name, "layers.%u.moment",
             place->pipeline * model_layers(place) + layer);
    rows->start[0] = place->tensor * elements + from - begin;
    rows->count[0] = to - from;
    *ret_at = from - rank->slice_start;
    return 1;
}

static enum cairn_code make_split(struct rank *rank, struct cairn_error *err) {
    char group[32];
    snprintf(group, sizeof group, "weights-%u", model_group(&rank->place));
    const struct cairn_split_options options = {.size = sizeof options,
                                                .group = group,
                                                .member = rank->place.data,
                                                .members = rank->place.data_size,
                                                .by = CAIRN_SPLIT_SLICE};
    enum cairn_code code = cairn_split_new(&options, &rank->split, err);
    for (uint32_t layer = 0; !code && layer < model_layers(&rank->place); layer++) {
        struct rows rows;
        struct cairn_tensor_piece piece = weight_piece(rank, layer, &rows);
        code = cairn_split_add(rank->split, &piece, err);
    }
    return code;
}

static enum cairn_code describe(struct rank *rank, struct cairn_error *err) {
    enum cairn_code code = CAIRN_OK;
    for (uint32_t layer = 0; !code && layer < model_layers(&rank->place); layer++) {
        struct rows rows;
        uint64_t at = 0;
        struct cairn_tensor_piece weight = weight_piece(rank, layer, &rows);
        code = cairn_save_tensor(rank->save, &weight, err);
        if (code || !moment_part(rank, layer, &rows, &at)) continue;
        const struct cairn_tensor_piece moment = {.size = sizeof moment,
                                                  .name = rows.name,
                                                  .dtype = "F32",
                                                  .dimension_count = 2,
                                                  .shape = shape,
                                                  .kind = CAIRN_SHARDED,
                                                  .form = CAIRN_FLAT,
                                                  .start = rows.start,
                                                  .count = rows.count,
                                                  .source = rank->saved_moments + at,
                                                  .source_bytes = rows.count[0] * sizeof(float),
                                                  .memory = rank->memory,
                                                  .stream = rank->stream};
        code = cairn_save_tensor(rank->save, &moment, err);
    }
    return code;
}

/* ---- save and restore ---- */

/* Returns when the bytes are copied; cairn_session_problem reports how the previous save ended. */
static enum cairn_code save(struct rank *rank, uint64_t step, struct cairn_error *err) {
    const struct cairn_save_options options = {
        .size = sizeof options, .splits = &rank->split, .split_count = 1};
    enum cairn_code code = cairn_session_problem(rank->session, err);
    if (code == CAIRN_UNAVAILABLE) /* delayed, not failed */
        fprintf(stderr, "%s\n", err->message);
    if (code == CAIRN_UNAVAILABLE) code = CAIRN_OK;
    cairn_save_free(rank->save);
    rank->save = NULL;
    if (!code) code = cairn_save_begin(rank->session, step, &options, &rank->save, err);
    if (!code) code = describe(rank, err);
    return code ? code : cairn_save_stage(rank->save, err);
}

static enum cairn_code restore(struct rank *rank, struct cairn_error *err) {
    struct cairn_restore *from = NULL;
    struct cairn_read reads[2 * MODEL_LAYERS];
    struct rows weights[MODEL_LAYERS], moments[MODEL_LAYERS];
    size_t count = 0;
    for (uint32_t layer = 0; layer < model_layers(&rank->place); layer++) {
        uint64_t at = 0;
        struct cairn_tensor_piece piece = weight_piece(rank, layer, &weights[layer]);
        reads[count++] = (struct cairn_read){.size = sizeof *reads,
                                             .tensor = weights[layer].name,
                                             .form = CAIRN_BOX,
                                             .start = weights[layer].start,
                                             .count = weights[layer].count,
                                             .into = (void *)(uintptr_t)piece.source,
                                             .into_bytes = piece.source_bytes,
                                             .memory = rank->memory,
                                             .stream = rank->stream};
        if (!moment_part(rank, layer, &moments[layer], &at)) continue;
        reads[count++] = (struct cairn_read){.size = sizeof *reads,
                                             .tensor = moments[layer].name,
                                             .form = CAIRN_FLAT,
                                             .start = moments[layer].start,
                                             .count = moments[layer].count,
                                             .into = rank->saved_moments + at,
                                             .into_bytes = moments[layer].count[0] * sizeof(float),
                                             .memory = rank->memory,
                                             .stream = rank->stream};
    }
    enum cairn_code code = cairn_restore_open(rank->session, NULL, &from, NULL, err);
    if (!code) code = cairn_restore_read(from, reads, count, TIMEOUT_MS, err);
    cairn_restore_free(from);
    return code;
}

static size_t weight_bytes(const struct rank *rank) {
    return model_elements(&rank->place) * sizeof(float);
}

static int put_on_device(struct rank *rank) {
    if (rank->memory != CAIRN_MEMORY_CUDA) return 0;
    return device_write(rank->stream, rank->saved_weights, rank->weights, weight_bytes(rank)) ||
           device_write(rank->stream, rank->saved_moments, rank->moments,
                        rank->slice * sizeof(float));
}

static int take_from_device(struct rank *rank) {
    if (rank->memory != CAIRN_MEMORY_CUDA) return 0;
    return device_read(rank->stream, rank->weights, rank->saved_weights, weight_bytes(rank)) ||
           device_read(rank->stream, rank->moments, rank->saved_moments,
                       rank->slice * sizeof(float));
}

/* ---- training ---- */

static void start_fresh(struct rank *rank) {
    const struct model_place *place = &rank->place;
    uint64_t elements = model_layer_elements(place);
    for (uint64_t i = 0; i < model_elements(place); i++)
        rank->weights[i] =
            model_start(place->pipeline * model_layers(place) + (uint32_t)(i / elements),
                        place->tensor * elements + i % elements);
    memset(rank->moments, 0, rank->slice * sizeof(float));
}

static int train(struct rank *rank, uint64_t step) {
    const struct model_place *place = &rank->place;
    uint64_t elements = model_layer_elements(place), all = model_elements(place), first;
    uint64_t samples = model_slice(MODEL_SAMPLES, place->data, place->data_size, &first);
    memset(rank->gradients, 0, all * sizeof(float));
    for (uint64_t s = first; s < first + samples; s++)
        for (uint64_t i = 0; i < all; i++)
            rank->gradients[i] += model_gradient(
                step, (uint32_t)s, place->pipeline * model_layers(place) + (uint32_t)(i / elements),
                place->tensor * elements + i % elements);
    if (hub_reduce(&rank->hub, rank->gradients, all)) return -1;
    for (uint64_t i = 0; i < rank->slice; i++) {
        uint64_t at = rank->slice_start + i;
        rank->moments[i] = MODEL_DECAY * rank->moments[i] + rank->gradients[at];
        rank->weights[at] -= MODEL_RATE * rank->moments[i];
    }
    return hub_gather(&rank->hub, rank->weights, all, rank->slice_start, rank->slice);
}

/* Position-dependent sum, independent of the distribution of layers. */
static uint64_t digest(const struct rank *rank) {
    const struct model_place *place = &rank->place;
    uint64_t elements = model_layer_elements(place), sum = 0;
    for (uint64_t i = 0; i < model_elements(place); i++) {
        uint32_t word;
        memcpy(&word, &rank->weights[i], sizeof word);
        uint64_t layer = place->pipeline * model_layers(place) + i / elements;
        sum += model_mix((layer << 40) + place->tensor * elements + i % elements) * (word | 1);
    }
    return sum;
}

static int make_memory(struct rank *rank, int on_device) {
    uint64_t all = model_elements(&rank->place);
    rank->slice = model_slice(all, rank->place.data, rank->place.data_size, &rank->slice_start);
    rank->weights = calloc(all, sizeof(float));
    rank->gradients = calloc(all, sizeof(float));
    rank->moments = calloc(rank->slice + 1, sizeof(float));
    if (!rank->weights || !rank->gradients || !rank->moments) return -1;
    rank->saved_weights = rank->weights;
    rank->saved_moments = rank->moments;
    if (!on_device) return 0;
    void *weights = NULL, *moments = NULL;
    if (device_open(rank->number, &rank->stream) || device_new(weight_bytes(rank), &weights) ||
        device_new((rank->slice + 1) * sizeof(float), &moments))
        return -1;
    rank->saved_weights = weights;
    rank->saved_moments = moments;
    rank->memory = CAIRN_MEMORY_CUDA;
    return 0;
}

static enum cairn_code open_session(struct rank *rank, const struct arguments *arguments,
                                    struct cairn_resume *ret, struct cairn_error *err) {
    const struct cairn_open_options options = {
        .size = sizeof options,
        .run = arguments->run,
        .job = arguments->job,
        .rank = rank->number,
        .world_size = rank->count,
        .local_rank = rank->number,
        .local_world_size = rank->count,
        .bytes = (model_elements(&rank->place) + rank->slice) * sizeof(float) + (1 << 20),
        .timeout_ms = TIMEOUT_MS};
    return cairn_open(&options, &rank->session, ret, err);
}

/* ret_said: the first step, then the final digest. */
static int run_rank(struct rank *rank, const struct arguments *arguments, uint64_t ret_said[2]) {
    struct cairn_error err = {0};
    struct cairn_resume resume = {0};
    if (make_memory(rank, arguments->on_device)) return 1;
    enum cairn_code code = make_split(rank, &err);
    if (code) return failed(rank, "split", code, &err);
    code = open_session(rank, arguments, &resume, &err);
    if (code) return failed(rank, "open", code, &err);
    start_fresh(rank);
    if (resume.found) code = restore(rank, &err);
    if (code) return failed(rank, "restore", code, &err);
    if (resume.found && take_from_device(rank)) return 1;
    ret_said[0] = resume.found ? resume.step : 0;
    for (uint64_t step = ret_said[0] + 1; step <= arguments->steps; step++) {
        if (train(rank, step) || put_on_device(rank)) return 1;
        code = save(rank, step, &err);
        if (code) return failed(rank, "save", code, &err);
    }
    if (rank->save) code = cairn_save_wait(rank->save, CAIRN_COMMITTED, TIMEOUT_MS, &err);
    if (code) return failed(rank, "commit", code, &err);
    ret_said[1] = rank->place.data ? 0 : digest(rank); /* one rank per group counts */
    cairn_save_free(rank->save);
    code = cairn_close(rank->session, &err);
    cairn_split_free(rank->split);
    return code ? failed(rank, "close", code, &err) : 0;
}

/* ---- the parent process ---- */

struct started {
    struct hub_member member;
    pid_t pid;
    int said; /* pipe from the rank: first step and digest */
};

static void close_rank(const struct started *rank) {
    close(rank->member.in);
    close(rank->member.out);
    close(rank->said);
}

/* Closes the inherited pipes of the ranks started before. */
static int start_rank(const struct arguments *arguments, uint32_t number, uint32_t count,
                      struct started *ranks) {
    struct started *ret = &ranks[number];
    int to[2], from[2], said[2];
    struct rank rank = {
        .place = model_place(number, arguments->data, arguments->tensor, arguments->pipeline),
        .number = number,
        .count = count};
    if (pipe(to) || pipe(from) || pipe(said)) return -1;
    ret->pid = fork();
    if (ret->pid < 0) return -1;
    if (!ret->pid) {
        uint64_t words[2] = {0};
        close(to[1]);
        close(from[0]);
        close(said[0]);
        for (uint32_t i = 0; i < number; i++) close_rank(&ranks[i]);
        rank.hub = (struct hub_rank){to[0], from[1]};
        int status = run_rank(&rank, arguments, words);
        if (!status && write(said[1], words, sizeof words) != sizeof words) status = 1;
        exit(status);
    }
    close(to[0]);
    close(from[1]);
    close(said[1]);
    ret->member = (struct hub_member){model_group(&rank.place), rank.place.data, from[0], to[1]};
    ret->said = said[0];
    return 0;
}

static int read_arguments(int count, char **values, struct arguments *ret) {
    if (count != 7 && (count != 8 || strcmp(values[7], "cuda"))) {
        fprintf(stderr, "usage: %s PROJECT/RUN JOB STEPS DATA TENSOR PIPELINE [cuda]\n", values[0]);
        return -1;
    }
    *ret = (struct arguments){values[1],
                              values[2],
                              strtoull(values[3], NULL, 10),
                              (uint32_t)strtoul(values[4], NULL, 10),
                              (uint32_t)strtoul(values[5], NULL, 10),
                              (uint32_t)strtoul(values[6], NULL, 10),
                              count == 8};
    if (!ret->data || !ret->tensor || !ret->pipeline || MODEL_SIDE % ret->tensor ||
        MODEL_LAYERS % ret->pipeline || ret->data * ret->tensor * ret->pipeline > RANKS_MAX) {
        fprintf(stderr, "%s: TENSOR must divide %d, PIPELINE %d, and there are at most %d ranks\n",
                values[0], MODEL_SIDE, MODEL_LAYERS, RANKS_MAX);
        return -1;
    }
    return 0;
}

int main(int count, char **values) {
    struct arguments arguments;
    struct started ranks[RANKS_MAX];
    struct hub_member members[RANKS_MAX];
    uint64_t words[2] = {0}, sum = 0;
    int failures = 0;
    if (read_arguments(count, values, &arguments)) return 2;
    uint32_t rank_count = arguments.data * arguments.tensor * arguments.pipeline;
    signal(SIGPIPE, SIG_IGN);
    for (uint32_t i = 0; i < rank_count; i++) {
        if (start_rank(&arguments, i, rank_count, ranks)) return 1;
        members[i] = ranks[i].member;
    }
    const struct model_place place =
        model_place(0, arguments.data, arguments.tensor, arguments.pipeline);
    /* Ends early if a rank ends or fewer steps remain. */
    (void)hub_serve(members, rank_count, arguments.steps, model_elements(&place));
    for (uint32_t i = 0; i < rank_count; i++) close(members[i].out); /* unblocks waiting ranks */
    for (uint32_t i = 0; i < rank_count; i++) {
        int status = 0;
        if (read(ranks[i].said, words, sizeof words) != sizeof words) words[1] = 0;
        sum += words[1];
        waitpid(ranks[i].pid, &status, 0);
        failures += status != 0;
    }
    if (failures) return 1;
    printf("%u ranks (data %u, tensor %u, pipeline %u) went from step %" PRIu64 " to %" PRIu64
           "\nweights %016" PRIx64 "\n",
           rank_count, arguments.data, arguments.tensor, arguments.pipeline, words[0],
           arguments.steps, sum);
    return 0;
}
