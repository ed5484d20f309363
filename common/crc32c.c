/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CRC is the remainder of a polynomial over GF(2). In the reflected form used here bit 31 of a
 * word is the coefficient of x^0. Everything but the inner loops is multiplication modulo P.
 */
#include "common/crc32c.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "common/buf.h"
#include "common/crc32c_loops.h"

#define POLYNOMIAL UINT32_C(0x82f63b78)
#define ONE UINT32_C(0x80000000) /* x^0 */

/* A size below 2^62 bytes shifts by up to 2^65 bits, so 64 powers would be too few. */
#define POWERS 67

/* From here on a call is worth measuring for. */
#define MEASURED_BYTES_MIN ((size_t)256 * 1024)

/* Written once, at load, by the constructor below. */
static uint32_t byte_table[8][256];
static uint32_t powers[POWERS]; /* x^(2^i) mod P */
/* Any of them may be used at any moment, since all make the same sums. */
static struct {
    _Atomic(const struct cairn_crc32c_loop *) updater, copier;
    atomic_bool measured;
} chosen;

static const struct cairn_crc32c_loop *updater(void) {
    return atomic_load_explicit(&chosen.updater, memory_order_relaxed);
}

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

uint32_t cairn_crc32c_power_of_x(uint64_t bits) {
    return power_of_x(bits, 0);
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
uint32_t cairn_crc32c_copy_blocks(uint32_t crc, uint8_t *to, const uint8_t *from, size_t size) {
    const size_t block = 256 * 1024;
    for (size_t done = 0; done < size; done += block) {
        size_t piece = size - done < block ? size - done : block;
        crc = updater()->update(crc, from + done, piece);
        memcpy(to + done, from + done, piece);
    }
    return crc;
}

/* ---- choice ---- */

static const struct cairn_crc32c_loop table = {"table", NULL, update_table,
                                               cairn_crc32c_copy_blocks};

static bool usable(const struct cairn_crc32c_loop *one) {
    return !one->usable || one->usable();
}

static void use(const struct cairn_crc32c_loop *summing, const struct cairn_crc32c_loop *copying) {
    atomic_store_explicit(&chosen.updater, summing, memory_order_relaxed);
    atomic_store_explicit(&chosen.copier, copying, memory_order_relaxed);
}

size_t cairn_crc32c_fastest(const uint64_t *ticks, size_t count) {
    size_t best = 0;
    for (size_t i = 0; i < count; i++)
        if (ticks[i] && (!ticks[best] || ticks[i] < ticks[best])) best = i;
    size_t first = 0;
    while (first < best && !ticks[first]) first++;
    /* Two that are alike are told apart by what else the machine did. */
    return ticks[best] < ticks[first] - ticks[first] / 10 ? best : first;
}

/* Sums are made of bytes that are in the cache, copies of bytes that are not. */
#define SUMMED_BYTES ((size_t)32 * 1024)
#define COPIED_BYTES ((size_t)1024 * 1024)
#define ROUNDS 4

static uint64_t time_of(const struct cairn_crc32c_loop *one, uint8_t *to, const uint8_t *from) {
    uint64_t began = cairn_crc32c_ticks();
    if (to)
        (void)one->copy(0, to, from, COPIED_BYTES);
    else
        (void)one->update(0, from, SUMMED_BYTES);
    return cairn_crc32c_ticks() - began;
}

/* The least of some rounds: what disturbs one makes it longer. to: NULL for sums. */
static const struct cairn_crc32c_loop *measure(uint8_t *to, const uint8_t *from) {
    uint64_t least[CAIRN_CRC32C_LOOPS_MAX] = {0};
    size_t count;
    const struct cairn_crc32c_loop *loops = cairn_crc32c_loops(&count);
    for (unsigned round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < count; i++) {
            if (!usable(&loops[i])) continue;
            if (to) cairn_crc32c_forget_cached(from, COPIED_BYTES);
            uint64_t took = time_of(&loops[i], to, from) | 1;
            if (!least[i] || took < least[i]) least[i] = took;
        }
    return &loops[cairn_crc32c_fastest(least, count)];
}

static void measure_all(void) {
    if (updater() == &table) return; /* this CPU has nothing else */
    uint8_t *memory = mmap(NULL, 2 * COPIED_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return; /* it stays with the first one */
    memset(memory, 0x5a, 2 * COPIED_BYTES);
    const struct cairn_crc32c_loop *summing = measure(NULL, memory);
    use(summing, measure(memory + COPIED_BYTES, memory));
    (void)munmap(memory, 2 * COPIED_BYTES);
}

void cairn_crc32c_measure(void) {
    if (!atomic_exchange(&chosen.measured, true)) measure_all();
}

bool cairn_crc32c_choose(const char *name) {
    size_t count;
    const struct cairn_crc32c_loop *loops = cairn_crc32c_loops(&count);
    for (size_t i = 0; i <= count; i++) {
        const struct cairn_crc32c_loop *one = i < count ? &loops[i] : &table;
        if ((name && strcmp(one->name, name)) || !usable(one)) continue;
        atomic_store(&chosen.measured, name != NULL);
        use(one, one);
        return true;
    }
    return false;
}

__attribute__((constructor)) static void choose(void) {
    make_tables();
    cairn_crc32c_loops_prepare();
    (void)cairn_crc32c_choose(NULL);
}

static void measure_for(size_t size) {
    if (size >= MEASURED_BYTES_MIN && !atomic_load_explicit(&chosen.measured, memory_order_relaxed))
        cairn_crc32c_measure();
}

uint32_t cairn_crc32c(uint32_t crc, const void *data, size_t size) {
    if (!size) return crc; /* data may be NULL, which must not even be advanced by 0 */
    measure_for(size);
    return ~updater()->update(~crc, data, size);
}

uint32_t cairn_crc32c_with_table(uint32_t crc, const void *data, size_t size) {
    return size ? ~update_table(~crc, data, size) : crc;
}

uint32_t cairn_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) {
    /* The two inversions of a CRC cancel out, so only crc_a has to be moved over size_b bytes. */
    return multiply(power_of_x(size_b, 3), crc_a) ^ crc_b;
}

uint32_t cairn_crc32c_copy(uint32_t crc, void *to, const void *from, size_t size) {
    measure_for(size);
    return ~atomic_load_explicit(&chosen.copier, memory_order_relaxed)->copy(~crc, to, from, size);
}

const char *cairn_crc32c_implementation(void) {
    return updater()->name;
}

const char *cairn_crc32c_copier(void) {
    return atomic_load_explicit(&chosen.copier, memory_order_relaxed)->name;
}
