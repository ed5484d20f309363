/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel: what each of a device's threads does where elements are stored as another type.
 *
 * Why:     half the bytes cross the link where the device rounds them before.
 * Promise: 1   the bytes are those of formats/convert.h.
 *          2   thread `first` of `step` takes every step-th element, so any number of threads does.
 * Limits:  F32, BF16 and F16; `into` is aligned to its elements, a source maybe to nothing.
 * Threads: any number at once, each with a `first` of its own.
 * Next:    kernel.cu runs it on a device, tests/support/fake_cuda.c without one.
 */
#pragma once

#include <stddef.h>

#include "formats/rounded.h"

#define CAIRN_KERNEL_NAME "cairn_kernel_convert"
#define CAIRN_KERNEL_DIMENSIONS_MAX 8

enum cairn_kernel_float { CAIRN_KERNEL_F32, CAIRN_KERNEL_BF16, CAIRN_KERNEL_F16 };

/* By value to the kernel: its layout is one for the host's compiler and for nvcc. */
struct cairn_kernel_conversion {
    const uint8_t *source; /* the first element of all */
    uint8_t *into;
    uint64_t from, elements; /* of the row-major sequence; the first one goes to into[0] */
    uint64_t count[CAIRN_KERNEL_DIMENSIONS_MAX];
    int64_t stride_bytes[CAIRN_KERNEL_DIMENSIONS_MAX];
    uint32_t dimension_count;   /* 0: one element */
    uint32_t source_type, type; /* enum cairn_kernel_float */
};

/* Bytes from the first element to the one of that place in the sequence. */
CAIRN_ROUNDED int64_t cairn_kernel_place(const struct cairn_kernel_conversion *all,
                                         uint64_t element) {
    int64_t place = 0;
    for (uint32_t d = all->dimension_count; d > 1; d--) {
        place += (int64_t)(element % all->count[d - 1]) * all->stride_bytes[d - 1];
        element /= all->count[d - 1];
    }
    return all->dimension_count ? place + (int64_t)element * all->stride_bytes[0] : 0;
}

/* One load where the place allows it, else one for each byte. */
CAIRN_ROUNDED uint32_t cairn_kernel_load(const uint8_t *at, uint32_t type) {
    uint32_t wide;
    uint16_t narrow;
    if (type == CAIRN_KERNEL_F32) {
        if ((uintptr_t)at % sizeof wide == 0)
            memcpy(&wide, __builtin_assume_aligned(at, sizeof wide), sizeof wide);
        else
            memcpy(&wide, at, sizeof wide);
        return wide;
    }
    if ((uintptr_t)at % sizeof narrow == 0)
        memcpy(&narrow, __builtin_assume_aligned(at, sizeof narrow), sizeof narrow);
    else
        memcpy(&narrow, at, sizeof narrow);
    return type == CAIRN_KERNEL_BF16 ? cairn_f32_of_bf16(narrow) : cairn_f32_of_f16(narrow);
}

CAIRN_ROUNDED void cairn_kernel_store(uint8_t *into, uint64_t index, uint32_t type, uint32_t bits) {
    if (type == CAIRN_KERNEL_F32) {
        memcpy(__builtin_assume_aligned(into + index * sizeof bits, sizeof bits), &bits,
               sizeof bits);
        return;
    }
    uint16_t narrow = type == CAIRN_KERNEL_BF16 ? cairn_bf16_of_f32(bits) : cairn_f16_of_f32(bits);
    memcpy(__builtin_assume_aligned(into + index * sizeof narrow, sizeof narrow), &narrow,
           sizeof narrow);
}

CAIRN_ROUNDED void cairn_kernel_convert_some(const struct cairn_kernel_conversion *all,
                                             uint64_t first, uint64_t step) {
    for (uint64_t i = first; i < all->elements; i += step)
        cairn_kernel_store(all->into, i, all->type,
                           cairn_kernel_load(all->source + cairn_kernel_place(all, all->from + i),
                                             all->source_type));
}
