/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel: the work of one device thread where copying bytes is not enough.
 *
 * Why:     rounding on the device halves the bytes on the link; scattered elements cross it as one
 *          range; and a chunk that the device checksums needs no core.
 * Promise: 1   converted bytes equal those of formats/convert.h; checksums those of common/crc.h.
 *          2   thread `first` of `step` handles every step-th element, so any number of threads
 *              works.
 *          3   no 64-bit division per element, unless a dimension has 2^31 elements.
 * Limits:  conversions among F32, BF16 and F16; elements of 1 to 16 bytes otherwise; `into` is
 *          aligned to its elements, sources may be unaligned. Scattered elements do not overlap.
 * Threads: any number at once, each with its own `first`.
 * Next:    kernel.cu runs it on a device, tests/support/fake_cuda_driver.c without one.
 */
#pragma once

#include <stddef.h>

#include "formats/rounded.h"

#define CAIRN_KERNEL_DIMENSIONS_MAX 8
#define CAIRN_KERNEL_PACKED_MAX 240 /* kernel arguments are limited to 4 KiB */
/* 32 threads checksum a chunk; each takes every 32nd 4-byte word. */
#define CAIRN_KERNEL_SUM_BYTES 65536
#define CAIRN_KERNEL_SUM_LANES 32
#define CAIRN_KERNEL_SUM_ROWS (CAIRN_KERNEL_SUM_BYTES / 4 / CAIRN_KERNEL_SUM_LANES)

/* name, purpose */
#define CAIRN_KERNELS(X)                                                                           \
    X(gather, "elements from where they lie, maybe as another type, one behind the other")         \
    X(scatter, "elements that come one behind the other to where they lie, maybe as another type") \
    X(pack, "many small ranges, one behind the other")                                             \
    X(sum, "the CRC32C of each chunk")
enum cairn_kernel {
#define CAIRN_KERNEL_ENUM(name, about) CAIRN_KERNEL_##name,
    CAIRN_KERNELS(CAIRN_KERNEL_ENUM)
#undef CAIRN_KERNEL_ENUM
        CAIRN_KERNEL_COUNT
};

enum cairn_kernel_type {
    CAIRN_KERNEL_F32,
    CAIRN_KERNEL_BF16,
    CAIRN_KERNEL_F16,
    CAIRN_KERNEL_1, /* this many bytes, unconverted */
    CAIRN_KERNEL_2,
    CAIRN_KERNEL_4,
    CAIRN_KERNEL_8,
    CAIRN_KERNEL_16
};

/* Passed to kernels by value: the host's compiler and nvcc lay them out alike. */
struct cairn_kernel_gathering {
    const uint8_t *source;   /* the first element; unless `wide`, that of the first index of from */
    uint8_t *into;           /* where they lie one behind the other; scatter reads them there */
    uint64_t from, elements; /* range of the row-major sequence; its first goes to into[0] */
    uint64_t count[CAIRN_KERNEL_DIMENSIONS_MAX];
    int64_t stride_bytes[CAIRN_KERNEL_DIMENSIONS_MAX];
    uint32_t first[CAIRN_KERNEL_DIMENSIONS_MAX]; /* the other indices of `from`, unless `wide` */
    uint32_t dimension_count;                    /* 0: a single element */
    uint32_t wide;              /* `elements` or a dimension but the first is 2^31 or more */
    uint32_t source_type, type; /* enum cairn_kernel_type; equal if unconverted */
};
struct cairn_kernel_packed {
    const uint8_t *from;
    uint32_t at, bytes; /* at: offset in `into` */
};
struct cairn_kernel_packing {
    uint8_t *into;
    uint64_t count;
    struct cairn_kernel_packed ranges[CAIRN_KERNEL_PACKED_MAX];
};
struct cairn_kernel_summing {
    const uint8_t *source;
    uint64_t *sums;                          /* per chunk: the checksum with 1 above it */
    uint64_t count;                          /* chunks */
    uint32_t polynomial, zeros;              /* zeros: checksum of a zero chunk */
    uint32_t factor[CAIRN_KERNEL_SUM_LANES]; /* per lane, to the chunk's end */
    uint32_t row[8][16];                     /* per half byte: its value moved over a row */
};

/* ---- gather ---- */

/* Offset in bytes of the element with this index. */
CAIRN_ROUNDED int64_t cairn_kernel_place_wide(const struct cairn_kernel_gathering *all,
                                              uint64_t element) {
    int64_t place = 0;
    for (uint32_t d = all->dimension_count; d > 1; d--) {
        place += (int64_t)(element % all->count[d - 1]) * all->stride_bytes[d - 1];
        element /= all->count[d - 1];
    }
    return all->dimension_count ? place + (int64_t)element * all->stride_bytes[0] : 0;
}

/* The same for the i-th element after `from`: each dimension carries into the next outer one. */
CAIRN_ROUNDED int64_t cairn_kernel_place(const struct cairn_kernel_gathering *all, uint32_t i) {
    int64_t place = 0;
    for (uint32_t d = all->dimension_count; d > 1; d--) {
        uint32_t count = (uint32_t)all->count[d - 1], index = all->first[d - 1] + i;
        i = index / count;
        place += (int64_t)(index - i * count) * all->stride_bytes[d - 1];
    }
    return all->dimension_count ? place + (int64_t)i * all->stride_bytes[0] : 0;
}

/* One load if aligned, else byte by byte. */
CAIRN_ROUNDED void cairn_kernel_move(uint8_t *to, const uint8_t *at, size_t width) {
#define CAIRN_KERNEL_MOVE(bytes)                                                                   \
    if (width == (bytes)) {                                                                        \
        if (((uintptr_t)at | (uintptr_t)to) % (bytes) == 0)                                        \
            memcpy(__builtin_assume_aligned(to, (bytes)), __builtin_assume_aligned(at, (bytes)),   \
                   (bytes));                                                                       \
        else                                                                                       \
            memcpy(to, at, (bytes));                                                               \
    }
    CAIRN_KERNEL_MOVE(1)
    CAIRN_KERNEL_MOVE(2)
    CAIRN_KERNEL_MOVE(4)
    CAIRN_KERNEL_MOVE(8)
    CAIRN_KERNEL_MOVE(16)
#undef CAIRN_KERNEL_MOVE
}

CAIRN_ROUNDED uint32_t cairn_kernel_load(const uint8_t *at, uint32_t type) {
    uint32_t wide;
    uint16_t narrow;
    if (type == CAIRN_KERNEL_F32) {
        cairn_kernel_move((uint8_t *)&wide, at, sizeof wide);
        return wide;
    }
    cairn_kernel_move((uint8_t *)&narrow, at, sizeof narrow);
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

CAIRN_ROUNDED void cairn_kernel_gather_some(const struct cairn_kernel_gathering *all,
                                            uint64_t first, uint64_t step) {
    size_t width = all->type < CAIRN_KERNEL_1 ? 0 : (size_t)1 << (all->type - CAIRN_KERNEL_1);
    for (uint64_t i = first; i < all->elements; i += step) {
        const uint8_t *at = all->source + (all->wide ? cairn_kernel_place_wide(all, all->from + i)
                                                     : cairn_kernel_place(all, (uint32_t)i));
        if (width)
            cairn_kernel_move(all->into + i * width, at, width);
        else
            cairn_kernel_store(all->into, i, all->type, cairn_kernel_load(at, all->source_type));
    }
}

/* ---- scatter ---- */

CAIRN_ROUNDED void cairn_kernel_put(uint8_t *at, uint32_t type, uint32_t bits) {
    uint16_t narrow = type == CAIRN_KERNEL_BF16 ? cairn_bf16_of_f32(bits) : cairn_f16_of_f32(bits);
    if (type == CAIRN_KERNEL_F32)
        cairn_kernel_move(at, (const uint8_t *)&bits, sizeof bits);
    else
        cairn_kernel_move(at, (const uint8_t *)&narrow, sizeof narrow);
}

/* The reverse of gather: `type` is what lies in `into`, source_type what is written. */
CAIRN_ROUNDED void cairn_kernel_scatter_some(const struct cairn_kernel_gathering *all,
                                             uint64_t first, uint64_t step) {
    size_t width = all->type < CAIRN_KERNEL_1 ? 0 : (size_t)1 << (all->type - CAIRN_KERNEL_1);
    size_t narrow = all->type == CAIRN_KERNEL_F32 ? 4 : 2;
    for (uint64_t i = first; i < all->elements; i += step) {
        uint8_t *at =
            (uint8_t *)all->source + (all->wide ? cairn_kernel_place_wide(all, all->from + i)
                                                : cairn_kernel_place(all, (uint32_t)i));
        if (width)
            cairn_kernel_move(at, all->into + i * width, width);
        else
            cairn_kernel_put(at, all->source_type,
                             cairn_kernel_load(all->into + i * narrow, all->type));
    }
}

/* ---- pack ---- */

/* Thread `first` of `step` in the block of this range. */
CAIRN_ROUNDED void cairn_kernel_pack_some(const struct cairn_kernel_packing *all, uint64_t range,
                                          uint64_t first, uint64_t step) {
    const uint8_t *from = all->ranges[range].from;
    uint8_t *to = all->into + all->ranges[range].at;
    uint64_t bytes = all->ranges[range].bytes, done;
    size_t width = ((uintptr_t)from | (uintptr_t)to) % 16 == 0  ? 16
                   : ((uintptr_t)from | (uintptr_t)to) % 4 == 0 ? 4
                                                                : 1;
    for (uint64_t i = first; i < bytes / width; i += step)
        cairn_kernel_move(to + i * width, from + i * width, width);
    done = bytes / width * width;
    for (uint64_t i = done + first; i < bytes; i += step) to[i] = from[i];
}

/* ---- sum ---- */

/* Product of two polynomials modulo the checksum's; bit 31 is the coefficient of x^0. */
CAIRN_ROUNDED uint32_t cairn_kernel_multiply(uint32_t a, uint32_t b, uint32_t polynomial) {
    uint32_t product = 0;
    for (uint32_t bit = (uint32_t)1 << 31; bit; bit >>= 1) {
        product ^= a & bit ? b : 0;
        b = b >> 1 ^ (b & 1 ? polynomial : 0);
    }
    return product;
}

/* Checksum of one lane's words, moved over a row per later word. */
CAIRN_ROUNDED uint32_t cairn_kernel_sum_words(const uint8_t *chunk, uint32_t lane,
                                              const uint32_t (*row)[16]) {
    uint32_t sum = 0, words[8];
    for (uint32_t at = 0; at < CAIRN_KERNEL_SUM_ROWS; at += 8) {
        for (uint32_t i = 0; i < 8; i++) /* several loads in flight */
            cairn_kernel_move((uint8_t *)&words[i],
                              chunk + 4 * ((at + i) * CAIRN_KERNEL_SUM_LANES + lane), 4);
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t moved = words[i];
            for (uint32_t k = 0; k < 8; k++) moved ^= row[k][sum >> (4 * k) & 15];
            sum = moved;
        }
    }
    return sum;
}

/* One lane's part of the checksum, which is the xor of all lanes' parts and `zeros`. */
CAIRN_ROUNDED uint32_t cairn_kernel_sum_lane(const struct cairn_kernel_summing *all,
                                             const uint8_t *chunk, uint32_t lane,
                                             const uint32_t (*row)[16]) {
    return cairn_kernel_multiply(cairn_kernel_sum_words(chunk, lane, row), all->factor[lane],
                                 all->polynomial);
}
