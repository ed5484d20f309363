/* SPDX-License-Identifier: Apache-2.0 */
/* A CRC is the remainder of a polynomial over GF(2); in the reflected form bit 31 of a word is the
 * coefficient of x^0. Long data is folded by carry-less multiplication: what lies D bits before
 * other bytes is added to them times x^D modulo P. */
#include "common/crc32.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/buf.h"

#define POLYNOMIAL UINT32_C(0xedb88320)
#define ONE UINT32_C(0x80000000) /* x^0 */
#define POWERS 67                /* a size below 2^62 bytes shifts by up to 2^65 bits */

/* Written once, at load, by the constructor below. */
static uint32_t tables[8][256];
static uint32_t powers[POWERS]; /* x^(2^i) mod P */
static uint32_t (*chosen)(uint32_t state, const uint8_t *data, size_t size);

static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = ONE; bit; bit >>= 1) {
        product ^= b & -(uint32_t)((a & bit) != 0);
        b = b >> 1 ^ (POLYNOMIAL & -(b & 1));
    }
    return product;
}

/* x^(count << shift) mod P */
static uint32_t power_of_x(uint64_t count, unsigned shift) {
    uint32_t power = ONE;
    for (unsigned i = shift; count; count >>= 1, i++)
        if (count & 1) power = multiply(power, powers[i]);
    return power;
}

static uint32_t update_table(uint32_t state, const uint8_t *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word = cairn_load_u64le(data) ^ state;
        state = 0;
        for (unsigned i = 0; i < 8; i++) state ^= tables[7 - i][word >> (8 * i) & 255];
    }
    for (; size; data++, size--) state = state >> 8 ^ tables[0][(state ^ *data) & 255];
    return state;
}

#if defined(__x86_64__)

/* Factors that move the low and the high half of 128 bits over a distance. A reflected product
 * lacks a bit, which the shift makes good. */
struct factors {
    uint64_t low, high;
};
static struct factors by_128, by_512, by_2048;

static struct factors factors_of(unsigned bits) {
    return (struct factors){(uint64_t)power_of_x(bits + 32, 0) << 1,
                            (uint64_t)power_of_x(bits - 32, 0) << 1};
}

#define NARROW __attribute__((target("sse4.2,pclmul")))

NARROW static inline __m128i load_narrow(const uint8_t *at) {
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

NARROW static inline __m128i fold_narrow(__m128i value, __m128i factors, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(value, factors, 0x00);
    __m128i high = _mm_clmulepi64_si128(value, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

NARROW static uint32_t update_narrow(uint32_t state, const uint8_t *data, size_t size) {
    if (size < 128) return update_table(state, data, size);
    const __m128i far = _mm_set_epi64x((int64_t)by_512.high, (int64_t)by_512.low);
    const __m128i near = _mm_set_epi64x((int64_t)by_128.high, (int64_t)by_128.low);
    __m128i sums[4];
    for (int i = 0; i < 4; i++) sums[i] = load_narrow(data + 16 * i);
    sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128((int32_t)state));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64)
        for (int i = 0; i < 4; i++) sums[i] = fold_narrow(sums[i], far, load_narrow(data + 16 * i));
    for (int i = 1; i < 4; i++) sums[i] = fold_narrow(sums[i - 1], near, sums[i]);
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)(void *)rest, sums[3]);
    return update_table(update_table(0, rest, sizeof rest), data, size);
}

#define WIDE __attribute__((target("avx512f,vpclmulqdq,sse4.2,pclmul")))

WIDE static uint32_t update_wide(uint32_t state, const uint8_t *data, size_t size) {
    if (size < 1024) return update_narrow(state, data, size);
    const __m512i factors =
        _mm512_broadcast_i32x4(_mm_set_epi64x((int64_t)by_2048.high, (int64_t)by_2048.low));
    __m512i sums[4];
    for (int i = 0; i < 4; i++) sums[i] = _mm512_loadu_si512(data + 64 * i);
    sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int32_t)state)));
    for (data += 256, size -= 256; size >= 256; data += 256, size -= 256)
        for (int i = 0; i < 4; i++) {
            __m512i low = _mm512_clmulepi64_epi128(sums[i], factors, 0x00);
            __m512i high = _mm512_clmulepi64_epi128(sums[i], factors, 0x11);
            sums[i] = _mm512_ternarylogic_epi64(low, high, _mm512_loadu_si512(data + 64 * i), 0x96);
        }
    uint8_t rest[256]; /* as many bytes of the same remainder */
    for (int i = 0; i < 4; i++) _mm512_storeu_si512(rest + 64 * i, sums[i]);
    return update_narrow(update_narrow(0, rest, sizeof rest), data, size);
}

static void choose(void) {
    by_128 = factors_of(128);
    by_512 = factors_of(512);
    by_2048 = factors_of(2048);
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) return;
    chosen = update_narrow;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
        chosen = update_wide;
}
#else
static void choose(void) {}
#endif

__attribute__((constructor)) static void make_tables(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t word = i;
        for (int bit = 0; bit < 8; bit++) word = word >> 1 ^ (POLYNOMIAL & -(word & 1));
        tables[0][i] = word;
    }
    for (unsigned row = 1; row < 8; row++)
        for (unsigned i = 0; i < 256; i++) {
            uint32_t word = tables[row - 1][i];
            tables[row][i] = word >> 8 ^ tables[0][word & 255];
        }
    powers[0] = ONE >> 1; /* x^1 */
    for (unsigned i = 1; i < POWERS; i++) powers[i] = multiply(powers[i - 1], powers[i - 1]);
    chosen = update_table;
    choose();
}

uint32_t cairn_crc32(const void *data, size_t size) {
    return ~chosen(UINT32_MAX, data, size);
}

uint32_t cairn_crc32_remainder(const void *data, size_t size) {
    return chosen(0, data, size);
}

uint32_t cairn_crc32_shift(uint32_t remainder, uint64_t bytes) {
    return bytes ? multiply(remainder, power_of_x(bytes, 3)) : remainder;
}

uint32_t cairn_crc32_of_remainder(uint32_t remainder, uint64_t bytes) {
    return ~(remainder ^ cairn_crc32_shift(UINT32_MAX, bytes));
}

uint32_t cairn_crc32_with_table(uint32_t state, const void *data, size_t size) {
    return update_table(state, data, size);
}
