/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CRC is the remainder of a polynomial over GF(2). In the reflected form used here bit 31 of a
 * word is the coefficient of x^0. Everything but the inner loops is multiplication modulo P.
 * Folding by carry-less multiplication adds bytes, times x^D modulo P, to the bytes D bits behind.
 */
#include "common/crc.h"

#include <stdatomic.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

#include "common/buf.h"

/* ---- polynomials ---- */

#define ONE UINT32_C(0x80000000) /* x^0 */

/* Shifts reach 2^65 bits (sizes are below 2^62 bytes), so 64 powers would be too few. */
#define POWERS 67

/* CRC32C or CRC-32; the tables are filled by a constructor below. */
struct field {
    uint32_t polynomial;
    uint32_t table[8][256];  /* CRC of a byte followed by 0 to 7 zero bytes */
    uint32_t powers[POWERS]; /* x^(2^i) mod P */
};
static struct field castagnoli = {.polynomial = UINT32_C(0x82f63b78)};
static struct field ieee = {.polynomial = UINT32_C(0xedb88320)};

/* Product of two polynomials modulo P. */
static uint32_t multiply(const struct field *field, uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = ONE; bit; bit >>= 1) {
        product ^= b & -(uint32_t)((a & bit) != 0);
        b = b >> 1 ^ (field->polynomial & -(b & 1));
    }
    return product;
}

/* x^bits mod P, for bits = count << shift. */
static uint32_t power_of_x(const struct field *field, uint64_t count, unsigned shift) {
    uint32_t power = ONE;
    for (unsigned i = shift; count; count >>= 1, i++)
        if (count & 1) power = multiply(field, power, field->powers[i]);
    return power;
}

static void fill(struct field *field) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t word = i;
        for (int bit = 0; bit < 8; bit++) word = word >> 1 ^ (field->polynomial & -(word & 1));
        field->table[0][i] = word;
    }
    for (unsigned row = 1; row < 8; row++)
        for (unsigned i = 0; i < 256; i++) {
            uint32_t word = field->table[row - 1][i];
            field->table[row][i] = word >> 8 ^ field->table[0][word & 255];
        }
    field->powers[0] = ONE >> 1; /* x^1 */
    for (unsigned i = 1; i < POWERS; i++)
        field->powers[i] = multiply(field, field->powers[i - 1], field->powers[i - 1]);
}

/* Portable: eight bytes a step. */
static inline uint32_t update_by(const struct field *field, uint32_t state, const uint8_t *data,
                                 size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word = cairn_load_u64le(data) ^ state;
        state = 0;
        for (unsigned i = 0; i < 8; i++) state ^= field->table[7 - i][word >> (8 * i) & 255];
    }
    for (; size; data++, size--) state = state >> 8 ^ field->table[0][(state ^ *data) & 255];
    return state;
}

uint32_t cairn_crc32c_power_of_x(uint64_t bits) {
    return power_of_x(&castagnoli, bits, 0);
}

/* ---- CRC32C: the choice among implementations ---- */

/* From this size on copies bypass the cache; a smaller copy is probably read again soon, unless it
 * is a part of a large one. Below PAST_BYTES_MIN the lines at both ends are most of the copy. */
#define STREAMED_BYTES_MIN ((size_t)256 * 1024)
#define PAST_BYTES_MIN ((size_t)4096)

/* One implementation; crc is inverted before and after `update`. `copy` bypasses the cache, and is
 * given PAST_BYTES_MIN or more. */
struct loop {
    const char *name;
    bool (*usable)(void); /* NULL: always */
    uint32_t (*update)(uint32_t crc, const uint8_t *data, size_t size);
    uint32_t (*copy)(uint32_t crc, uint8_t *to, const uint8_t *from, size_t size);
};

/* Any thread may change these at any time: all implementations compute the same sums. */
static struct {
    _Atomic(const struct loop *) updater, copier;
    atomic_bool measured;
} chosen;

static const struct loop *updater(void) {
    return atomic_load_explicit(&chosen.updater, memory_order_relaxed);
}

static uint32_t update_table(uint32_t crc, const uint8_t *data, size_t size) {
    return update_by(&castagnoli, crc, data, size);
}

/* Sums a block, then copies it from the cache. Blocks of 64 to 512 KiB were equally fast; 1 MiB
 * no longer fits the cache. */
static uint32_t copy_blocks(uint32_t crc, uint8_t *to, const uint8_t *from, size_t size) {
    const size_t block = 256 * 1024;
    for (size_t done = 0; done < size; done += block) {
        size_t piece = size - done < block ? size - done : block;
        crc = updater()->update(crc, from + done, piece);
        memcpy(to + done, from + done, piece);
    }
    return crc;
}

/* ---- CRC32C by a CPU's own instructions ---- */

/* Three streams of CRC instructions; folded lines beside such streams; wider folds. */

/* Bytes of each of the three streams before they are joined. Long runs make the join cheap, short
 * ones keep the streams busy on small blocks. */
#define LONG_BYTES 4096
#define SHORT_BYTES 256

/* Prefetch distance. From memory 0, 512, 1,024 were equally fast, 2,048 and more slower (Zen 5). */
#define AHEAD_BYTES 1024

/* One instruction a word, three words in flight. */

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

/* Stores 64 bytes to an aligned address past the cache: they are sent from there later, and a plain
 * store would first read the old line from memory. */
FAST static inline void store_line(uint8_t *to, const uint8_t *from) {
    for (size_t i = 0; i < 64; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm_stream_si128((__m128i *)(void *)(to + i), bytes);
    }
}

/* Orders the streamed stores before the thread's next stores. */
static inline void store_end(void) {
    _mm_sfence();
}

static uint64_t ticks_now(void) {
    return __rdtsc();
}

static void forget_cached(const uint8_t *at, size_t size) {
    for (size_t i = 0; i < size; i += 64) _mm_clflush(at + i);
    _mm_mfence();
}
#elif defined(__aarch64__) && defined(__linux__)
#define HAVE_FAST
#define FAST_NAME "armv8"
#define MIXED_NAME "pmull"
#define FAST

/* Assembly, because gcc and clang need different flags for the intrinsics. */
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

static uint64_t ticks_now(void) {
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}

/* No portable cache flush; the copies alternate, so all candidates meet the same cache. */
static void forget_cached(const uint8_t *at, size_t size) {
    (void)at, (void)size;
}
#else
static uint64_t ticks_now(void) {
    return 0;
}
static void forget_cached(const uint8_t *at, size_t size) {
    (void)at, (void)size;
}
#endif

#ifdef HAVE_FAST
/* Factors that move a CRC over one and over two streams of a run. */
struct factors {
    uint32_t one, two;
};
static struct factors long_factors, short_factors;

static struct factors factors_of(uint64_t run) {
    /* product_of gives A * B * x and crc_word(0, W) is W * x^32: 33 bits that a factor lacks. */
    return (struct factors){cairn_crc32c_power_of_x(8 * run - 33),
                            cairn_crc32c_power_of_x(16 * run - 33)};
}

FAST static inline uint64_t load_word(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    return word;
}

/* Adds as an integer: the address may lie beyond the buffer, where prefetching is harmless. */
static inline void fetch_ahead(const uint8_t *at, size_t distance) {
    __builtin_prefetch((const void *)((uintptr_t)at + distance));
}

/* CRC of 3 * run bytes in three streams: the instruction takes three cycles but one may start in
 * each. If `to` is given (aligned to 64), copies the bytes in the same pass. Long runs prefetch two
 * runs ahead, which the CPU does not do for three streams: 15 to 19 GB/s from memory, and
 * no loss in the cache. */
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
    for (; size >= 3 * LONG_BYTES; data += 3 * LONG_BYTES, size -= 3 * LONG_BYTES)
        crc = update_three(crc, data, NULL, LONG_BYTES, long_factors);
    for (; size >= 3 * SHORT_BYTES; data += 3 * SHORT_BYTES, size -= 3 * SHORT_BYTES)
        crc = update_three(crc, data, NULL, SHORT_BYTES, short_factors);
    for (; size >= 8; data += 8, size -= 8) crc = (uint32_t)crc_word(crc, load_word(data));
    for (; size; data++, size--) crc = crc_byte(crc, *data);
    return crc;
}

/* Large copies: up to a line border, then 12 KiB at a time, then the rest. */
FAST static uint32_t copy_fast(uint32_t crc, uint8_t *to, const uint8_t *from, size_t size) {
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

/* ---- carry-less multiplication, and words beside it ---- */

/* Factors that move 128 bits over a distance. The first word in memory holds the higher powers; the
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

/* Folds four consecutive sums into one and reduces it with the CRC instruction. */
FAST static inline uint32_t fold_end(const lanes sums[4]) {
    lanes factor = load_16(fold_factors[FOLD_16]), sum = sums[0];
    for (size_t i = 1; i < 4; i++) sum = fold(sum, factor, sums[i]);
    return (uint32_t)crc_word(crc_word(0, low_of(sum)), high_of(sum));
}

/* A step folds a line of 64 bytes while three streams take some words each: multiplier and CRC unit
 * are separate parts of a core. The best number of words differs: one on AMD's first Zen, whose CRC
 * unit takes a word every three cycles; three where it takes one per cycle (Zen 5, in the cache:
 * 17, 19 and 26 GB/s with one, two and three words). */
#define MIXED_STEPS 128
#define MIXED_FOLDED ((size_t)(64 * MIXED_STEPS))
#define MIXED_WORDS_MAX 3

static uint32_t mixed_factors[MIXED_WORDS_MAX + 1][3]; /* over one, two, three streams */

static size_t mixed_stream(size_t words) {
    return 8 * MIXED_STEPS * words;
}

static void make_fold_factors(void) {
    static const uint64_t distances[FOLD_COUNT] = {256, 64, 32, 16};
    for (unsigned i = 0; i < FOLD_COUNT; i++) {
        fold_factors[i][0] = (uint64_t)cairn_crc32c_power_of_x(8 * distances[i] + 63) << 32;
        fold_factors[i][1] = (uint64_t)cairn_crc32c_power_of_x(8 * distances[i] - 1) << 32;
    }
    for (size_t words = 1; words <= MIXED_WORDS_MAX; words++)
        for (unsigned i = 0; i < 3; i++) /* as factors_of() */
            mixed_factors[words][i] =
                cairn_crc32c_power_of_x(8 * (i + 1) * mixed_stream(words) - 33);
}

/* If `to` is given (aligned to 64), copies the bytes in the same pass, past the cache. */
FAST static inline __attribute__((always_inline)) uint32_t
mixed_block(uint32_t crc, uint8_t *to, const uint8_t *data, size_t words) {
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

/* size is a positive multiple of STEP_BYTES. If `to` is given (aligned to 64), copies the bytes in
 * the same pass, past the cache. */
HALF static inline __attribute__((always_inline)) uint32_t
half_run(uint32_t crc, uint8_t *to, const uint8_t *data, size_t size) {
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
    const lanes last[4] = {_mm256_castsi256_si128(sums[6]), _mm256_extracti128_si256(sums[6], 1),
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
    return _mm512_ternarylogic_epi64(high, low, next, 0x96); /* xor of all three */
}

WIDE static inline __attribute__((always_inline)) uint32_t
wide_run(uint32_t crc, uint8_t *to, const uint8_t *data, size_t size) {
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

/* ---- CRC32C: the choice among them ---- */

/* In order of preference before any measurement. */
static const struct loop loops[] = {
#ifdef HAVE_WIDE
    {"avx512", wide_usable, update_wide, copy_wide},
    {"avx2", half_usable, update_half, copy_half},
#endif
#ifdef HAVE_FAST
    {FAST_NAME, fast_usable, update_fast, copy_fast},
    {MIXED_NAME, fast_usable, update_mixed_1, copy_mixed_1},
    {MIXED_NAME "-2", fast_usable, update_mixed_2, copy_mixed_2},
    {MIXED_NAME "-3", fast_usable, update_mixed_3, copy_mixed_3},
#endif
    {"table", NULL, update_table, copy_blocks}, /* never measured */
};

static bool usable(const struct loop *one) {
    return !one->usable || one->usable();
}

static void use(const struct loop *summing, const struct loop *copying) {
    atomic_store_explicit(&chosen.updater, summing, memory_order_relaxed);
    atomic_store_explicit(&chosen.copier, copying, memory_order_relaxed);
}

size_t cairn_crc32c_fastest(const uint64_t *ticks, size_t count) {
    size_t best = 0;
    for (size_t i = 0; i < count; i++)
        if (ticks[i] && (!ticks[best] || ticks[i] < ticks[best])) best = i;
    size_t first = 0;
    while (first < best && !ticks[first]) first++;
    /* A difference below 10 % may be noise from other load. */
    return ticks[best] < ticks[first] - ticks[first] / 10 ? best : first;
}

/* Sums are measured in the cache, copies out of memory. */
#define SUMMED_BYTES ((size_t)32 * 1024)
#define COPIED_BYTES ((size_t)1024 * 1024)
#define ROUNDS 4

static uint64_t time_of(const struct loop *one, uint8_t *to, const uint8_t *from) {
    uint64_t began = ticks_now();
    if (to)
        (void)one->copy(0, to, from, COPIED_BYTES);
    else
        (void)one->update(0, from, SUMMED_BYTES);
    return ticks_now() - began;
}

/* Takes the minimum of some rounds, since disturbances only add time. to: NULL for sums. */
static const struct loop *measure(uint8_t *to, const uint8_t *from) {
    uint64_t least[CAIRN_COUNT(loops)] = {0};
    for (unsigned round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i + 1 < CAIRN_COUNT(loops); i++) {
            if (!usable(&loops[i])) continue;
            if (to) forget_cached(from, COPIED_BYTES);
            uint64_t took = time_of(&loops[i], to, from) | 1;
            if (!least[i] || took < least[i]) least[i] = took;
        }
    return &loops[cairn_crc32c_fastest(least, CAIRN_COUNT(loops))];
}

static void measure_all(void) {
    if (updater() == &loops[CAIRN_COUNT(loops) - 1]) return; /* this CPU has no alternative */
    uint8_t *memory =
        mmap(NULL, 2 * COPIED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return; /* keeps the first choice */
    memset(memory, 0x5a, 2 * COPIED_BYTES);
    const struct loop *summing = measure(NULL, memory);
    use(summing, measure(memory + COPIED_BYTES, memory));
    (void)munmap(memory, 2 * COPIED_BYTES);
}

void cairn_crc32c_measure(void) {
    if (!atomic_exchange(&chosen.measured, true)) measure_all();
}

bool cairn_crc32c_choose(const char *name) {
    for (size_t i = 0; i < CAIRN_COUNT(loops); i++) {
        const struct loop *one = &loops[i];
        if ((name && strcmp(one->name, name)) || !usable(one)) continue;
        atomic_store(&chosen.measured, name != NULL);
        use(one, one);
        return true;
    }
    return false;
}

/* The first call of this size triggers the measurement. */
#define MEASURED_BYTES_MIN ((size_t)256 * 1024)

static void measure_for(size_t size) {
    if (size >= MEASURED_BYTES_MIN && !atomic_load_explicit(&chosen.measured, memory_order_relaxed))
        cairn_crc32c_measure();
}

uint32_t cairn_crc32c(uint32_t crc, const void *data, size_t size) {
    if (!size) return crc; /* data may be NULL, and NULL + 0 is undefined */
    measure_for(size);
    return ~updater()->update(~crc, data, size);
}

uint32_t cairn_crc32c_with_table(uint32_t crc, const void *data, size_t size) {
    return size ? ~update_table(~crc, data, size) : crc;
}

uint32_t cairn_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) {
    /* The two inversions of a CRC cancel out, so only crc_a is moved over size_b bytes. */
    return multiply(&castagnoli, power_of_x(&castagnoli, size_b, 3), crc_a) ^ crc_b;
}

static uint32_t copy_from(size_t past_min, uint32_t crc, void *to, const void *from, size_t size) {
    measure_for(size);
    const struct loop *copier = atomic_load_explicit(&chosen.copier, memory_order_relaxed);
    return ~(size < past_min ? copy_blocks : copier->copy)(~crc, to, from, size);
}

uint32_t cairn_crc32c_copy(uint32_t crc, void *to, const void *from, size_t size) {
    return copy_from(STREAMED_BYTES_MIN, crc, to, from, size);
}

uint32_t cairn_crc32c_copy_part(uint32_t crc, void *to, const void *from, size_t size) {
    return copy_from(PAST_BYTES_MIN, crc, to, from, size);
}

const char *cairn_crc32c_implementation(void) {
    return updater()->name;
}

const char *cairn_crc32c_copier(void) {
    return atomic_load_explicit(&chosen.copier, memory_order_relaxed)->name;
}

/* ---- CRC-32, of zip entries ---- */

static uint32_t (*zip_update)(uint32_t state, const uint8_t *data, size_t size);

static uint32_t zip_update_table(uint32_t state, const uint8_t *data, size_t size) {
    return update_by(&ieee, state, data, size);
}

#ifdef HAVE_WIDE
/* Factors that move the low and the high half of 128 bits over a distance. A reflected product
 * lacks a bit, which the shift restores. */
static uint64_t zip_by_128[2], zip_by_512[2], zip_by_2048[2];

static void make_zip_factors(uint64_t ret[2], unsigned bits) {
    ret[0] = (uint64_t)power_of_x(&ieee, bits + 32, 0) << 1;
    ret[1] = (uint64_t)power_of_x(&ieee, bits - 32, 0) << 1;
}

FAST static uint32_t zip_update_fast(uint32_t state, const uint8_t *data, size_t size) {
    if (size < 128) return zip_update_table(state, data, size);
    const lanes far = load_16(zip_by_512), near = load_16(zip_by_128);
    lanes sums[4];
    for (int i = 0; i < 4; i++) sums[i] = load_16(data + 16 * i);
    sums[0] = add(sums[0], lanes_of_crc(state));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64)
        for (int i = 0; i < 4; i++) sums[i] = fold(sums[i], far, load_16(data + 16 * i));
    for (int i = 1; i < 4; i++) sums[i] = fold(sums[i - 1], near, sums[i]);
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)(void *)rest, sums[3]);
    return zip_update_table(zip_update_table(0, rest, sizeof rest), data, size);
}

WIDE static uint32_t zip_update_wide(uint32_t state, const uint8_t *data, size_t size) {
    if (size < 1024) return zip_update_fast(state, data, size);
    const __m512i factor = _mm512_broadcast_i32x4(load_16(zip_by_2048));
    __m512i sums[4];
    for (int i = 0; i < 4; i++) sums[i] = _mm512_loadu_si512(data + 64 * i);
    sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(lanes_of_crc(state)));
    for (data += 256, size -= 256; size >= 256; data += 256, size -= 256)
        for (int i = 0; i < 4; i++)
            sums[i] = wide_fold(sums[i], factor, _mm512_loadu_si512(data + 64 * i));
    uint8_t rest[256]; /* 256 bytes with the same remainder */
    for (int i = 0; i < 4; i++) _mm512_storeu_si512(rest + 64 * i, sums[i]);
    return zip_update_fast(zip_update_fast(0, rest, sizeof rest), data, size);
}
#endif

uint32_t cairn_crc32(const void *data, size_t size) {
    return ~zip_update(UINT32_MAX, data, size);
}

uint32_t cairn_crc32_remainder(const void *data, size_t size) {
    return zip_update(0, data, size);
}

uint32_t cairn_crc32_shift(uint32_t remainder, uint64_t bytes) {
    return bytes ? multiply(&ieee, remainder, power_of_x(&ieee, bytes, 3)) : remainder;
}

uint32_t cairn_crc32_of_remainder(uint32_t remainder, uint64_t bytes) {
    return ~(remainder ^ cairn_crc32_shift(UINT32_MAX, bytes));
}

uint32_t cairn_crc32_with_table(uint32_t state, const void *data, size_t size) {
    return zip_update_table(state, data, size);
}

/* ---- at load ---- */

__attribute__((constructor)) static void prepare(void) {
    fill(&castagnoli);
    fill(&ieee);
    zip_update = zip_update_table;
#ifdef HAVE_FAST
    long_factors = factors_of(LONG_BYTES);
    short_factors = factors_of(SHORT_BYTES);
    make_fold_factors();
#endif
#ifdef HAVE_WIDE
    make_zip_factors(zip_by_128, 128);
    make_zip_factors(zip_by_512, 512);
    make_zip_factors(zip_by_2048, 2048);
    if (fast_usable()) zip_update = wide_usable() ? zip_update_wide : zip_update_fast;
#endif
    (void)cairn_crc32c_choose(NULL);
}
