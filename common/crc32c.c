/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CRC is the remainder of a polynomial over GF(2). In the reflected form used here bit 31 of a
 * word is the coefficient of x^0. Everything but the inner loops is multiplication modulo P.
 */
#include "common/crc32c.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

#include "common/buf.h"

#define POLYNOMIAL UINT32_C(0x82f63b78)
#define ONE UINT32_C(0x80000000) /* x^0 */

/* A size below 2^62 bytes shifts by up to 2^65 bits, so 64 powers would be too few. */
#define POWERS 67

/* The three streams run this many bytes each, then are joined. Long runs make the join cheap,
 * short ones keep the streams busy on small blocks. */
#define LONG_BYTES 4096
#define SHORT_BYTES 256

/* Copies from here on are streamed past the cache. Below, the reader probably wants them there. */
#define STREAMED_BYTES_MIN (256 * 1024)

struct implementation {
    const char *name;
    bool (*usable)(void), (*better)(void); /* than those behind it; NULL: always */
    uint32_t (*update)(uint32_t crc, const uint8_t *data, size_t size);
    uint32_t (*copy)(uint32_t crc, uint8_t *to, const uint8_t *from, size_t size);
};

/* Written once, at load, by the constructor below. */
static uint32_t byte_table[8][256];
static uint32_t powers[POWERS]; /* x^(2^i) mod P */
static const struct implementation *chosen;

/* Product of two polynomials modulo P. */
static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = ONE; bit; bit >>= 1) {
        product ^= b & -(uint32_t)((a & bit) != 0);
        b = b >> 1 ^ (POLYNOMIAL & -(b & 1));
    }
    return product;
}

/* x^bits mod P, for bits = count << shift. */
static uint32_t power_of_x(uint64_t count, unsigned shift) {
    uint32_t power = ONE;
    for (unsigned i = shift; count; count >>= 1, i++) {
        if (count & 1) power = multiply(power, powers[i]);
    }
    return power;
}

/* ---- portable: eight bytes a step by tables ---- */

static void make_tables(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (POLYNOMIAL & -(crc & 1));
        byte_table[0][i] = crc;
    }
    for (unsigned row = 1; row < 8; row++) {
        for (unsigned i = 0; i < 256; i++) {
            uint32_t crc = byte_table[row - 1][i];
            byte_table[row][i] = crc >> 8 ^ byte_table[0][crc & 255];
        }
    }
    powers[0] = ONE >> 1; /* x^1 */
    for (unsigned i = 1; i < POWERS; i++) powers[i] = multiply(powers[i - 1], powers[i - 1]);
}

static uint32_t update_table(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word = cairn_load_u64le(data) ^ crc;
        crc = 0;
        for (unsigned i = 0; i < 8; i++) crc ^= byte_table[7 - i][word >> (8 * i) & 255];
    }
    for (; size; data++, size--) crc = crc >> 8 ^ byte_table[0][(crc ^ *data) & 255];
    return crc;
}

/* A block is read once from memory and copied from the cache. 64 to 512 KiB were equally fast; from
 * 1 MiB on it has left the cache again. */
static uint32_t copy_blocks(uint32_t crc, uint8_t *to, const uint8_t *from, size_t size) {
    const size_t block = 256 * 1024;
    for (size_t done = 0; done < size; done += block) {
        size_t piece = size - done < block ? size - done : block;
        crc = chosen->update(crc, from + done, piece);
        memcpy(to + done, from + done, piece);
    }
    return crc;
}

/* ---- one instruction a word, three words in flight ---- */

#if defined(__x86_64__)
#define HAVE_FAST
#define FAST_NAME "sse4.2"
#define FAST __attribute__((target("sse4.2,pclmul")))
#define crc_byte(crc, byte) _mm_crc32_u8((crc), (byte))
#define crc_word(crc, word) _mm_crc32_u64((crc), (word))

static bool fast_usable(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

/* The carry-less product of two reflected words, as a word: A * B * x. */
FAST static inline uint64_t product_of(uint64_t a, uint32_t b) {
    __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)a), _mm_cvtsi32_si128((int32_t)b), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

/* 64 bytes to an aligned place, past the cache: they are sent from there later, and a plain store
 * would first read the old line from memory. */
FAST static inline void store_line(uint8_t *to, const uint8_t *from) {
    for (size_t i = 0; i < 64; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm_stream_si128((__m128i *)(void *)(to + i), bytes);
    }
}

/* Streamed stores are ordered before whatever this thread does next. */
static inline void store_end(void) {
    _mm_sfence();
}
#elif defined(__aarch64__) && defined(__linux__)
#define HAVE_FAST
#define FAST_NAME "armv8"
#define FAST

/* In assembly, because the two compilers want different flags before they know the intrinsics. */
static inline uint32_t crc_byte(uint32_t crc, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    return crc;
}

static inline uint64_t crc_word(uint64_t crc, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}

static bool fast_usable(void) {
    unsigned long features = getauxval(AT_HWCAP);
    return (features & HWCAP_CRC32) && (features & HWCAP_PMULL);
}

static inline uint64_t product_of(uint64_t a, uint32_t b) {
    uint64x2_t wide_a = vdupq_n_u64(a), wide_b = vdupq_n_u64(b), product;
    __asm__(".arch_extension aes\n\tpmull %0.1q, %1.1d, %2.1d"
            : "=w"(product)
            : "w"(wide_a), "w"(wide_b));
    return vgetq_lane_u64(product, 0);
}

static inline void store_line(uint8_t *to, const uint8_t *from) {
    memcpy(to, from, 64);
}
static inline void store_end(void) {}
#endif

#ifdef HAVE_FAST
/* Factors that move a CRC over one and over two streams, for long and short runs. */
struct factors {
    uint32_t one, two;
};
static struct factors long_factors, short_factors;

static struct factors factors_of(uint64_t run) {
    /* product_of gives A * B * x and crc_word(0, W) is W * x^32: 33 bits that a factor lacks. */
    return (struct factors){power_of_x(8 * run - 33, 0), power_of_x(16 * run - 33, 0)};
}

FAST static inline uint64_t load_word(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    return word;
}

/* Through an integer, since the place may lie behind the end of the buffer; that is harmless. */
static inline void fetch_ahead(const uint8_t *at, size_t distance) {
    __builtin_prefetch((const void *)((uintptr_t)at + distance));
}

/* CRC of 3 * run bytes: three streams, since the instruction takes three cycles but one may start
 * in each. Where `to` is given (aligned to 64), the bytes go there in the same pass. Long runs ask
 * for memory two runs ahead, which the CPU does not do by itself with three streams: 15 to 19 GB/s
 * out of memory, and nothing lost in the cache. */
FAST static inline uint32_t update_three(uint32_t crc, const uint8_t *data, uint8_t *to, size_t run,
                                         struct factors factors) {
    uint64_t a = crc, b = 0, c = 0;
    for (size_t i = 0; i < run; i += 64) {
        const uint8_t *at_a = data + i, *at_b = at_a + run, *at_c = at_b + run;
        if (run == LONG_BYTES) {
            fetch_ahead(at_a, 2 * run);
            fetch_ahead(at_b, 2 * run);
            fetch_ahead(at_c, 2 * run);
        }
        for (size_t j = 0; j < 64; j += 8) {
            a = crc_word(a, load_word(at_a + j));
            b = crc_word(b, load_word(at_b + j));
            c = crc_word(c, load_word(at_c + j));
        }
        if (to) {
            store_line(to + i, at_a);
            store_line(to + run + i, at_b);
            store_line(to + 2 * run + i, at_c);
        }
    }
    uint64_t moved = product_of(a, factors.two) ^ product_of(b, factors.one);
    return (uint32_t)crc_word(0, moved) ^ (uint32_t)c;
}

FAST static uint32_t update_fast(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 3 * LONG_BYTES; data += 3 * LONG_BYTES, size -= 3 * LONG_BYTES) {
        crc = update_three(crc, data, NULL, LONG_BYTES, long_factors);
    }
    for (; size >= 3 * SHORT_BYTES; data += 3 * SHORT_BYTES, size -= 3 * SHORT_BYTES) {
        crc = update_three(crc, data, NULL, SHORT_BYTES, short_factors);
    }
    for (; size >= 8; data += 8, size -= 8) crc = (uint32_t)crc_word(crc, load_word(data));
    for (; size; data++, size--) crc = crc_byte(crc, *data);
    return crc;
}

/* Large copies: to the next line border, then 12 KiB at a time, then the rest. */
FAST static uint32_t copy_fast(uint32_t crc, uint8_t *to, const uint8_t *from, size_t size) {
    if (size < STREAMED_BYTES_MIN) return copy_blocks(crc, to, from, size);
    size_t head = -(uintptr_t)to & 63;
    crc = copy_blocks(crc, to, from, head);
    to += head;
    from += head;
    size -= head;
    for (; size >= 3 * LONG_BYTES; size -= 3 * LONG_BYTES) {
        crc = update_three(crc, from, to, LONG_BYTES, long_factors);
        from += 3 * LONG_BYTES;
        to += 3 * LONG_BYTES;
    }
    store_end();
    return copy_blocks(crc, to, from, size);
}
#endif

/* ---- carry-less multiplication, and words beside it ---- */

#if defined(__x86_64__)
#define HAVE_MIXED
/* 64 bytes a step are folded while three streams take a word each: multiplier and CRC unit are two
 * parts of a core. AMD Zen (EPYC 7001): 8.9 GB/s instead of 5.8 in the cache, 8.1 instead of 5.5
 * out of memory; Intel (Sapphire Rapids): 16 instead of 23, so it is not for those. */
#define MIXED_STEPS 128
#define MIXED_FOLDED ((size_t)(64 * MIXED_STEPS))
#define MIXED_STREAM ((size_t)(8 * MIXED_STEPS))
#define MIXED_BYTES (MIXED_FOLDED + 3 * MIXED_STREAM)
#define WIDE_BYTES 256

/* What moves 128 bits over a distance: the first word of memory holds the higher powers, and the
 * product of two reflected words lacks one x. */
enum fold_distance { FOLD_256, FOLD_64, FOLD_16, FOLD_COUNT };
static uint64_t fold_factors[FOLD_COUNT][2];
static uint32_t mixed_factors[3]; /* over one, two and three streams */

static void make_fold_factors(void) {
    static const uint64_t distances[FOLD_COUNT] = {WIDE_BYTES, 64, 16};
    for (unsigned i = 0; i < FOLD_COUNT; i++) {
        fold_factors[i][0] = (uint64_t)power_of_x(8 * distances[i] + 63, 0) << 32;
        fold_factors[i][1] = (uint64_t)power_of_x(8 * distances[i] - 1, 0) << 32;
    }
    for (unsigned i = 0; i < 3; i++)
        mixed_factors[i] = power_of_x(8 * (i + 1) * MIXED_STREAM - 33, 0); /* as factors_of() */
}

FAST static inline __m128i load_16(const void *at) {
    return _mm_loadu_si128((const __m128i *)at);
}

FAST static inline __m128i fold(__m128i moved, __m128i factor, __m128i next) {
    __m128i high = _mm_clmulepi64_si128(moved, factor, 0x00);
    __m128i low = _mm_clmulepi64_si128(moved, factor, 0x11);
    return _mm_xor_si128(_mm_xor_si128(high, low), next);
}

/* Four that lie behind each other become one, and that is taken by the instruction for words. */
FAST static inline uint32_t fold_end(const __m128i sums[4]) {
    __m128i factor = load_16(fold_factors[FOLD_16]), sum = sums[0];
    for (size_t i = 1; i < 4; i++) sum = fold(sum, factor, sums[i]);
    uint64_t crc = crc_word(0, (uint64_t)_mm_cvtsi128_si64(sum));
    return (uint32_t)crc_word(crc, (uint64_t)_mm_extract_epi64(sum, 1));
}

/* Where `to` is given (aligned to 64), the bytes go there in the same pass, past the cache. */
FAST static inline uint32_t mixed_block(uint32_t crc, uint8_t *to, const uint8_t *data) {
    const uint8_t *streams = data + MIXED_FOLDED;
    __m128i factor = load_16(fold_factors[FOLD_64]), sums[4];
    uint64_t a = 0, b = 0, c = 0;
    for (size_t i = 0; i < 4; i++) sums[i] = load_16(data + 16 * i);
    sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128((int)crc));
    for (size_t step = 0; step < MIXED_STEPS; step++) {
        const uint8_t *line = data + 64 * step, *word = streams + 8 * step;
        fetch_ahead(line, MIXED_BYTES);
        if (step % 8 == 0)
            for (size_t i = 0; i < 3; i++) fetch_ahead(word + i * MIXED_STREAM, MIXED_BYTES);
        for (size_t i = 0; i < 4 && step; i++)
            sums[i] = fold(sums[i], factor, load_16(line + 16 * i));
        a = crc_word(a, load_word(word));
        b = crc_word(b, load_word(word + MIXED_STREAM));
        c = crc_word(c, load_word(word + 2 * MIXED_STREAM));
        if (to) store_line(to + 64 * step, line);
        for (size_t i = 0; i < 3 && to && step % 8 == 0; i++)
            store_line(to + (word - data) + i * MIXED_STREAM, word + i * MIXED_STREAM);
    }
    uint64_t moved = product_of(fold_end(sums), mixed_factors[2]) ^
                     product_of(a, mixed_factors[1]) ^ product_of(b, mixed_factors[0]);
    return (uint32_t)crc_word(0, moved) ^ (uint32_t)c;
}

FAST static uint32_t update_mixed(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= MIXED_BYTES; data += MIXED_BYTES, size -= MIXED_BYTES)
        crc = mixed_block(crc, NULL, data);
    return update_fast(crc, data, size);
}

static bool mixed_better(void) {
    return __builtin_cpu_is("amd");
}

FAST static uint32_t copy_mixed(uint32_t crc, uint8_t *to, const uint8_t *from, size_t size) {
    if (size < STREAMED_BYTES_MIN) return copy_blocks(crc, to, from, size);
    size_t at = -(uintptr_t)to & 63;
    crc = copy_blocks(crc, to, from, at);
    for (; size - at >= MIXED_BYTES; at += MIXED_BYTES) crc = mixed_block(crc, to + at, from + at);
    store_end();
    return copy_blocks(crc, to + at, from + at, size - at);
}
#endif

/* ---- 256 bytes a step by carry-less multiplication, where the CPU has it 512 bits wide ---- */

#if defined(__x86_64__)
#define HAVE_WIDE
#define WIDE __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

static bool wide_usable(void) {
    return fast_usable() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq");
}

WIDE static inline __m512i wide_factor(enum fold_distance i) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)fold_factors[i]));
}

WIDE static inline __m512i wide_fold(__m512i moved, __m512i factor, __m512i next) {
    __m512i high = _mm512_clmulepi64_epi128(moved, factor, 0x00);
    __m512i low = _mm512_clmulepi64_epi128(moved, factor, 0x11);
    return _mm512_ternarylogic_epi64(high, low, next, 0x96); /* of all three, exclusive or */
}

/* The four lanes of 64 bytes, as those of a narrow step. */
WIDE static inline uint32_t wide_end(__m512i last) {
    const __m128i sums[4] = {_mm512_castsi512_si128(last), _mm512_extracti32x4_epi32(last, 1),
                             _mm512_extracti32x4_epi32(last, 2),
                             _mm512_extracti32x4_epi32(last, 3)};
    return fold_end(sums);
}

/* size is a multiple of WIDE_BYTES and not 0. Where `to` is given (aligned to 64), the bytes go
 * there in the same pass, past the cache. */
WIDE static uint32_t wide_run(uint32_t crc, uint8_t *to, const uint8_t *data, size_t size) {
    __m512i factor = wide_factor(FOLD_256), sums[4];
    for (size_t at = 0; at < size; at += WIDE_BYTES) {
        for (size_t i = 0; i < 4; i++) {
            __m512i next = _mm512_loadu_si512((const void *)(data + at + 64 * i));
            if (to) _mm512_stream_si512((__m512i *)(void *)(to + at + 64 * i), next);
            if (at)
                sums[i] = wide_fold(sums[i], factor, next);
            else if (i)
                sums[i] = next;
            else
                sums[i] =
                    _mm512_xor_si512(next, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
        }
    }
    factor = wide_factor(FOLD_64);
    for (size_t i = 1; i < 4; i++) sums[i] = wide_fold(sums[i - 1], factor, sums[i]);
    return wide_end(sums[3]);
}

static uint32_t update_wide(uint32_t crc, const uint8_t *data, size_t size) {
    size_t whole = size & ~(size_t)(WIDE_BYTES - 1);
    if (whole) crc = wide_run(crc, NULL, data, whole);
    return update_fast(crc, data + whole, size - whole);
}

static uint32_t copy_wide(uint32_t crc, uint8_t *to, const uint8_t *from, size_t size) {
    if (size < STREAMED_BYTES_MIN) return copy_blocks(crc, to, from, size);
    size_t head = -(uintptr_t)to & 63;
    crc = copy_blocks(crc, to, from, head);
    size_t whole = (size - head) & ~(size_t)(WIDE_BYTES - 1);
    crc = wide_run(crc, to + head, from + head, whole);
    store_end();
    head += whole;
    return copy_blocks(crc, to + head, from + head, size - head);
}
#endif

/* ---- choice ---- */

/* The first that this CPU has. */
static const struct implementation implementations[] = {
#ifdef HAVE_WIDE
    {"avx512", wide_usable, NULL, update_wide, copy_wide},
#endif
#ifdef HAVE_MIXED
    {"pclmul", fast_usable, mixed_better, update_mixed, copy_mixed},
#endif
#ifdef HAVE_FAST
    {FAST_NAME, fast_usable, NULL, update_fast, copy_fast},
#endif
    {"table", NULL, NULL, update_table, copy_blocks},
};

bool cairn_crc32c_choose(const char *name) {
    for (size_t i = 0; i < CAIRN_COUNT(implementations); i++) {
        const struct implementation *one = &implementations[i];
        if ((name && strcmp(one->name, name)) || (one->usable && !one->usable())) continue;
        if (!name && one->better && !one->better()) continue;
        chosen = one;
        return true;
    }
    return false;
}

__attribute__((constructor)) static void choose(void) {
    make_tables();
#ifdef HAVE_FAST
    long_factors = factors_of(LONG_BYTES);
    short_factors = factors_of(SHORT_BYTES);
#endif
#ifdef HAVE_MIXED
    make_fold_factors();
#endif
    (void)cairn_crc32c_choose(NULL);
}

uint32_t cairn_crc32c(uint32_t crc, const void *data, size_t size) {
    if (!size) return crc; /* data may be NULL, which must not even be advanced by 0 */
    return ~chosen->update(~crc, data, size);
}

uint32_t cairn_crc32c_with_table(uint32_t crc, const void *data, size_t size) {
    return size ? ~update_table(~crc, data, size) : crc;
}

uint32_t cairn_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) {
    /* The two inversions of a CRC cancel out, so only crc_a has to be moved over size_b bytes. */
    return multiply(power_of_x(size_b, 3), crc_a) ^ crc_b;
}

uint32_t cairn_crc32c_copy(uint32_t crc, void *to, const void *from, size_t size) {
    return ~chosen->copy(~crc, to, from, size);
}

const char *cairn_crc32c_implementation(void) {
    return chosen->name;
}
