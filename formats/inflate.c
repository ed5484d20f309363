/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks, Huffman codes by tables of 15 bits, and a window of the last 32 KiB. */
#include "formats/inflate.h"

#include <inttypes.h>
#include <stdlib.h>

#define WINDOW_BYTES 32768
#define READ_BYTES 65536
#define CODE_BITS 15
#define TABLE_SIZE (1u << CODE_BITS)
#define LITERALS 288
#define DISTANCES 32
#define LENGTH_CODES 19
#define END_OF_BLOCK 256

/* By the next 15 bits: symbol << 4 | how many of them it takes; 0: no code begins so. */
struct table {
    uint16_t entries[TABLE_SIZE];
};
enum block { BLOCK_NONE, BLOCK_STORED, BLOCK_CODES };

struct cairn_inflate {
    const struct cairn_input *input;
    uint64_t at, end; /* of packed bytes that were not read yet */
    uint8_t packed[READ_BYTES];
    size_t packed_at, packed_size;
    uint64_t bits;
    unsigned bit_count;
    enum block block;
    bool last;              /* the block is */
    uint32_t stored_left;   /* bytes of a stored block */
    unsigned length, reach; /* of a match that is not copied to its end */
    struct table literals, distances;
    uint8_t window[WINDOW_BYTES];
    uint64_t made_bytes;
};

enum cairn_code cairn_inflate_new(const struct cairn_input *input, uint64_t offset_bytes,
                                  uint64_t packed_bytes, struct cairn_inflate **ret,
                                  struct cairn_error *err) {
    *ret = calloc(1, sizeof **ret);
    if (!*ret) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to unpack a zip entry");
    (*ret)->input = input;
    (*ret)->at = offset_bytes;
    (*ret)->end = offset_bytes + packed_bytes;
    return CAIRN_OK;
}

void cairn_inflate_free(struct cairn_inflate *inflate) {
    free(inflate);
}

static enum cairn_code wrong(const struct cairn_inflate *inflate, const char *what,
                             struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CORRUPT,
                      "its packed bytes are damaged: %s after %" PRIu64 " bytes", what,
                      inflate->made_bytes);
}

/* ---- bits ---- */

/* At least `count` bits are at hand, zeros behind the last packed byte. */
static enum cairn_code fill(struct cairn_inflate *inflate, unsigned count,
                            struct cairn_error *err) {
    while (inflate->bit_count < count) {
        if (inflate->packed_at == inflate->packed_size) {
            size_t some = (size_t)cairn_min_u64(READ_BYTES, inflate->end - inflate->at);
            if (!some) return CAIRN_OK; /* take says so where they are needed */
            CAIRN_TRY(cairn_input_read(inflate->input, inflate->at, inflate->packed, some, err));
            inflate->at += some;
            inflate->packed_at = 0;
            inflate->packed_size = some;
        }
        inflate->bits |= (uint64_t)inflate->packed[inflate->packed_at++] << inflate->bit_count;
        inflate->bit_count += 8;
    }
    return CAIRN_OK;
}

static enum cairn_code take(struct cairn_inflate *inflate, unsigned count, unsigned *ret,
                            struct cairn_error *err) {
    CAIRN_TRY(fill(inflate, count, err));
    if (inflate->bit_count < count) return wrong(inflate, "they end", err);
    *ret = (unsigned)(inflate->bits & ((UINT64_C(1) << count) - 1));
    inflate->bits >>= count;
    inflate->bit_count -= count;
    return CAIRN_OK;
}

static enum cairn_code decode(struct cairn_inflate *inflate, const struct table *table,
                              unsigned *ret, struct cairn_error *err) {
    CAIRN_TRY(fill(inflate, CODE_BITS, err));
    uint16_t entry = table->entries[inflate->bits & (TABLE_SIZE - 1)];
    unsigned size = entry & 15;
    if (!size || size > inflate->bit_count) return wrong(inflate, "a code that is none", err);
    *ret = entry >> 4;
    inflate->bits >>= size;
    inflate->bit_count -= size;
    return CAIRN_OK;
}

/* ---- codes ---- */

/* From the lengths of the codes; a set of codes that is not full is taken, one too full is not. */
static bool make_table(struct table *table, const uint8_t *sizes, unsigned count) {
    unsigned counts[CODE_BITS + 1] = {0}, next[CODE_BITS + 2] = {0};
    memset(table, 0, sizeof *table);
    for (unsigned i = 0; i < count; i++) counts[sizes[i]]++;
    counts[0] = 0;
    for (unsigned size = 1; size <= CODE_BITS; size++) {
        next[size + 1] = (next[size] + counts[size]) << 1;
        if (next[size] + counts[size] > 1u << size) return false;
    }
    for (unsigned i = 0; i < count; i++) {
        unsigned size = sizes[i], code = size ? next[size]++ : 0, reversed = 0;
        for (unsigned bit = 0; bit < size; bit++) reversed |= (code >> bit & 1) << (size - 1 - bit);
        for (unsigned at = reversed; size && at < TABLE_SIZE; at += 1u << size)
            table->entries[at] = (uint16_t)(i << 4 | size);
    }
    return true;
}

static enum cairn_code make_fixed(struct cairn_inflate *inflate, struct cairn_error *err) {
    uint8_t sizes[LITERALS];
    for (unsigned i = 0; i < LITERALS; i++) sizes[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    bool made = make_table(&inflate->literals, sizes, LITERALS);
    memset(sizes, 5, DISTANCES);
    if (made && make_table(&inflate->distances, sizes, DISTANCES)) return CAIRN_OK;
    return wrong(inflate, "codes that are none", err);
}

/* The lengths of both codes, themselves coded; 16 repeats the last one, 17 and 18 are zeros. */
static enum cairn_code read_sizes(struct cairn_inflate *inflate, uint8_t *sizes, unsigned count,
                                  struct cairn_error *err) {
    for (unsigned done = 0; done < count;) {
        unsigned symbol = 0, times = 0, bits;
        CAIRN_TRY(decode(inflate, &inflate->literals, &symbol, err));
        if (symbol < 16) {
            sizes[done++] = (uint8_t)symbol;
            continue;
        }
        bits = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
        CAIRN_TRY(take(inflate, bits, &times, err));
        times += symbol == 18 ? 11 : 3;
        if (times > count - done || (symbol == 16 && !done))
            return wrong(inflate, "lengths of codes that are too many", err);
        memset(sizes + done, symbol == 16 ? sizes[done - 1] : 0, times);
        done += times;
    }
    return CAIRN_OK;
}

static enum cairn_code make_codes(struct cairn_inflate *inflate, struct cairn_error *err) {
    static const uint8_t order[LENGTH_CODES] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t sizes[LITERALS + DISTANCES] = {0}, lengths[LENGTH_CODES] = {0};
    unsigned literals = 0, distances = 0, count = 0, size = 0;
    CAIRN_TRY(take(inflate, 5, &literals, err));
    CAIRN_TRY(take(inflate, 5, &distances, err));
    CAIRN_TRY(take(inflate, 4, &count, err));
    literals += 257, distances += 1, count += 4;
    if (literals > LITERALS - 2 || distances > DISTANCES - 2)
        return wrong(inflate, "too many codes", err);
    for (unsigned i = 0; i < count; i++) {
        CAIRN_TRY(take(inflate, 3, &size, err));
        lengths[order[i]] = (uint8_t)size;
    }
    if (!make_table(&inflate->literals, lengths, LENGTH_CODES))
        return wrong(inflate, "codes that are none", err);
    CAIRN_TRY(read_sizes(inflate, sizes, literals + distances, err));
    if (make_table(&inflate->distances, sizes + literals, distances) &&
        make_table(&inflate->literals, sizes, literals) && sizes[END_OF_BLOCK])
        return CAIRN_OK;
    return wrong(inflate, "codes that are none", err);
}

/* ---- blocks ---- */

static enum cairn_code begin_stored(struct cairn_inflate *inflate, struct cairn_error *err) {
    unsigned size = 0, inverse = 0, ignored;
    CAIRN_TRY(take(inflate, inflate->bit_count % 8, &ignored, err));
    CAIRN_TRY(take(inflate, 16, &size, err));
    CAIRN_TRY(take(inflate, 16, &inverse, err));
    if (size != (inverse ^ 0xffff)) return wrong(inflate, "a block of no length", err);
    inflate->stored_left = size;
    inflate->block = BLOCK_STORED;
    return CAIRN_OK;
}

static enum cairn_code begin_block(struct cairn_inflate *inflate, struct cairn_error *err) {
    unsigned last = 0, kind = 0;
    if (inflate->last) return wrong(inflate, "they end", err);
    CAIRN_TRY(take(inflate, 1, &last, err));
    CAIRN_TRY(take(inflate, 2, &kind, err));
    inflate->last = last;
    if (kind == 0) return begin_stored(inflate, err);
    if (kind == 3) return wrong(inflate, "a block of no kind", err);
    inflate->block = BLOCK_CODES;
    return kind == 1 ? make_fixed(inflate, err) : make_codes(inflate, err);
}

/* The length of a match by its symbol, then how far back it lies. */
static enum cairn_code begin_match(struct cairn_inflate *inflate, unsigned symbol,
                                   struct cairn_error *err) {
    unsigned more = 0, bits, code = symbol - END_OF_BLOCK - 1;
    if (code > 28) return wrong(inflate, "a length that is none", err);
    bits = code < 8 || code == 28 ? 0 : code / 4 - 1;
    CAIRN_TRY(take(inflate, bits, &more, err));
    inflate->length = code < 8 ? code + 3 : code == 28 ? 258 : ((4 + code % 4) << bits) + 3 + more;
    CAIRN_TRY(decode(inflate, &inflate->distances, &code, err));
    if (code > 29) return wrong(inflate, "a distance that is none", err);
    bits = code < 4 ? 0 : code / 2 - 1;
    CAIRN_TRY(take(inflate, bits, &more, err));
    inflate->reach = code < 4 ? code + 1 : ((2 + code % 2) << bits) + 1 + more;
    if (inflate->reach > inflate->made_bytes)
        return wrong(inflate, "a distance before the first byte", err);
    return CAIRN_OK;
}

static void put(struct cairn_inflate *inflate, uint8_t **into, uint8_t byte) {
    inflate->window[inflate->made_bytes++ % WINDOW_BYTES] = byte;
    *(*into)++ = byte;
}

/* What the block has next, up to `end`. */
static enum cairn_code go_on(struct cairn_inflate *inflate, uint8_t **into, const uint8_t *end,
                             struct cairn_error *err) {
    unsigned symbol = 0;
    for (; inflate->length && *into < end; inflate->length--)
        put(inflate, into, inflate->window[(inflate->made_bytes - inflate->reach) % WINDOW_BYTES]);
    if (*into == end) return CAIRN_OK;
    if (inflate->block == BLOCK_NONE) return begin_block(inflate, err);
    if (inflate->block == BLOCK_STORED) {
        for (; inflate->stored_left && *into < end; inflate->stored_left--) {
            CAIRN_TRY(take(inflate, 8, &symbol, err));
            put(inflate, into, (uint8_t)symbol);
        }
        if (!inflate->stored_left) inflate->block = BLOCK_NONE;
        return CAIRN_OK;
    }
    while (*into < end) {
        CAIRN_TRY(decode(inflate, &inflate->literals, &symbol, err));
        if (symbol > END_OF_BLOCK) return begin_match(inflate, symbol, err);
        if (symbol == END_OF_BLOCK) {
            inflate->block = BLOCK_NONE;
            return CAIRN_OK;
        }
        put(inflate, into, (uint8_t)symbol);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_inflate_read(struct cairn_inflate *inflate, void *into, size_t size,
                                   struct cairn_error *err) {
    uint8_t *at = into;
    const uint8_t *end = at + size;
    while (at < end) CAIRN_TRY(go_on(inflate, &at, end, err));
    return CAIRN_OK;
}
