/* SPDX-License-Identifier: Apache-2.0 */
/* fragments: from the layout's rows to regions with places in shards. */
#include "plan/fragments.h"

#include <stdlib.h>

#include "api/table/dtype.h"
#include "api/table/layout.h"
#include "common/buf.h"

#define NEAR_REFS_LEAST 64 /* of fewer all are loaded */

void cairn_plan_fragments_release(struct cairn_plan_fragments *fragments) {
    free(fragments->list);
    *fragments = (struct cairn_plan_fragments){0};
}

static void ref_load(const struct cairn_layout *layout, uint32_t ref, uint32_t *ret_table,
                     struct cairn_tensor *ret) {
    uint32_t tensor;
    cairn_layout_ref_at(layout, ref, ret_table, &tensor);
    cairn_table_tensor_at(&layout->tables[*ret_table], tensor, ret);
}

/* Readers of different tensors spread over the ranks that hold copies. FNV-1a, whose last bytes
 * reach only some bits: a multiplication mixes them into those that are used. */
static uint32_t pick_holder(struct cairn_view name, uint32_t count) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < name.size; i++) {
        hash = (hash ^ ((const uint8_t *)name.data)[i]) * UINT64_C(0x100000001b3);
    }
    hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd);
    return (uint32_t)((hash >> 33) % count);
}

static enum cairn_code find_local(const struct cairn_layout *layout, struct cairn_view name,
                                  uint32_t rank, uint32_t *first, uint32_t *count,
                                  struct cairn_error *err) {
    for (uint32_t i = 0; i < *count; i++) {
        uint32_t table;
        struct cairn_tensor tensor;
        ref_load(layout, *first + i, &table, &tensor);
        if (layout->tables[table].rank != rank) continue;
        *first += i;
        *count = 1;
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_NOT_FOUND, "tensor \"%.*s\" is local, rank %u has none",
                      CAIRN_PLAN_SHOWN(name), rank);
}

enum cairn_code cairn_plan_fragments_choose(struct cairn_plan_fragments *fragments,
                                            const struct cairn_layout *layout, uint32_t name,
                                            uint32_t local_rank, struct cairn_error *err) {
    struct cairn_view text;
    uint32_t first, count, table;
    uint64_t bytes;
    fragments->loaded = false;
    cairn_layout_name_at(layout, name, &text, &first, &count);
    ref_load(layout, first, &table, &fragments->tensor);
    if (fragments->tensor.kind == CAIRN_TENSOR_REPLICATED) {
        first += pick_holder(text, count);
        count = 1;
    } else if (fragments->tensor.kind == CAIRN_TENSOR_LOCAL) {
        CAIRN_TRY(find_local(layout, text, local_rank, &first, &count, err));
    }
    ref_load(layout, first, &table, &fragments->tensor);
    if (!cairn_tensor_size(fragments->tensor.dtype, fragments->tensor.dimension_count,
                           fragments->tensor.shape, &fragments->elements, &bytes)) {
        return cairn_fail(err, CAIRN_CORRUPT, "tensor \"%.*s\": no type or size",
                          CAIRN_PLAN_SHOWN(text));
    }
    cairn_plan_strides(fragments->tensor.shape, fragments->tensor.dimension_count,
                       fragments->strides);
    fragments->name = name;
    fragments->local_rank = local_rank;
    fragments->ref_first = first;
    fragments->ref_count = count;
    return CAIRN_OK;
}

void cairn_plan_span_flat(const struct cairn_plan_fragments *fragments, uint64_t start,
                          uint64_t count, struct cairn_plan_span *ret) {
    *ret = (struct cairn_plan_span){.flat = true, .start = start, .end = start + count};
    memcpy(ret->strides, fragments->strides, sizeof ret->strides);
}

void cairn_plan_span_box(unsigned dimensions, const uint64_t *start, const uint64_t *count,
                         struct cairn_plan_span *ret) {
    *ret = (struct cairn_plan_span){0};
    for (unsigned d = 0; d < dimensions; d++) {
        ret->box.low[d] = start[d];
        ret->box.high[d] = start[d] + count[d];
    }
    cairn_plan_strides(count, dimensions, ret->strides);
}

uint64_t cairn_plan_flat_index(const struct cairn_plan_fragments *fragments,
                               const uint64_t *point) {
    uint64_t index = 0;
    for (unsigned d = 0; d < fragments->tensor.dimension_count; d++) {
        index += point[d] * fragments->strides[d];
    }
    return index;
}

void cairn_plan_flat_bounds(const struct cairn_plan_fragments *fragments,
                            const struct cairn_plan_span *span, uint64_t *ret_low,
                            uint64_t *ret_high) {
    *ret_low = span->start;
    *ret_high = span->end;
    if (span->flat) return;
    uint64_t last[CAIRN_DIMENSIONS_MAX];
    for (unsigned d = 0; d < fragments->tensor.dimension_count; d++)
        last[d] = span->box.high[d] - 1;
    *ret_low = cairn_plan_flat_index(fragments, span->box.low);
    *ret_high = cairn_plan_flat_index(fragments, last) + 1;
}

static enum cairn_code find_shard(const struct cairn_manifest *manifest,
                                  const struct cairn_table *table, uint32_t index,
                                  uint32_t *ret_shard, struct cairn_error *err) {
    struct cairn_table_shard shard;
    cairn_table_shard_at(table, index, &shard);
    const struct cairn_manifest_shard *found = cairn_manifest_find(manifest, shard.name);
    if (!found || found->size_bytes != shard.size_bytes) {
        return cairn_fail(err, CAIRN_CORRUPT,
                          "the layout's shard \"%.*s\" of %llu bytes is not in the manifest",
                          CAIRN_PLAN_SHOWN(shard.name), (unsigned long long)shard.size_bytes);
    }
    *ret_shard = (uint32_t)(found - manifest->shards);
    return CAIRN_OK;
}

static bool same_tensor(const struct cairn_tensor *a, const struct cairn_tensor *b) {
    return a->kind == b->kind && a->dtype == b->dtype && a->dimension_count == b->dimension_count &&
           memcmp(a->shape, b->shape, a->dimension_count * sizeof *a->shape) == 0;
}

static void put_fragment(struct cairn_plan_fragments *fragments,
                         const struct cairn_fragment *fragment, uint32_t shard) {
    struct cairn_plan_fragment *placed = &fragments->list[fragments->count++];
    *placed = (struct cairn_plan_fragment){.shard = shard, .offset_bytes = fragment->offset_bytes};
    if (fragment->form == CAIRN_FRAGMENT_FLAT) {
        cairn_plan_span_flat(fragments, fragment->start[0], fragment->count[0], &placed->span);
    } else {
        cairn_plan_span_box(fragments->tensor.dimension_count, fragment->start, fragment->count,
                            &placed->span);
    }
    cairn_plan_flat_bounds(fragments, &placed->span, &placed->low, &placed->high);
}

static enum cairn_code load_ref(struct cairn_plan_fragments *fragments,
                                const struct cairn_layout *layout,
                                const struct cairn_manifest *manifest, uint32_t ref,
                                struct cairn_error *err) {
    struct cairn_tensor tensor;
    uint32_t table_index, known = UINT32_MAX, shard = 0;
    ref_load(layout, ref, &table_index, &tensor);
    const struct cairn_table *table = &layout->tables[table_index];
    if (!same_tensor(&tensor, &fragments->tensor)) {
        return cairn_fail(err, CAIRN_CORRUPT, "tensor \"%.*s\": ranks describe it differently",
                          CAIRN_PLAN_SHOWN(tensor.name));
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(fragments->list, fragments->count, tensor.fragment_count,
                                   fragments->capacity, UINT32_MAX, "fragments of one tensor",
                                   err));
    for (uint32_t i = 0; i < tensor.fragment_count; i++) {
        struct cairn_fragment fragment;
        cairn_table_fragment_at(table, tensor.fragment_first + i, &fragment);
        if (fragment.shard != known) { /* fragments of one shard stand together */
            CAIRN_TRY(find_shard(manifest, table, fragment.shard, &shard, err));
            known = fragment.shard;
        }
        put_fragment(fragments, &fragment, shard);
    }
    return CAIRN_OK;
}

static int compare_fragments(const void *a, const void *b) {
    const struct cairn_plan_fragment *fragment_a = a, *fragment_b = b;
    if (fragment_a->low != fragment_b->low) return fragment_a->low < fragment_b->low ? -1 : 1;
    if (fragment_a->shard != fragment_b->shard)
        return fragment_a->shard < fragment_b->shard ? -1 : 1;
    if (fragment_a->offset_bytes == fragment_b->offset_bytes) return 0;
    return fragment_a->offset_bytes < fragment_b->offset_bytes ? -1 : 1;
}

/* References [from, to) of those that were chosen. */
static enum cairn_code load_some(struct cairn_plan_fragments *fragments,
                                 const struct cairn_layout *layout,
                                 const struct cairn_manifest *manifest, uint32_t from, uint32_t to,
                                 struct cairn_error *err) {
    fragments->count = 0;
    for (uint32_t i = from; i < to; i++) {
        CAIRN_TRY(load_ref(fragments, layout, manifest, fragments->ref_first + i, err));
    }
    if (fragments->count) {
        qsort(fragments->list, fragments->count, sizeof *fragments->list, compare_fragments);
    }
    for (size_t i = 0; i < fragments->count; i++) {
        uint64_t before = i ? fragments->list[i - 1].reach : 0;
        fragments->list[i].reach = cairn_max_u64(before, fragments->list[i].high);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_plan_fragments_load(struct cairn_plan_fragments *fragments,
                                          const struct cairn_layout *layout,
                                          const struct cairn_manifest *manifest,
                                          struct cairn_error *err) {
    CAIRN_TRY(load_some(fragments, layout, manifest, 0, fragments->ref_count, err));
    fragments->loaded = true;
    return CAIRN_OK;
}

/* Where the first fragment of a reference begins; false: it has none. */
static bool begin_of(const struct cairn_plan_fragments *fragments,
                     const struct cairn_layout *layout, uint32_t ref, uint64_t *ret) {
    struct cairn_tensor tensor;
    struct cairn_fragment fragment;
    uint32_t table;
    ref_load(layout, fragments->ref_first + ref, &table, &tensor);
    if (!tensor.fragment_count || !same_tensor(&tensor, &fragments->tensor)) return false;
    cairn_table_fragment_at(&layout->tables[table], tensor.fragment_first, &fragment);
    *ret = fragment.form == CAIRN_FRAGMENT_FLAT ? fragment.start[0]
                                                : cairn_plan_flat_index(fragments, fragment.start);
    return true;
}

/* The first reference that begins at `place` or behind it. */
static bool bisect(const struct cairn_plan_fragments *fragments, const struct cairn_layout *layout,
                   uint64_t place, uint32_t *ret) {
    uint32_t from = 0, to = fragments->ref_count;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        uint64_t begin = 0;
        if (!begin_of(fragments, layout, middle, &begin)) return false;
        if (begin < place)
            from = middle + 1;
        else
            to = middle;
    }
    *ret = from;
    return true;
}

enum cairn_code cairn_plan_fragments_load_near(struct cairn_plan_fragments *fragments,
                                               const struct cairn_layout *layout,
                                               const struct cairn_manifest *manifest, uint64_t low,
                                               uint64_t high, bool *ret, struct cairn_error *err) {
    uint32_t from = 0, to = 0;
    *ret = fragments->ref_count >= NEAR_REFS_LEAST && bisect(fragments, layout, low + 1, &from) &&
           bisect(fragments, layout, high, &to);
    from -= from > 0; /* the one before begins below, and may reach in */
    *ret = *ret && to - from < fragments->ref_count / 4;
    return *ret ? load_some(fragments, layout, manifest, from, to, err) : CAIRN_OK;
}
