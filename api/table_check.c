/* SPDX-License-Identifier: Apache-2.0 */
/* table_check: what a single tensor and a single fragment must satisfy. */
#include "api/table_check.h"

#include "api/dtype.h"
#include "api/table_format.h"

enum cairn_code cairn_tensor_check(const struct cairn_tensor *tensor, struct cairn_error *err) {
    if (tensor->dimension_count > CAIRN_DIMENSIONS_MAX) {
        return cairn_fail(err, CAIRN_INVALID, "%u dimensions, at most %d", tensor->dimension_count,
                          CAIRN_DIMENSIONS_MAX);
    }
    if (tensor->kind < CAIRN_TENSOR_SHARDED || tensor->kind > CAIRN_TENSOR_LOCAL) {
        return cairn_fail(err, CAIRN_INVALID, "unknown kind %u", (unsigned)tensor->kind);
    }
    bool alias = tensor->kind == CAIRN_TENSOR_ALIAS;
    if (alias != (tensor->alias_of.data != NULL)) {
        return cairn_fail(err, CAIRN_INVALID, "an alias, and nothing else, names its target");
    }
    /* An alias may leave type and shape to its target. */
    if (alias && tensor->dtype == CAIRN_DTYPE_NONE && tensor->dimension_count == 0) return CAIRN_OK;
    uint64_t elements, bytes;
    if (!cairn_dtype_text(tensor->dtype)) {
        return cairn_fail(err, CAIRN_INVALID, "unknown element type %u", tensor->dtype);
    }
    if (!cairn_tensor_size(tensor->dtype, tensor->dimension_count, tensor->shape, &elements,
                           &bytes)) {
        return cairn_fail(err, CAIRN_INVALID, "its shape is too large or does not fill bytes");
    }
    if (tensor->dtype == CAIRN_DTYPE_ITEM && tensor->dimension_count != 1) {
        return cairn_fail(err, CAIRN_INVALID, "an item of %u dimensions, it has one",
                          tensor->dimension_count);
    }
    return CAIRN_OK;
}

/* [start, start + count) in [0, size)? */
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
    if (!cairn_tensor_size(tensor->dtype, tensor->dimension_count, tensor->shape, &all, &bytes)) {
        return cairn_fail(err, CAIRN_INVALID, "its tensor has no size");
    }
    if (fragment->form == CAIRN_FRAGMENT_FLAT) {
        elements = fragment->count[0];
        if (!inside(fragment->start[0], elements, all)) {
            return cairn_fail(err, CAIRN_INVALID, "flat range %llu+%llu outside %llu elements",
                              (unsigned long long)fragment->start[0], (unsigned long long)elements,
                              (unsigned long long)all);
        }
    } else if (fragment->form == CAIRN_FRAGMENT_BOX) {
        if (tensor->dimension_count == 0) {
            return cairn_fail(err, CAIRN_INVALID, "a box in a tensor without dimensions");
        }
        if (!box_inside(tensor, fragment, &elements)) {
            return cairn_fail(err, CAIRN_INVALID, "box outside its tensor");
        }
    } else {
        return cairn_fail(err, CAIRN_INVALID, "unknown form %u", (unsigned)fragment->form);
    }
    /* elements <= all, and all times bits did not overflow. */
    uint64_t bits = elements * cairn_dtype_bits(tensor->dtype);
    if (bits % 8 != 0) return cairn_fail(err, CAIRN_INVALID, "its elements do not fill bytes");
    *ret_bytes = bits / 8;
    return CAIRN_OK;
}
