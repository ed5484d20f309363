/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stored: a version in memory, for tests: objects with random bytes, their layout and manifest.
 *
 * Why:     cover proofs and read plans are tested against real bytes that were placed element by
 *          element, by a method that shares nothing with the code under test.
 * Promise: the content of element i of a tensor is the same whichever fragment holds it.
 * Limits:  tensors of at most STORED_ELEMENTS_MAX elements.
 * Threads: main thread only.
 * Next:    tests/plan/test_reads.c.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/table/layout.h"
#include "plan/boxes.h"

#define STORED_OBJECT_BYTES (CAIRN_MIB + 5000) /* of each rank: two blocks */
#define STORED_ELEMENTS_MAX 4096
#define STORED_WIDTH_MAX 16 /* bytes of the widest element, C128 */
#define STORED_RANKS_MAX 8
#define STORED_TENSORS_MAX 8

struct stored_tensor {
    struct cairn_tensor tensor;
    char name[64];
    uint64_t elements;
    uint8_t *bytes; /* the whole of it, flattened */
};
struct cairn_stored {
    uint64_t random; /* state */
    struct stored_tensor tensors[STORED_TENSORS_MAX];
    uint32_t tensor_count, rank_count;
    struct cairn_table_builder *builders[STORED_RANKS_MAX];
    struct cairn_buf objects[STORED_RANKS_MAX];
    struct cairn_buf tables[STORED_RANKS_MAX];
    struct cairn_buf layout_bytes;
    struct cairn_layout layout;
    struct cairn_manifest manifest;
};
void cairn_stored_release(struct cairn_stored *stored);
void cairn_stored_init(struct cairn_stored *stored, uint64_t seed, uint32_t rank_count);
/* Both: STORED(stored, 1, RANKS). */
#define STORED(name, ...)                                                                          \
    CAIRN_AUTO(stored) name = {0};                                                                 \
    cairn_stored_init(&name, __VA_ARGS__)
uint64_t cairn_stored_below(struct cairn_stored *stored, uint64_t limit);
/* A tensor with random content; shape is copied. */
struct stored_tensor *cairn_stored_tensor(struct cairn_stored *stored, const char *name,
                                          unsigned dtype, enum cairn_tensor_kind kind,
                                          unsigned dimensions, const uint64_t *shape);
/* Append the fragment's elements, one by one, to the rank's object; fills shard, offset, size. */
void cairn_stored_place(struct cairn_stored *stored, const struct stored_tensor *tensor,
                        uint32_t rank, struct cairn_fragment *fragment);
/* Into the rank's table. */
void cairn_stored_list(struct cairn_stored *stored, const struct stored_tensor *tensor,
                       uint32_t rank, const struct cairn_fragment *fragments, size_t count);
/* Tables, layout and manifest of what was placed and listed. */
bool cairn_stored_finish(struct cairn_stored *stored);
/* Copy element `element` of the tensor to element `to` of a buffer; bytes of 8 bits and up only. */
void cairn_stored_copy(const struct stored_tensor *tensor, uint64_t element, uint8_t *buffer,
                       uint64_t to);
/* Row-major: the n-th element of a box, as its flat index in the tensor. */
uint64_t cairn_stored_nth(const struct cairn_tensor *tensor, const uint64_t *start,
                          const uint64_t *count, uint64_t n);
/* A random exact cover of a region by straight cuts. Returns how many boxes. */
uint32_t cairn_stored_cuts(struct cairn_stored *stored, const struct cairn_plan_box *region,
                           unsigned dimensions, struct cairn_plan_box *ret, uint32_t capacity);
