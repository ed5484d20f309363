/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every stored fragment and every want is a region of the tensor that maps an element to bytes: a
 * base and one stride per dimension. Where regions intersect, runs of elements that are contiguous
 * on both sides become pieces.
 */
#include "plan/reads.h"

#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"

/* ---- ranges and blocks ---- */

static uint64_t block_begin(uint64_t at) {
    return at - at % CAIRN_BLOCK_BYTES;
}

static uint64_t block_end(uint64_t at) {
    return cairn_round_up(at, CAIRN_BLOCK_BYTES);
}

struct cairn_plan_range cairn_plan_range_widen(struct cairn_plan_range range,
                                               uint64_t object_bytes) {
    CAIRN_PROMISE(range.begin <= range.end, return range);
    CAIRN_PROMISE(range.end <= object_bytes, return range);
    if (range.begin == range.end) return range;
    return (struct cairn_plan_range){block_begin(range.begin),
                                     cairn_min_u64(block_end(range.end), object_bytes)};
}

struct cairn_plan_range cairn_plan_range_within(struct cairn_plan_range range,
                                                uint64_t object_bytes) {
    CAIRN_PROMISE(range.begin <= range.end, return range);
    CAIRN_PROMISE(range.end <= object_bytes, return range);
    uint64_t begin = block_end(range.begin);
    uint64_t end = range.end == object_bytes ? range.end : block_begin(range.end);
    if (begin >= end) begin = end = cairn_min_u64(begin, range.end);
    return (struct cairn_plan_range){begin, end};
}

bool cairn_plan_range_joins(struct cairn_plan_range before, struct cairn_plan_range next) {
    CAIRN_PROMISE(before.begin <= next.begin, return false);
    return next.begin < block_end(before.end) || next.begin <= before.end;
}

uint64_t cairn_plan_range_cut(struct cairn_plan_range range, uint64_t room) {
    if (range.end - range.begin <= room) return range.end;
    return cairn_max_u64(range.begin, block_begin(range.begin + room));
}

/* ---- fragments: regions and their locations in shards ---- */

#define NEAR_REFS_LEAST 64 /* with fewer listings all are loaded */

void cairn_plan_fragments_release(struct cairn_plan_fragments *fragments) {
    free(fragments->list);
    *fragments = (struct cairn_plan_fragments){0};
}

static enum cairn_code find_local(const struct cairn_layout *layout, struct cairn_view name,
                                  uint32_t rank, uint32_t *first, uint32_t *count,
                                  struct cairn_error *err) {
    for (uint32_t i = 0; i < *count; i++) {
        struct cairn_tensor tensor;
        if (cairn_layout_tensor_at(layout, *first + i, &tensor)->rank != rank) continue;
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
    uint32_t first, count;
    uint64_t bytes;
    fragments->loaded = false;
    cairn_layout_name_at(layout, name, &text, &first, &count);
    (void)cairn_layout_tensor_at(layout, first, &fragments->tensor);
    if (fragments->tensor.kind == CAIRN_TENSOR_REPLICATED) {
        /* Spreads readers of different tensors over the holders. FNV-1a's last bytes affect only
         * some bits, so a multiplication mixes them into the bits in use. */
        uint64_t hash = UINT64_C(0xcbf29ce484222325);
        for (size_t i = 0; i < text.size; i++)
            hash = (hash ^ ((const uint8_t *)text.data)[i]) * UINT64_C(0x100000001b3);
        hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd);
        first += (uint32_t)((hash >> 33) % count);
        count = 1;
    } else if (fragments->tensor.kind == CAIRN_TENSOR_LOCAL) {
        CAIRN_TRY(find_local(layout, text, local_rank, &first, &count, err));
    }
    (void)cairn_layout_tensor_at(layout, first, &fragments->tensor);
    if (!cairn_tensor_size(fragments->tensor.dtype, fragments->tensor.dimension_count,
                           fragments->tensor.shape, &fragments->elements, &bytes))
        return cairn_fail(err, CAIRN_CORRUPT, "tensor \"%.*s\": no type or size",
                          CAIRN_PLAN_SHOWN(text));
    cairn_plan_strides(fragments->tensor.shape, fragments->tensor.dimension_count,
                       fragments->strides);
    fragments->name = name;
    fragments->local_rank = local_rank;
    fragments->ref_first = first;
    fragments->ref_count = count;
    return CAIRN_OK;
}

static void flat_span(const struct cairn_plan_fragments *fragments, uint64_t start, uint64_t count,
                      struct cairn_plan_span *ret) {
    *ret = (struct cairn_plan_span){.flat = true, .start = start, .end = start + count};
    memcpy(ret->strides, fragments->strides, sizeof ret->strides);
}

static void box_span(unsigned dimensions, const uint64_t *start, const uint64_t *count,
                     struct cairn_plan_span *ret) {
    *ret = (struct cairn_plan_span){0};
    for (unsigned d = 0; d < dimensions; d++) {
        ret->box.low[d] = start[d];
        ret->box.high[d] = start[d] + count[d];
    }
    cairn_plan_strides(count, dimensions, ret->strides);
}

static uint64_t flat_index(const struct cairn_plan_fragments *fragments, const uint64_t *point) {
    uint64_t index = 0;
    for (unsigned d = 0; d < fragments->tensor.dimension_count; d++)
        index += point[d] * fragments->strides[d];
    return index;
}

static void flat_bounds(const struct cairn_plan_fragments *fragments,
                        const struct cairn_plan_span *span, uint64_t *ret_low, uint64_t *ret_high) {
    *ret_low = span->start;
    *ret_high = span->end;
    if (span->flat) return;
    uint64_t last[CAIRN_DIMENSIONS_MAX];
    for (unsigned d = 0; d < fragments->tensor.dimension_count; d++)
        last[d] = span->box.high[d] - 1;
    *ret_low = flat_index(fragments, span->box.low);
    *ret_high = flat_index(fragments, last) + 1;
}

static enum cairn_code find_shard(const struct cairn_manifest *manifest,
                                  const struct cairn_table *table, uint32_t index,
                                  uint32_t *ret_shard, struct cairn_error *err) {
    struct cairn_table_shard shard;
    cairn_table_shard_at(table, index, &shard);
    const struct cairn_manifest_shard *found = cairn_manifest_find(manifest, shard.name);
    if (!found || found->size_bytes != shard.size_bytes)
        return cairn_fail(err, CAIRN_CORRUPT,
                          "the layout's shard \"%.*s\" of %llu bytes is not in the manifest",
                          CAIRN_PLAN_SHOWN(shard.name), (unsigned long long)shard.size_bytes);
    *ret_shard = (uint32_t)(found - manifest->shards);
    return CAIRN_OK;
}

static bool same_tensor(const struct cairn_tensor *a, const struct cairn_tensor *b) {
    return a->kind == b->kind && a->dtype == b->dtype && a->dimension_count == b->dimension_count &&
           memcmp(a->shape, b->shape, a->dimension_count * sizeof *a->shape) == 0;
}

static enum cairn_code load_ref(struct cairn_plan_fragments *fragments,
                                const struct cairn_layout *layout,
                                const struct cairn_manifest *manifest, uint32_t ref,
                                struct cairn_error *err) {
    struct cairn_tensor tensor;
    uint32_t known = UINT32_MAX, shard = 0;
    const struct cairn_table *table = cairn_layout_tensor_at(layout, ref, &tensor);
    if (!same_tensor(&tensor, &fragments->tensor))
        return cairn_fail(err, CAIRN_CORRUPT, "tensor \"%.*s\": ranks describe it differently",
                          CAIRN_PLAN_SHOWN(tensor.name));
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(fragments->list, fragments->count, tensor.fragment_count,
                                   fragments->capacity, UINT32_MAX, "fragments of one tensor",
                                   err));
    for (uint32_t i = 0; i < tensor.fragment_count; i++) {
        struct cairn_fragment fragment;
        cairn_table_fragment_at(table, tensor.fragment_first + i, &fragment);
        if (fragment.shard != known) { /* fragments of one shard are consecutive */
            CAIRN_TRY(find_shard(manifest, table, fragment.shard, &shard, err));
            known = fragment.shard;
        }
        struct cairn_plan_fragment *placed = &fragments->list[fragments->count++];
        *placed =
            (struct cairn_plan_fragment){.shard = shard, .offset_bytes = fragment.offset_bytes};
        if (fragment.form == CAIRN_FRAGMENT_FLAT) {
            flat_span(fragments, fragment.start[0], fragment.count[0], &placed->span);
        } else {
            box_span(fragments->tensor.dimension_count, fragment.start, fragment.count,
                     &placed->span);
        }
        flat_bounds(fragments, &placed->span, &placed->low, &placed->high);
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

static enum cairn_code load_some(struct cairn_plan_fragments *fragments,
                                 const struct cairn_layout *layout,
                                 const struct cairn_manifest *manifest, uint32_t from, uint32_t to,
                                 struct cairn_error *err) {
    fragments->count = 0;
    for (uint32_t i = from; i < to; i++)
        CAIRN_TRY(load_ref(fragments, layout, manifest, fragments->ref_first + i, err));
    if (fragments->count)
        qsort(fragments->list, fragments->count, sizeof *fragments->list, compare_fragments);
    for (size_t i = 0; i < fragments->count; i++) {
        uint64_t before = i ? fragments->list[i - 1].reach : 0;
        fragments->list[i].reach = cairn_max_u64(before, fragments->list[i].high);
    }
    return CAIRN_OK;
}

/* Start of a listing's first fragment; false: it has none. */
static bool begin_of(const struct cairn_plan_fragments *fragments,
                     const struct cairn_layout *layout, uint32_t ref, uint64_t *ret) {
    struct cairn_tensor tensor;
    struct cairn_fragment fragment;
    const struct cairn_table *table =
        cairn_layout_tensor_at(layout, fragments->ref_first + ref, &tensor);
    if (!tensor.fragment_count || !same_tensor(&tensor, &fragments->tensor)) return false;
    cairn_table_fragment_at(table, tensor.fragment_first, &fragment);
    *ret = fragment.form == CAIRN_FRAGMENT_FLAT ? fragment.start[0]
                                                : flat_index(fragments, fragment.start);
    return true;
}

/* The first listing that begins at or after `place`. */
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

#define ALIAS_HOPS_MAX 16

struct planner {
    const struct cairn_manifest *manifest;
    const struct cairn_layout *layout;
    struct cairn_plan_pieces *pieces;
    size_t pieces_max;
    struct cairn_plan_fragments fragments;
    struct cairn_error *err;
};

void cairn_plan_pieces_release(struct cairn_plan_pieces *pieces) {
    free(pieces->pieces);
    free(pieces->want_bytes);
    *pieces = (struct cairn_plan_pieces){0};
}

enum cairn_code cairn_plan_resolve(const struct cairn_layout *layout, struct cairn_view name,
                                   uint32_t *ret_index, struct cairn_error *err) {
    struct cairn_view target = name;
    for (int hops = 0; hops <= ALIAS_HOPS_MAX; hops++) {
        uint32_t index, first, count;
        struct cairn_tensor tensor;
        if (!layout || !cairn_layout_find(layout, target, &index)) {
            if (hops == 0)
                return cairn_fail(err, CAIRN_NOT_FOUND, "no tensor \"%.*s\"",
                                  CAIRN_PLAN_SHOWN(name));
            return cairn_fail(err, CAIRN_NOT_FOUND,
                              "tensor \"%.*s\": its target \"%.*s\" is not there",
                              CAIRN_PLAN_SHOWN(name), CAIRN_PLAN_SHOWN(target));
        }
        cairn_layout_name_at(layout, index, &target, &first, &count);
        (void)cairn_layout_tensor_at(layout, first, &tensor);
        if (tensor.kind != CAIRN_TENSOR_ALIAS) {
            *ret_index = index;
            return CAIRN_OK;
        }
        target = tensor.alias_of;
    }
    return cairn_fail(err, CAIRN_INVALID, "tensor \"%.*s\": aliases in a circle, or more than %d",
                      CAIRN_PLAN_SHOWN(name), ALIAS_HOPS_MAX);
}

/* ---- pieces ---- */

static enum cairn_code put_piece(struct planner *planner, const struct cairn_plan_piece *piece) {
    struct cairn_plan_pieces *pieces = planner->pieces;
    if (pieces->count) {
        struct cairn_plan_piece *last = &pieces->pieces[pieces->count - 1];
        if (last->want == piece->want && last->shard == piece->shard &&
            last->offset + last->bytes == piece->offset && last->at + last->bytes == piece->at) {
            last->bytes += piece->bytes;
            return CAIRN_OK;
        }
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM(pieces->pieces, pieces->count, pieces->capacity, planner->pieces_max,
                               "pieces in a read plan", planner->err));
    pieces->pieces[pieces->count++] = *piece;
    return CAIRN_OK;
}

static enum cairn_code cut_inside(struct planner *planner, uint64_t bits) {
    return cairn_fail(planner->err, CAIRN_UNSUPPORTED,
                      "tensor \"%.*s\": elements of %u bits cut inside a byte",
                      CAIRN_PLAN_SHOWN(planner->fragments.tensor.name), (unsigned)bits);
}

/* Adds `run` elements from `from` in the fragment to `to` in the destination. */
static enum cairn_code put_run(struct planner *planner, const struct cairn_plan_fragment *fragment,
                               uint32_t want, uint64_t from, uint64_t to, uint64_t run) {
    const struct cairn_tensor *tensor = &planner->fragments.tensor;
    uint64_t bits = cairn_dtype_bits(tensor->dtype);
    if (bits < 8 && (from * bits % 8 || to * bits % 8 || run * bits % 8))
        return cut_inside(planner, bits);
    struct cairn_plan_piece piece = {
        .want = want,
        .shard = fragment->shard,
        .offset = fragment->offset_bytes + from * bits / 8,
        .bytes = run * bits / 8,
        .at = to * bits / 8,
    };
    return put_piece(planner, &piece);
}

/* Index of the box's first element in a span. */
static uint64_t place_in(const struct cairn_plan_fragments *fragments,
                         const struct cairn_plan_span *span, const struct cairn_plan_box *box) {
    if (span->flat) return flat_index(fragments, box->low) - span->start;
    uint64_t place = 0;
    for (unsigned d = 0; d < fragments->tensor.dimension_count; d++)
        place += (box->low[d] - span->box.low[d]) * span->strides[d];
    return place;
}

/* Number of outer dimensions to iterate; the inner ones form one run on both sides. */
static unsigned outer_dimensions(const struct cairn_plan_fragments *fragments,
                                 const struct cairn_plan_span *a, const struct cairn_plan_span *b,
                                 const struct cairn_plan_box *box, uint64_t *ret_run) {
    uint64_t run = 1;
    unsigned d = fragments->tensor.dimension_count;
    for (; d > 0; d--) {
        uint64_t count = box->high[d - 1] - box->low[d - 1];
        if (count == 1) continue;
        if (a->strides[d - 1] != run || b->strides[d - 1] != run) break;
        run *= count;
    }
    *ret_run = run;
    return d;
}

/* Adds all elements of `box`, which lies in the fragment and the wanted span. */
static enum cairn_code put_box(struct planner *planner, const struct cairn_plan_fragment *fragment,
                               const struct cairn_plan_span *wanted, uint32_t want,
                               const struct cairn_plan_box *box) {
    const struct cairn_plan_fragments *fragments = &planner->fragments;
    uint64_t from = place_in(fragments, &fragment->span, box),
             to = place_in(fragments, wanted, box), run;
    unsigned outer = outer_dimensions(fragments, &fragment->span, wanted, box, &run);
    uint64_t at[CAIRN_DIMENSIONS_MAX] = {0};
    for (;;) {
        CAIRN_TRY(put_run(planner, fragment, want, from, to, run));
        unsigned d = outer;
        while (d > 0) { /* next row: increment the innermost outer index, with carry */
            d--;
            from += fragment->span.strides[d];
            to += wanted->strides[d];
            if (++at[d] < box->high[d] - box->low[d]) break;
            from -= at[d] * fragment->span.strides[d];
            to -= at[d] * wanted->strides[d];
            at[d] = 0;
            if (d == 0) return CAIRN_OK;
        }
        if (outer == 0) return CAIRN_OK;
    }
}

/* Adds the intersection of a fragment and a wanted span. */
static enum cairn_code put_overlap(struct planner *planner,
                                   const struct cairn_plan_fragment *fragment,
                                   const struct cairn_plan_span *wanted, uint32_t want) {
    const struct cairn_plan_fragments *fragments = &planner->fragments;
    const struct cairn_plan_span *held = &fragment->span;
    unsigned dimensions = fragments->tensor.dimension_count;
    struct cairn_plan_box parts[CAIRN_PLAN_SPLIT_MAX], shared;
    if (held->flat && wanted->flat) {
        uint64_t low = cairn_max_u64(held->start, wanted->start);
        uint64_t high = cairn_min_u64(held->end, wanted->end);
        if (low >= high) return CAIRN_OK;
        return put_run(planner, fragment, want, low - held->start, low - wanted->start, high - low);
    }
    unsigned count = 1;
    parts[0] = held->flat ? wanted->box : held->box;
    const struct cairn_plan_span *other = held->flat ? held : wanted;
    if (held->flat || wanted->flat) {
        /* Splits only the possible intersection, so that few boxes result. */
        uint64_t low, high;
        flat_bounds(fragments, held->flat ? wanted : held, &low, &high);
        low = cairn_max_u64(low, other->start);
        high = cairn_min_u64(high, other->end);
        if (low >= high) return CAIRN_OK;
        shared = parts[0];
        count = cairn_plan_flat_split(fragments->tensor.shape, dimensions, low, high, parts);
    } else {
        shared = wanted->box;
    }
    for (unsigned i = 0; i < count; i++) {
        struct cairn_plan_box box;
        if (!cairn_plan_box_intersect(&parts[i], &shared, dimensions, &box)) continue;
        CAIRN_TRY(put_box(planner, fragment, wanted, want, &box));
    }
    return CAIRN_OK;
}

/* ---- wants ---- */

static bool inside(uint64_t start, uint64_t count, uint64_t size) {
    return start <= size && count <= size - start;
}

/* The want's region, checked against its tensor, and its element count. */
static enum cairn_code want_span(struct planner *planner, const struct cairn_plan_want *want,
                                 struct cairn_plan_span *ret, uint64_t *ret_elements) {
    const struct cairn_plan_fragments *fragments = &planner->fragments;
    const struct cairn_tensor *tensor = &fragments->tensor;
    bool good = true;
    uint64_t elements = 1;
    if (want->form == CAIRN_PLAN_WHOLE) {
        flat_span(fragments, 0, fragments->elements, ret);
        *ret_elements = fragments->elements;
        return CAIRN_OK;
    }
    if (want->form != CAIRN_PLAN_FLAT && want->form != CAIRN_PLAN_BOX)
        return cairn_fail(planner->err, CAIRN_INVALID, "unknown form %u", (unsigned)want->form);
    if (want->form == CAIRN_PLAN_FLAT || tensor->dimension_count == 0) {
        bool flat = want->form == CAIRN_PLAN_FLAT; /* a box without dimensions is the scalar */
        uint64_t start = flat ? want->start[0] : 0, count = flat ? want->count[0] : 1;
        good = inside(start, count, fragments->elements);
        if (good) flat_span(fragments, start, count, ret);
        elements = count;
    } else {
        for (unsigned d = 0; good && d < tensor->dimension_count; d++) {
            good = inside(want->start[d], want->count[d], tensor->shape[d]);
            elements *= want->count[d]; /* at most the tensor's: no overflow while good */
        }
        if (good) box_span(tensor->dimension_count, want->start, want->count, ret);
    }
    if (!good)
        return cairn_fail(planner->err, CAIRN_RANGE, "tensor \"%.*s\": the slice reaches outside",
                          CAIRN_PLAN_SHOWN(want->tensor));
    *ret_elements = elements;
    return CAIRN_OK;
}

/* The first fragment that may reach beyond `low`. */
static size_t first_reaching(const struct cairn_plan_fragments *fragments, uint64_t low) {
    size_t from = 0, to = fragments->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (fragments->list[middle].reach <= low)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static int compare_pieces(const void *a, const void *b) {
    const struct cairn_plan_piece *piece_a = a, *piece_b = b;
    if (piece_a->at != piece_b->at) return piece_a->at < piece_b->at ? -1 : 1;
    if (piece_a->shard != piece_b->shard) return piece_a->shard < piece_b->shard ? -1 : 1;
    return piece_a->offset < piece_b->offset ? -1 : piece_a->offset > piece_b->offset;
}

/* Sorts pieces [first, count) by destination and merges neighbours. */
static void sort_pieces(struct cairn_plan_pieces *pieces, size_t first) {
    bool sorted = true;
    for (size_t i = first + 1; i < pieces->count && sorted; i++)
        sorted = compare_pieces(&pieces->pieces[i - 1], &pieces->pieces[i]) < 0;
    if (sorted) return;
    qsort(pieces->pieces + first, pieces->count - first, sizeof *pieces->pieces, compare_pieces);
    size_t to = first;
    for (size_t i = first + 1; i < pieces->count; i++) {
        struct cairn_plan_piece *last = &pieces->pieces[to], *piece = &pieces->pieces[i];
        if (last->shard == piece->shard && last->offset + last->bytes == piece->offset &&
            last->at + last->bytes == piece->at) {
            last->bytes += piece->bytes;
        } else {
            pieces->pieces[++to] = *piece;
        }
    }
    pieces->count = to + 1;
}

/* Proves that the pieces fill [0, bytes) without hole or overlap (reads.h#1). */
static enum cairn_code prove_filled(const struct planner *planner,
                                    const struct cairn_plan_want *want, size_t first,
                                    uint64_t bytes) {
    const struct cairn_plan_pieces *pieces = planner->pieces;
    uint64_t at = 0;
    for (size_t i = first; i <= pieces->count; i++) {
        uint64_t next = i < pieces->count ? pieces->pieces[i].at : bytes;
        if (next < at)
            return cairn_fail(planner->err, CAIRN_CORRUPT,
                              "tensor \"%.*s\": byte %llu of the slice is held twice",
                              CAIRN_PLAN_SHOWN(want->tensor), (unsigned long long)next);
        if (next > at)
            return cairn_fail(
                planner->err, CAIRN_NOT_FOUND,
                "tensor \"%.*s\": bytes %llu to %llu of the slice are held by no shard",
                CAIRN_PLAN_SHOWN(want->tensor), (unsigned long long)at, (unsigned long long)next);
        if (i < pieces->count) at += pieces->pieces[i].bytes;
    }
    return CAIRN_OK;
}

/* ret_bytes: destination size. */
static enum cairn_code want_tensor(struct planner *planner, const struct cairn_plan_want *want,
                                   struct cairn_plan_span *ret, uint64_t *ret_bytes) {
    uint32_t index;
    uint64_t elements = 0;
    CAIRN_TRY(cairn_plan_resolve(planner->layout, want->tensor, &index, planner->err));
    struct cairn_plan_fragments *fragments = &planner->fragments;
    if (!fragments->loaded || fragments->name != index || fragments->local_rank != want->local_rank)
        CAIRN_TRY(cairn_plan_fragments_choose(fragments, planner->layout, index, want->local_rank,
                                              planner->err));
    CAIRN_TRY(want_span(planner, want, ret, &elements));
    uint64_t bits = cairn_dtype_bits(fragments->tensor.dtype);
    if (elements * bits % 8) return cut_inside(planner, bits);
    *ret_bytes = elements * bits / 8;
    return CAIRN_OK;
}

/* Adds what the loaded fragments hold of [low, high), in order. */
static enum cairn_code put_held(struct planner *planner, const struct cairn_plan_span *span,
                                uint32_t want_index, uint64_t low, uint64_t high) {
    const struct cairn_plan_fragments *fragments = &planner->fragments;
    size_t first = planner->pieces->count;
    for (size_t i = first_reaching(fragments, low); i < fragments->count; i++) {
        if (fragments->list[i].low >= high) break;
        CAIRN_TRY(put_overlap(planner, &fragments->list[i], span, want_index));
    }
    if (planner->pieces->count > first) sort_pieces(planner->pieces, first);
    return CAIRN_OK;
}

static enum cairn_code plan_tensor(struct planner *planner, const struct cairn_plan_want *want,
                                   uint32_t want_index, uint64_t *ret_bytes) {
    struct cairn_plan_fragments *fragments = &planner->fragments;
    struct cairn_plan_span span;
    uint64_t low, high;
    bool near = false;
    size_t first = planner->pieces->count;
    CAIRN_TRY(want_tensor(planner, want, &span, ret_bytes));
    if (*ret_bytes == 0) return CAIRN_OK;
    flat_bounds(fragments, &span, &low, &high);
    if (!fragments->loaded) {
        uint32_t from = 0, to = 0;
        near = fragments->ref_count >= NEAR_REFS_LEAST &&
               bisect(fragments, planner->layout, low + 1, &from) &&
               bisect(fragments, planner->layout, high, &to);
        from -= from > 0; /* the previous one begins earlier, and may overlap */
        near = near && to - from < fragments->ref_count / 4;
        if (near)
            CAIRN_TRY(
                load_some(fragments, planner->layout, planner->manifest, from, to, planner->err));
    }
    if (near) {
        CAIRN_TRY(put_held(planner, &span, want_index, low, high));
        if (prove_filled(planner, want, first, *ret_bytes) == CAIRN_OK) return CAIRN_OK;
        planner->pieces->count = first; /* all of them are looked at, and a fault is told then */
    }
    if (!fragments->loaded) {
        CAIRN_TRY(load_some(fragments, planner->layout, planner->manifest, 0, fragments->ref_count,
                            planner->err));
        fragments->loaded = true;
    }
    CAIRN_TRY(put_held(planner, &span, want_index, low, high));
    return prove_filled(planner, want, first, *ret_bytes);
}

static enum cairn_code plan_want(struct planner *planner, const struct cairn_plan_want *want,
                                 uint32_t want_index, uint64_t *ret_bytes) {
    if (!want->shard.data) return plan_tensor(planner, want, want_index, ret_bytes);
    struct cairn_plan_piece piece = {.want = want_index, .offset = want->offset};
    const struct cairn_manifest_shard *shard = cairn_manifest_find(planner->manifest, want->shard);
    if (!shard)
        return cairn_fail(planner->err, CAIRN_NOT_FOUND, "no shard \"%.*s\"",
                          CAIRN_PLAN_SHOWN(want->shard));
    bool to_end = want->bytes == UINT64_MAX;
    if (want->offset > shard->size_bytes ||
        (!to_end && want->bytes > shard->size_bytes - want->offset))
        return cairn_fail(planner->err, CAIRN_RANGE,
                          "shard \"%.*s\": the range reaches beyond its %llu bytes",
                          CAIRN_PLAN_SHOWN(want->shard), (unsigned long long)shard->size_bytes);
    piece.shard = (uint32_t)(shard - planner->manifest->shards);
    *ret_bytes = to_end ? shard->size_bytes - want->offset : want->bytes;
    piece.bytes = *ret_bytes;
    return piece.bytes ? put_piece(planner, &piece) : CAIRN_OK;
}

enum cairn_code cairn_plan_reads_most(const struct cairn_manifest *manifest,
                                      const struct cairn_layout *layout,
                                      const struct cairn_plan_want *wants, size_t want_count,
                                      size_t pieces_max, struct cairn_plan_pieces *ret,
                                      struct cairn_error *err) {
    struct cairn_plan_pieces pieces = {.want_count = want_count};
    struct planner planner = {.manifest = manifest,
                              .layout = layout,
                              .pieces = &pieces,
                              .pieces_max = pieces_max,
                              .err = err};
    if (want_count > pieces_max)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%zu wants in one read plan", want_count);
    enum cairn_code code = CAIRN_OK;
    pieces.want_bytes = calloc(want_count + 1, sizeof *pieces.want_bytes);
    if (!pieces.want_bytes) code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read plan");
    for (uint32_t i = 0; code == CAIRN_OK && i < want_count; i++)
        code = plan_want(&planner, &wants[i], i, &pieces.want_bytes[i]);
    cairn_plan_fragments_release(&planner.fragments);
    if (code == CAIRN_OK)
        *ret = pieces;
    else
        cairn_plan_pieces_release(&pieces);
    return code;
}

enum cairn_code cairn_plan_reads(const struct cairn_manifest *manifest,
                                 const struct cairn_layout *layout,
                                 const struct cairn_plan_want *wants, size_t want_count,
                                 struct cairn_plan_pieces *ret, struct cairn_error *err) {
    return cairn_plan_reads_most(manifest, layout, wants, want_count, CAIRN_PLAN_PIECES_MAX, ret,
                                 err);
}
