/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: a toy network's weights and gradients, and a rank's part of them.
 *
 * Why:     a job resumed with other ranks must reach identical weights; gradients are small
 *          integers, so the order of their sums changes no bit.
 * Promise: 1   layers are split over the pipeline, each layer's rows over tensor parallelism;
 *              members of a data-parallel group hold the same rows.
 *          2   moments are split over the data-parallel group, as in ZeRO stage 1.
 * Limits:  MODEL_LAYERS divides by the pipeline, MODEL_SIDE by tensor parallelism.
 * Threads: stateless.
 * Next:    job.c.
 */
#pragma once

#include <stdint.h>

#define MODEL_LAYERS 4
#define MODEL_SIDE 240
#define MODEL_SAMPLES 24 /* per batch, split over the data-parallel group */

struct model_place { /* a rank's coordinates and the size of each dimension */
    uint32_t data, tensor, pipeline;
    uint32_t data_size, tensor_size, pipeline_size;
};
static inline struct model_place model_place(uint32_t rank, uint32_t data_size,
                                             uint32_t tensor_size, uint32_t pipeline_size) {
    return (struct model_place){rank / tensor_size % data_size,
                                rank % tensor_size,
                                rank / tensor_size / data_size,
                                data_size,
                                tensor_size,
                                pipeline_size};
}

/* Index of the group of ranks that hold the same weights. */
static inline uint32_t model_group(const struct model_place *place) {
    return place->pipeline * place->tensor_size + place->tensor;
}

static inline uint32_t model_layers(const struct model_place *place) {
    return MODEL_LAYERS / place->pipeline_size;
}
static inline uint64_t model_rows(const struct model_place *place) {
    return MODEL_SIDE / place->tensor_size;
}
/* Elements that a rank holds of one layer, and of all its layers. */
static inline uint64_t model_layer_elements(const struct model_place *place) {
    return model_rows(place) * MODEL_SIDE;
}
static inline uint64_t model_elements(const struct model_place *place) {
    return model_layers(place) * model_layer_elements(place);
}

/* A member's part of `total`: [*start, *start + return value). */
static inline uint64_t model_slice(uint64_t total, uint32_t member, uint32_t members,
                                   uint64_t *start) {
    *start = total * member / members;
    return total * (member + 1) / members - *start;
}

static inline uint64_t model_mix(uint64_t x) {
    x = (x ^ x >> 31) * UINT64_C(0x7fb5d329728ea185);
    x = (x ^ x >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return x ^ x >> 33;
}

/* Gradient of one element for one sample of a step's batch. */
static inline float model_gradient(uint64_t step, uint32_t sample, uint32_t layer,
                                   uint64_t element) {
    uint64_t seed = model_mix(step << 40 | (uint64_t)sample << 32 | (uint64_t)layer << 24);
    return (float)(int)(model_mix(seed ^ element) % 7) - 3;
}
static inline float model_start(uint32_t layer, uint64_t element) {
    return (float)(model_mix((uint64_t)(layer + 1) << 50 ^ element) % 17) - 8;
}
#define MODEL_RATE 0.015625f /* 2^-6 */
#define MODEL_DECAY 0.5f
