/* SPDX-License-Identifier: Apache-2.0 */
/* Reads zip archives and deflated entries; every number is checked before use. */
#include "formats/torch/zip.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/crc.h"
#include "common/lock.h"
#include "common/text.h"

/* ---- inflating: blocks, Huffman codes by tables of 15 bits, a window of 32 KiB ---- */

#define WINDOW_BYTES 32768
#define READ_BYTES 65536
#define CODE_BITS 15
#define TABLE_SIZE (1u << CODE_BITS)
#define LITERALS 288
#define DISTANCES 32
#define LENGTH_CODES 19
#define END_OF_BLOCK 256

/* Indexed by the next 15 bits: symbol << 4 | code length; 0: no such code. */
struct table {
    uint16_t entries[TABLE_SIZE];
};
enum block { BLOCK_NONE, BLOCK_STORED, BLOCK_CODES };

struct inflate {
    const struct cairn_input *input;
    uint64_t at, end; /* of packed bytes not read yet */
    uint8_t packed[READ_BYTES];
    size_t packed_at, packed_size;
    uint64_t bits;
    unsigned bit_count;
    enum block block;
    bool last;              /* this is the last block */
    uint32_t stored_left;   /* left in a stored block */
    unsigned length, reach; /* of an unfinished match */
    struct table literals, distances;
    uint8_t window[WINDOW_BYTES];
    uint64_t made_bytes;
};

/* input must outlive it. */
static enum cairn_code inflate_new(const struct cairn_input *input, uint64_t offset_bytes,
                                   uint64_t packed_bytes, struct inflate **ret,
                                   struct cairn_error *err) {
    *ret = calloc(1, sizeof **ret);
    if (!*ret) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to unpack a zip entry");
    (*ret)->input = input;
    (*ret)->at = offset_bytes;
    (*ret)->end = offset_bytes + packed_bytes;
    return CAIRN_OK;
}

static void inflate_free(struct inflate *inflate) {
    free(inflate);
}

static enum cairn_code fail_packed(const struct inflate *inflate, const char *what,
                                   struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CORRUPT,
                      "its packed bytes are damaged: %s after %" PRIu64 " bytes", what,
                      inflate->made_bytes);
}

/* Provides at least `count` bits, with zeros after the last packed byte. */
static enum cairn_code fill_bits(struct inflate *inflate, unsigned count, struct cairn_error *err) {
    while (inflate->bit_count < count) {
        if (inflate->packed_at == inflate->packed_size) {
            size_t some = (size_t)cairn_min_u64(READ_BYTES, inflate->end - inflate->at);
            if (!some) return CAIRN_OK; /* the take that needs them fails */
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

static enum cairn_code take_bits(struct inflate *inflate, unsigned count, unsigned *ret,
                                 struct cairn_error *err) {
    CAIRN_TRY(fill_bits(inflate, count, err));
    if (inflate->bit_count < count) return fail_packed(inflate, "they end", err);
    *ret = (unsigned)(inflate->bits & ((UINT64_C(1) << count) - 1));
    inflate->bits >>= count;
    inflate->bit_count -= count;
    return CAIRN_OK;
}

static enum cairn_code decode_symbol(struct inflate *inflate, const struct table *table,
                                     unsigned *ret, struct cairn_error *err) {
    CAIRN_TRY(fill_bits(inflate, CODE_BITS, err));
    uint16_t entry = table->entries[inflate->bits & (TABLE_SIZE - 1)];
    unsigned size = entry & 15;
    if (!size || size > inflate->bit_count) return fail_packed(inflate, "a code that is none", err);
    *ret = entry >> 4;
    inflate->bits >>= size;
    inflate->bit_count -= size;
    return CAIRN_OK;
}

/* Builds the table from code lengths; accepts incomplete codes, not oversubscribed ones. */
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

static enum cairn_code make_fixed(struct inflate *inflate, struct cairn_error *err) {
    uint8_t sizes[LITERALS];
    for (unsigned i = 0; i < LITERALS; i++) sizes[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    bool made = make_table(&inflate->literals, sizes, LITERALS);
    memset(sizes, 5, DISTANCES);
    if (made && make_table(&inflate->distances, sizes, DISTANCES)) return CAIRN_OK;
    return fail_packed(inflate, "codes that are none", err);
}

/* The lengths of both codes, themselves coded; 16 repeats the last one, 17 and 18 are zeros. */
static enum cairn_code read_sizes(struct inflate *inflate, uint8_t *sizes, unsigned count,
                                  struct cairn_error *err) {
    for (unsigned done = 0; done < count;) {
        unsigned symbol = 0, times = 0, bits;
        CAIRN_TRY(decode_symbol(inflate, &inflate->literals, &symbol, err));
        if (symbol < 16) {
            sizes[done++] = (uint8_t)symbol;
            continue;
        }
        bits = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
        CAIRN_TRY(take_bits(inflate, bits, &times, err));
        times += symbol == 18 ? 11 : 3;
        if (times > count - done || (symbol == 16 && !done))
            return fail_packed(inflate, "lengths of codes that are too many", err);
        memset(sizes + done, symbol == 16 ? sizes[done - 1] : 0, times);
        done += times;
    }
    return CAIRN_OK;
}

static enum cairn_code make_codes(struct inflate *inflate, struct cairn_error *err) {
    static const uint8_t order[LENGTH_CODES] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t sizes[LITERALS + DISTANCES] = {0}, lengths[LENGTH_CODES] = {0};
    unsigned literals = 0, distances = 0, count = 0, size = 0;
    CAIRN_TRY(take_bits(inflate, 5, &literals, err));
    CAIRN_TRY(take_bits(inflate, 5, &distances, err));
    CAIRN_TRY(take_bits(inflate, 4, &count, err));
    literals += 257, distances += 1, count += 4;
    if (literals > LITERALS - 2 || distances > DISTANCES - 2)
        return fail_packed(inflate, "too many codes", err);
    for (unsigned i = 0; i < count; i++) {
        CAIRN_TRY(take_bits(inflate, 3, &size, err));
        lengths[order[i]] = (uint8_t)size;
    }
    if (!make_table(&inflate->literals, lengths, LENGTH_CODES))
        return fail_packed(inflate, "codes that are none", err);
    CAIRN_TRY(read_sizes(inflate, sizes, literals + distances, err));
    if (make_table(&inflate->distances, sizes + literals, distances) &&
        make_table(&inflate->literals, sizes, literals) && sizes[END_OF_BLOCK])
        return CAIRN_OK;
    return fail_packed(inflate, "codes that are none", err);
}

static enum cairn_code begin_block(struct inflate *inflate, struct cairn_error *err) {
    unsigned last = 0, kind = 0;
    if (inflate->last) return fail_packed(inflate, "they end", err);
    CAIRN_TRY(take_bits(inflate, 1, &last, err));
    CAIRN_TRY(take_bits(inflate, 2, &kind, err));
    inflate->last = last;
    if (kind == 0) {
        unsigned size = 0, inverse = 0, ignored;
        CAIRN_TRY(take_bits(inflate, inflate->bit_count % 8, &ignored, err));
        CAIRN_TRY(take_bits(inflate, 16, &size, err));
        CAIRN_TRY(take_bits(inflate, 16, &inverse, err));
        if (size != (inverse ^ 0xffff)) return fail_packed(inflate, "a block of no length", err);
        inflate->stored_left = size;
        inflate->block = BLOCK_STORED;
        return CAIRN_OK;
    }
    if (kind == 3) return fail_packed(inflate, "a block of no kind", err);
    inflate->block = BLOCK_CODES;
    return kind == 1 ? make_fixed(inflate, err) : make_codes(inflate, err);
}

/* Reads the rest of a match's length, then its distance. */
static enum cairn_code begin_match(struct inflate *inflate, unsigned symbol,
                                   struct cairn_error *err) {
    unsigned more = 0, bits, code = symbol - END_OF_BLOCK - 1;
    if (code > 28) return fail_packed(inflate, "a length that is none", err);
    bits = code < 8 || code == 28 ? 0 : code / 4 - 1;
    CAIRN_TRY(take_bits(inflate, bits, &more, err));
    inflate->length = code < 8 ? code + 3 : code == 28 ? 258 : ((4 + code % 4) << bits) + 3 + more;
    CAIRN_TRY(decode_symbol(inflate, &inflate->distances, &code, err));
    if (code > 29) return fail_packed(inflate, "a distance that is none", err);
    bits = code < 4 ? 0 : code / 2 - 1;
    CAIRN_TRY(take_bits(inflate, bits, &more, err));
    inflate->reach = code < 4 ? code + 1 : ((2 + code % 2) << bits) + 1 + more;
    if (inflate->reach > inflate->made_bytes)
        return fail_packed(inflate, "a distance before the first byte", err);
    return CAIRN_OK;
}

static void put_byte(struct inflate *inflate, uint8_t **into, uint8_t byte) {
    inflate->window[inflate->made_bytes++ % WINDOW_BYTES] = byte;
    *(*into)++ = byte;
}

/* Inflates the block's next bytes, up to `end`. */
static enum cairn_code go_on(struct inflate *inflate, uint8_t **into, const uint8_t *end,
                             struct cairn_error *err) {
    unsigned symbol = 0;
    for (; inflate->length && *into < end; inflate->length--)
        put_byte(inflate, into,
                 inflate->window[(inflate->made_bytes - inflate->reach) % WINDOW_BYTES]);
    if (*into == end) return CAIRN_OK;
    if (inflate->block == BLOCK_NONE) return begin_block(inflate, err);
    if (inflate->block == BLOCK_STORED) {
        for (; inflate->stored_left && *into < end; inflate->stored_left--) {
            CAIRN_TRY(take_bits(inflate, 8, &symbol, err));
            put_byte(inflate, into, (uint8_t)symbol);
        }
        if (!inflate->stored_left) inflate->block = BLOCK_NONE;
        return CAIRN_OK;
    }
    while (*into < end) {
        CAIRN_TRY(decode_symbol(inflate, &inflate->literals, &symbol, err));
        if (symbol > END_OF_BLOCK) return begin_match(inflate, symbol, err);
        if (symbol == END_OF_BLOCK) {
            inflate->block = BLOCK_NONE;
            return CAIRN_OK;
        }
        put_byte(inflate, into, (uint8_t)symbol);
    }
    return CAIRN_OK;
}

/* The next `size` bytes. CAIRN_CORRUPT: there are fewer. */
static enum cairn_code inflate_read(struct inflate *inflate, void *into, size_t size,
                                    struct cairn_error *err) {
    uint8_t *at = into;
    const uint8_t *end = at + size;
    while (at < end) CAIRN_TRY(go_on(inflate, &at, end, err));
    return CAIRN_OK;
}

#define DIRECTORY_BYTES_MAX (256 * CAIRN_MIB)
#define NAME_BYTES_MAX 1024
#define LOCAL_BYTES 30
#define CENTRAL_BYTES 46
#define END_BYTES 22
#define END64_BYTES 56
#define LOCATOR_BYTES 20
#define COMMENT_BYTES_MAX 65535

#define MAGIC_LOCAL 0x04034b50u
#define MAGIC_CENTRAL 0x02014b50u
#define MAGIC_END 0x06054b50u
#define MAGIC_END64 0x06064b50u
#define MAGIC_LOCATOR 0x07064b50u

#define FLAG_ENCRYPTED 0x2041u /* also strong encryption and encrypted directories */
#define EXTRA_ZIP64 0x0001u
#define METHOD_DEFLATE 8
#define DEFLATE_MOST 1032 /* bytes from one packed byte */

static uint16_t load16(const char *at) {
    return (uint16_t)((uint8_t)at[0] | (uint8_t)at[1] << 8);
}

bool cairn_zip_begins(struct cairn_view first) {
    return first.size >= 4 && cairn_load_u32le(first.data) == MAGIC_LOCAL;
}

void cairn_zip_release(struct cairn_zip *zip) {
    cairn_buf_release(&zip->directory);
    free(zip->entries);
    *zip = (struct cairn_zip){0};
}

/* ---- the end of the archive, with its directory's place ---- */

struct end {
    uint64_t entries, directory_bytes, directory_offset;
    uint64_t at; /* end of the directory */
};

/* A comment after the end record may look like one: the right record's ends at the file's end. */
static enum cairn_code find_end(const struct cairn_input *input, struct cairn_buf *tail,
                                size_t *ret_at, struct cairn_error *err) {
    uint64_t most = END_BYTES + COMMENT_BYTES_MAX + LOCATOR_BYTES;
    size_t size = (size_t)(input->size_bytes < most ? input->size_bytes : most);
    if (size < END_BYTES)
        return cairn_fail(err, CAIRN_INVALID, "%zu bytes are no zip archive", size);
    CAIRN_TRY(cairn_buf_reserve(tail, size, err));
    CAIRN_TRY(cairn_input_read(input, input->size_bytes - size, tail->data, size, err));
    tail->size = size;
    for (size_t at = size - END_BYTES + 1; at-- > 0;) {
        if (cairn_load_u32le(tail->data + at) != MAGIC_END) continue;
        if (load16(tail->data + at + 20) != size - at - END_BYTES) continue;
        *ret_at = at;
        return CAIRN_OK;
    }
    return cairn_fail(
        err, CAIRN_INVALID,
        "the directory that ends a zip archive is not there: the file is cut short, or "
        "has further bytes behind it");
}

static enum cairn_code read_end64(const struct cairn_input *input, const char *locator,
                                  struct end *ret, struct cairn_error *err) {
    char record[END64_BYTES];
    uint64_t at = cairn_load_u64le(locator + 8);
    if (cairn_load_u32le(locator + 4) != 0 || cairn_load_u32le(locator + 16) > 1)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a zip archive of several disks");
    CAIRN_TRY(cairn_input_read(input, at, record, sizeof record, err));
    if (cairn_load_u32le(record) != MAGIC_END64)
        return cairn_fail(err, CAIRN_INVALID, "no zip64 record at byte %" PRIu64, at);
    if (cairn_load_u32le(record + 16) != 0 || cairn_load_u32le(record + 20) != 0)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a zip archive of several disks");
    *ret = (struct end){.entries = cairn_load_u64le(record + 32),
                        .directory_bytes = cairn_load_u64le(record + 40),
                        .directory_offset = cairn_load_u64le(record + 48),
                        .at = at};
    return CAIRN_OK;
}

/* Sizes of 64 bits are in an extra field, in this order, and only where needed. */
static enum cairn_code read_zip64(struct cairn_view extra, struct cairn_zip_entry *entry,
                                  uint64_t *packed_bytes, struct cairn_error *err) {
    const char *at = extra.data, *end = at + extra.size;
    while (end - at >= 4) {
        unsigned kind = load16(at), size = load16(at + 2);
        at += 4;
        if (size > (size_t)(end - at)) break;
        if (kind != EXTRA_ZIP64) {
            at += size;
            continue;
        }
        uint64_t *wanted[] = {&entry->size_bytes, packed_bytes, &entry->header_offset};
        for (size_t i = 0; i < CAIRN_COUNT(wanted); i++) {
            if (*wanted[i] != UINT32_MAX) continue;
            if (size < 8) return cairn_fail(err, CAIRN_INVALID, "its zip64 sizes are cut short");
            *wanted[i] = cairn_load_u64le(at);
            at += 8;
            size -= 8;
        }
        return CAIRN_OK;
    }
    return CAIRN_OK;
}

/* One entry at `record`, of `left` bytes of directory; *ret_bytes: its size. */
static enum cairn_code read_entry(const struct cairn_input *input, const char *record, size_t left,
                                  struct cairn_zip_entry *ret, size_t *ret_bytes,
                                  struct cairn_error *err) {
    if (left < CENTRAL_BYTES || cairn_load_u32le(record) != MAGIC_CENTRAL)
        return cairn_fail(err, CAIRN_INVALID, "not an entry of a zip directory");
    size_t name = load16(record + 28), extra = load16(record + 30), note = load16(record + 32);
    *ret_bytes = CENTRAL_BYTES + name + extra + note;
    if (*ret_bytes > left || name > NAME_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "an entry with a name of %zu bytes", name);
    uint64_t packed_bytes = cairn_load_u32le(record + 20);
    *ret = (struct cairn_zip_entry){.name = {record + CENTRAL_BYTES, name},
                                    .crc32 = cairn_load_u32le(record + 16),
                                    .size_bytes = cairn_load_u32le(record + 24),
                                    .header_offset = cairn_load_u32le(record + 42)};
    if (!cairn_utf8_valid(ret->name) || memchr(ret->name.data, 0, name))
        return cairn_fail(err, CAIRN_INVALID, "an entry whose name is not UTF-8 text");
    struct cairn_view fields = {record + CENTRAL_BYTES + name, extra};
    CAIRN_TRY(read_zip64(fields, ret, &packed_bytes, err));
    if (load16(record + 8) & FLAG_ENCRYPTED)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "it is encrypted");
    unsigned method = load16(record + 10);
    ret->deflated = method == METHOD_DEFLATE;
    ret->packed_bytes = packed_bytes;
    if ((method && !ret->deflated) || (!method && packed_bytes != ret->size_bytes))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "it is compressed by method %u, not by deflate",
                          method);
    if (ret->size_bytes / DEFLATE_MOST > packed_bytes + 1)
        return cairn_fail(err, CAIRN_INVALID, "%" PRIu64 " packed bytes never make %" PRIu64,
                          packed_bytes, ret->size_bytes);
    if (ret->header_offset > input->size_bytes ||
        packed_bytes > input->size_bytes - ret->header_offset)
        return cairn_fail(err, CAIRN_INVALID,
                          "%" PRIu64 " bytes from %" PRIu64 " leave the file of %" PRIu64,
                          packed_bytes, ret->header_offset, input->size_bytes);
    return CAIRN_OK;
}

static int by_name(const void *a, const void *b) {
    const struct cairn_view x = ((const struct cairn_zip_entry *)a)->name,
                            y = ((const struct cairn_zip_entry *)b)->name;
    int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return order ? order : (x.size > y.size) - (x.size < y.size);
}

static enum cairn_code read_entries(const struct cairn_input *input, uint64_t wanted,
                                    struct cairn_zip *zip, struct cairn_error *err) {
    const char *at = zip->directory.data, *end = at + zip->directory.size;
    size_t capacity = 0, bytes = 0;
    while (at < end) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(zip->entries, zip->count, capacity,
                                   DIRECTORY_BYTES_MAX / CENTRAL_BYTES, "entries of a zip", err));
        struct cairn_zip_entry *entry = &zip->entries[zip->count];
        *entry = (struct cairn_zip_entry){.name = {"", 0}};
        enum cairn_code code = read_entry(input, at, (size_t)(end - at), entry, &bytes, err);
        if (code)
            return cairn_within(err, code, "zip entry %zu %.*s", zip->count,
                                (int)(entry->name.size < 64 ? entry->name.size : 64),
                                (const char *)entry->name.data);
        at += bytes;
        zip->count++;
    }
    if (zip->count != wanted)
        return cairn_fail(err, CAIRN_INVALID,
                          "a zip directory of %zu entries where %" PRIu64 " are announced",
                          zip->count, wanted);
    if (zip->count) qsort(zip->entries, zip->count, sizeof *zip->entries, by_name);
    for (size_t i = 1; i < zip->count; i++)
        if (by_name(&zip->entries[i - 1], &zip->entries[i]) == 0)
            return cairn_fail(err, CAIRN_INVALID, "the zip has two entries %.*s",
                              (int)zip->entries[i].name.size,
                              (const char *)zip->entries[i].name.data);
    return CAIRN_OK;
}

enum cairn_code cairn_zip_open(const struct cairn_input *input, struct cairn_zip *ret,
                               struct cairn_error *err) {
    struct end end;
    *ret = (struct cairn_zip){.directory.limit = DIRECTORY_BYTES_MAX + 1};
    CAIRN_AUTO(buf) tail = {0};
    size_t at = 0;
    CAIRN_TRY(find_end(input, &tail, &at, err));
    const char *record = tail.data + at;
    end = (struct end){.entries = load16(record + 10),
                       .directory_bytes = cairn_load_u32le(record + 12),
                       .directory_offset = cairn_load_u32le(record + 16),
                       .at = input->size_bytes - tail.size + at};
    if (load16(record + 4) != load16(record + 6) || load16(record + 8) != load16(record + 10))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a zip archive of several disks");
    if (at >= LOCATOR_BYTES && cairn_load_u32le(record - LOCATOR_BYTES) == MAGIC_LOCATOR)
        CAIRN_TRY(read_end64(input, record - LOCATOR_BYTES, &end, err));
    if (end.directory_bytes > DIRECTORY_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a zip directory of %" PRIu64 " bytes",
                          end.directory_bytes);
    if (end.directory_offset > end.at || end.directory_bytes > end.at - end.directory_offset)
        return cairn_fail(err, CAIRN_INVALID,
                          "the zip directory at byte %" PRIu64 " reaches past its own end",
                          end.directory_offset);
    enum cairn_code code = cairn_buf_reserve(&ret->directory, (size_t)end.directory_bytes + 1, err);
    if (code == CAIRN_OK)
        code = cairn_input_read(input, end.directory_offset, ret->directory.data,
                                (size_t)end.directory_bytes, err);
    if (code == CAIRN_OK) {
        ret->directory.size = (size_t)end.directory_bytes;
        code = read_entries(input, end.entries, ret, err);
    }
    if (code != CAIRN_OK) cairn_zip_release(ret);
    return code;
}

const struct cairn_zip_entry *cairn_zip_find(const struct cairn_zip *zip, struct cairn_view name) {
    const struct cairn_zip_entry wanted = {.name = name};
    if (zip->count == 0) return NULL;
    return bsearch(&wanted, zip->entries, zip->count, sizeof *zip->entries, by_name);
}

enum cairn_code cairn_zip_data_at(const struct cairn_input *input,
                                  const struct cairn_zip_entry *entry, uint64_t *ret_offset,
                                  struct cairn_error *err) {
    char header[LOCAL_BYTES];
    enum cairn_code code =
        cairn_input_read(input, entry->header_offset, header, sizeof header, err);
    if (code == CAIRN_OK && cairn_load_u32le(header) != MAGIC_LOCAL)
        code =
            cairn_fail(err, CAIRN_INVALID, "no zip header at byte %" PRIu64, entry->header_offset);
    if (code == CAIRN_OK) {
        *ret_offset =
            entry->header_offset + LOCAL_BYTES + load16(header + 26) + load16(header + 28);
        if (*ret_offset > input->size_bytes ||
            entry->packed_bytes > input->size_bytes - *ret_offset)
            code = cairn_fail(err, CAIRN_INVALID, "its bytes leave the file");
    }
    return cairn_within(err, code, "zip entry %.*s", (int)entry->name.size,
                        (const char *)entry->name.data);
}

static enum cairn_code inflate_all(const struct cairn_input *input,
                                   const struct cairn_zip_entry *entry, uint64_t offset, char *into,
                                   struct cairn_error *err) {
    struct inflate *inflate;
    CAIRN_TRY(inflate_new(input, offset, entry->packed_bytes, &inflate, err));
    enum cairn_code code = inflate_read(inflate, into, (size_t)entry->size_bytes, err);
    inflate_free(inflate);
    return cairn_within(err, code, "zip entry %.*s", (int)entry->name.size,
                        (const char *)entry->name.data);
}

enum cairn_code cairn_zip_load(const struct cairn_input *input, const struct cairn_zip_entry *entry,
                               struct cairn_buf *ret, struct cairn_error *err) {
    uint64_t offset = 0;
    CAIRN_TRY(cairn_zip_data_at(input, entry, &offset, err));
    if (entry->size_bytes >= SIZE_MAX / 2)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a zip entry of %" PRIu64 " bytes",
                          entry->size_bytes);
    CAIRN_TRY(cairn_buf_reserve(ret, (size_t)entry->size_bytes + 1, err));
    if (entry->deflated)
        CAIRN_TRY(inflate_all(input, entry, offset, ret->data, err));
    else
        CAIRN_TRY(cairn_input_read(input, offset, ret->data, (size_t)entry->size_bytes, err));
    ret->size = (size_t)entry->size_bytes;
    if (entry->crc32 && cairn_crc32(ret->data, ret->size) != entry->crc32)
        return cairn_fail(err, CAIRN_CORRUPT, "zip entry %.*s does not match its CRC-32",
                          (int)entry->name.size, (const char *)entry->name.data);
    return CAIRN_OK;
}

/* ---- unpacked: the entry of a byte, and the nearest inflater before it ---- */

#define INFLATERS 4
#define SKIP_BYTES 65536

struct cairn_unpacked {
    struct cairn_input input; /* shown to callers */
    const struct cairn_input *file;
    const struct cairn_zip *zip;
    uint64_t *begins; /* of each entry, and the end */
    struct cairn_lock lock;
    struct inflater {
        struct inflate *inflate;
        size_t entry;
        uint64_t at, used; /* next byte of its entry; time of last use */
    } inflaters[INFLATERS];
    uint64_t uses;
    char skipped[SKIP_BYTES];
};

static enum cairn_code new_inflater(struct cairn_unpacked *unpacked, size_t number,
                                    struct inflater *ret, struct cairn_error *err) {
    const struct cairn_zip_entry *entry = &unpacked->zip->entries[number];
    uint64_t offset = 0;
    inflate_free(ret->inflate);
    *ret = (struct inflater){.entry = number};
    CAIRN_TRY(cairn_zip_data_at(unpacked->file, entry, &offset, err));
    return inflate_new(unpacked->file, offset, entry->packed_bytes, &ret->inflate, err);
}

static enum cairn_code inflate_at(struct cairn_unpacked *unpacked, size_t number, uint64_t at,
                                  char *into, size_t size, struct cairn_error *err) {
    CAIRN_HOLD(&unpacked->lock);
    /* The nearest inflater before this byte reads on; else the least recently used one restarts
     * the entry. */
    struct inflater *oldest = &unpacked->inflaters[0], *nearest = NULL;
    for (size_t i = 0; i < INFLATERS; i++) {
        struct inflater *one = &unpacked->inflaters[i];
        if (one->used < oldest->used) oldest = one;
        if (one->inflate && one->entry == number && one->at <= at &&
            (!nearest || one->at > nearest->at))
            nearest = one;
    }
    struct inflater *inflater = nearest ? nearest : oldest;
    enum cairn_code code = nearest ? CAIRN_OK : new_inflater(unpacked, number, oldest, err);
    while (code == CAIRN_OK && inflater->at < at) {
        size_t some = (size_t)cairn_min_u64(SKIP_BYTES, at - inflater->at);
        code = inflate_read(inflater->inflate, unpacked->skipped, some, err);
        inflater->at += some;
    }
    if (code == CAIRN_OK) code = inflate_read(inflater->inflate, into, size, err);
    inflater->at += size;
    inflater->used = ++unpacked->uses;
    if (code == CAIRN_OK) return CAIRN_OK;
    inflate_free(inflater->inflate);
    *inflater = (struct inflater){0};
    return code;
}

static enum cairn_code read_one(struct cairn_unpacked *unpacked, size_t number, uint64_t at,
                                char *into, size_t size, struct cairn_error *err) {
    const struct cairn_zip_entry *entry = &unpacked->zip->entries[number];
    uint64_t offset = 0;
    enum cairn_code code = entry->deflated ? inflate_at(unpacked, number, at, into, size, err)
                                           : cairn_zip_data_at(unpacked->file, entry, &offset, err);
    if (code == CAIRN_OK && !entry->deflated)
        code = cairn_input_read(unpacked->file, offset + at, into, size, err);
    const char *file = unpacked->file->name;
    return cairn_within(err, code, "%s%szip entry %.*s", file ? cairn_short(file).text : "",
                        file ? ": " : "", (int)cairn_min_u64(entry->name.size, 200),
                        (const char *)entry->name.data);
}

static size_t entry_at(const struct cairn_unpacked *unpacked, uint64_t offset) {
    size_t low = 0, high = unpacked->zip->count;
    while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        if (unpacked->begins[middle] <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static enum cairn_code read_unpacked(void *context, uint64_t offset, void *into, size_t size,
                                     struct cairn_error *err) {
    struct cairn_unpacked *unpacked = context;
    char *to = into;
    for (size_t number = entry_at(unpacked, offset); size; number++) {
        uint64_t at = offset - unpacked->begins[number];
        size_t some = (size_t)cairn_min_u64(size, unpacked->zip->entries[number].size_bytes - at);
        if (some) CAIRN_TRY(read_one(unpacked, number, at, to, some, err));
        offset += some;
        to += some;
        size -= some;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_unpacked_new(const struct cairn_input *input, const struct cairn_zip *zip,
                                   struct cairn_unpacked **ret, struct cairn_error *err) {
    struct cairn_unpacked *made = calloc(1, sizeof *made);
    if (made) made->begins = calloc(zip->count + 1, sizeof *made->begins);
    if (!made || !made->begins) {
        free(made);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to unpack a file");
    }
    made->file = input;
    made->zip = zip;
    bool fits = true;
    for (size_t i = 0; i < zip->count; i++)
        fits &=
            !cairn_add_overflows(made->begins[i], zip->entries[i].size_bytes, &made->begins[i + 1]);
    made->input = (struct cairn_input){.size_bytes = made->begins[zip->count],
                                       .name = input->name,
                                       .context = made,
                                       .read = read_unpacked};
    cairn_lock_init(&made->lock, CAIRN_LOCK_file_unpacked);
    *ret = made;
    if (fits) return CAIRN_OK;
    cairn_unpacked_free(made);
    *ret = NULL;
    return cairn_fail(err, CAIRN_INVALID, "entries of more bytes than can be");
}

void cairn_unpacked_free(struct cairn_unpacked *unpacked) {
    if (!unpacked) return;
    for (size_t i = 0; i < INFLATERS; i++) inflate_free(unpacked->inflaters[i].inflate);
    cairn_lock_release(&unpacked->lock);
    free(unpacked->begins);
    free(unpacked);
}

const struct cairn_input *cairn_unpacked_input(const struct cairn_unpacked *unpacked) {
    return &unpacked->input;
}

uint64_t cairn_unpacked_at(const struct cairn_unpacked *unpacked,
                           const struct cairn_zip_entry *entry) {
    return unpacked->begins[entry - unpacked->zip->entries];
}
