/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a torch file: ranges of it, or views whose elements lie apart. */
#include "formats/torch_assembly.h"

#include <stdlib.h>

#include "common/buf.h"
#include "common/text.h"

struct seen {
    struct cairn_torch_tensor tensor;
    char *name;
    size_t index, first; /* in the order they were seen; first: of those that are the same */
    size_t number;       /* in the assembly */
};
struct gather {
    const struct cairn_torch *file;
    struct cairn_assembly *assembly;
    const char *prefix;
    uint32_t input;
    struct seen *seen;
    size_t count, capacity;
};

/* ---- which tensors are the same elements ---- */

static int by_number(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

static int by_elements(const struct cairn_torch_tensor *a, const struct cairn_torch_tensor *b) {
    size_t size = a->storage.size < b->storage.size ? a->storage.size : b->storage.size;
    int order = memcmp(a->storage.data, b->storage.data, size);
    if (!order) order = by_number(a->storage.size, b->storage.size);
    if (!order) order = by_number(a->offset_bytes, b->offset_bytes);
    if (!order) order = by_number(a->dtype, b->dtype);
    if (!order) order = by_number(a->dimension_count, b->dimension_count);
    if (!order) order = memcmp(a->shape, b->shape, sizeof a->shape);
    if (!order) order = (a->conjugated > b->conjugated) - (a->conjugated < b->conjugated);
    if (!order) order = (a->negated > b->negated) - (a->negated < b->negated);
    return order ? order : memcmp(a->stride, b->stride, sizeof a->stride);
}

static int by_elements_then_place(const void *a, const void *b) {
    const struct seen *x = *(struct seen *const *)a, *y = *(struct seen *const *)b;
    int order = by_elements(&x->tensor, &y->tensor);
    return order ? order : by_number(x->index, y->index);
}

/* A tensor without bytes is no alias of another one. */
static enum cairn_code find_same(struct gather *gather, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct seen **sorted = calloc(gather->count + 1, sizeof *sorted);
    if (!sorted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the tensors of a file");
    for (size_t i = 0; i < gather->count; i++) sorted[i] = &gather->seen[i];
    if (gather->count) qsort(sorted, gather->count, sizeof *sorted, by_elements_then_place);
    for (size_t i = 1; i < gather->count; i++)
        if (sorted[i]->tensor.size_bytes &&
            by_elements(&sorted[i - 1]->tensor, &sorted[i]->tensor) == 0)
            sorted[i]->first = sorted[i - 1]->first;
    return CAIRN_OK;
}

/* ---- one tensor ---- */

/* The checksum of its storage, which is compared where all of that is read. */
static enum cairn_code add_seal(struct gather *gather, const struct cairn_torch_tensor *tensor,
                                uint64_t storage, struct cairn_error *err) {
    struct cairn_seal seal;
    struct cairn_view name;
    if (!cairn_torch_seal(gather->file, tensor, storage, &seal, &name)) return CAIRN_OK;
    seal.input = gather->input;
    return cairn_seals_add(&gather->assembly->seals, &seal, name, err);
}

static enum cairn_code add_elements(struct gather *gather, const struct cairn_torch_tensor *tensor,
                                    uint64_t storage, struct cairn_error *err) {
    struct cairn_assembly_piece piece = {.input = gather->input,
                                         .offset_bytes = storage + tensor->offset_bytes,
                                         .size_bytes = tensor->size_bytes};
    struct cairn_box box = {0};
    unsigned flip;
    CAIRN_TRY(cairn_assembly_flips(tensor->dtype, tensor->conjugated, tensor->negated, &flip, err));
    CAIRN_TRY(add_seal(gather, tensor, storage, err));
    if (tensor->elements == 0) return CAIRN_OK;
    if (tensor->contiguous && !flip)
        return cairn_assembly_add_piece(gather->assembly, gather->input, piece.offset_bytes,
                                        piece.size_bytes, err);
    piece.flip = flip & 3u;
    memcpy(box.count, tensor->shape, sizeof box.count);
    return cairn_assembly_add_view(gather->assembly, &piece, tensor->stride, &box, err);
}

static enum cairn_code add_tensor(struct gather *gather, struct seen *seen,
                                  struct cairn_error *err) {
    const struct cairn_torch_tensor *tensor = &seen->tensor;
    uint64_t storage = 0;
    seen->number = gather->assembly->tensor_count;
    if (seen->first != seen->index)
        return cairn_assembly_add_alias(gather->assembly, seen->name,
                                        gather->seen[seen->first].number, err);
    CAIRN_TRY(cairn_torch_storage_at(gather->file, tensor, &storage, err));
    CAIRN_TRY(cairn_assembly_add_tensor(gather->assembly, seen->name, tensor->dtype,
                                        tensor->dimension_count, tensor->shape, err));
    return add_elements(gather, tensor, storage, err);
}

static enum cairn_code see(struct gather *gather, const char *name, cairn_pickle_ref ref,
                           struct cairn_error *err) {
    struct seen seen = {.index = gather->count, .first = gather->count};
    CAIRN_TRY(cairn_torch_tensor(gather->file, ref, &seen.tensor, err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(gather->seen, gather->count, gather->capacity, UINT32_MAX / 2,
                               "tensors of a file", err));
    seen.name = strdup(name);
    if (!seen.name) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
    gather->seen[gather->count++] = seen;
    return CAIRN_OK;
}

static enum cairn_code visit(void *context, const char *path, enum cairn_torch_kind kind,
                             cairn_pickle_ref ref, struct cairn_error *err) {
    struct gather *gather = context;
    size_t size = strlen(gather->prefix);
    if (kind != CAIRN_TORCH_LEAF_TENSOR || strncmp(path, gather->prefix, size) != 0)
        return CAIRN_OK;
    enum cairn_code code = see(gather, path + size, ref, err);
    return code ? cairn_within(err, code, "tensor %s", cairn_short(path).text) : CAIRN_OK;
}

static enum cairn_code assemble(struct gather *gather, struct cairn_error *err) {
    CAIRN_TRY(cairn_assembly_add_input(gather->assembly, cairn_torch_data(gather->file),
                                       &gather->input, err));
    CAIRN_TRY(cairn_torch_walk(gather->file, visit, gather, err));
    CAIRN_TRY(find_same(gather, err));
    for (size_t i = 0; i < gather->count; i++) {
        enum cairn_code code = add_tensor(gather, &gather->seen[i], err);
        if (code)
            return cairn_within(err, code, "tensor %s", cairn_short(gather->seen[i].name).text);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_torch_assemble(const struct cairn_torch *file, const char *prefix,
                                     struct cairn_assembly *assembly, struct cairn_error *err) {
    struct gather gather = {.file = file, .assembly = assembly, .prefix = prefix};
    enum cairn_code code = assemble(&gather, err);
    for (size_t i = 0; i < gather.count; i++) free(gather.seen[i].name);
    free(gather.seen);
    return code;
}
