/* SPDX-License-Identifier: Apache-2.0 */
/* Three streams of words, lines that are folded beside such streams, and lines that are folded by
 * wider multipliers. crc32c.c says in which form a word stands for a
 * polynomial. */
#include "common/crc32c_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

/* The three streams run this many bytes each, then are joined. Long runs make the join cheap,
 * short ones keep the streams busy on small blocks. */
#define LONG_BYTES 4096
#define SHORT_BYTES 256

/* Copies from here on are streamed past the cache. Below, the reader probably wants them there. */
#define STREAMED_BYTES_MIN (256 * 1024)

/* How far ahead folding asks for memory. Out of memory 0, 512 and 1,024 were alike, 2,048 and more
 * were slower (Zen 5). */
#define AHEAD_BYTES 1024

/* ---- one instruction a word, three words in flight ---- */

#if defined(__x86_64__)
#define HAVE_FAST
#define FAST_NAME "sse4.2"
#define MIXED_NAME "pclmul"
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

uint64_t cairn_crc32c_ticks(void) {
    return __rdtsc();
}

void cairn_crc32c_forget_cached(const uint8_t *at, size_t size) {
    for (size_t i = 0; i < size; i += 64) _mm_clflush(at + i);
    _mm_mfence();
}
#elif defined(__aarch64__) && defined(__linux__)
#define HAVE_FAST
#define FAST_NAME "armv8"
#define MIXED_NAME "pmull"
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

uint64_t cairn_crc32c_ticks(void) {
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}

/* Programs may not empty caches everywhere; the copies alternate, so each meets the same. */
void cairn_crc32c_forget_cached(const uint8_t *at, size_t size) {
    (void)at, (void)size;
}
#endif

#ifdef HAVE_FAST
static uint32_t power_of_x(uint64_t bits) {
    return cairn_crc32c_power_of_x(bits);
}

static uint32_t copy_blocks(uint32_t crc, uint8_t *to, const uint8_t *from, size_t size) {
    return cairn_crc32c_copy_blocks(crc, to, from, size);
}

/* Factors that move a CRC over one and over two streams, for long and short runs. */
struct factors {
    uint32_t one, two;
};
static struct factors long_factors, short_factors;

static struct factors factors_of(uint64_t run) {
    /* product_of gives A * B * x and crc_word(0, W) is W * x^32: 33 bits that a factor lacks. */
    return (struct factors){power_of_x(8 * run - 33), power_of_x(16 * run - 33)};
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

#ifdef HAVE_FAST
/* What moves 128 bits over a distance: the first word of memory holds the higher powers, and the
 * product of two reflected words lacks one x. */
enum fold_distance { FOLD_256, FOLD_64, FOLD_32, FOLD_16, FOLD_COUNT };
static uint64_t fold_factors[FOLD_COUNT][2];

#if defined(__x86_64__)
typedef __m128i lanes;

FAST static inline lanes load_16(const void *at) {
    return _mm_loadu_si128((const __m128i *)at);
}
FAST static inline lanes add(lanes a, lanes b) {
    return _mm_xor_si128(a, b);
}
FAST static inline lanes lanes_of_crc(uint32_t crc) {
    return _mm_cvtsi32_si128((int)crc);
}
FAST static inline lanes product_of_lows(lanes a, lanes b) {
    return _mm_clmulepi64_si128(a, b, 0x00);
}
FAST static inline lanes product_of_highs(lanes a, lanes b) {
    return _mm_clmulepi64_si128(a, b, 0x11);
}
FAST static inline uint64_t low_of(lanes a) {
    return (uint64_t)_mm_cvtsi128_si64(a);
}
FAST static inline uint64_t high_of(lanes a) {
    return (uint64_t)_mm_extract_epi64(a, 1);
}
#else
typedef uint64x2_t lanes;

static inline lanes load_16(const void *at) {
    return vreinterpretq_u64_u8(vld1q_u8(at));
}
static inline lanes add(lanes a, lanes b) {
    return veorq_u64(a, b);
}
static inline lanes lanes_of_crc(uint32_t crc) {
    return vsetq_lane_u64(crc, vdupq_n_u64(0), 0);
}
static inline lanes product_of_lows(lanes a, lanes b) {
    lanes product;
    __asm__(".arch_extension aes\n\tpmull %0.1q, %1.1d, %2.1d" : "=w"(product) : "w"(a), "w"(b));
    return product;
}
static inline lanes product_of_highs(lanes a, lanes b) {
    lanes product;
    __asm__(".arch_extension aes\n\tpmull2 %0.1q, %1.2d, %2.2d" : "=w"(product) : "w"(a), "w"(b));
    return product;
}
static inline uint64_t low_of(lanes a) {
    return vgetq_lane_u64(a, 0);
}
static inline uint64_t high_of(lanes a) {
    return vgetq_lane_u64(a, 1);
}
#endif

FAST static inline lanes fold(lanes moved, lanes factor, lanes next) {
    return add(add(product_of_lows(moved, factor), product_of_highs(moved, factor)), next);
}

/* Four that lie behind each other become one, and that is taken by the instruction for words. */
FAST static inline uint32_t fold_end(const lanes sums[4]) {
    lanes factor = load_16(fold_factors[FOLD_16]), sum = sums[0];
    for (size_t i = 1; i < 4; i++) sum = fold(sum, factor, sums[i]);
    return (uint32_t)crc_word(crc_word(0, low_of(sum)), high_of(sum));
}

/* A step folds a line of 64 bytes while each of three streams takes some words: multiplier and CRC
 * unit are two parts of a core. How many words keep both busy differs from core to core: one on
 * AMD's first Zen, whose CRC unit takes a word every three cycles; three where it takes one in each
 * (in the cache of a Zen 5 17, 19 and 26 GB/s with one, two and three words). */
#define MIXED_STEPS 128
#define MIXED_FOLDED ((size_t)(64 * MIXED_STEPS))
#define MIXED_WORDS_MAX 3

static uint32_t mixed_factors[MIXED_WORDS_MAX + 1][3]; /* over one, two and three streams */

static size_t mixed_stream(size_t words) {
    return 8 * MIXED_STEPS * words;
}

static void make_fold_factors(void) {
    static const uint64_t distances[FOLD_COUNT] = {256, 64, 32, 16};
    for (unsigned i = 0; i < FOLD_COUNT; i++) {
        fold_factors[i][0] = (uint64_t)power_of_x(8 * distances[i] + 63) << 32;
        fold_factors[i][1] = (uint64_t)power_of_x(8 * distances[i] - 1) << 32;
    }
    for (size_t words = 1; words <= MIXED_WORDS_MAX; words++)
        for (unsigned i = 0; i < 3; i++) /* as factors_of() */
            mixed_factors[words][i] = power_of_x(8 * (i + 1) * mixed_stream(words) - 33);
}

/* Where `to` is given (aligned to 64), the bytes go there in the same pass, past the cache. */
FAST static inline __attribute__((always_inline)) uint32_t mixed_block(uint32_t crc, uint8_t *to,
                                                                       const uint8_t *data,
                                                                       size_t words) {
    const size_t stream = 8 * MIXED_STEPS * words, block = MIXED_FOLDED + 3 * stream;
    const uint8_t *streams = data + MIXED_FOLDED;
    lanes factor = load_16(fold_factors[FOLD_64]), first = lanes_of_crc(crc);
    lanes sums[4] = {lanes_of_crc(0), lanes_of_crc(0), lanes_of_crc(0), lanes_of_crc(0)};
    uint64_t word_sums[3] = {0};
    for (size_t step = 0; step < MIXED_STEPS; step += 8) {
        const uint8_t *word = streams + 8 * words * step;
#pragma GCC unroll 8
        for (size_t line_of = step; line_of < step + 8; line_of++) {
            const uint8_t *line = data + 64 * line_of;
            fetch_ahead(line, block);
#pragma GCC unroll 4
            for (size_t i = 0; i < 4; i++) sums[i] = fold(sums[i], factor, load_16(line + 16 * i));
            sums[0] = add(sums[0], first);
            first = lanes_of_crc(0);
#pragma GCC unroll 3
            for (size_t i = 0; i < words; i++, word += 8)
#pragma GCC unroll 3
                for (size_t k = 0; k < 3; k++)
                    word_sums[k] = crc_word(word_sums[k], load_word(word + k * stream));
            if (to) store_line(to + 64 * line_of, line);
        }
#pragma GCC unroll 3
        for (size_t i = 0; i < words; i++)
#pragma GCC unroll 3
            for (size_t k = 0; k < 3; k++) {
                const uint8_t *line = streams + k * stream + 64 * (step / 8 * words + i);
                fetch_ahead(line, block);
                if (to) store_line(to + (line - data), line);
            }
    }
    uint64_t moved = product_of(fold_end(sums), mixed_factors[words][2]) ^
                     product_of(word_sums[0], mixed_factors[words][1]) ^
                     product_of(word_sums[1], mixed_factors[words][0]);
    return (uint32_t)crc_word(0, moved) ^ (uint32_t)word_sums[2];
}

#define DEFINE_MIXED(words)                                                                        \
    FAST static uint32_t update_mixed_##words(uint32_t crc, const uint8_t *data, size_t size) {    \
        const size_t block = MIXED_FOLDED + 3 * mixed_stream(words);                               \
        for (; size >= block; data += block, size -= block)                                        \
            crc = mixed_block(crc, NULL, data, words);                                             \
        return update_fast(crc, data, size);                                                       \
    }                                                                                              \
    FAST static uint32_t copy_mixed_##words(uint32_t crc, uint8_t *to, const uint8_t *from,        \
                                            size_t size) {                                         \
        const size_t block = MIXED_FOLDED + 3 * mixed_stream(words);                               \
        if (size < STREAMED_BYTES_MIN) return copy_blocks(crc, to, from, size);                    \
        size_t at = -(uintptr_t)to & 63;                                                           \
        crc = copy_blocks(crc, to, from, at);                                                      \
        for (; size - at >= block; at += block) crc = mixed_block(crc, to + at, from + at, words); \
        store_end();                                                                               \
        return copy_blocks(crc, to + at, from + at, size - at);                                    \
    }
DEFINE_MIXED(1)
DEFINE_MIXED(2)
DEFINE_MIXED(3)
#endif

/* ---- 256 bytes a step by carry-less multiplication of 256 and of 512 bits ---- */

#if defined(__x86_64__)
#define HAVE_WIDE
#define STEP_BYTES 256

#define HALF __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.2")))
static bool half_usable(void) {
    return fast_usable() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
}

HALF static inline __m256i half_factor(enum fold_distance i) {
    return _mm256_broadcastsi128_si256(load_16(fold_factors[i]));
}

HALF static inline __m256i half_fold(__m256i moved, __m256i factor, __m256i next) {
    __m256i high = _mm256_clmulepi64_epi128(moved, factor, 0x00);
    __m256i low = _mm256_clmulepi64_epi128(moved, factor, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(high, low), next);
}

/* size is a multiple of STEP_BYTES and not 0. Where `to` is given (aligned to 64), the bytes go
 * there in the same pass, past the cache. */
HALF static inline __attribute__((always_inline)) uint32_t half_run(uint32_t crc, uint8_t *to,
                                                                    const uint8_t *data,
                                                                    size_t size) {
    __m256i factor = half_factor(FOLD_256), sums[8];
    for (size_t i = 0; i < 8; i++) {
        sums[i] = _mm256_loadu_si256((const void *)(data + 32 * i));
        if (to) _mm256_stream_si256((void *)(to + 32 * i), sums[i]);
    }
    sums[0] = _mm256_xor_si256(sums[0], _mm256_zextsi128_si256(lanes_of_crc(crc)));
    for (size_t at = STEP_BYTES; at < size; at += STEP_BYTES) {
        for (size_t i = 0; i < STEP_BYTES; i += 64) fetch_ahead(data + at + i, AHEAD_BYTES);
        for (size_t i = 0; i < 8; i++) {
            __m256i next = _mm256_loadu_si256((const void *)(data + at + 32 * i));
            if (to) _mm256_stream_si256((void *)(to + at + 32 * i), next);
            sums[i] = half_fold(sums[i], factor, next);
        }
    }
    factor = half_factor(FOLD_32);
    for (size_t i = 1; i < 7; i++) sums[i] = half_fold(sums[i - 1], factor, sums[i]);
    const lanes last[4] = {
        _mm256_castsi256_si128(sums[6]), _mm256_extracti128_si256(sums[6], 1),
        _mm256_castsi256_si128(sums[7]), _mm256_extracti128_si256(sums[7], 1)};
    return fold_end(last);
}

#define WIDE __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))
static bool wide_usable(void) {
    return fast_usable() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq");
}

WIDE static inline __m512i wide_factor(enum fold_distance i) {
    return _mm512_broadcast_i32x4(load_16(fold_factors[i]));
}

WIDE static inline __m512i wide_fold(__m512i moved, __m512i factor, __m512i next) {
    __m512i high = _mm512_clmulepi64_epi128(moved, factor, 0x00);
    __m512i low = _mm512_clmulepi64_epi128(moved, factor, 0x11);
    return _mm512_ternarylogic_epi64(high, low, next, 0x96); /* of all three, exclusive or */
}

WIDE static inline __attribute__((always_inline)) uint32_t wide_run(uint32_t crc, uint8_t *to,
                                                                    const uint8_t *data,
                                                                    size_t size) {
    __m512i factor = wide_factor(FOLD_256), sums[4];
    for (size_t i = 0; i < 4; i++) {
        sums[i] = _mm512_loadu_si512((const void *)(data + 64 * i));
        if (to) _mm512_stream_si512((void *)(to + 64 * i), sums[i]);
    }
    sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(lanes_of_crc(crc)));
    for (size_t at = STEP_BYTES; at < size; at += STEP_BYTES)
        for (size_t i = 0; i < 4; i++) {
            __m512i next = _mm512_loadu_si512((const void *)(data + at + 64 * i));
            if (to) _mm512_stream_si512((void *)(to + at + 64 * i), next);
            sums[i] = wide_fold(sums[i], factor, next);
        }
    factor = wide_factor(FOLD_64);
    for (size_t i = 1; i < 4; i++) sums[i] = wide_fold(sums[i - 1], factor, sums[i]);
    const lanes last[4] = {_mm512_castsi512_si128(sums[3]), _mm512_extracti32x4_epi32(sums[3], 1),
                           _mm512_extracti32x4_epi32(sums[3], 2),
                           _mm512_extracti32x4_epi32(sums[3], 3)};
    return fold_end(last);
}

#define DEFINE_RUNS(name, target)                                                                  \
    target static uint32_t update_##name(uint32_t crc, const uint8_t *data, size_t size) {         \
        size_t whole = size & ~(size_t)(STEP_BYTES - 1);                                           \
        if (whole) crc = name##_run(crc, NULL, data, whole);                                       \
        return update_fast(crc, data + whole, size - whole);                                       \
    }                                                                                              \
    target static uint32_t copy_##name(uint32_t crc, uint8_t *to, const uint8_t *from,             \
                                       size_t size) {                                              \
        if (size < STREAMED_BYTES_MIN) return copy_blocks(crc, to, from, size);                    \
        size_t head = -(uintptr_t)to & 63;                                                         \
        crc = copy_blocks(crc, to, from, head);                                                    \
        size_t whole = (size - head) & ~(size_t)(STEP_BYTES - 1);                                  \
        crc = name##_run(crc, to + head, from + head, whole);                                      \
        store_end();                                                                               \
        head += whole;                                                                             \
        return copy_blocks(crc, to + head, from + head, size - head);                              \
    }
DEFINE_RUNS(half, HALF)
DEFINE_RUNS(wide, WIDE)
#endif

/* ---- all of them ---- */

void cairn_crc32c_loops_prepare(void) {
#ifdef HAVE_FAST
    long_factors = factors_of(LONG_BYTES);
    short_factors = factors_of(SHORT_BYTES);
    make_fold_factors();
#endif
}

#ifdef HAVE_FAST
static const struct cairn_crc32c_loop loops[] = {
#ifdef HAVE_WIDE
    {"avx512", wide_usable, update_wide, copy_wide},
    {"avx2", half_usable, update_half, copy_half},
#endif
    {FAST_NAME, fast_usable, update_fast, copy_fast},
    {MIXED_NAME, fast_usable, update_mixed_1, copy_mixed_1},
    {MIXED_NAME "-2", fast_usable, update_mixed_2, copy_mixed_2},
    {MIXED_NAME "-3", fast_usable, update_mixed_3, copy_mixed_3},
};

const struct cairn_crc32c_loop *cairn_crc32c_loops(size_t *ret_count) {
    CAIRN_ASSERT(CAIRN_COUNT(loops) <= CAIRN_CRC32C_LOOPS_MAX);
    *ret_count = CAIRN_COUNT(loops);
    return loops;
}
#else
const struct cairn_crc32c_loop *cairn_crc32c_loops(size_t *ret_count) {
    *ret_count = 0;
    return NULL;
}
uint64_t cairn_crc32c_ticks(void) {
    return 0;
}
void cairn_crc32c_forget_cached(const uint8_t *at, size_t size) {
    (void)at, (void)size;
}
#endif
