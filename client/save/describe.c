/* SPDX-License-Identifier: Apache-2.0 */
/* describe: fields of a piece in the order of their checks. */
#include "client/save/describe.h"

#include <inttypes.h>

#include "api/table/dtype.h"
#include "common/text.h"

enum cairn_code cairn_client_piece_name(const char *name, struct cairn_error *err) {
    size_t size = name ? strlen(name) : 0;
    if (!size || size > CAIRN_TENSOR_NAME_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "a tensor name of %s; 1 to %d are allowed",
                          cairn_counted(size, "byte").text, CAIRN_TENSOR_NAME_BYTES_MAX);
    if (!cairn_utf8_valid(cairn_view_of(name)))
        return cairn_fail(err, CAIRN_INVALID, "a tensor name is not UTF-8");
    return CAIRN_OK;
}

enum cairn_code cairn_client_piece_shape(const struct cairn_tensor_piece *from,
                                         struct cairn_client_piece *ret, uint64_t *ret_elements,
                                         struct cairn_error *err) {
    if (!from->dtype || !cairn_dtype_parse(cairn_view_of(from->dtype), &ret->dtype))
        return cairn_fail(err, CAIRN_INVALID, "unknown dtype %.16s",
                          from->dtype ? from->dtype : "(none)");
    if (from->dimension_count > CAIRN_DIMENSIONS_MAX || (from->dimension_count && !from->shape))
        return cairn_fail(err, CAIRN_INVALID, "%s, at most %d with their shape are taken",
                          cairn_counted(from->dimension_count, "dimension").text,
                          CAIRN_DIMENSIONS_MAX);
    ret->dimension_count = from->dimension_count;
    for (unsigned d = 0; d < ret->dimension_count; d++) ret->shape[d] = from->shape[d];
    if (!cairn_tensor_size(ret->dtype, ret->dimension_count, ret->shape, ret_elements,
                           &ret->tensor_bytes))
        return cairn_fail(err, CAIRN_INVALID, "shape and dtype give no size that can be stored");
    if (ret->dtype == CAIRN_DTYPE_ITEM && ret->dimension_count != 1)
        return cairn_fail(err, CAIRN_INVALID, "an item has one dimension, not %u",
                          ret->dimension_count);
    return CAIRN_OK;
}

static enum cairn_code read_flat(const struct cairn_tensor_piece *from, uint64_t elements,
                                 struct cairn_client_piece *ret, struct cairn_error *err) {
    uint64_t start = from->start[0], count = from->count[0], start_bits, bits;
    unsigned width = cairn_dtype_bits(ret->dtype);
    if (start > elements || count > elements - start)
        return cairn_fail(err, CAIRN_INVALID,
                          "elements %" PRIu64 " + %" PRIu64 " of a tensor of %" PRIu64, start,
                          count, elements);
    if (cairn_mul_overflows(start, width, &start_bits) ||
        cairn_mul_overflows(count, width, &bits) || start_bits % 8 || bits % 8)
        return cairn_fail(err, CAIRN_INVALID, "a flat piece must begin and end at a whole byte");
    ret->fragment.form = CAIRN_FRAGMENT_FLAT;
    ret->fragment.start[0] = start;
    ret->fragment.count[0] = count;
    ret->bytes = bits / 8;
    return CAIRN_OK;
}

static enum cairn_code read_box(const struct cairn_tensor_piece *from,
                                struct cairn_client_piece *ret, struct cairn_error *err) {
    uint64_t elements;
    ret->fragment.form = CAIRN_FRAGMENT_BOX;
    for (unsigned d = 0; d < ret->dimension_count; d++) {
        uint64_t start = from->start[d], count = from->count[d];
        if (start > ret->shape[d] || count > ret->shape[d] - start)
            return cairn_fail(err, CAIRN_INVALID,
                              "dimension %u: %" PRIu64 " + %" PRIu64 " of %" PRIu64, d, start,
                              count, ret->shape[d]);
        ret->fragment.start[d] = start;
        ret->fragment.count[d] = count;
    }
    if (!cairn_tensor_size(ret->dtype, ret->dimension_count, ret->fragment.count, &elements,
                           &ret->bytes))
        return cairn_fail(err, CAIRN_INVALID, "a box must fill whole bytes");
    return CAIRN_OK;
}

enum cairn_code cairn_client_piece_form(const struct cairn_tensor_piece *from, uint64_t elements,
                                        struct cairn_client_piece *ret, struct cairn_error *err) {
    const uint64_t zero = 0;
    struct cairn_tensor_piece whole = *from;
    ret->form = from->form;
    if (from->form == CAIRN_FLAT || (from->form == CAIRN_BOX && from->dimension_count)) {
        if (!from->start || !from->count)
            return cairn_fail(err, CAIRN_INVALID, "start and count are missing");
        if (from->form == CAIRN_FLAT) return read_flat(from, elements, ret, err);
        return read_box(from, ret, err);
    }
    if (from->form != CAIRN_WHOLE && from->form != CAIRN_BOX)
        return cairn_fail(err, CAIRN_INVALID, "form %d is unknown", (int)from->form);
    ret->form = CAIRN_WHOLE;
    whole.start = &zero;
    whole.count = &elements;
    return read_flat(&whole, elements, ret, err);
}

enum cairn_code cairn_client_piece_read(const struct cairn_tensor_piece *from,
                                        struct cairn_client_piece *ret, struct cairn_error *err) {
    uint64_t elements = 0;
    CAIRN_TRY(cairn_client_piece_name(from->name, err));
    enum cairn_code code = cairn_client_piece_shape(from, ret, &elements, err);
    if (!code) code = cairn_client_piece_form(from, elements, ret, err);
    return code ? cairn_within(err, code, "tensor %s", from->name) : CAIRN_OK;
}
