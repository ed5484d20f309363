/* SPDX-License-Identifier: Apache-2.0 */
/* Opening checks every number once, in file order; getters then only load. The bytes are canonical:
 * anything that the builder would not have written is refused. */
#include "api/table/table.h"

#include <stdlib.h>

#include "api/documents/names.h"
#include "api/documents/records.h"
#include "api/table/inside.h"
#include "common/text.h"

/* ---- getters, which cannot fail (table.h#1) ---- */

static uint32_t header(const struct cairn_table *table, unsigned at) {
    return cairn_load_u32le((const uint8_t *)table->bytes.data + at);
}

static struct cairn_view string_at(const struct cairn_table *table, uint32_t index) {
    const uint8_t *ends = table->strings;
    const uint8_t *bytes = ends + (size_t)header(table, TABLE_AT_STRINGS) * 4;
    uint32_t from = index ? cairn_load_u32le(ends + ((size_t)index - 1) * 4) : 0;
    uint32_t to = cairn_load_u32le(ends + (size_t)index * 4);
    return (struct cairn_view){bytes + from, to - from};
}

static void numbers_at(const struct cairn_table *table, uint32_t at, unsigned count,
                       uint64_t *ret) {
    const uint8_t *from = table->pool + (size_t)at * 8;
    for (unsigned i = 0; i < count; i++) ret[i] = cairn_load_u64le(from + i * 8);
}

void cairn_table_shard_at(const struct cairn_table *table, uint32_t index,
                          struct cairn_table_shard *ret) {
    CAIRN_PROMISE(index < table->shard_count, *ret = (struct cairn_table_shard){0}; return );
    const uint8_t *row = table->shards + (size_t)index * SHARD_ROW_BYTES;
    ret->name = string_at(table, cairn_load_u32le(row + SHARD_AT_NAME));
    ret->size_bytes = cairn_load_u64le(row + SHARD_AT_SIZE);
    ret->tensors = cairn_load_u32le(row + SHARD_AT_KIND) == SHARD_KIND_TENSORS;
}

void cairn_table_tensor_at(const struct cairn_table *table, uint32_t index,
                           struct cairn_tensor *ret) {
    CAIRN_PROMISE(index < table->tensor_count, *ret = (struct cairn_tensor){0}; return );
    const uint8_t *row = table->tensors + (size_t)index * TENSOR_ROW_BYTES;
    *ret = (struct cairn_tensor){
        .name = string_at(table, cairn_load_u32le(row + TENSOR_AT_NAME)),
        .dtype = row[TENSOR_AT_DTYPE],
        .dimension_count = row[TENSOR_AT_DIMENSIONS],
        .kind = (enum cairn_tensor_kind)row[TENSOR_AT_KIND],
        .fragment_first = cairn_load_u32le(row + TENSOR_AT_FIRST),
        .fragment_count = cairn_load_u32le(row + TENSOR_AT_COUNT),
    };
    uint32_t alias = cairn_load_u32le(row + TENSOR_AT_ALIAS);
    if (alias != TABLE_NONE) ret->alias_of = string_at(table, alias);
    numbers_at(table, cairn_load_u32le(row + TENSOR_AT_SHAPE), ret->dimension_count, ret->shape);
}

void cairn_table_fragment_at(const struct cairn_table *table, uint32_t index,
                             struct cairn_fragment *ret) {
    CAIRN_PROMISE(index < table->fragment_count, *ret = (struct cairn_fragment){0}; return );
    const uint8_t *row = table->fragments + (size_t)index * FRAGMENT_ROW_BYTES;
    *ret = (struct cairn_fragment){
        .form = (enum cairn_fragment_form)cairn_load_u32le(row + FRAGMENT_AT_FORM),
        .shard = cairn_load_u32le(row + FRAGMENT_AT_SHARD),
        .offset_bytes = cairn_load_u64le(row + FRAGMENT_AT_OFFSET),
        .size_bytes = cairn_load_u64le(row + FRAGMENT_AT_SIZE),
    };
    unsigned n = 1;
    if (ret->form == CAIRN_FRAGMENT_BOX) {
        uint32_t tensor = cairn_load_u32le(row + FRAGMENT_AT_TENSOR);
        n = table->tensors[(size_t)tensor * TENSOR_ROW_BYTES + TENSOR_AT_DIMENSIONS];
    }
    uint32_t at = cairn_load_u32le(row + FRAGMENT_AT_POOL);
    numbers_at(table, at, n, ret->start);
    numbers_at(table, at + n, n, ret->count);
}

bool cairn_table_find(const struct cairn_table *table, struct cairn_view name,
                      uint32_t *ret_tensor) {
    uint32_t low = 0, high = table->tensor_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const uint8_t *row = table->tensors + (size_t)middle * TENSOR_ROW_BYTES;
        struct cairn_view found = string_at(table, cairn_load_u32le(row + TENSOR_AT_NAME));
        int order = cairn_view_compare(found, name);
        if (order == 0) {
            *ret_tensor = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* ---- opening ---- */

#define BAD(err, ...) cairn_fail((err), CAIRN_TABLE_INVALID, __VA_ARGS__)

/* Makes a lower check's error a CAIRN_TABLE_INVALID; open_newer has refused newer content. */
#define BAD_WITHIN(err, ...)                                                                       \
    ((err) ? (void)((err)->code = CAIRN_TABLE_INVALID) : (void)0,                                  \
     cairn_within((err), CAIRN_TABLE_INVALID, __VA_ARGS__))

struct opener {
    const struct cairn_table *table;
    uint32_t string_count, pool_count, pool_at;
    uint8_t *string_used; /* [string] */
    uint8_t *shard_used;  /* [shard] */
};

static enum cairn_code open_header(struct cairn_view bytes, struct cairn_table *table,
                                   struct cairn_error *err) {
    const uint8_t *base = bytes.data;
    if (bytes.size < TABLE_HEADER_BYTES || memcmp(base, TABLE_MAGIC, 6) != 0)
        return BAD(err, "not a rank table");
    if (memcmp(base, TABLE_MAGIC, 8) != 0) {
        if (base[7] <= TABLE_MAGIC[7] || base[7] >= 0x7f) return BAD(err, "not a rank table");
        return cairn_newer(err, "one that knows rank tables of version %c (this one: %c)", base[7],
                           TABLE_MAGIC[7]);
    }
    if (bytes.size > CAIRN_TABLE_BYTES_MAX) return BAD(err, "larger than 64 MiB");
    *table = (struct cairn_table){.bytes = bytes};
    table->rank = header(table, TABLE_AT_RANK);
    table->shard_count = header(table, TABLE_AT_SHARDS);
    table->tensor_count = header(table, TABLE_AT_TENSORS);
    table->fragment_count = header(table, TABLE_AT_FRAGMENTS);
    /* 32-bit counts times small numbers: no overflow in 64 bits. */
    uint64_t tensors_at = TABLE_HEADER_BYTES + (uint64_t)table->shard_count * SHARD_ROW_BYTES;
    uint64_t fragments_at = tensors_at + (uint64_t)table->tensor_count * TENSOR_ROW_BYTES;
    uint64_t pool_at = fragments_at + (uint64_t)table->fragment_count * FRAGMENT_ROW_BYTES;
    uint64_t strings_at = pool_at + (uint64_t)header(table, TABLE_AT_POOL) * 8;
    uint64_t end = strings_at + (uint64_t)header(table, TABLE_AT_STRINGS) * 4 +
                   header(table, TABLE_AT_STRING_BYTES);
    if (end != bytes.size)
        return BAD(err, "its sections take %llu bytes, it has %zu", (unsigned long long)end,
                   bytes.size);
    table->shards = base + TABLE_HEADER_BYTES;
    table->tensors = base + tensors_at;
    table->fragments = base + fragments_at;
    table->pool = base + pool_at;
    table->strings = base + strings_at;
    if (table->fragment_count > TABLE_FRAGMENTS_MAX)
        return BAD(err, "more than %u fragments", TABLE_FRAGMENTS_MAX);
    return CAIRN_OK;
}

/* Looks for content that newer releases may add without a new table version (docs/format.md):
 * kinds, element types, dimensions, forms, and flags that are 0 today. Runs first, because such a
 * row may break a rule of known rows. */
static enum cairn_code open_newer(const struct cairn_table *table, struct cairn_error *err) {
    uint32_t flags = header(table, TABLE_AT_ZERO);
    if (flags) return cairn_newer(err, "one that knows flags %#x of a rank table", flags);
    for (uint32_t i = 0; i < table->shard_count; i++) {
        const uint8_t *row = table->shards + (size_t)i * SHARD_ROW_BYTES;
        uint32_t kind = cairn_load_u32le(row + SHARD_AT_KIND);
        if (kind > SHARD_KIND_RAW)
            return cairn_newer(err, "one that knows kind %u of shards (shard %u)", kind, i);
    }
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        const uint8_t *row = table->tensors + (size_t)i * TENSOR_ROW_BYTES;
        unsigned dtype = row[TENSOR_AT_DTYPE], dimensions = row[TENSOR_AT_DIMENSIONS];
        if (row[TENSOR_AT_ZERO])
            return cairn_newer(err, "one that knows flags %#x of tensors (tensor %u)",
                               row[TENSOR_AT_ZERO], i);
        if (row[TENSOR_AT_KIND] > CAIRN_TENSOR_LOCAL)
            return cairn_newer(err, "one that knows kind %u of tensors (tensor %u)",
                               row[TENSOR_AT_KIND], i);
        if (dtype != CAIRN_DTYPE_NONE && !cairn_dtype_text((uint8_t)dtype))
            return cairn_newer(err, "one that knows element type %u (tensor %u)", dtype, i);
        if (dimensions > CAIRN_DIMENSIONS_MAX)
            return cairn_newer(err, "one that knows %u dimensions (tensor %u; this one: %d)",
                               dimensions, i, CAIRN_DIMENSIONS_MAX);
    }
    for (uint32_t i = 0; i < table->fragment_count; i++) {
        const uint8_t *row = table->fragments + (size_t)i * FRAGMENT_ROW_BYTES;
        uint32_t form = cairn_load_u32le(row + FRAGMENT_AT_FORM);
        if (form > CAIRN_FRAGMENT_BOX)
            return cairn_newer(err, "one that knows form %u of fragments (fragment %u)", form, i);
    }
    return CAIRN_OK;
}

static enum cairn_code open_strings(const struct opener *opener, struct cairn_error *err) {
    const struct cairn_table *table = opener->table;
    uint32_t size = header(table, TABLE_AT_STRING_BYTES), end = 0;
    for (uint32_t i = 0; i < opener->string_count; i++) {
        uint32_t next = cairn_load_u32le(table->strings + (size_t)i * 4);
        if (next <= end || next > size || next - end > CAIRN_TENSOR_NAME_BYTES_MAX)
            return BAD(err, "string %u is empty, too long or outside", i);
        end = next;
    }
    if (end != size) return BAD(err, "its strings take %u bytes, %u are there", end, size);
    for (uint32_t i = 0; i < opener->string_count; i++) {
        struct cairn_view text = string_at(table, i);
        if (!cairn_utf8_valid(text) || memchr(text.data, 0, text.size))
            return BAD(err, "string %u is not UTF-8 text", i);
        if (i > 0 && cairn_view_compare(string_at(table, i - 1), text) >= 0)
            return BAD(err, "strings %u and %u are not in order", i - 1, i);
    }
    return CAIRN_OK;
}

static enum cairn_code open_shards(const struct opener *opener, struct cairn_error *err) {
    const struct cairn_table *table = opener->table;
    uint32_t last = 0;
    for (uint32_t i = 0; i < table->shard_count; i++) {
        const uint8_t *row = table->shards + (size_t)i * SHARD_ROW_BYTES;
        uint32_t name = cairn_load_u32le(row + SHARD_AT_NAME);
        uint32_t kind = cairn_load_u32le(row + SHARD_AT_KIND);
        if (name >= opener->string_count || (i > 0 && name <= last))
            return BAD(err, "shard %u: name outside the strings or not in order", i);
        last = name;
        opener->string_used[name] = 1;
        if (cairn_shard_name_check(string_at(table, name), err) != CAIRN_OK)
            return BAD_WITHIN(err, "shard %u", i);
        if (kind != SHARD_KIND_TENSORS && kind != SHARD_KIND_RAW)
            return BAD(err, "shard %u: unknown kind %u", i, kind);
        if (cairn_load_u64le(row + SHARD_AT_SIZE) > TABLE_SIZE_MAX)
            return BAD(err, "shard %u: too large", i);
    }
    return CAIRN_OK;
}

static bool take_string(const struct opener *opener, uint32_t index) {
    if (index >= opener->string_count) return false;
    opener->string_used[index] = 1;
    return true;
}

/* Rows must use the pool in order and without gaps, so it needs no index. */
static bool take_numbers(struct opener *opener, uint32_t at, unsigned count) {
    if (at != opener->pool_at || count > opener->pool_count - opener->pool_at) return false;
    opener->pool_at += count;
    return true;
}

static enum cairn_code open_tensor(struct opener *opener, uint32_t index, uint32_t *fragment_next,
                                   struct cairn_error *err) {
    const struct cairn_table *table = opener->table;
    const uint8_t *row = table->tensors + (size_t)index * TENSOR_ROW_BYTES;
    uint32_t name = cairn_load_u32le(row + TENSOR_AT_NAME);
    uint32_t alias = cairn_load_u32le(row + TENSOR_AT_ALIAS);
    uint32_t count = cairn_load_u32le(row + TENSOR_AT_COUNT);
    if (!take_string(opener, name)) return BAD(err, "name outside the strings");
    if (alias != TABLE_NONE && !take_string(opener, alias))
        return BAD(err, "alias outside the strings");
    if (index > 0 && name <= cairn_load_u32le(row - TENSOR_ROW_BYTES + TENSOR_AT_NAME))
        return BAD(err, "not in order of names");
    if (alias == name) return BAD(err, "an alias of itself");
    if (row[TENSOR_AT_ZERO] != 0 || row[TENSOR_AT_DIMENSIONS] > CAIRN_DIMENSIONS_MAX)
        return BAD(err, "more than %d dimensions", CAIRN_DIMENSIONS_MAX);
    if (!take_numbers(opener, cairn_load_u32le(row + TENSOR_AT_SHAPE), row[TENSOR_AT_DIMENSIONS]))
        return BAD(err, "shape outside its place in the pool");
    if (cairn_load_u32le(row + TENSOR_AT_FIRST) != *fragment_next ||
        count > table->fragment_count - *fragment_next) {
        return BAD(err, "fragments outside their place");
    }
    *fragment_next += count;
    struct cairn_tensor tensor;
    cairn_table_tensor_at(table, index, &tensor);
    CAIRN_TRY(cairn_tensor_check(&tensor, err));
    if (tensor.kind == CAIRN_TENSOR_ALIAS && count) return BAD(err, "an alias with fragments");
    return CAIRN_OK;
}

static enum cairn_code open_fragment(struct opener *opener, const struct cairn_tensor *tensor,
                                     uint32_t tensor_index, uint32_t index,
                                     struct cairn_error *err) {
    const struct cairn_table *table = opener->table;
    const uint8_t *row = table->fragments + (size_t)index * FRAGMENT_ROW_BYTES;
    uint32_t shard = cairn_load_u32le(row + FRAGMENT_AT_SHARD);
    uint32_t form = cairn_load_u32le(row + FRAGMENT_AT_FORM);
    uint64_t offset = cairn_load_u64le(row + FRAGMENT_AT_OFFSET), bytes, end;
    if (cairn_load_u32le(row + FRAGMENT_AT_TENSOR) != tensor_index || shard >= table->shard_count)
        return BAD(err, "of another tensor or outside the shards");
    if (form != CAIRN_FRAGMENT_FLAT && form != CAIRN_FRAGMENT_BOX)
        return BAD(err, "unknown form %u", form);
    unsigned n = form == CAIRN_FRAGMENT_FLAT ? 1 : tensor->dimension_count;
    if (!take_numbers(opener, cairn_load_u32le(row + FRAGMENT_AT_POOL), n * 2))
        return BAD(err, "numbers outside their place in the pool");
    struct cairn_fragment fragment;
    cairn_table_fragment_at(table, index, &fragment);
    CAIRN_TRY(cairn_fragment_check(tensor, &fragment, &bytes, err));
    if (bytes == 0 || bytes != fragment.size_bytes)
        return BAD(err, "empty, or of another size than its elements");
    const uint8_t *shard_row = table->shards + (size_t)shard * SHARD_ROW_BYTES;
    if (cairn_add_overflows(offset, bytes, &end) ||
        end > cairn_load_u64le(shard_row + SHARD_AT_SIZE)) {
        return BAD(err, "bytes outside its shard");
    }
    opener->shard_used[shard] = 1;
    if (index == tensor->fragment_first) return CAIRN_OK;
    const uint8_t *before = row - FRAGMENT_ROW_BYTES;
    uint32_t shard_before = cairn_load_u32le(before + FRAGMENT_AT_SHARD);
    uint64_t offset_before = cairn_load_u64le(before + FRAGMENT_AT_OFFSET);
    if (shard_before > shard || (shard_before == shard && offset_before >= offset))
        return BAD(err, "not in order of shard and offset");
    return CAIRN_OK;
}

/* Two passes, since all shapes precede the fragments' numbers in the pool. */
static enum cairn_code open_rows(struct opener *opener, struct cairn_error *err) {
    const struct cairn_table *table = opener->table;
    uint32_t next = 0;
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        if (open_tensor(opener, i, &next, err) != CAIRN_OK) return BAD_WITHIN(err, "tensor %u", i);
    }
    if (next != table->fragment_count) return BAD(err, "fragments of no tensor");
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        struct cairn_tensor tensor;
        cairn_table_tensor_at(table, i, &tensor);
        for (uint32_t k = 0; k < tensor.fragment_count; k++) {
            uint32_t index = tensor.fragment_first + k;
            if (open_fragment(opener, &tensor, i, index, err) != CAIRN_OK)
                return BAD_WITHIN(err, "tensor %u: fragment %u", i, index);
        }
    }
    if (opener->pool_at != opener->pool_count) return BAD(err, "numbers that no row uses");
    return CAIRN_OK;
}

static enum cairn_code open_unused(const struct opener *opener, struct cairn_error *err) {
    const struct cairn_table *table = opener->table;
    if (opener->string_count && memchr(opener->string_used, 0, opener->string_count))
        return BAD(err, "a string that no row uses");
    for (uint32_t i = 0; i < table->shard_count; i++) {
        const uint8_t *row = table->shards + (size_t)i * SHARD_ROW_BYTES;
        if (cairn_load_u32le(row + SHARD_AT_KIND) == SHARD_KIND_RAW && !opener->shard_used[i])
            return BAD(err, "shard %u: raw, and no fragment lies in it", i);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_table_open(struct cairn_view bytes, struct cairn_table *ret,
                                 struct cairn_error *err) {
    struct cairn_table table;
    CAIRN_TRY(open_header(bytes, &table, err));
    CAIRN_TRY(open_newer(&table, err));
    struct opener opener = {
        .table = &table,
        .string_count = header(&table, TABLE_AT_STRINGS),
        .pool_count = header(&table, TABLE_AT_POOL),
    };
    /* The counts are bounded by the size of the bytes, so these are at most 16 MiB. */
    CAIRN_AUTO_HEAP uint8_t *string_used = calloc((size_t)opener.string_count + 1, 1);
    CAIRN_AUTO_HEAP uint8_t *shard_used = calloc((size_t)table.shard_count + 1, 1);
    if (!string_used || !shard_used)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to check a rank table");
    opener.string_used = string_used;
    opener.shard_used = shard_used;
    CAIRN_TRY(open_strings(&opener, err));
    CAIRN_TRY(open_shards(&opener, err));
    CAIRN_TRY(open_rows(&opener, err));
    CAIRN_TRY(open_unused(&opener, err));
    *ret = table;
    return CAIRN_OK;
}

/* ---- checks of one tensor and one fragment ---- */

enum cairn_code cairn_tensor_check(const struct cairn_tensor *tensor, struct cairn_error *err) {
    if (tensor->dimension_count > CAIRN_DIMENSIONS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%u dimensions, at most %d", tensor->dimension_count,
                          CAIRN_DIMENSIONS_MAX);
    if (tensor->kind < CAIRN_TENSOR_SHARDED || tensor->kind > CAIRN_TENSOR_LOCAL)
        return cairn_fail(err, CAIRN_INVALID, "unknown kind %u", (unsigned)tensor->kind);
    bool alias = tensor->kind == CAIRN_TENSOR_ALIAS;
    if (alias != (tensor->alias_of.data != NULL))
        return cairn_fail(err, CAIRN_INVALID, "an alias, and nothing else, names its target");
    /* An alias may omit type and shape. */
    if (alias && tensor->dtype == CAIRN_DTYPE_NONE && tensor->dimension_count == 0) return CAIRN_OK;
    uint64_t elements, bytes;
    if (!cairn_dtype_text(tensor->dtype))
        return cairn_fail(err, CAIRN_INVALID, "unknown element type %u", tensor->dtype);
    if (!cairn_tensor_size(tensor->dtype, tensor->dimension_count, tensor->shape, &elements,
                           &bytes)) {
        return cairn_fail(err, CAIRN_INVALID, "its shape is too large or does not fill bytes");
    }
    if (tensor->dtype == CAIRN_DTYPE_ITEM && tensor->dimension_count != 1)
        return cairn_fail(err, CAIRN_INVALID, "an item of %u dimensions, it has one",
                          tensor->dimension_count);
    return CAIRN_OK;
}

static bool inside(uint64_t start, uint64_t count, uint64_t size) {
    return start <= size && count <= size - start;
}

static bool box_inside(const struct cairn_tensor *tensor, const struct cairn_fragment *fragment,
                       uint64_t *ret_elements) {
    uint64_t elements = 1;
    for (unsigned d = 0; d < tensor->dimension_count; d++) {
        if (!inside(fragment->start[d], fragment->count[d], tensor->shape[d])) return false;
        if (cairn_mul_overflows(elements, fragment->count[d], &elements)) return false;
    }
    *ret_elements = elements;
    return true;
}

enum cairn_code cairn_fragment_check(const struct cairn_tensor *tensor,
                                     const struct cairn_fragment *fragment, uint64_t *ret_bytes,
                                     struct cairn_error *err) {
    uint64_t all, bytes, elements;
    if (!cairn_tensor_size(tensor->dtype, tensor->dimension_count, tensor->shape, &all, &bytes))
        return cairn_fail(err, CAIRN_INVALID, "its tensor has no size");
    if (fragment->form == CAIRN_FRAGMENT_FLAT) {
        elements = fragment->count[0];
        if (!inside(fragment->start[0], elements, all))
            return cairn_fail(err, CAIRN_INVALID, "flat range %llu+%llu outside %llu elements",
                              (unsigned long long)fragment->start[0], (unsigned long long)elements,
                              (unsigned long long)all);
    } else if (fragment->form == CAIRN_FRAGMENT_BOX) {
        if (tensor->dimension_count == 0)
            return cairn_fail(err, CAIRN_INVALID, "a box in a tensor without dimensions");
        if (!box_inside(tensor, fragment, &elements))
            return cairn_fail(err, CAIRN_INVALID, "box outside its tensor");
    } else {
        return cairn_fail(err, CAIRN_INVALID, "unknown form %u", (unsigned)fragment->form);
    }
    /* No overflow: elements <= all, whose bits did not overflow. */
    uint64_t bits = elements * cairn_dtype_bits(tensor->dtype);
    if (bits % 8 != 0) return cairn_fail(err, CAIRN_INVALID, "its elements do not fill bytes");
    *ret_bytes = bits / 8;
    return CAIRN_OK;
}
