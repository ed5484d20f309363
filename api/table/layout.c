/* SPDX-License-Identifier: Apache-2.0 */
/* layout: all rank tables, behind an index of names.
 * Building hashes each distinct name once per table that lists it, sorts only the distinct names
 * and places references by counting. */
#include "api/table/layout.h"

#include <stdlib.h>

#include "api/documents/names.h"
#include "api/documents/records.h"
#include "api/table/inside.h"

#define BAD(err, ...) cairn_fail((err), CAIRN_TABLE_INVALID, __VA_ARGS__)

/* ---- building ---- */

struct merge {
    const struct cairn_table *tables;
    size_t count;
    struct cairn_names names;
    uint32_t *ref_names;    /* per (table, tensor) in table order: number of the name */
    uint32_t *order, *rank; /* of names */
    uint32_t *next;         /* per place of a name: index of its next reference */
    uint64_t ref_count;
};

static void merge_release(struct merge *merge) {
    cairn_names_release(&merge->names);
    free(merge->ref_names);
    free(merge->order);
    free(merge->rank);
    free(merge->next);
}

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a layout");
}

static enum cairn_code merge_names(struct merge *merge, struct cairn_error *err) {
    for (size_t i = 0; i < merge->count; i++) merge->ref_count += merge->tables[i].tensor_count;
    if (merge->ref_count > CAIRN_LAYOUT_BYTES_MAX / LAYOUT_REF_ROW_BYTES)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a layout of more than 1 GiB");
    merge->ref_names = calloc(merge->ref_count + 1, sizeof *merge->ref_names);
    if (!merge->ref_names) return no_memory(err);
    uint32_t *to = merge->ref_names;
    for (size_t i = 0; i < merge->count; i++) {
        for (uint32_t k = 0; k < merge->tables[i].tensor_count; k++) {
            struct cairn_tensor tensor;
            cairn_table_tensor_at(&merge->tables[i], k, &tensor);
            CAIRN_TRY(cairn_names_add(&merge->names, tensor.name, to++, err));
        }
    }
    merge->order = calloc((size_t)merge->names.count + 1, sizeof *merge->order);
    merge->rank = calloc((size_t)merge->names.count + 1, sizeof *merge->rank);
    merge->next = calloc((size_t)merge->names.count + 2, sizeof *merge->next);
    if (!merge->order || !merge->rank || !merge->next) return no_memory(err);
    cairn_names_order(&merge->names, merge->order, merge->rank);
    for (uint64_t i = 0; i < merge->ref_count; i++)
        merge->next[merge->rank[merge->ref_names[i]] + 1]++;
    for (uint32_t i = 0; i < merge->names.count; i++) merge->next[i + 1] += merge->next[i];
    return CAIRN_OK;
}

static uint64_t index_bytes(uint64_t tables, uint64_t names, uint64_t refs) {
    return LAYOUT_HEADER_BYTES + tables * LAYOUT_TABLE_ROW_BYTES + names * LAYOUT_NAME_ROW_BYTES +
           refs * LAYOUT_REF_ROW_BYTES;
}

static void write_index(struct merge *merge, uint8_t *base) {
    uint8_t *names = base + LAYOUT_HEADER_BYTES + merge->count * LAYOUT_TABLE_ROW_BYTES;
    uint8_t *refs = names + (size_t)merge->names.count * LAYOUT_NAME_ROW_BYTES;
    for (uint32_t i = 0; i < merge->names.count; i++, names += LAYOUT_NAME_ROW_BYTES) {
        cairn_store_u32le(names, merge->next[i]);
        cairn_store_u32le(names + 4, merge->next[i + 1] - merge->next[i]);
    }
    const uint32_t *name = merge->ref_names;
    for (uint32_t i = 0; i < merge->count; i++) {
        for (uint32_t k = 0; k < merge->tables[i].tensor_count; k++) {
            uint32_t place = merge->next[merge->rank[*name++]]++;
            cairn_store_u32le(refs + (size_t)place * LAYOUT_REF_ROW_BYTES, i);
            cairn_store_u32le(refs + (size_t)place * LAYOUT_REF_ROW_BYTES + 4, k);
        }
    }
}

static void write_tables(const struct merge *merge, uint8_t *base, uint64_t at) {
    uint8_t *row = base + LAYOUT_HEADER_BYTES;
    for (size_t i = 0; i < merge->count; i++, row += LAYOUT_TABLE_ROW_BYTES) {
        struct cairn_view bytes = merge->tables[i].bytes;
        cairn_store_u64le(row, at);
        cairn_store_u64le(row + 8, bytes.size);
        memcpy(base + at, bytes.data, bytes.size);
        uint64_t end = cairn_round_up(at + bytes.size, 8);
        memset(base + at + bytes.size, 0, (size_t)(end - at - bytes.size));
        at = end;
    }
}

static enum cairn_code write_layout(struct merge *merge, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    uint64_t tables_at = index_bytes(merge->count, merge->names.count, merge->ref_count);
    uint64_t size = tables_at;
    for (size_t i = 0; i < merge->count; i++) {
        size += cairn_round_up(merge->tables[i].bytes.size, 8); /* 2^20 times 2^26: no overflow */
    }
    if (size > CAIRN_LAYOUT_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a layout of %llu bytes, at most 1 GiB",
                          (unsigned long long)size);
    if (ret->limit == 0) ret->limit = CAIRN_LAYOUT_BYTES_MAX;
    CAIRN_TRY(cairn_buf_reserve(ret, size, err));
    uint8_t *base = (uint8_t *)ret->data + ret->size;
    memcpy(base, LAYOUT_MAGIC, 8);
    cairn_store_u32le(base + LAYOUT_AT_TABLES, (uint32_t)merge->count);
    cairn_store_u32le(base + LAYOUT_AT_NAMES, merge->names.count);
    cairn_store_u32le(base + LAYOUT_AT_REFS, (uint32_t)merge->ref_count);
    cairn_store_u32le(base + LAYOUT_AT_ZERO, 0);
    write_index(merge, base);
    write_tables(merge, base, tables_at);
    ret->size += size;
    ret->data[ret->size] = '\0';
    return CAIRN_OK;
}

enum cairn_code cairn_layout_build(const struct cairn_table *tables, size_t count,
                                   struct cairn_buf *ret, struct cairn_error *err) {
    if (count > LAYOUT_TABLES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a layout of %zu tables", count);
    for (size_t i = 1; i < count; i++) {
        if (tables[i - 1].rank >= tables[i].rank)
            return cairn_fail(err, CAIRN_INVALID, "rank %u comes twice or after rank %u",
                              tables[i].rank, tables[i - 1].rank);
    }
    struct merge merge = {.tables = tables, .count = count};
    enum cairn_code code = merge_names(&merge, err);
    if (code == CAIRN_OK) code = write_layout(&merge, ret, err);
    merge_release(&merge);
    return code;
}

/* ---- reading ---- */

void cairn_layout_release(struct cairn_layout *layout) {
    free(layout->tables);
    *layout = (struct cairn_layout){0};
}

static uint32_t header(const struct cairn_layout *layout, unsigned at) {
    return cairn_load_u32le((const uint8_t *)layout->bytes.data + at);
}

static void ref_at(const struct cairn_layout *layout, uint32_t ref, uint32_t *ret_table,
                   uint32_t *ret_tensor) {
    CAIRN_PROMISE(ref < header(layout, LAYOUT_AT_REFS), *ret_table = *ret_tensor = 0; return );
    const uint8_t *row = layout->refs + (size_t)ref * LAYOUT_REF_ROW_BYTES;
    *ret_table = cairn_load_u32le(row);
    *ret_tensor = cairn_load_u32le(row + 4);
}

const struct cairn_table *cairn_layout_tensor_at(const struct cairn_layout *layout, uint32_t ref,
                                                 struct cairn_tensor *ret) {
    uint32_t table, index;
    ref_at(layout, ref, &table, &index);
    cairn_table_tensor_at(&layout->tables[table], index, ret);
    return &layout->tables[table];
}

static struct cairn_view ref_name(const struct cairn_layout *layout, uint32_t ref) {
    struct cairn_tensor tensor;
    (void)cairn_layout_tensor_at(layout, ref, &tensor);
    return tensor.name;
}

void cairn_layout_name_at(const struct cairn_layout *layout, uint32_t index,
                          struct cairn_view *ret_name, uint32_t *ret_ref_first,
                          uint32_t *ret_ref_count) {
    CAIRN_PROMISE(index < layout->name_count, *ret_name = (struct cairn_view){0};
                  *ret_ref_first = *ret_ref_count = 0; return );
    const uint8_t *row = layout->names + (size_t)index * LAYOUT_NAME_ROW_BYTES;
    *ret_ref_first = cairn_load_u32le(row);
    *ret_ref_count = cairn_load_u32le(row + 4);
    *ret_name = ref_name(layout, *ret_ref_first);
}

bool cairn_layout_find(const struct cairn_layout *layout, struct cairn_view name,
                       uint32_t *ret_index) {
    uint32_t low = 0, high = layout->name_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const uint8_t *row = layout->names + (size_t)middle * LAYOUT_NAME_ROW_BYTES;
        int order = cairn_view_compare(ref_name(layout, cairn_load_u32le(row)), name);
        if (order == 0) {
            *ret_index = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static const struct cairn_table *table_of(const struct cairn_layout *layout, uint32_t rank) {
    uint32_t low = 0, high = layout->table_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (layout->tables[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < layout->table_count && layout->tables[low].rank == rank ? &layout->tables[low]
                                                                         : NULL;
}

static bool find_shard(const struct cairn_layout *layout, uint32_t rank, struct cairn_view shard,
                       struct cairn_table_shard *ret) {
    const struct cairn_table *table = table_of(layout, rank);
    uint32_t low = 0, high = table ? table->shard_count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        cairn_table_shard_at(table, middle, ret);
        int order = cairn_view_compare(ret->name, shard);
        if (order == 0) return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

bool cairn_layout_describes(const struct cairn_layout *layout, uint32_t rank,
                            struct cairn_view shard) {
    struct cairn_table_shard row;
    return find_shard(layout, rank, shard, &row);
}

bool cairn_layout_keeps_file(const struct cairn_layout *layout, uint32_t rank,
                             struct cairn_view shard) {
    struct cairn_table_shard row;
    return find_shard(layout, rank, shard, &row) && !row.tensors;
}

/* ---- the directory alone ---- */

char cairn_layout_version(struct cairn_view bytes) {
    bool ours = bytes.size >= LAYOUT_HEADER_BYTES && !memcmp(bytes.data, LAYOUT_MAGIC, 7);
    return ours ? ((const char *)bytes.data)[7] : '\0';
}

bool cairn_layout_directory_at(struct cairn_view bytes, uint32_t index, uint32_t *ret_rank,
                               struct cairn_view *ret_table) {
    const uint8_t *base = bytes.data;
    uint64_t row = LAYOUT_HEADER_BYTES + (uint64_t)index * LAYOUT_TABLE_ROW_BYTES;
    if (bytes.size < LAYOUT_HEADER_BYTES || row + LAYOUT_TABLE_ROW_BYTES > bytes.size) return false;
    if (index >= cairn_load_u32le(base + LAYOUT_AT_TABLES)) return false;
    uint64_t at = cairn_load_u64le(base + row), size = cairn_load_u64le(base + row + 8);
    if (at > bytes.size || size > bytes.size - at || size < TABLE_HEADER_BYTES) return false;
    *ret_table = (struct cairn_view){base + at, (size_t)size};
    *ret_rank = cairn_load_u32le(base + at + TABLE_AT_RANK);
    return true;
}

/* ---- opening ---- */

static enum cairn_code open_header(struct cairn_view bytes, struct cairn_layout *layout,
                                   uint64_t *ret_tables_at, struct cairn_error *err) {
    const uint8_t *base = bytes.data;
    if (bytes.size < LAYOUT_HEADER_BYTES || memcmp(base, LAYOUT_MAGIC, 6) != 0)
        return BAD(err, "not a layout");
    if (memcmp(base, LAYOUT_MAGIC, 8) != 0) {
        if (base[7] <= LAYOUT_MAGIC[7] || base[7] >= 0x7f) return BAD(err, "not a layout");
        return cairn_newer(err, "one that knows layouts of version %c (this one: %c)", base[7],
                           LAYOUT_MAGIC[7]);
    }
    if (bytes.size > CAIRN_LAYOUT_BYTES_MAX) return BAD(err, "larger than 1 GiB");
    *layout = (struct cairn_layout){.bytes = bytes};
    layout->table_count = header(layout, LAYOUT_AT_TABLES);
    layout->name_count = header(layout, LAYOUT_AT_NAMES);
    uint32_t refs = header(layout, LAYOUT_AT_REFS);
    *ret_tables_at = index_bytes(layout->table_count, layout->name_count, refs);
    if (*ret_tables_at > bytes.size) return BAD(err, "its index is cut");
    if (header(layout, LAYOUT_AT_ZERO))
        return cairn_newer(err, "one that knows flags %#x of a layout",
                           header(layout, LAYOUT_AT_ZERO));
    if (layout->table_count > LAYOUT_TABLES_MAX) return BAD(err, "too many tables");
    layout->names =
        base + LAYOUT_HEADER_BYTES + (size_t)layout->table_count * LAYOUT_TABLE_ROW_BYTES;
    layout->refs = layout->names + (size_t)layout->name_count * LAYOUT_NAME_ROW_BYTES;
    return CAIRN_OK;
}

static enum cairn_code open_table(const struct cairn_layout *layout, uint32_t index, uint64_t *at,
                                  struct cairn_error *err) {
    const uint8_t *base = layout->bytes.data;
    const uint8_t *row = base + LAYOUT_HEADER_BYTES + (size_t)index * LAYOUT_TABLE_ROW_BYTES;
    uint64_t size = cairn_load_u64le(row + 8);
    if (cairn_load_u64le(row) != *at || size > layout->bytes.size - *at)
        return BAD(err, "outside its place");
    struct cairn_table *table = &layout->tables[index];
    CAIRN_TRY(cairn_table_open((struct cairn_view){base + *at, (size_t)size}, table, err));
    if (index > 0 && table[-1].rank >= table->rank) return BAD(err, "not in order of ranks");
    uint64_t end = cairn_round_up(*at + size, 8);
    if (end > layout->bytes.size) return BAD(err, "cut");
    for (uint64_t i = *at + size; i < end; i++) {
        if (base[i] != 0) return BAD(err, "bytes behind it that must be zero");
    }
    *at = end;
    return CAIRN_OK;
}

static enum cairn_code open_tables(struct cairn_layout *layout, uint64_t at,
                                   struct cairn_error *err) {
    layout->tables = calloc((size_t)layout->table_count + 1, sizeof *layout->tables);
    if (!layout->tables) return no_memory(err);
    uint64_t tensors = 0;
    for (uint32_t i = 0; i < layout->table_count; i++) {
        enum cairn_code code = open_table(layout, i, &at, err);
        if (code != CAIRN_OK) return cairn_within(err, code, "table %u", i);
        tensors += layout->tables[i].tensor_count;
    }
    if (at != layout->bytes.size) return BAD(err, "bytes behind the last table");
    if (tensors != header(layout, LAYOUT_AT_REFS))
        return BAD(err, "%u references for %llu tensors", header(layout, LAYOUT_AT_REFS),
                   (unsigned long long)tensors);
    return CAIRN_OK;
}

/* Checks the references of one name: tables ascending, all with that name. */
static enum cairn_code open_refs(const struct cairn_layout *layout, uint32_t first, uint32_t count,
                                 struct cairn_view *ret_name, struct cairn_error *err) {
    uint32_t table, tensor, last = 0;
    for (uint32_t i = 0; i < count; i++) {
        ref_at(layout, first + i, &table, &tensor);
        if (table >= layout->table_count || tensor >= layout->tables[table].tensor_count)
            return BAD(err, "reference %u: outside the tables", first + i);
        if (i > 0 && table <= last) return BAD(err, "reference %u: not in order", first + i);
        last = table;
        struct cairn_view name = ref_name(layout, first + i);
        if (i == 0)
            *ret_name = name;
        else if (cairn_view_compare(name, *ret_name) != 0) {
            return BAD(err, "reference %u: of another name", first + i);
        }
    }
    return CAIRN_OK;
}

/* Checks that names ascend strictly, and tables below each name: no tensor is listed twice; that
 * there are as many references as tensors: none is left out. */
static enum cairn_code open_names(const struct cairn_layout *layout, struct cairn_error *err) {
    uint32_t refs = header(layout, LAYOUT_AT_REFS), next = 0;
    struct cairn_view before = {0};
    for (uint32_t i = 0; i < layout->name_count; i++) {
        const uint8_t *row = layout->names + (size_t)i * LAYOUT_NAME_ROW_BYTES;
        uint32_t count = cairn_load_u32le(row + 4);
        if (cairn_load_u32le(row) != next || count == 0 || count > refs - next)
            return BAD(err, "name %u: references outside their place", i);
        struct cairn_view name = {0};
        enum cairn_code code = open_refs(layout, next, count, &name, err);
        if (code != CAIRN_OK) return cairn_within(err, code, "name %u", i);
        if (i > 0 && cairn_view_compare(before, name) >= 0)
            return BAD(err, "name %u: not in order", i);
        before = name;
        next += count;
    }
    if (next != refs) return BAD(err, "references of no name");
    return CAIRN_OK;
}

enum cairn_code cairn_layout_open(struct cairn_view bytes, struct cairn_layout *ret,
                                  struct cairn_error *err) {
    struct cairn_layout layout = {0};
    uint64_t tables_at = 0;
    CAIRN_TRY(open_header(bytes, &layout, &tables_at, err));
    enum cairn_code code = open_tables(&layout, tables_at, err);
    if (code == CAIRN_OK) code = open_names(&layout, err);
    if (code != CAIRN_OK) {
        cairn_layout_release(&layout);
        return code;
    }
    *ret = layout;
    return CAIRN_OK;
}
