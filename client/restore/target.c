/* SPDX-License-Identifier: Apache-2.0 */
/* Elements go by way of an aligned block on the stack, since the window has them at any address. */
#include "client/restore/target.h"

#include "api/table/dtype.h"
#include "common/text.h"
#include "formats/convert.h"

#define BLOCK 512 /* elements; at most 8 KiB */

static enum cairn_code read_dtype(const struct cairn_read *read, struct cairn_client_target *ret,
                                  struct cairn_error *err) {
    if (!read->into_dtype) return CAIRN_OK;
    if (!cairn_dtype_parse(cairn_view_of(read->into_dtype), &ret->to_dtype))
        return cairn_fail(err, CAIRN_INVALID, "unknown dtype %.16s", read->into_dtype);
    if (!cairn_convertible(ret->from_dtype, ret->to_dtype))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "%s is not converted to %s",
                          cairn_dtype_text(ret->from_dtype), cairn_dtype_text(ret->to_dtype));
    return CAIRN_OK;
}

static enum cairn_code read_strides(const struct cairn_tensor *tensor,
                                    const struct cairn_read *read, struct cairn_client_target *ret,
                                    struct cairn_error *err) {
    unsigned dimensions = read->form == CAIRN_FLAT ? 1 : tensor->dimension_count;
    const uint64_t *count = read->form == CAIRN_WHOLE ? tensor->shape : read->count;
    if (!read->into_stride || !dimensions) return CAIRN_OK;
    for (unsigned d = 0; d < dimensions; d++)
        if (!count[d]) return CAIRN_OK; /* no element at all */
    if (!cairn_strided_make(ret->to_width, dimensions, count, read->into_stride, &ret->strided))
        return cairn_fail(err, CAIRN_INVALID, "strides of places that memory cannot have");
    ret->apart = !cairn_strided_is_contiguous(&ret->strided);
    if (ret->apart && cairn_strided_may_overlap(&ret->strided))
        return cairn_fail(err, CAIRN_INVALID, "strides that put two elements to one place");
    return CAIRN_OK;
}

enum cairn_code cairn_client_target_make(const struct cairn_tensor *tensor,
                                         const struct cairn_read *read,
                                         struct cairn_client_target *ret, struct cairn_error *err) {
    struct cairn_client_target made = {.from_dtype = tensor->dtype, .to_dtype = tensor->dtype};
    CAIRN_TRY(read_dtype(read, &made, err));
    unsigned from_bits = cairn_dtype_bits(made.from_dtype);
    if (from_bits % 8 && (read->into_stride || made.to_dtype != made.from_dtype))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "strides need elements of whole bytes");
    made.from_width = from_bits / 8;
    made.to_width = cairn_dtype_bits(made.to_dtype) / 8;
    CAIRN_TRY(read_strides(tensor, read, &made, err));
    made.plain = made.from_dtype == made.to_dtype && !made.apart;
    if (!made.plain && read->memory != CAIRN_MEMORY_HOST)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "into_dtype and into_stride are of host memory; memory of a device is "
                          "filled with the elements as they are stored");
    *ret = made;
    return CAIRN_OK;
}

uint64_t cairn_client_target_bytes(const struct cairn_client_target *target,
                                   uint64_t stored_bytes) {
    return target->plain ? stored_bytes : stored_bytes / target->from_width * target->to_width;
}

static void put_dense(const struct cairn_client_target *target, void *into, uint64_t element,
                      const void *from, size_t count) {
    uint64_t at = element * target->to_width;
    size_t size = count * target->to_width;
    if (target->apart)
        cairn_strided_scatter(&target->strided, into, at, from, size);
    else
        memcpy((uint8_t *)into + at, from, size);
}

static void put_elements(const struct cairn_client_target *target, void *into, uint64_t element,
                         const uint8_t *from, size_t count) {
    uint64_t stored[BLOCK], wanted[BLOCK]; /* aligned for every type that is converted */
    if (target->from_dtype == target->to_dtype) {
        put_dense(target, into, element, from, count);
        return;
    }
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t some = count - done < BLOCK ? count - done : BLOCK;
        memcpy(stored, from + done * target->from_width, some * target->from_width);
        cairn_convert(target->from_dtype, stored, target->to_dtype, wanted, some);
        put_dense(target, into, element + done, wanted, some);
    }
}

/* More bytes of the element that is under way; the number that it took. */
static size_t put_part(struct cairn_client_target *target, void *into, const uint8_t *from,
                       size_t size) {
    size_t some = cairn_min_u64(target->from_width - target->part.have, size);
    memcpy(target->part.bytes + target->part.have, from, some);
    target->part.have += (uint32_t)some;
    if (target->part.have == target->from_width) {
        put_elements(target, into, target->part.element, target->part.bytes, 1);
        target->part.have = 0;
    }
    return some;
}

bool cairn_client_target_put(struct cairn_client_target *target, void *into, uint64_t at,
                             const void *from, size_t size) {
    const uint8_t *bytes = from;
    uint64_t element = at / target->from_width;
    if (at % target->from_width) {
        CAIRN_PROMISE(target->part.element == element, return false);
        CAIRN_PROMISE(target->part.have == at % target->from_width, return false);
        size_t took = put_part(target, into, bytes, size);
        bytes += took;
        size -= took;
        element++;
    }
    size_t whole = size / target->from_width;
    put_elements(target, into, element, bytes, whole);
    size -= whole * target->from_width;
    if (!size) return true;
    target->part.element = element + whole;
    target->part.have = 0;
    (void)put_part(target, into, bytes + whole * target->from_width, size);
    return true;
}
