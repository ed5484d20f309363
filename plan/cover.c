/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For each name, gathers the ranks' fragments and lets plan/exact.h judge; then checks each shard's
 * bytes. A tensor held only in flat ranges is proven in one dimension, by a sweep; flat ranges are
 * split into boxes only if the tensor also has boxes.
 */
#include "plan/cover.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "plan/exact.h"
#include "plan/reads.h"

/* One tensor's fragments; the arrays are reused for the next tensor. */
struct pieces {
    struct cairn_plan_box *boxes;
    uint32_t *ranks;
    uint32_t count, capacity;
};
struct cover {
    const struct cairn_layout *layout;
    struct pieces pieces;
    struct cairn_plan_effort effort; /* shared by all tensors */
    struct cairn_error *err;
};
/* Context of a finding. */
struct subject {
    struct cairn_view name;
    const struct cairn_tensor *tensor;
    bool one_rank; /* each rank must cover it alone */
    uint32_t rank;
};

static enum cairn_code pieces_add(struct cover *cover, const struct cairn_plan_box *box,
                                  uint32_t rank) {
    struct pieces *pieces = &cover->pieces;
    if (pieces->count == pieces->capacity) {
        if (pieces->capacity > UINT32_MAX / 2)
            return cairn_fail(cover->err, CAIRN_TOO_LARGE, "too many fragments of one tensor");
        uint32_t capacity = pieces->capacity ? pieces->capacity * 2 : 256;
        struct cairn_plan_box *boxes = realloc(pieces->boxes, capacity * sizeof *boxes);
        if (boxes) pieces->boxes = boxes;
        uint32_t *ranks = realloc(pieces->ranks, capacity * sizeof *ranks);
        if (ranks) pieces->ranks = ranks;
        if (!boxes || !ranks)
            return cairn_fail(cover->err, CAIRN_NO_MEMORY, "no memory for the cover proof");
        pieces->capacity = capacity;
    }
    pieces->boxes[pieces->count] = *box;
    pieces->ranks[pieces->count++] = rank;
    return CAIRN_OK;
}

/* ---- one tensor ---- */

static bool has_boxes(const struct cairn_layout *layout, uint32_t first, uint32_t count) {
    for (uint32_t i = first; i < first + count; i++) {
        struct cairn_tensor tensor;
        const struct cairn_table *table = cairn_layout_tensor_at(layout, i, &tensor);
        for (uint32_t k = 0; k < tensor.fragment_count; k++) {
            struct cairn_fragment fragment;
            cairn_table_fragment_at(table, tensor.fragment_first + k, &fragment);
            if (fragment.form == CAIRN_FRAGMENT_BOX) return true;
        }
    }
    return false;
}

static enum cairn_code add_flat(struct cover *cover, const struct cairn_tensor *tensor,
                                const struct cairn_fragment *fragment, bool flat, uint32_t rank) {
    uint64_t start = fragment->start[0], end = start + fragment->count[0];
    if (flat) {
        struct cairn_plan_box range = {.low = {start}, .high = {end}};
        return pieces_add(cover, &range, rank);
    }
    struct cairn_plan_box boxes[CAIRN_PLAN_SPLIT_MAX];
    unsigned count =
        cairn_plan_flat_split(tensor->shape, tensor->dimension_count, start, end, boxes);
    for (unsigned i = 0; i < count; i++) CAIRN_TRY(pieces_add(cover, &boxes[i], rank));
    return CAIRN_OK;
}

/* Adds all fragments of one listing. flat: the tensor has no boxes. */
static enum cairn_code add_ref(struct cover *cover, uint32_t ref, bool flat) {
    struct cairn_tensor tensor;
    const struct cairn_table *source = cairn_layout_tensor_at(cover->layout, ref, &tensor);
    for (uint32_t k = 0; k < tensor.fragment_count; k++) {
        struct cairn_fragment fragment;
        cairn_table_fragment_at(source, tensor.fragment_first + k, &fragment);
        if (fragment.form == CAIRN_FRAGMENT_FLAT) {
            CAIRN_TRY(add_flat(cover, &tensor, &fragment, flat, source->rank));
            continue;
        }
        struct cairn_plan_box box = {0};
        for (unsigned d = 0; d < tensor.dimension_count; d++) {
            box.low[d] = fragment.start[d];
            box.high[d] = fragment.start[d] + fragment.count[d];
        }
        CAIRN_TRY(pieces_add(cover, &box, source->rank));
    }
    return CAIRN_OK;
}

static enum cairn_code report(const struct cover *cover, const struct subject *subject,
                              const struct cairn_plan_proof *proof, unsigned dimensions,
                              bool flat) {
    char region[CAIRN_PLAN_REGION_TEXT_BYTES];
    const char *what = flat ? "elements" : "region";
    cairn_plan_region_text(&proof->region, dimensions, region);
    if (proof->finding == CAIRN_PLAN_FOUND_OVERLAP) {
        uint32_t first = cover->pieces.ranks[proof->first];
        uint32_t second = cover->pieces.ranks[proof->second];
        return cairn_fail(cover->err, CAIRN_INVALID,
                          "tensor \"%.*s\": %s %s held twice, by rank %u and rank %u",
                          CAIRN_PLAN_SHOWN(subject->name), what, region, first, second);
    }
    if (subject->one_rank)
        return cairn_fail(cover->err, CAIRN_INVALID,
                          "tensor \"%.*s\": %s %s missing in rank %u, which must hold the whole",
                          CAIRN_PLAN_SHOWN(subject->name), what, region, subject->rank);
    return cairn_fail(cover->err, CAIRN_INVALID, "tensor \"%.*s\": %s %s held by no rank",
                      CAIRN_PLAN_SHOWN(subject->name), what, region);
}

/* Proves that listings [first, first + count) together hold the tensor exactly once. */
static enum cairn_code prove_refs(struct cover *cover, const struct subject *subject,
                                  uint32_t first, uint32_t count) {
    const struct cairn_tensor *tensor = subject->tensor;
    uint64_t elements, bytes;
    if (!cairn_tensor_size(tensor->dtype, tensor->dimension_count, tensor->shape, &elements,
                           &bytes))
        return cairn_fail(cover->err, CAIRN_INVALID, "tensor \"%.*s\": no type or size",
                          CAIRN_PLAN_SHOWN(subject->name));
    if (elements == 0) return CAIRN_OK; /* empty fragments were refused at the open */
    bool flat = tensor->dimension_count == 0 || !has_boxes(cover->layout, first, count);
    cover->pieces.count = 0;
    for (uint32_t i = first; i < first + count; i++) CAIRN_TRY(add_ref(cover, i, flat));
    struct cairn_plan_box whole = {.high = {elements}};
    unsigned dimensions = flat ? 1 : tensor->dimension_count;
    if (!flat) memcpy(whole.high, tensor->shape, dimensions * sizeof *whole.high);
    struct cairn_plan_proof proof;
    CAIRN_TRY(cairn_plan_exact(&cover->effort, &whole, dimensions, cover->pieces.boxes,
                               cover->pieces.count, &proof, cover->err));
    if (proof.finding == CAIRN_PLAN_FOUND_NOTHING) return CAIRN_OK;
    return report(cover, subject, &proof, dimensions, flat);
}

/* ---- agreement of ranks about one name ---- */

static const char *difference(const struct cairn_tensor *a, const struct cairn_tensor *b) {
    if (a->kind != b->kind) return "kind";
    if (a->kind == CAIRN_TENSOR_LOCAL) return NULL; /* different tensors of one name */
    if (a->dtype != b->dtype) return "element type";
    if (a->dimension_count != b->dimension_count) return "number of dimensions";
    if (memcmp(a->shape, b->shape, a->dimension_count * sizeof *a->shape) != 0) return "shape";
    if (a->alias_of.size != b->alias_of.size) return "alias target";
    if (a->alias_of.size && memcmp(a->alias_of.data, b->alias_of.data, a->alias_of.size) != 0)
        return "alias target";
    return NULL;
}

/* An alias of a LOCAL tensor is per rank: the same rank must list the target. */
static enum cairn_code prove_alias(const struct cover *cover, const struct subject *subject,
                                   uint32_t first, uint32_t count) {
    uint32_t target, ref_first, ref_count, index;
    struct cairn_view name;
    struct cairn_tensor tensor;
    if (cairn_plan_resolve(cover->layout, subject->name, &target, cover->err) != CAIRN_OK) {
        if (cover->err) cover->err->code = CAIRN_INVALID;
        return CAIRN_INVALID;
    }
    cairn_layout_name_at(cover->layout, target, &name, &ref_first, &ref_count);
    for (uint32_t i = first; i < first + count; i++) {
        struct cairn_tensor alias;
        const struct cairn_table *source = cairn_layout_tensor_at(cover->layout, i, &alias);
        (void)cairn_layout_tensor_at(cover->layout, ref_first, &tensor);
        if (tensor.kind == CAIRN_TENSOR_LOCAL) {
            if (!cairn_table_find(source, name, &index))
                return cairn_fail(cover->err, CAIRN_INVALID,
                                  "tensor \"%.*s\": its target is local, and rank %u has none",
                                  CAIRN_PLAN_SHOWN(subject->name), source->rank);
            cairn_table_tensor_at(source, index, &tensor);
        }
        if (alias.dtype == CAIRN_DTYPE_NONE) continue;
        if (alias.dtype != tensor.dtype || alias.dimension_count != tensor.dimension_count ||
            memcmp(alias.shape, tensor.shape, alias.dimension_count * sizeof *alias.shape) != 0)
            return cairn_fail(cover->err, CAIRN_INVALID,
                              "tensor \"%.*s\": another type or shape than its target \"%.*s\"",
                              CAIRN_PLAN_SHOWN(subject->name), CAIRN_PLAN_SHOWN(name));
    }
    return CAIRN_OK;
}

static enum cairn_code prove_name(struct cover *cover, uint32_t index) {
    struct subject subject = {0};
    uint32_t first, count;
    struct cairn_tensor tensor;
    cairn_layout_name_at(cover->layout, index, &subject.name, &first, &count);
    (void)cairn_layout_tensor_at(cover->layout, first, &tensor);
    subject.tensor = &tensor;
    for (uint32_t i = first; i < first + count; i++) {
        struct cairn_tensor one, other;
        const struct cairn_table *one_table = cairn_layout_tensor_at(cover->layout, first, &one);
        const struct cairn_table *other_table = cairn_layout_tensor_at(cover->layout, i, &other);
        const char *what = difference(&one, &other);
        if (!what) continue;
        return cairn_fail(cover->err, CAIRN_BEGIN_DIFFERS,
                          "tensor \"%.*s\": rank %u and rank %u disagree about its %s",
                          CAIRN_PLAN_SHOWN(subject.name), one_table->rank, other_table->rank, what);
    }
    if (tensor.kind == CAIRN_TENSOR_ALIAS) return prove_alias(cover, &subject, first, count);
    if (tensor.kind == CAIRN_TENSOR_SHARDED) return prove_refs(cover, &subject, first, count);
    subject.one_rank = true;
    for (uint32_t i = first; i < first + count; i++) {
        /* local tensors differ in shape */
        subject.rank = cairn_layout_tensor_at(cover->layout, i, &tensor)->rank;
        CAIRN_TRY(prove_refs(cover, &subject, i, 1));
    }
    return CAIRN_OK;
}

/* ---- the bytes of shards ---- */

struct extent {
    uint64_t offset, size;
    uint32_t shard, fragment;
};

static int compare_extents(const void *a, const void *b) {
    const struct extent *extent_a = a, *extent_b = b;
    if (extent_a->shard != extent_b->shard) return extent_a->shard < extent_b->shard ? -1 : 1;
    if (extent_a->offset != extent_b->offset) return extent_a->offset < extent_b->offset ? -1 : 1;
    return 0;
}

static struct cairn_view tensor_of(const struct cairn_table *table, uint32_t fragment) {
    uint32_t low = 0, high = table->tensor_count;
    struct cairn_tensor tensor = {0};
    while (high - low > 1) { /* fragments are ordered by tensor */
        uint32_t middle = low + (high - low) / 2;
        cairn_table_tensor_at(table, middle, &tensor);
        if (tensor.fragment_first <= fragment)
            low = middle;
        else
            high = middle;
    }
    cairn_table_tensor_at(table, low, &tensor);
    return tensor.name;
}

static enum cairn_code prove_bytes(const struct cover *cover, const struct cairn_table *table) {
    CAIRN_AUTO_HEAP struct extent *extents =
        calloc((size_t)table->fragment_count + 1, sizeof *extents);
    if (!extents) return cairn_fail(cover->err, CAIRN_NO_MEMORY, "no memory for the cover proof");
    uint32_t count = 0;
    bool sorted = true;
    for (uint32_t i = 0; i < table->fragment_count; i++) {
        struct cairn_fragment fragment;
        struct cairn_table_shard shard;
        cairn_table_fragment_at(table, i, &fragment);
        cairn_table_shard_at(table, fragment.shard, &shard);
        if (!shard.tensors) continue; /* tensors may share storage in a raw file */
        extents[count] =
            (struct extent){fragment.offset_bytes, fragment.size_bytes, fragment.shard, i};
        sorted =
            sorted && (count == 0 || compare_extents(&extents[count - 1], &extents[count]) <= 0);
        count++;
    }
    if (!sorted) qsort(extents, count, sizeof *extents, compare_extents);
    for (uint32_t i = 1; i < count; i++) {
        const struct extent *before = &extents[i - 1], *after = &extents[i];
        if (before->shard != after->shard) continue;
        if (before->offset + before->size <= after->offset) continue;
        struct cairn_table_shard shard;
        cairn_table_shard_at(table, before->shard, &shard);
        struct cairn_view name_a = tensor_of(table, before->fragment);
        struct cairn_view name_b = tensor_of(table, after->fragment);
        return cairn_fail(
            cover->err, CAIRN_INVALID,
            "shard \"%.*s\" of rank %u: tensors \"%.*s\" and \"%.*s\" share byte %llu",
            CAIRN_PLAN_SHOWN(shard.name), table->rank, CAIRN_PLAN_SHOWN(name_a),
            CAIRN_PLAN_SHOWN(name_b), (unsigned long long)after->offset);
    }
    return CAIRN_OK;
}

struct owned_shard {
    struct cairn_view name;
    uint32_t rank;
};

static int compare_owned(const void *a, const void *b) {
    const struct owned_shard *shard_a = a, *shard_b = b;
    size_t size_a = shard_a->name.size, size_b = shard_b->name.size;
    int order = memcmp(shard_a->name.data, shard_b->name.data, size_a < size_b ? size_a : size_b);
    if (order) return order;
    if (size_a != size_b) return size_a < size_b ? -1 : 1;
    return shard_a->rank < shard_b->rank ? -1 : shard_a->rank > shard_b->rank;
}

static enum cairn_code look_for_stop(const struct cover *cover) {
    const _Atomic bool *stop = cover->effort.stop;
    if (!stop || !atomic_load(stop)) return CAIRN_OK;
    return cairn_fail(cover->err, CAIRN_CANCELLED, "the cover proof was stopped");
}

static enum cairn_code prove(struct cover *cover) {
    for (uint32_t i = 0; i < cover->layout->name_count; i++) {
        CAIRN_TRY(look_for_stop(cover));
        CAIRN_TRY(prove_name(cover, i));
    }
    for (uint32_t i = 0; i < cover->layout->table_count; i++) {
        CAIRN_TRY(look_for_stop(cover));
        CAIRN_TRY(prove_bytes(cover, &cover->layout->tables[i]));
    }
    /* Proves that each shard belongs to one rank. */
    const struct cairn_layout *layout = cover->layout;
    size_t total = 0, count = 0;
    for (uint32_t i = 0; i < layout->table_count; i++) total += layout->tables[i].shard_count;
    CAIRN_AUTO_HEAP struct owned_shard *owned = calloc(total + 1, sizeof *owned);
    if (!owned) return cairn_fail(cover->err, CAIRN_NO_MEMORY, "no memory for the cover proof");
    for (uint32_t i = 0; i < layout->table_count; i++) {
        for (uint32_t k = 0; k < layout->tables[i].shard_count; k++) {
            struct cairn_table_shard shard;
            cairn_table_shard_at(&layout->tables[i], k, &shard);
            owned[count++] = (struct owned_shard){shard.name, layout->tables[i].rank};
        }
    }
    qsort(owned, count, sizeof *owned, compare_owned);
    for (size_t i = 1; i < count; i++) {
        if (owned[i - 1].name.size != owned[i].name.size ||
            memcmp(owned[i - 1].name.data, owned[i].name.data, owned[i].name.size) != 0)
            continue;
        return cairn_fail(cover->err, CAIRN_INVALID,
                          "shard \"%.*s\" is listed by rank %u and rank %u",
                          CAIRN_PLAN_SHOWN(owned[i].name), owned[i - 1].rank, owned[i].rank);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_plan_cover_prove(const struct cairn_layout *layout, const _Atomic bool *stop,
                                       struct cairn_error *err) {
    struct cover cover = {.layout = layout, .err = err};
    uint64_t fragments = 0;
    for (uint32_t i = 0; i < layout->table_count; i++)
        fragments += layout->tables[i].fragment_count;
    cover.effort = cairn_plan_effort_of(fragments);
    cover.effort.stop = stop;
    enum cairn_code code = prove(&cover);
    free(cover.pieces.boxes);
    free(cover.pieces.ranks);
    return code;
}
