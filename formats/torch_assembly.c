/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a torch file, their strides undone into runs of contiguous elements. */
#include "formats/torch_assembly.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/array.h"
#include "common/utf8.h"

#define RUNS_MAX 1048576

struct gather {
    const struct cairn_torch *file;
    struct cairn_assembly *assembly;
    const char *prefix;
    uint32_t input;
    struct cairn_torch_tensor *seen; /* by number in the assembly */
    size_t seen_capacity;
};

static bool same_elements(const struct cairn_torch_tensor *a, const struct cairn_torch_tensor *b) {
    return a->storage.size == b->storage.size && a->offset_bytes == b->offset_bytes &&
           a->dtype == b->dtype && a->dimension_count == b->dimension_count && a->size_bytes &&
           memcmp(a->storage.data, b->storage.data, a->storage.size) == 0 &&
           memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
           memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

/* How many dimensions, from the last, lie in one run, and how many elements that is. */
static unsigned run_of(const struct cairn_torch_tensor *tensor, uint64_t *ret_elements) {
    unsigned outer = tensor->dimension_count;
    *ret_elements = 1;
    while (outer && (tensor->stride[outer - 1] == *ret_elements || tensor->shape[outer - 1] == 1))
        *ret_elements *= tensor->shape[--outer];
    return outer;
}

static enum cairn_code add_runs(struct gather *gather, const struct cairn_torch_tensor *tensor,
                                uint64_t storage, struct cairn_error *err) {
    uint64_t width = cairn_dtype_bits(tensor->dtype) / 8, run, at[CAIRN_DIMENSIONS_MAX] = {0};
    unsigned outer = run_of(tensor, &run);
    if (tensor->elements == 0) return CAIRN_OK;
    if (tensor->elements / run > RUNS_MAX)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "its strides cut it into %" PRIu64 " runs, at most %d are put together",
                          tensor->elements / run, RUNS_MAX);
    for (uint64_t i = 0; i < tensor->elements / run; i++) {
        uint64_t element = 0;
        for (unsigned d = 0; d < outer; d++) element += at[d] * tensor->stride[d];
        CAIRN_TRY(cairn_assembly_add_piece(gather->assembly, gather->input,
                                           storage + tensor->offset_bytes + element * width,
                                           run * width, err));
        for (unsigned d = outer; d-- > 0 && ++at[d] == tensor->shape[d];) at[d] = 0;
    }
    return CAIRN_OK;
}

static enum cairn_code add_tensor(struct gather *gather, const char *name, cairn_pickle_ref ref,
                                  struct cairn_error *err) {
    struct cairn_torch_tensor tensor;
    uint64_t storage = 0;
    size_t number = gather->assembly->tensor_count;
    CAIRN_TRY(cairn_torch_tensor(gather->file, ref, &tensor, err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(gather->seen, number, gather->seen_capacity, UINT32_MAX / 2,
                               "tensors of a file", err));
    gather->seen[number] = tensor;
    for (size_t i = 0; i < number; i++)
        if (same_elements(&gather->seen[i], &tensor))
            return cairn_assembly_add_alias(gather->assembly, name, i, err);
    CAIRN_TRY(cairn_torch_storage_at(gather->file, &tensor, &storage, err));
    CAIRN_TRY(cairn_assembly_add_tensor(gather->assembly, name, tensor.dtype,
                                        tensor.dimension_count, tensor.shape, err));
    return add_runs(gather, &tensor, storage, err);
}

static enum cairn_code visit(void *context, const char *path, enum cairn_torch_kind kind,
                             cairn_pickle_ref ref, struct cairn_error *err) {
    struct gather *gather = context;
    size_t size = strlen(gather->prefix);
    if (kind != CAIRN_TORCH_LEAF_TENSOR || strncmp(path, gather->prefix, size) != 0)
        return CAIRN_OK;
    enum cairn_code code = add_tensor(gather, path + size, ref, err);
    return code ? cairn_within(err, code, "tensor %s", cairn_short(path).text) : CAIRN_OK;
}

enum cairn_code cairn_torch_assemble(const struct cairn_torch *file, const char *prefix,
                                     struct cairn_assembly *assembly, struct cairn_error *err) {
    struct gather gather = {.file = file, .assembly = assembly, .prefix = prefix};
    CAIRN_ASSERT(assembly->tensor_count == 0);
    CAIRN_TRY(cairn_assembly_add_input(assembly, file->input, &gather.input, err));
    enum cairn_code code = cairn_torch_walk(file, visit, &gather, err);
    free(gather.seen);
    return code ? code : cairn_assembly_check(assembly, err);
}
