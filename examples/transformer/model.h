/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: the tensors of a small decoder-only transformer, and each element's value.
 *
 * Why:     saver, restorer and checker must agree on every byte without sharing other code: the
 *          checker recomputes each element from the tensor's name and the element's index.
 * Promise: 1   element i of tensor T is a hash of (T, i), so misplaced bytes never match.
 *          2   the saver splits as ZeRO does: a group's tensors are laid end to end and divided
 *              over the ranks, so that borders fall inside tensors, many ranks hold nothing of a
 *              tensor, and the last rank's part is shorter.
 * Limits:  compile-time shapes; BF16 weights, F32 master weights and moments as ZeRO stage 1 has.
 * Threads: stateless.
 * Next:    save.c, restore.c, check.c in this folder.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MODEL_LAYERS 7
#define MODEL_HIDDEN 768
#define MODEL_HEADS 12
#define MODEL_FEED_FORWARD 3072
#define MODEL_VOCABULARY 32003 /* odd on purpose: not divisible */
#define MODEL_POSITIONS 2048
#define MODEL_TENSORS_MAX 1024

enum model_kind { MODEL_SHARDED, MODEL_REPLICATED, MODEL_ALIAS };
struct model_tensor {
    char name[96];
    const char *dtype; /* "BF16" or "F32" */
    unsigned element_bytes;
    unsigned dimension_count;
    uint64_t shape[2];
    uint64_t elements;
    unsigned group;        /* weights, master weights, first moments, second moments */
    uint64_t group_offset; /* first element's place in the group */
    enum model_kind kind;
    const char *alias_of;
};

static inline void model_add(struct model_tensor *tensors, unsigned *count, const char *prefix,
                             const char *name, uint64_t rows, uint64_t columns, const char *dtype) {
    struct model_tensor *tensor = &tensors[(*count)++];
    memset(tensor, 0, sizeof *tensor);
    snprintf(tensor->name, sizeof tensor->name, "%s%s", prefix, name);
    tensor->dtype = dtype;
    tensor->element_bytes = dtype[0] == 'B' ? 2 : 4;
    tensor->dimension_count = columns ? 2 : 1;
    tensor->shape[0] = rows;
    tensor->shape[1] = columns;
    tensor->elements = rows * (columns ? columns : 1);
}

static inline void model_add_weights(struct model_tensor *tensors, unsigned *count,
                                     const char *prefix, const char *dtype) {
    char name[96];
    model_add(tensors, count, prefix, "model.embed_tokens.weight", MODEL_VOCABULARY, MODEL_HIDDEN,
              dtype);
    for (unsigned layer = 0; layer < MODEL_LAYERS; layer++) {
        static const struct {
            const char *name;
            uint64_t rows, columns;
        } parts[] = {
            {"self_attn.q_proj.weight", MODEL_HIDDEN, MODEL_HIDDEN},
            {"self_attn.k_proj.weight", MODEL_HIDDEN / 4, MODEL_HIDDEN},
            {"self_attn.v_proj.weight", MODEL_HIDDEN / 4, MODEL_HIDDEN},
            {"self_attn.o_proj.weight", MODEL_HIDDEN, MODEL_HIDDEN},
            {"mlp.gate_proj.weight", MODEL_FEED_FORWARD, MODEL_HIDDEN},
            {"mlp.up_proj.weight", MODEL_FEED_FORWARD, MODEL_HIDDEN},
            {"mlp.down_proj.weight", MODEL_HIDDEN, MODEL_FEED_FORWARD},
            {"self_attn.sinks", MODEL_HEADS, 0},
            {"input_layernorm.weight", MODEL_HIDDEN, 0},
            {"post_attention_layernorm.weight", MODEL_HIDDEN, 0},
        };
        for (unsigned p = 0; p < sizeof parts / sizeof *parts; p++) {
            snprintf(name, sizeof name, "model.layers.%u.%s", layer, parts[p].name);
            model_add(tensors, count, prefix, name, parts[p].rows, parts[p].columns, dtype);
        }
    }
    model_add(tensors, count, prefix, "model.norm.weight", MODEL_HIDDEN, 0, dtype);
}

/* Fills tensors[MODEL_TENSORS_MAX]; returns their number. */
static inline unsigned model_tensors(struct model_tensor *tensors) {
    unsigned count = 0;
    model_add_weights(tensors, &count, "", "BF16");
    model_add_weights(tensors, &count, "optimizer.master.", "F32");
    model_add_weights(tensors, &count, "optimizer.exp_avg.", "F32");
    model_add_weights(tensors, &count, "optimizer.exp_avg_sq.", "F32");
    model_add(tensors, &count, "", "model.rotary.inv_freq", MODEL_POSITIONS, 0, "F32");
    tensors[count - 1].kind = MODEL_REPLICATED;
    model_add(tensors, &count, "", "lm_head.weight", MODEL_VOCABULARY, MODEL_HIDDEN, "BF16");
    tensors[count - 1].kind = MODEL_ALIAS;
    tensors[count - 1].alias_of = "model.embed_tokens.weight";
    return count;
}

/* Lays the split tensors of each group end to end; ret_totals holds 4. */
static inline void model_lay_out(struct model_tensor *tensors, unsigned count,
                                 uint64_t *ret_totals) {
    memset(ret_totals, 0, 4 * sizeof *ret_totals);
    for (unsigned t = 0; t < count; t++) {
        static const char *const prefixes[] = {"optimizer.master.", "optimizer.exp_avg.",
                                               "optimizer.exp_avg_sq."};
        if (tensors[t].kind != MODEL_SHARDED) continue;
        for (unsigned g = 0; g < 3; g++)
            if (!strncmp(tensors[t].name, prefixes[g], strlen(prefixes[g])))
                tensors[t].group = g + 1;
        tensors[t].group_offset = ret_totals[tensors[t].group];
        ret_totals[tensors[t].group] += tensors[t].elements;
    }
}

/* FNV-1a of the name: the seed of its elements. */
static inline uint64_t model_seed(const char *name) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

/* The bits of element i; the low 16 for BF16. */
static inline uint32_t model_element(uint64_t seed, uint64_t i) {
    uint64_t x = seed + i * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(x ^ (x >> 31));
}

static inline void model_fill(const char *name, unsigned element_bytes, uint64_t start,
                              uint64_t count, void *into) {
    uint64_t seed = model_seed(name);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = model_element(seed, start + i);
        if (element_bytes == 2)
            ((uint16_t *)into)[i] = (uint16_t)bits;
        else
            ((uint32_t *)into)[i] = bits;
    }
}

/* Rank's part [*start, *start + *count), ceil-divided as in ZeRO: the last may be short or
 * empty. */
static inline void model_split(uint64_t elements, unsigned rank, unsigned ranks, uint64_t *start,
                               uint64_t *count) {
    uint64_t each = (elements + ranks - 1) / ranks;
    *start = (uint64_t)rank * each < elements ? (uint64_t)rank * each : elements;
    *count = elements - *start < each ? elements - *start : each;
}

/* Rank's part of a tensor whose group of `total` elements is divided over `ranks`. */
static inline void model_group_split(const struct model_tensor *tensor, uint64_t total,
                                     unsigned rank, unsigned ranks, uint64_t *start,
                                     uint64_t *count) {
    uint64_t first, part, last;
    model_split(total, rank, ranks, &first, &part);
    last = first + part;
    uint64_t begin = tensor->group_offset, end = begin + tensor->elements;
    uint64_t from = first > begin ? first : begin, to = last < end ? last : end;
    *start = from < to ? from - begin : 0;
    *count = from < to ? to - from : 0;
}
