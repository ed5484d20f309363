/* SPDX-License-Identifier: Apache-2.0 */
/* Float conversions as loops without branches, which the compiler turns into vectors; on x86-64
 * each loop is compiled twice, for any such processor and for those with AVX2. */
#include "formats/convert.h"

#include "api/dtype.h"

#define BLOCK 512 /* elements that go by way of F32 at once */

#define LOOP static inline __attribute__((always_inline)) void
/* name(from, into, count) is the loop name_loop, for the processor that it runs on. It is asked
 * each time, which costs nothing beside a window; a resolver of the linker would run before the
 * sanitizers. */
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

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

LOOP f32_to_bf16_loop(const float *from, uint16_t *into, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(from[i]);
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        uint32_t quiet = bits >> 16 | 0x40;
        into[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
    }
}
FOR_THIS_PROCESSOR(f32_to_bf16, float, uint16_t)

/* A normal half keeps ten bits of the mantissa; a subnormal one is what an addition to a number
 * with its last place at 2^-24 leaves, rounded by the machine. */
LOOP f32_to_f16_loop(const float *from, uint16_t *into, size_t count) {
    const uint32_t denormal_magic = (127 - 15 + 23 - 10 + 1) << 23;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(from[i]), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
        uint32_t normal = (size - ((127 - 15) << 23) + 0xfff + (size >> 13 & 1)) >> 13;
        uint32_t small = bits_of(float_of(size) + float_of(denormal_magic)) - denormal_magic;
        uint32_t value = size < (127 - 14) << 23 ? small : normal;
        value = size >= (127 + 16) << 23 ? 0x7c00 : value;
        value = size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x3ff) : value;
        into[i] = (uint16_t)(sign | value);
    }
}
FOR_THIS_PROCESSOR(f32_to_f16, float, uint16_t)

LOOP bf16_to_f32_loop(const uint16_t *from, float *into, size_t count) {
    for (size_t i = 0; i < count; i++) into[i] = float_of((uint32_t)from[i] << 16);
}
FOR_THIS_PROCESSOR(bf16_to_f32, uint16_t, float)

LOOP f16_to_f32_loop(const uint16_t *from, float *into, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t sign = (uint32_t)(from[i] & 0x8000) << 16, size = from[i] & 0x7fff;
        uint32_t normal = (size << 13) + ((127 - 15) << 23);
        uint32_t small = bits_of((float)size * 0x1p-24f);
        uint32_t value = size < 0x400 ? small : normal;
        value = size >= 0x7c00 ? 0x7f800000 | (size & 0x3ff) << 13 : value;
        into[i] = float_of(sign | value);
    }
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

bool cairn_convertible(unsigned from, unsigned to) {
    return from == to || (is_float(from) && is_float(to));
}

void cairn_convert(unsigned from_dtype, const void *from, unsigned to_dtype, void *into,
                   size_t elements) {
    size_t from_width = cairn_dtype_bits(from_dtype) / 8, to_width = cairn_dtype_bits(to_dtype) / 8;
    float between[BLOCK];
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
