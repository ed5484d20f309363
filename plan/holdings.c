/* SPDX-License-Identifier: Apache-2.0 */
/* holdings: from the layout's rows to regions with places in shards. */
#include "plan/holdings.h"

#include <stdlib.h>

#include "api/dtype.h"
#include "api/layout.h"
#include "common/array.h"

void cairn_plan_stock_release(struct cairn_plan_stock *stock) {
    free(stock->holdings);
    *stock = (struct cairn_plan_stock){0};
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

enum cairn_code cairn_plan_stock_choose(struct cairn_plan_stock *stock,
                                        const struct cairn_layout *layout, uint32_t name,
                                        uint32_t local_rank, struct cairn_error *err) {
    struct cairn_view text;
    uint32_t first, count, table;
    uint64_t bytes;
    stock->loaded = false;
    cairn_layout_name_at(layout, name, &text, &first, &count);
    ref_load(layout, first, &table, &stock->tensor);
    if (stock->tensor.kind == CAIRN_TENSOR_REPLICATED) {
        first += pick_holder(text, count);
        count = 1;
    } else if (stock->tensor.kind == CAIRN_TENSOR_LOCAL) {
        CAIRN_TRY(find_local(layout, text, local_rank, &first, &count, err));
    }
    ref_load(layout, first, &table, &stock->tensor);
    if (!cairn_tensor_size(stock->tensor.dtype, stock->tensor.dimension_count, stock->tensor.shape,
                           &stock->elements, &bytes)) {
        return cairn_fail(err, CAIRN_CORRUPT, "tensor \"%.*s\": no type or size",
                          CAIRN_PLAN_SHOWN(text));
    }
    cairn_plan_strides(stock->tensor.shape, stock->tensor.dimension_count, stock->strides);
    stock->name = name;
    stock->local_rank = local_rank;
    stock->ref_first = first;
    stock->ref_count = count;
    return CAIRN_OK;
}

void cairn_plan_span_flat(const struct cairn_plan_stock *stock, uint64_t start, uint64_t count,
                          struct cairn_plan_span *ret) {
    *ret = (struct cairn_plan_span){.flat = true, .start = start, .end = start + count};
    memcpy(ret->strides, stock->strides, sizeof ret->strides);
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

uint64_t cairn_plan_flat_index(const struct cairn_plan_stock *stock, const uint64_t *point) {
    uint64_t index = 0;
    for (unsigned d = 0; d < stock->tensor.dimension_count; d++) {
        index += point[d] * stock->strides[d];
    }
    return index;
}

void cairn_plan_flat_bounds(const struct cairn_plan_stock *stock,
                            const struct cairn_plan_span *span, uint64_t *ret_low,
                            uint64_t *ret_high) {
    *ret_low = span->start;
    *ret_high = span->end;
    if (span->flat) return;
    uint64_t last[CAIRN_DIMENSIONS_MAX];
    for (unsigned d = 0; d < stock->tensor.dimension_count; d++) last[d] = span->box.high[d] - 1;
    *ret_low = cairn_plan_flat_index(stock, span->box.low);
    *ret_high = cairn_plan_flat_index(stock, last) + 1;
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

static void put_holding(struct cairn_plan_stock *stock, const struct cairn_fragment *fragment,
                        uint32_t shard) {
    struct cairn_plan_holding *holding = &stock->holdings[stock->count++];
    *holding = (struct cairn_plan_holding){.shard = shard, .offset_bytes = fragment->offset_bytes};
    if (fragment->form == CAIRN_FRAGMENT_FLAT) {
        cairn_plan_span_flat(stock, fragment->start[0], fragment->count[0], &holding->span);
    } else {
        cairn_plan_span_box(stock->tensor.dimension_count, fragment->start, fragment->count,
                            &holding->span);
    }
    cairn_plan_flat_bounds(stock, &holding->span, &holding->low, &holding->high);
}

static enum cairn_code load_ref(struct cairn_plan_stock *stock, const struct cairn_layout *layout,
                                const struct cairn_manifest *manifest, uint32_t ref,
                                struct cairn_error *err) {
    struct cairn_tensor tensor;
    uint32_t table_index, known = UINT32_MAX, shard = 0;
    ref_load(layout, ref, &table_index, &tensor);
    const struct cairn_table *table = &layout->tables[table_index];
    if (!same_tensor(&tensor, &stock->tensor)) {
        return cairn_fail(err, CAIRN_CORRUPT, "tensor \"%.*s\": ranks describe it differently",
                          CAIRN_PLAN_SHOWN(tensor.name));
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(stock->holdings, stock->count, tensor.fragment_count,
                                   stock->capacity, UINT32_MAX, "fragments of one tensor", err));
    for (uint32_t i = 0; i < tensor.fragment_count; i++) {
        struct cairn_fragment fragment;
        cairn_table_fragment_at(table, tensor.fragment_first + i, &fragment);
        if (fragment.shard != known) { /* fragments of one shard stand together */
            CAIRN_TRY(find_shard(manifest, table, fragment.shard, &shard, err));
            known = fragment.shard;
        }
        put_holding(stock, &fragment, shard);
    }
    return CAIRN_OK;
}

static int compare_holdings(const void *a, const void *b) {
    const struct cairn_plan_holding *holding_a = a, *holding_b = b;
    if (holding_a->low != holding_b->low) return holding_a->low < holding_b->low ? -1 : 1;
    if (holding_a->shard != holding_b->shard) return holding_a->shard < holding_b->shard ? -1 : 1;
    if (holding_a->offset_bytes == holding_b->offset_bytes) return 0;
    return holding_a->offset_bytes < holding_b->offset_bytes ? -1 : 1;
}

enum cairn_code cairn_plan_stock_load(struct cairn_plan_stock *stock,
                                      const struct cairn_layout *layout,
                                      const struct cairn_manifest *manifest,
                                      struct cairn_error *err) {
    stock->count = 0;
    for (uint32_t i = 0; i < stock->ref_count; i++) {
        CAIRN_TRY(load_ref(stock, layout, manifest, stock->ref_first + i, err));
    }
    if (stock->count) {
        qsort(stock->holdings, stock->count, sizeof *stock->holdings, compare_holdings);
    }
    for (size_t i = 0; i < stock->count; i++) {
        uint64_t before = i ? stock->holdings[i - 1].reach : 0;
        stock->holdings[i].reach = cairn_max_u64(before, stock->holdings[i].high);
    }
    stock->loaded = true;
    return CAIRN_OK;
}
