/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of floats against arithmetic: every half and every bfloat16, and rounding to them. */
#include <math.h>

#include "api/table/dtype.h"
#include "formats/convert.h"
#include "tests/harness.h"

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* What the bits of such a number mean, by the definition of the format. */
static double meaning(uint32_t bits, int exponent_bits, int mantissa_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    int exponent = (int)(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
    double sign = bits >> (exponent_bits + mantissa_bits) ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return mantissa ? (double)NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1u << mantissa_bits), exponent - bias - mantissa_bits);
}

static bool same(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

TEST(an_item_is_given_as_the_bytes_that_it_has_and_as_nothing_else) {
    const uint8_t from[5] = {1, 2, 3, 254, 255};
    uint8_t into[5] = {0};
    EXPECT(cairn_convertible(CAIRN_DTYPE_ITEM, CAIRN_DTYPE_U8));
    EXPECT(cairn_convertible(CAIRN_DTYPE_U8, CAIRN_DTYPE_ITEM));
    EXPECT(!cairn_convertible(CAIRN_DTYPE_ITEM, CAIRN_DTYPE_F32));
    EXPECT(!cairn_convertible(CAIRN_DTYPE_ITEM, CAIRN_DTYPE_I8));
    cairn_convert(CAIRN_DTYPE_ITEM, from, CAIRN_DTYPE_U8, into, sizeof from);
    EXPECT(memcmp(from, into, sizeof from) == 0);
}

TEST(every_half_and_every_bfloat16_becomes_the_float_that_it_is) {
    EACH(one, FIELDS(unsigned dtype; int exponent_bits, mantissa_bits), {CAIRN_DTYPE_F16, 5, 10},
         {CAIRN_DTYPE_BF16, 8, 7}) {
        static uint16_t from[65536], back[65536];
        static float into[65536];
        size_t wrong = 0;
        for (uint32_t i = 0; i < 65536; i++) from[i] = (uint16_t)i;
        cairn_convert(one->dtype, from, CAIRN_DTYPE_F32, into, 65536);
        cairn_convert(CAIRN_DTYPE_F32, into, one->dtype, back, 65536);
        for (uint32_t i = 0; i < 65536; i++) {
            double wanted = meaning(i, one->exponent_bits, one->mantissa_bits);
            wrong += !same(into[i], wanted);
            wrong += isnan(wanted) ? !signbit(into[i]) != !(i >> 15) : back[i] != i;
        }
        EXPECT_EQ_U64(wrong, 0);
    }
}

/* The nearest of two neighbours, the even one where both are as near. */
static bool is_nearest(double value, uint16_t got, unsigned dtype) {
    int exponent_bits = dtype == CAIRN_DTYPE_F16 ? 5 : 8, mantissa_bits = 15 - exponent_bits;
    double own = meaning(got, exponent_bits, mantissa_bits);
    uint16_t infinity = dtype == CAIRN_DTYPE_F16 ? 0x7c00 : 0x7f80;
    uint16_t size = got & 0x7fff;
    if (isnan(value)) return size > infinity;
    if ((got >> 15 != 0) != (signbit(value) != 0)) return false;
    value = fabs(value);
    /* Infinity counts as the number that would follow the largest. */
    double top = meaning((uint32_t)infinity - 1, exponent_bits, mantissa_bits);
    double step = top - meaning((uint32_t)infinity - 2, exponent_bits, mantissa_bits);
    own = size == infinity ? top + step : fabs(own);
    if (isinf(value)) return size == infinity;
    double distance = fabs(own - value);
    for (int side = -1; side <= 1; side += 2) {
        int neighbour = size + side;
        if (neighbour < 0 || neighbour > infinity) continue;
        double other = neighbour == infinity
                           ? top + step
                           : meaning((uint32_t)neighbour, exponent_bits, mantissa_bits);
        double its = fabs(other - value);
        if (its < distance || (its == distance && (size & 1))) return false;
    }
    return true;
}

TEST(floats_are_rounded_to_the_nearest_and_ties_to_the_even_one) {
    uint64_t seed = cairn_test_seed();
    EACH_OF(unsigned, number, CAIRN_DTYPE_F16, CAIRN_DTYPE_BF16) {
        static float from[200000];
        static uint16_t into[200000];
        size_t wrong = 0, count = CAIRN_COUNT(from);
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)cairn_test_random(&seed);
            /* half of them on a border or beside it, and in the range of a half */
            if (i % 2) bits = (bits & 0x8fffe000) | 0x30000000 | (bits >> 3 & 0x1000);
            if (i % 4 == 3) bits += (bits >> 20 & 1) ? 1 : (uint32_t)-1;
            from[i] = float_of(bits);
        }
        cairn_convert(CAIRN_DTYPE_F32, from, number, into, count);
        for (size_t i = 0; i < count; i++) wrong += !is_nearest(from[i], into[i], number);
        EXPECT_EQ_U64(wrong, 0);
    }
}

TEST(the_edges_of_a_half_are_where_they_belong) {
    EACH(one, FIELDS(float from; uint16_t half), {65504.0f, 0x7bff}, {65519.996f, 0x7bff},
         {65520.0f, 0x7c00}, {-65520.0f, 0xfc00}, {0x1p-24f, 0x0001}, {0x1p-25f, 0x0000},
         {0x1.8p-25f, 0x0001}, {0x1p-14f, 0x0400}, {-0.0f, 0x8000}, {0x1.ff8p-15f, 0x03ff},
         {0x1.ffcp-15f, 0x0400}, {1.0f, 0x3c00}, {0x1.002p0f, 0x3c00}, {0x1.006p0f, 0x3c02}) {
        uint16_t half = 0;
        cairn_convert(CAIRN_DTYPE_F32, &one->from, CAIRN_DTYPE_F16, &half, 1);
        EXPECT_EQ_U64(half, one->half);
    }
}

TEST(any_float_type_becomes_any_other_and_nothing_else_does) {
    static const unsigned floats[] = {CAIRN_DTYPE_F64, CAIRN_DTYPE_F32, CAIRN_DTYPE_BF16,
                                      CAIRN_DTYPE_F16};
    static const double values[] = {0, 1, -2, 0.5, 96, -0.25};
    for (size_t f = 0; f < CAIRN_COUNT(floats); f++)
        for (size_t t = 0; t < CAIRN_COUNT(floats); t++) {
            uint64_t first[1200], second[1200];
            double back[1200], wide[1200];
            for (size_t i = 0; i < 1200; i++) wide[i] = values[i % CAIRN_COUNT(values)];
            cairn_convert(CAIRN_DTYPE_F64, wide, floats[f], first, 1200);
            cairn_convert(floats[f], first, floats[t], second, 1200);
            cairn_convert(floats[t], second, CAIRN_DTYPE_F64, back, 1200);
            EXPECT(memcmp(back, wide, sizeof back) == 0);
            EXPECT(cairn_convertible(floats[f], floats[t]));
            EXPECT(!cairn_convertible(CAIRN_DTYPE_I32, floats[t]));
            EXPECT(!cairn_convertible(floats[f], CAIRN_DTYPE_BOOL));
        }
    EXPECT(cairn_convertible(CAIRN_DTYPE_I64, CAIRN_DTYPE_I64));
}
