/* SPDX-License-Identifier: Apache-2.0 */
/* boxes: plain arithmetic; the bounds of api/table/table.h keep every product below 2^60. */
#include "plan/boxes.h"

#include <stdio.h>

void cairn_plan_strides(const uint64_t *extent, unsigned dimensions, uint64_t *ret_strides) {
    uint64_t stride = 1;
    for (unsigned d = dimensions; d-- > 0;) {
        ret_strides[d] = stride;
        stride *= extent[d];
    }
}

/* A row of one dimension is fixed on the way down: the head of the range lies in its first row, the
 * tail in its last, whole rows in between. */
struct splitter {
    const uint64_t *shape;
    uint64_t strides[CAIRN_DIMENSIONS_MAX];
    unsigned dimensions, count;
    struct cairn_plan_box *boxes;
};

/* Rows [from, to) of dimension d; `fixed` holds the coordinates of the dimensions before it. */
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

/* At most one level below per dimension. */
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
