/* SPDX-License-Identifier: Apache-2.0 */
/* Plain arithmetic; the bounds of api/table/table.h keep every product below 2^60. */
#include "plan/boxes.h"

#include <inttypes.h>
#include <stdio.h>

void cairn_plan_strides(const uint64_t *extent, unsigned dimensions, uint64_t *ret_strides) {
    uint64_t stride = 1;
    for (unsigned d = dimensions; d-- > 0;) {
        ret_strides[d] = stride;
        stride *= extent[d];
    }
}

/* Recursive state: the range's head lies in its first row, its tail in the last, rows in
 * between. */
struct splitter {
    const uint64_t *shape;
    uint64_t strides[CAIRN_DIMENSIONS_MAX];
    unsigned dimensions, count;
    struct cairn_plan_box *boxes;
};

/* Adds rows [from, to) of dimension d; `fixed` has the coordinates of the outer dimensions. */
static void put_rows(struct splitter *splitter, const uint64_t *fixed, unsigned d, uint64_t from,
                     uint64_t to) {
    CAIRN_PROMISE(splitter->count < CAIRN_PLAN_SPLIT_MAX, return );
    struct cairn_plan_box *box = &splitter->boxes[splitter->count++];
    *box = (struct cairn_plan_box){0};
    for (unsigned i = 0; i < splitter->dimensions; i++) {
        box->low[i] = i < d ? fixed[i] : i == d ? from : 0;
        box->high[i] = i < d ? fixed[i] + 1 : i == d ? to : splitter->shape[i];
    }
}

/* Recurses at most one level per dimension. */
static void split(struct splitter *splitter, uint64_t *fixed, unsigned d, uint64_t start,
                  uint64_t end) {
    uint64_t stride = splitter->strides[d];
    uint64_t first = cairn_div_up(start, stride), last = end / stride;
    if (start / stride == end / stride && start % stride && end % stride) {
        fixed[d] = start / stride; /* both ends inside one row */
        split(splitter, fixed, d + 1, start % stride, end % stride);
        return;
    }
    if (start % stride) {
        fixed[d] = start / stride;
        split(splitter, fixed, d + 1, start % stride, stride);
    }
    if (first < last) put_rows(splitter, fixed, d, first, last);
    if (end % stride && end / stride >= first) {
        fixed[d] = last;
        split(splitter, fixed, d + 1, 0, end % stride);
    }
}

unsigned cairn_plan_flat_split(const uint64_t *shape, unsigned dimensions, uint64_t start,
                               uint64_t end, struct cairn_plan_box ret[CAIRN_PLAN_SPLIT_MAX]) {
    CAIRN_PROMISE(dimensions >= 1 && dimensions <= CAIRN_DIMENSIONS_MAX, return 0);
    CAIRN_PROMISE(start < end, return 0);
    struct splitter splitter = {.shape = shape, .dimensions = dimensions, .boxes = ret};
    uint64_t fixed[CAIRN_DIMENSIONS_MAX] = {0};
    cairn_plan_strides(shape, dimensions, splitter.strides);
    split(&splitter, fixed, 0, start, end);
    return splitter.count;
}

bool cairn_plan_box_intersect(const struct cairn_plan_box *a, const struct cairn_plan_box *b,
                              unsigned dimensions, struct cairn_plan_box *ret) {
    for (unsigned d = 0; d < dimensions; d++) {
        ret->low[d] = cairn_max_u64(a->low[d], b->low[d]);
        ret->high[d] = cairn_min_u64(a->high[d], b->high[d]);
        if (ret->low[d] >= ret->high[d]) return false;
    }
    return true;
}

void cairn_plan_region_text(const struct cairn_plan_box *box, unsigned dimensions,
                            char ret_text[CAIRN_PLAN_REGION_TEXT_BYTES]) {
    size_t used = 0;
    for (unsigned d = 0; d < dimensions && used < CAIRN_PLAN_REGION_TEXT_BYTES; d++) {
        int size = snprintf(ret_text + used, CAIRN_PLAN_REGION_TEXT_BYTES - used, "%s%llu:%llu",
                            d ? ", " : "[", (unsigned long long)box->low[d],
                            (unsigned long long)box->high[d]);
        used += size > 0 ? (size_t)size : 0;
    }
    if (used < CAIRN_PLAN_REGION_TEXT_BYTES - 1) memcpy(ret_text + used, "]", 2);
}

/* ---- Python slices ---- */

#define WANTED "want start:end, start, or : for each dimension, with commas between them"

struct number {
    bool there, negative;
    uint64_t size;
};

/* False: '-' without digits, or a number beyond 2^62. */
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

/* Resolves the number to [0, extent]. */
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
        CAIRN_TRY(
            read_dimension(&at, named, shape[named], &ret_start[named], &ret_count[named], err));
        named++;
        if (!*at) break;
    }
    for (unsigned d = named; d < dimensions; d++) {
        ret_start[d] = 0;
        ret_count[d] = shape[d];
    }
    return CAIRN_OK;
}
