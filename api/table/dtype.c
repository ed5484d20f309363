/* SPDX-License-Identifier: Apache-2.0 */
/* Names, sizes and shown forms of element types. */
#include "api/table/dtype.h"

#include <strings.h>

#include "api/table/table.h"

struct dtype {
    const char *text;
    size_t size;
    unsigned bits, shown;
};
static const struct dtype dtypes[] = {
#define DTYPE_ROW(name, number, width, shown)                                                      \
    [number] = {#name, sizeof(#name) - 1, width, CAIRN_DTYPE_##shown},
    CAIRN_DTYPES(DTYPE_ROW)
#undef DTYPE_ROW
};

const char *cairn_dtype_text(unsigned dtype) {
    return dtype < CAIRN_COUNT(dtypes) ? dtypes[dtype].text : NULL;
}

bool cairn_dtype_parse(struct cairn_view text, unsigned *ret) {
    for (unsigned i = 1; i < CAIRN_COUNT(dtypes); i++) {
        if (dtypes[i].size != text.size) continue;
        if (memcmp(dtypes[i].text, text.data, text.size) != 0) continue;
        *ret = i;
        return true;
    }
    return false;
}

/* Ignores case: both bf16 and BF16 are in use. */
static bool is_word(const char *word, struct cairn_view text) {
    return strlen(word) == text.size && !strncasecmp(word, text.data, text.size);
}

bool cairn_dtype_parse_word(struct cairn_view text, unsigned *ret) {
    static const struct {
        struct cairn_view text;
        unsigned dtype;
    } words[] = {{CAIRN_VIEW("fp64"), CAIRN_DTYPE_F64},
                 {CAIRN_VIEW("fp32"), CAIRN_DTYPE_F32},
                 {CAIRN_VIEW("bf16"), CAIRN_DTYPE_BF16},
                 {CAIRN_VIEW("fp16"), CAIRN_DTYPE_F16}};
    for (size_t i = 0; i < CAIRN_COUNT(words); i++) {
        if (!is_word(words[i].text.data, text)) continue;
        *ret = words[i].dtype;
        return true;
    }
    for (unsigned i = 1; i < CAIRN_COUNT(dtypes); i++) {
        if (!is_word(dtypes[i].text, text)) continue;
        *ret = i;
        return true;
    }
    return false;
}

unsigned cairn_dtype_bits(unsigned dtype) {
    return dtype < CAIRN_COUNT(dtypes) ? dtypes[dtype].bits : 0;
}

bool cairn_tensor_size(unsigned dtype, unsigned dimension_count, const uint64_t *shape,
                       uint64_t *ret_elements, uint64_t *ret_bytes) {
    uint64_t bits = cairn_dtype_bits(dtype), elements = 1, total_bits;
    bool empty = false;
    if (bits == 0 || dimension_count > CAIRN_DIMENSIONS_MAX) return false;
    /* A zero dimension makes the tensor empty, but strides are made of the others. */
    for (unsigned d = 0; d < dimension_count; d++) {
        if (shape[d] == 0)
            empty = true;
        else if (cairn_mul_overflows(elements, shape[d], &elements))
            return false;
    }
    if (cairn_mul_overflows(elements, bits, &total_bits)) return false;
    if (elements > UINT64_C(1) << 60) return false; /* so strides and ends never overflow */
    if (empty) elements = total_bits = 0;
    if (total_bits % 8 != 0) return false;
    *ret_elements = elements;
    *ret_bytes = total_bits / 8;
    return true;
}

bool cairn_dtype_is_shown(unsigned dtype) {
    return dtype < CAIRN_COUNT(dtypes) && dtypes[dtype].text && dtypes[dtype].shown == dtype;
}

void cairn_dtype_shown(unsigned dtype, unsigned dimension_count, const uint64_t *shape,
                       struct cairn_dtype_shown *ret) {
    uint64_t elements = 0, bytes = 0;
    bool sized = cairn_tensor_size(dtype, dimension_count, shape, &elements, &bytes);
    *ret = (struct cairn_dtype_shown){.dtype = dtype, .dimension_count = dimension_count};
    CAIRN_PROMISE(sized, return );
    unsigned bits = dtypes[dtype].bits;
    ret->dtype = dtypes[dtype].shown;
    if (bits < 8 && ret->dtype != dtype) {
        ret->dimension_count = 1;
        ret->shape[0] = bytes;
        return;
    }
    uint64_t several = bits / dtypes[ret->dtype].bits;
    for (unsigned d = 0; d < dimension_count; d++) ret->shape[d] = shape[d];
    if (several == 1) return;
    if (dimension_count < CAIRN_DIMENSIONS_MAX)
        ret->shape[ret->dimension_count++] = several;
    else /* no overflow: the tensor's bits did not overflow */
        ret->shape[dimension_count - 1] *= several;
}
