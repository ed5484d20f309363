/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounded: one float as another, bit by bit.
 *
 * Why:     a processor and a device must store the same bytes, so both compile this arithmetic.
 * Promise: 1   as formats/convert.h; no branch, no call, no state.
 * Limits:  F32, BF16 and F16. C11 and C++; nvcc compiles it for a device, too.
 * Threads: stateless.
 * Next:    formats/convert.c, client/stage_cuda/kernel.h.
 */
#pragma once

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define CAIRN_ROUNDED static inline __host__ __device__
#else
#define CAIRN_ROUNDED static inline
#endif

CAIRN_ROUNDED uint32_t cairn_bits_of_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
CAIRN_ROUNDED float cairn_f32_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The bits of the nearest BF16. */
CAIRN_ROUNDED uint16_t cairn_bf16_of_f32(uint32_t bits) {
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

/* A normal half keeps ten bits of mantissa; a subnormal one is rounded by the machine, in an
 * addition to a number whose last place is 2^-24. */
CAIRN_ROUNDED uint16_t cairn_f16_of_f32(uint32_t bits) {
    const uint32_t denormal_magic = (127 - 15 + 23 - 10 + 1) << 23;
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    uint32_t normal = (size - ((127 - 15) << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    uint32_t small =
        cairn_bits_of_f32(cairn_f32_of_bits(size) + cairn_f32_of_bits(denormal_magic)) -
        denormal_magic;
    uint32_t value = size < (127 - 14) << 23 ? small : normal;
    value = size >= (127 + 16) << 23 ? 0x7c00 : value;
    value = size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x3ff) : value;
    return (uint16_t)(sign | value);
}

CAIRN_ROUNDED uint32_t cairn_f32_of_bf16(uint16_t bits) {
    return (uint32_t)bits << 16;
}

CAIRN_ROUNDED uint32_t cairn_f32_of_f16(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, size = bits & 0x7fff;
    uint32_t normal = (size << 13) + ((127 - 15) << 23);
    uint32_t small = cairn_bits_of_f32((float)size * 0x1p-24f);
    uint32_t value = size < 0x400 ? small : normal;
    value = size >= 0x7c00 ? 0x7f800000 | (size & 0x3ff) << 13 : value;
    return sign | value;
}
