/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a slice; see slices.h. */
#include "plan/slices.h"

#include <inttypes.h>

#define WANTED "want start:end, start, or : for each dimension, with commas between them"

struct number {
    bool there, negative;
    uint64_t size;
};

/* False: digits are wanted behind '-', or the number is beyond 2^62. */
static bool read_number(const char **at, struct number *ret) {
    *ret = (struct number){.negative = **at == '-'};
    if (ret->negative) (*at)++;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        ret->there = true;
        if (ret->size > UINT64_C(1) << 58) return false;
        ret->size = ret->size * 10 + (uint64_t)(**at - '0');
    }
    return ret->there || !ret->negative;
}

/* Where it is in [0, extent]. */
static bool place(const struct number *number, uint64_t otherwise, uint64_t extent, uint64_t *ret) {
    *ret = otherwise;
    if (!number->there) return true;
    if (number->size > extent) return false;
    *ret = number->negative ? extent - number->size : number->size;
    return true;
}

static enum cairn_code read_dimension(const char **at, unsigned d, uint64_t extent,
                                      uint64_t *ret_start, uint64_t *ret_count,
                                      struct cairn_error *err) {
    struct number start, end = {0}, step = {0};
    bool good = read_number(at, &start), range = good && **at == ':';
    if (range) {
        (*at)++;
        good = read_number(at, &end);
    }
    bool stepped = good && range && **at == ':';
    if (stepped) {
        (*at)++;
        good = read_number(at, &step);
    }
    if (!good || (!range && !start.there) || (**at && **at != ','))
        return cairn_fail(err, CAIRN_INVALID, "dimension %u of the slice: " WANTED, d);
    if (step.there && (step.negative || step.size != 1))
        return cairn_fail(err, CAIRN_INVALID, "dimension %u of the slice: steps are 1", d);
    uint64_t first = 0, past = 0;
    good = place(&start, 0, extent, &first);
    if (range)
        good = good && place(&end, extent, extent, &past) && past >= first;
    else
        good = good && (past = first + 1) <= extent;
    if (!good)
        return cairn_fail(err, CAIRN_RANGE,
                          "dimension %u of the slice lies outside of its %" PRIu64
                          " elements, or ends before it starts",
                          d, extent);
    *ret_start = first;
    *ret_count = past - first;
    return CAIRN_OK;
}

enum cairn_code cairn_plan_slice_parse(const char *text, unsigned dimensions, const uint64_t *shape,
                                       uint64_t *ret_start, uint64_t *ret_count,
                                       struct cairn_error *err) {
    unsigned named = 0;
    for (const char *at = text; *text; at++) {
        if (named == dimensions)
            return cairn_fail(err, CAIRN_INVALID,
                              "the slice names more dimensions than the %u that there are",
                              dimensions);
        CAIRN_TRY(read_dimension(&at, named, shape[named], &ret_start[named], &ret_count[named],
                                 err));
        named++;
        if (!*at) break;
    }
    for (unsigned d = named; d < dimensions; d++) {
        ret_start[d] = 0;
        ret_count[d] = shape[d];
    }
    return CAIRN_OK;
}
