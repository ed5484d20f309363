/* SPDX-License-Identifier: Apache-2.0 */
/* table_build: rows are collected in order of arrival, then sorted and written once.
 * Names are sorted once; rows are sorted by their name's place, a number. */
#include <stdlib.h>

#include "api/documents/keys.h"
#include "api/documents/names.h"
#include "api/table/inside.h"
#include "common/text.h"

struct built_shard {
    uint32_t name;
    bool tensors, used;
    uint64_t size_bytes;
};
struct built_tensor {
    uint32_t name, alias_of;
    uint8_t kind, dtype, dimension_count;
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
};
struct built_fragment {
    uint32_t tensor, shard;
    uint64_t offset_bytes, size_bytes;
    size_t pool; /* index into numbers[] of its starts, followed by its counts */
    uint8_t form;
};
struct cairn_table_builder {
    uint32_t rank;
    struct cairn_names names;
    struct built_shard *shards;
    struct built_tensor *tensors;
    struct built_fragment *fragments;
    uint64_t *numbers;
    size_t shard_count, shard_capacity, tensor_count, tensor_capacity;
    size_t fragment_count, fragment_capacity, number_count, number_capacity;
};

enum cairn_code cairn_table_builder_new(uint32_t rank, struct cairn_table_builder **ret,
                                        struct cairn_error *err) {
    struct cairn_table_builder *builder = calloc(1, sizeof *builder);
    if (!builder) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a rank table");
    builder->rank = rank;
    builder->names.copy = true;
    *ret = builder;
    return CAIRN_OK;
}

void cairn_table_builder_free(struct cairn_table_builder *builder) {
    if (!builder) return;
    cairn_names_release(&builder->names);
    free(builder->shards);
    free(builder->tensors);
    free(builder->fragments);
    free(builder->numbers);
    free(builder);
}

#define ROOM(builder, what, more, max, err)                                                        \
    CAIRN_ARRAY_ROOM_FOR((builder)->what##s, (builder)->what##_count, (more),                      \
                         (builder)->what##_capacity, (max), #what "s of a rank table", (err))

enum cairn_code cairn_table_add_shard(struct cairn_table_builder *builder,
                                      const struct cairn_table_shard *shard, uint32_t *ret_shard,
                                      struct cairn_error *err) {
    CAIRN_TRY(cairn_shard_name_check(shard->name, err));
    if (shard->size_bytes > TABLE_SIZE_MAX)
        return cairn_fail(err, CAIRN_INVALID, "shard of %llu bytes",
                          (unsigned long long)shard->size_bytes);
    CAIRN_TRY(ROOM(builder, shard, 1, TABLE_ROWS_MAX, err));
    uint32_t name;
    CAIRN_TRY(cairn_names_add(&builder->names, shard->name, &name, err));
    *ret_shard = (uint32_t)builder->shard_count;
    builder->shards[builder->shard_count++] = (struct built_shard){
        .name = name, .tensors = shard->tensors, .size_bytes = shard->size_bytes};
    return CAIRN_OK;
}

/* Length of a name to quote in messages. */
static int shown(struct cairn_view name) {
    return name.size > 100 ? 100 : (int)name.size;
}

static enum cairn_code name_check(struct cairn_view name, struct cairn_error *err) {
    if (name.size == 0 || name.size > CAIRN_TENSOR_NAME_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "tensor name of %zu bytes, want 1 to %d", name.size,
                          CAIRN_TENSOR_NAME_BYTES_MAX);
    if (!cairn_utf8_valid(name) || memchr(name.data, 0, name.size))
        return cairn_fail(err, CAIRN_INVALID, "tensor name that is not UTF-8 text");
    return CAIRN_OK;
}

static enum cairn_code add_fragment(struct cairn_table_builder *builder,
                                    const struct cairn_tensor *tensor,
                                    const struct cairn_fragment *fragment,
                                    struct cairn_error *err) {
    uint64_t bytes, end;
    CAIRN_TRY(cairn_fragment_check(tensor, fragment, &bytes, err));
    if (bytes != fragment->size_bytes)
        return cairn_fail(err, CAIRN_INVALID, "%llu bytes given for elements of %llu",
                          (unsigned long long)fragment->size_bytes, (unsigned long long)bytes);
    if (bytes == 0) return CAIRN_OK; /* an empty fragment is left out */
    if (fragment->shard >= builder->shard_count)
        return cairn_fail(err, CAIRN_INVALID, "no shard %u", fragment->shard);
    const struct built_shard *shard = &builder->shards[fragment->shard];
    if (cairn_add_overflows(fragment->offset_bytes, bytes, &end) || end > shard->size_bytes)
        return cairn_fail(err, CAIRN_INVALID, "bytes %llu+%llu outside a shard of %llu",
                          (unsigned long long)fragment->offset_bytes, (unsigned long long)bytes,
                          (unsigned long long)shard->size_bytes);
    unsigned n = fragment->form == CAIRN_FRAGMENT_FLAT ? 1 : tensor->dimension_count;
    CAIRN_TRY(ROOM(builder, fragment, 1, TABLE_FRAGMENTS_MAX, err));
    CAIRN_TRY(ROOM(builder, number, (size_t)n * 2, (size_t)TABLE_FRAGMENTS_MAX * 16, err));
    uint64_t *to = builder->numbers + builder->number_count;
    memcpy(to, fragment->start, n * sizeof *to);
    memcpy(to + n, fragment->count, n * sizeof *to);
    builder->fragments[builder->fragment_count++] = (struct built_fragment){
        .tensor = (uint32_t)builder->tensor_count,
        .shard = fragment->shard,
        .offset_bytes = fragment->offset_bytes,
        .size_bytes = bytes,
        .pool = builder->number_count,
        .form = (uint8_t)fragment->form,
    };
    builder->number_count += (size_t)n * 2;
    return CAIRN_OK;
}

static enum cairn_code add_tensor(struct cairn_table_builder *builder,
                                  const struct cairn_tensor *tensor,
                                  const struct cairn_fragment *fragments, size_t count,
                                  struct cairn_error *err) {
    struct built_tensor row = {.alias_of = TABLE_NONE};
    CAIRN_TRY(cairn_tensor_check(tensor, err));
    if (tensor->kind == CAIRN_TENSOR_ALIAS) {
        if (count) return cairn_fail(err, CAIRN_INVALID, "an alias has no fragments");
        CAIRN_TRY(name_check(tensor->alias_of, err));
        if (cairn_view_compare(tensor->alias_of, tensor->name) == 0)
            return cairn_fail(err, CAIRN_INVALID, "an alias of itself");
        CAIRN_TRY(cairn_names_add(&builder->names, tensor->alias_of, &row.alias_of, err));
    }
    CAIRN_TRY(ROOM(builder, tensor, 1, TABLE_ROWS_MAX, err));
    CAIRN_TRY(cairn_names_add(&builder->names, tensor->name, &row.name, err));
    row.kind = (uint8_t)tensor->kind;
    row.dtype = (uint8_t)tensor->dtype;
    row.dimension_count = (uint8_t)tensor->dimension_count;
    memcpy(row.shape, tensor->shape, tensor->dimension_count * sizeof *row.shape);
    for (size_t i = 0; i < count; i++) {
        enum cairn_code code = add_fragment(builder, tensor, &fragments[i], err);
        if (code != CAIRN_OK) return cairn_within(err, code, "fragment %zu", i);
    }
    builder->tensors[builder->tensor_count++] = row;
    return CAIRN_OK;
}

enum cairn_code cairn_table_add_tensor(struct cairn_table_builder *builder,
                                       const struct cairn_tensor *tensor,
                                       const struct cairn_fragment *fragments, size_t count,
                                       struct cairn_error *err) {
    CAIRN_TRY(name_check(tensor->name, err));
    size_t fragment_count = builder->fragment_count, number_count = builder->number_count;
    enum cairn_code code = add_tensor(builder, tensor, fragments, count, err);
    if (code == CAIRN_OK) return CAIRN_OK;
    builder->fragment_count = fragment_count; /* drops all of the refused tensor */
    builder->number_count = number_count;
    return cairn_within(err, code, "tensor \"%.*s\"", shown(tensor->name),
                        (const char *)tensor->name.data);
}

/* ---- finish ---- */

/* Rows of one kind: their order in the file, and the new number of each row of the builder. */
struct rows {
    uint32_t *order, *rank;
    uint32_t count;
};
struct finish {
    const struct cairn_table_builder *builder;
    uint32_t *memory;                     /* holds all orders and ranks */
    struct rows strings, shards, tensors; /* strings: only those in use, after renumbering */
    uint32_t *fragment_order;
    uint64_t pool_count, string_bytes;
};

static bool allocate(struct finish *finish) {
    const struct cairn_table_builder *builder = finish->builder;
    size_t strings = builder->names.count, shards = builder->shard_count;
    size_t tensors = builder->tensor_count;
    size_t numbers = 2 * (strings + shards + tensors) + builder->fragment_count;
    uint32_t *at = finish->memory = calloc(numbers + 1, sizeof *at);
    if (!at) return false;
    finish->strings = (struct rows){.order = at, .rank = at + strings};
    at += 2 * strings;
    finish->shards = (struct rows){.order = at, .rank = at + shards};
    at += 2 * shards;
    finish->tensors = (struct rows){.order = at, .rank = at + tensors};
    finish->fragment_order = at + 2 * tensors;
    return true;
}

/* A raw shard without fragments is left out of the table (table.h#2). */
static bool shard_written(const struct built_shard *shard) {
    return shard->tensors || shard->used;
}

static void mark_used_shards(struct cairn_table_builder *builder) {
    for (size_t i = 0; i < builder->shard_count; i++) builder->shards[i].used = false;
    for (size_t i = 0; i < builder->fragment_count; i++)
        builder->shards[builder->fragments[i].shard].used = true;
}

/* Sorts strings, leaving out those that only left-out shards use. */
static enum cairn_code order_names(struct finish *finish, struct cairn_error *err) {
    const struct cairn_table_builder *builder = finish->builder;
    CAIRN_AUTO_HEAP uint8_t *used = calloc(builder->names.count + 1, 1);
    if (!used) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a rank table");
    for (size_t i = 0; i < builder->shard_count; i++) {
        if (shard_written(&builder->shards[i])) used[builder->shards[i].name] = 1;
    }
    for (size_t i = 0; i < builder->tensor_count; i++) {
        used[builder->tensors[i].name] = 1;
        if (builder->tensors[i].alias_of != TABLE_NONE) used[builder->tensors[i].alias_of] = 1;
    }
    struct rows *strings = &finish->strings;
    cairn_names_order(&builder->names, strings->order, strings->rank);
    for (uint32_t place = 0; place < builder->names.count; place++) {
        uint32_t name = strings->order[place];
        if (!used[name]) continue;
        strings->rank[name] = strings->count;
        strings->order[strings->count++] = name;
        finish->string_bytes += builder->names.views[name].size;
    }
    return CAIRN_OK;
}

static int compare_numbers(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

static int compare_shards(const void *a, const void *b, void *context) {
    const struct finish *finish = context;
    const struct built_shard *shards = finish->builder->shards;
    return compare_numbers(finish->strings.rank[shards[*(const uint32_t *)a].name],
                           finish->strings.rank[shards[*(const uint32_t *)b].name]);
}

static int compare_tensors(const void *a, const void *b, void *context) {
    const struct finish *finish = context;
    const struct built_tensor *tensors = finish->builder->tensors;
    return compare_numbers(finish->strings.rank[tensors[*(const uint32_t *)a].name],
                           finish->strings.rank[tensors[*(const uint32_t *)b].name]);
}

/* True if two rows compare as equal; *ret_twice is the second. */
static bool order_rows(struct finish *finish, struct rows *rows,
                       int (*compare)(const void *a, const void *b, void *context),
                       uint32_t *ret_twice) {
    qsort_r(rows->order, rows->count, sizeof *rows->order, compare, finish);
    for (uint32_t i = 0; i < rows->count; i++) {
        *ret_twice = rows->order[i];
        rows->rank[rows->order[i]] = i;
        if (i && !compare(&rows->order[i - 1], &rows->order[i], finish)) return true;
    }
    return false;
}

static enum cairn_code listed_twice(const struct finish *finish, const char *what, uint32_t name,
                                    struct cairn_error *err) {
    struct cairn_view view = finish->builder->names.views[name];
    return cairn_fail(err, CAIRN_INVALID, "%s \"%.*s\" is listed twice", what, shown(view),
                      (const char *)view.data);
}

static enum cairn_code order_all(struct finish *finish, struct cairn_error *err) {
    const struct cairn_table_builder *builder = finish->builder;
    struct rows *shards = &finish->shards, *tensors = &finish->tensors;
    uint32_t twice = 0;
    for (uint32_t i = 0; i < builder->shard_count; i++)
        if (shard_written(&builder->shards[i])) shards->order[shards->count++] = i;
    if (order_rows(finish, shards, compare_shards, &twice))
        return listed_twice(finish, "shard", builder->shards[twice].name, err);
    for (; tensors->count < builder->tensor_count; tensors->count++) {
        tensors->order[tensors->count] = tensors->count;
        finish->pool_count += builder->tensors[tensors->count].dimension_count;
    }
    if (order_rows(finish, tensors, compare_tensors, &twice))
        return listed_twice(finish, "tensor", builder->tensors[twice].name, err);
    return CAIRN_OK;
}

static int compare_fragments(const void *a, const void *b, void *context) {
    const struct finish *finish = context;
    const struct built_fragment *f = &finish->builder->fragments[*(const uint32_t *)a];
    const struct built_fragment *g = &finish->builder->fragments[*(const uint32_t *)b];
    const uint32_t *tensors = finish->tensors.rank, *shards = finish->shards.rank;
    if (f->tensor != g->tensor) return compare_numbers(tensors[f->tensor], tensors[g->tensor]);
    if (f->shard != g->shard) return compare_numbers(shards[f->shard], shards[g->shard]);
    return compare_numbers(f->offset_bytes, g->offset_bytes);
}

static unsigned fragment_numbers(const struct built_fragment *fragment,
                                 const struct cairn_table_builder *builder) {
    if (fragment->form == CAIRN_FRAGMENT_FLAT) return 2;
    return 2u * builder->tensors[fragment->tensor].dimension_count;
}

/* Fragments of one tensor must be adjacent, in order of arrival: a stable counting sort by tensor
 * leaves only short groups to sort. */
static enum cairn_code order_fragments(struct finish *finish, struct cairn_error *err) {
    const struct cairn_table_builder *builder = finish->builder;
    CAIRN_AUTO_HEAP uint32_t *next = calloc(builder->tensor_count + 1, sizeof *next);
    if (!next) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a rank table");
    for (size_t i = 0; i < builder->fragment_count; i++) {
        next[finish->tensors.rank[builder->fragments[i].tensor] + 1]++;
        finish->pool_count += fragment_numbers(&builder->fragments[i], builder);
    }
    for (size_t i = 0; i < builder->tensor_count; i++) next[i + 1] += next[i];
    for (uint32_t i = 0; i < builder->fragment_count; i++)
        finish->fragment_order[next[finish->tensors.rank[builder->fragments[i].tensor]]++] = i;
    for (size_t i = 0, from = 0; i < builder->tensor_count; from = next[i++])
        qsort_r(finish->fragment_order + from, next[i] - from, sizeof(uint32_t), compare_fragments,
                finish);
    for (size_t i = 1; i < builder->fragment_count; i++) {
        uint32_t *pair = &finish->fragment_order[i - 1];
        if (compare_fragments(&pair[0], &pair[1], finish) != 0) continue;
        uint32_t tensor = builder->fragments[pair[0]].tensor;
        enum cairn_code code = cairn_fail(err, CAIRN_INVALID, "two fragments at one place");
        struct cairn_view name = builder->names.views[builder->tensors[tensor].name];
        return cairn_within(err, code, "tensor \"%.*s\"", shown(name), (const char *)name.data);
    }
    return CAIRN_OK;
}

static uint8_t *write_numbers(uint8_t *to, const uint64_t *numbers, size_t count) {
    for (size_t i = 0; i < count; i++, to += 8) cairn_store_u64le(to, numbers[i]);
    return to;
}

static uint8_t *write_shards(const struct finish *finish, uint8_t *to) {
    for (uint32_t i = 0; i < finish->shards.count; i++, to += SHARD_ROW_BYTES) {
        const struct built_shard *shard = &finish->builder->shards[finish->shards.order[i]];
        cairn_store_u32le(to + SHARD_AT_NAME, finish->strings.rank[shard->name]);
        cairn_store_u32le(to + SHARD_AT_KIND, shard->tensors ? SHARD_KIND_TENSORS : SHARD_KIND_RAW);
        cairn_store_u64le(to + SHARD_AT_SIZE, shard->size_bytes);
    }
    return to;
}

/* Writes tensor rows; their shapes are the first numbers of the pool. */
static uint8_t *write_tensors(const struct finish *finish, uint8_t *to, uint8_t **pool) {
    const struct cairn_table_builder *builder = finish->builder;
    uint32_t first = 0, at = 0;
    for (size_t i = 0; i < builder->tensor_count; i++, to += TENSOR_ROW_BYTES) {
        uint32_t number = finish->tensors.order[i], from = first;
        const struct built_tensor *tensor = &builder->tensors[number];
        while (first < builder->fragment_count &&
               builder->fragments[finish->fragment_order[first]].tensor == number) {
            first++;
        }
        cairn_store_u32le(to + TENSOR_AT_NAME, finish->strings.rank[tensor->name]);
        cairn_store_u32le(to + TENSOR_AT_ALIAS, tensor->alias_of == TABLE_NONE
                                                    ? TABLE_NONE
                                                    : finish->strings.rank[tensor->alias_of]);
        to[TENSOR_AT_KIND] = tensor->kind;
        to[TENSOR_AT_DTYPE] = tensor->dtype;
        to[TENSOR_AT_DIMENSIONS] = tensor->dimension_count;
        to[TENSOR_AT_ZERO] = 0;
        cairn_store_u32le(to + TENSOR_AT_SHAPE, at);
        cairn_store_u32le(to + TENSOR_AT_FIRST, from);
        cairn_store_u32le(to + TENSOR_AT_COUNT, first - from);
        *pool = write_numbers(*pool, tensor->shape, tensor->dimension_count);
        at += tensor->dimension_count;
    }
    return to;
}

static uint8_t *write_fragments(const struct finish *finish, uint8_t *to, uint8_t **pool,
                                uint32_t at) {
    const struct cairn_table_builder *builder = finish->builder;
    for (size_t i = 0; i < builder->fragment_count; i++, to += FRAGMENT_ROW_BYTES) {
        const struct built_fragment *fragment = &builder->fragments[finish->fragment_order[i]];
        unsigned n = fragment_numbers(fragment, builder);
        cairn_store_u32le(to + FRAGMENT_AT_TENSOR, finish->tensors.rank[fragment->tensor]);
        cairn_store_u32le(to + FRAGMENT_AT_SHARD, finish->shards.rank[fragment->shard]);
        cairn_store_u32le(to + FRAGMENT_AT_FORM, fragment->form);
        cairn_store_u32le(to + FRAGMENT_AT_POOL, at);
        cairn_store_u64le(to + FRAGMENT_AT_OFFSET, fragment->offset_bytes);
        cairn_store_u64le(to + FRAGMENT_AT_SIZE, fragment->size_bytes);
        *pool = write_numbers(*pool, builder->numbers + fragment->pool, n);
        at += n;
    }
    return to;
}

static void write_strings(const struct finish *finish, uint8_t *to) {
    uint8_t *bytes = to + (size_t)finish->strings.count * 4;
    uint32_t end = 0;
    for (uint32_t i = 0; i < finish->strings.count; i++, to += 4) {
        struct cairn_view name = finish->builder->names.views[finish->strings.order[i]];
        if (name.size) memcpy(bytes + end, name.data, name.size);
        end += (uint32_t)name.size;
        cairn_store_u32le(to, end);
    }
}

static void write_header(const struct finish *finish, uint8_t *to) {
    memcpy(to, TABLE_MAGIC, 8);
    cairn_store_u32le(to + TABLE_AT_RANK, finish->builder->rank);
    cairn_store_u32le(to + TABLE_AT_SHARDS, finish->shards.count);
    cairn_store_u32le(to + TABLE_AT_TENSORS, (uint32_t)finish->builder->tensor_count);
    cairn_store_u32le(to + TABLE_AT_FRAGMENTS, (uint32_t)finish->builder->fragment_count);
    cairn_store_u32le(to + TABLE_AT_POOL, (uint32_t)finish->pool_count);
    cairn_store_u32le(to + TABLE_AT_STRINGS, finish->strings.count);
    cairn_store_u32le(to + TABLE_AT_STRING_BYTES, (uint32_t)finish->string_bytes);
    cairn_store_u32le(to + TABLE_AT_ZERO, 0);
}

static enum cairn_code write_table(const struct finish *finish, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    const struct cairn_table_builder *builder = finish->builder;
    uint64_t pool_at = TABLE_HEADER_BYTES + (uint64_t)finish->shards.count * SHARD_ROW_BYTES +
                       (uint64_t)builder->tensor_count * TENSOR_ROW_BYTES +
                       (uint64_t)builder->fragment_count * FRAGMENT_ROW_BYTES;
    uint64_t strings_at = pool_at + finish->pool_count * 8;
    uint64_t size = strings_at + (uint64_t)finish->strings.count * 4 + finish->string_bytes;
    if (size > CAIRN_TABLE_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a rank table of %llu bytes, at most 64 MiB",
                          (unsigned long long)size);
    if (ret->limit == 0) ret->limit = CAIRN_TABLE_BYTES_MAX;
    CAIRN_TRY(cairn_buf_reserve(ret, size, err));
    uint8_t *base = (uint8_t *)ret->data + ret->size, *pool = base + pool_at;
    write_header(finish, base);
    uint8_t *to = write_shards(finish, base + TABLE_HEADER_BYTES);
    to = write_tensors(finish, to, &pool);
    to = write_fragments(finish, to, &pool, (uint32_t)(((size_t)(pool - base) - pool_at) / 8));
    CAIRN_PROMISE(to == base + pool_at && pool == base + strings_at,
                  return cairn_fail(err, CAIRN_INTERNAL, "the rank table does not add up"));
    write_strings(finish, pool);
    ret->size += size;
    ret->data[ret->size] = '\0';
    return CAIRN_OK;
}

enum cairn_code cairn_table_finish(struct cairn_table_builder *builder, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    struct finish finish = {.builder = builder};
    enum cairn_code code = CAIRN_OK;
    mark_used_shards(builder);
    if (!allocate(&finish)) code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a rank table");
    if (code == CAIRN_OK) code = order_names(&finish, err);
    if (code == CAIRN_OK) code = order_all(&finish, err);
    if (code == CAIRN_OK) code = order_fragments(&finish, err);
    if (code == CAIRN_OK) code = write_table(&finish, ret, err);
    free(finish.memory);
    return code;
}
