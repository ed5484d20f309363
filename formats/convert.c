/* SPDX-License-Identifier: Apache-2.0 */
/* Float conversions as branch-free, vectorisable loops; on x86-64 also compiled for AVX2. */
#include "formats/convert.h"

#include <math.h>

#include "api/table/dtype.h"
#include "formats/rounded.h"

#define BLOCK 512 /* elements converted via F32 at once */

#define LOOP static inline __attribute__((always_inline)) void
/* name(from, into, count) runs name_loop for the present processor. The check at each call is
 * negligible for a window; a linker's resolver would run before the sanitizers. */
#if defined(__x86_64__)
#define FOR_THIS_PROCESSOR(name, from_type, into_type)                                             \
    __attribute__((target("avx2"))) static void name##_avx2(const from_type *from,                 \
                                                            into_type *into, size_t count) {       \
        name##_loop(from, into, count);                                                            \
    }                                                                                              \
    static void name(const from_type *from, into_type *into, size_t count) {                       \
        if (__builtin_cpu_supports("avx2"))                                                        \
            name##_avx2(from, into, count);                                                        \
        else                                                                                       \
            name##_loop(from, into, count);                                                        \
    }
#else
#define FOR_THIS_PROCESSOR(name, from_type, into_type)                                             \
    static void name(const from_type *from, into_type *into, size_t count) {                       \
        name##_loop(from, into, count);                                                            \
    }
#endif

LOOP f32_to_bf16_loop(const float *from, uint16_t *into, size_t count) {
    for (size_t i = 0; i < count; i++) into[i] = cairn_bf16_of_f32(cairn_bits_of_f32(from[i]));
}
FOR_THIS_PROCESSOR(f32_to_bf16, float, uint16_t)

LOOP f32_to_f16_loop(const float *from, uint16_t *into, size_t count) {
    for (size_t i = 0; i < count; i++) into[i] = cairn_f16_of_f32(cairn_bits_of_f32(from[i]));
}
FOR_THIS_PROCESSOR(f32_to_f16, float, uint16_t)

LOOP bf16_to_f32_loop(const uint16_t *from, float *into, size_t count) {
    for (size_t i = 0; i < count; i++) into[i] = cairn_f32_of_bits(cairn_f32_of_bf16(from[i]));
}
FOR_THIS_PROCESSOR(bf16_to_f32, uint16_t, float)

LOOP f16_to_f32_loop(const uint16_t *from, float *into, size_t count) {
    for (size_t i = 0; i < count; i++) into[i] = cairn_f32_of_bits(cairn_f32_of_f16(from[i]));
}
FOR_THIS_PROCESSOR(f16_to_f32, uint16_t, float)

static void f64_to_f32(const double *from, float *into, size_t count) {
    for (size_t i = 0; i < count; i++) into[i] = (float)from[i];
}
static void f32_to_f64(const float *from, double *into, size_t count) {
    for (size_t i = 0; i < count; i++) into[i] = from[i];
}

static void to_f32(unsigned dtype, const void *from, float *into, size_t count) {
    if (dtype == CAIRN_DTYPE_BF16)
        bf16_to_f32(from, into, count);
    else if (dtype == CAIRN_DTYPE_F16)
        f16_to_f32(from, into, count);
    else if (dtype == CAIRN_DTYPE_F64)
        f64_to_f32(from, into, count);
    else
        memcpy(into, from, count * sizeof *into);
}
static void of_f32(const float *from, unsigned dtype, void *into, size_t count) {
    if (dtype == CAIRN_DTYPE_BF16)
        f32_to_bf16(from, into, count);
    else if (dtype == CAIRN_DTYPE_F16)
        f32_to_f16(from, into, count);
    else if (dtype == CAIRN_DTYPE_F64)
        f32_to_f64(from, into, count);
    else
        memcpy(into, from, count * sizeof *from);
}

static bool is_float(unsigned dtype) {
    return dtype == CAIRN_DTYPE_F64 || dtype == CAIRN_DTYPE_F32 || dtype == CAIRN_DTYPE_BF16 ||
           dtype == CAIRN_DTYPE_F16;
}

static bool is_bytes(unsigned dtype) {
    return dtype == CAIRN_DTYPE_U8 || dtype == CAIRN_DTYPE_ITEM;
}

bool cairn_convertible(unsigned from, unsigned to) {
    return from == to || (is_float(from) && is_float(to)) || (is_bytes(from) && is_bytes(to));
}

void cairn_convert(unsigned from_dtype, const void *from, unsigned to_dtype, void *into,
                   size_t elements) {
    size_t from_width = cairn_dtype_bits(from_dtype) / 8, to_width = cairn_dtype_bits(to_dtype) / 8;
    float between[BLOCK];
    if (is_bytes(from_dtype) && is_bytes(to_dtype)) {
        memcpy(into, from, elements);
        return;
    }
    CAIRN_PROMISE(is_float(from_dtype), return );
    CAIRN_PROMISE(is_float(to_dtype), return );
    if (from_dtype == CAIRN_DTYPE_F32) {
        of_f32(from, to_dtype, into, elements);
        return;
    }
    for (size_t done = 0; done < elements; done += BLOCK) {
        size_t some = elements - done < BLOCK ? elements - done : BLOCK;
        to_f32(from_dtype, (const char *)from + done * from_width, between, some);
        of_f32(between, to_dtype, (char *)into + done * to_width, some);
    }
}

LOOP count_16_loop(const uint16_t *from, uint64_t *into, size_t infinity) {
    uint64_t found = 0;
    for (size_t i = 0; i < BLOCK; i++) found += (from[i] & 0x7fff) == infinity;
    *into = found;
}
FOR_THIS_PROCESSOR(count_16, uint16_t, uint64_t)

static bool is_infinite(unsigned dtype, const void *data, size_t i) {
    float number = 0;
    if (dtype == CAIRN_DTYPE_F64) return isinf(((const double *)data)[i]);
    to_f32(dtype, (const char *)data + i * (cairn_dtype_bits(dtype) / 8), &number, 1);
    return isinf(number);
}

bool cairn_convert_has_infinity(unsigned dtype, const void *data, size_t elements) {
    size_t done = 0;
    uint64_t found = 0;
    bool short_ones = dtype == CAIRN_DTYPE_F16 || dtype == CAIRN_DTYPE_BF16;
    size_t infinity = dtype == CAIRN_DTYPE_F16 ? 0x7c00 : 0x7f80;
    for (; short_ones && !found && elements - done >= BLOCK; done += BLOCK)
        count_16((const uint16_t *)data + done, &found, infinity);
    for (; !found && done < elements; done++) found += is_infinite(dtype, data, done);
    return found;
}

size_t cairn_convert_overflows(unsigned from_dtype, const void *from, unsigned to_dtype,
                               const void *into, size_t elements) {
    size_t found = 0;
    if (!cairn_convert_has_infinity(to_dtype, into, elements)) return 0;
    for (size_t i = 0; i < elements; i++)
        found += is_infinite(to_dtype, into, i) && !is_infinite(from_dtype, from, i);
    return found;
}
