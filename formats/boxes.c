/* SPDX-License-Identifier: Apache-2.0 */
/* Counting in row-major order, and a sweep over one dimension after the other. */
#include "formats/boxes.h"

#include <inttypes.h>
#include <stdlib.h>

#define STEPS_MAX (1ULL << 28)

uint64_t cairn_box_elements(const struct cairn_box *box, unsigned dimensions) {
    uint64_t elements = 1;
    for (unsigned d = 0; d < dimensions; d++) elements *= box->count[d];
    return elements;
}

bool cairn_box_fits(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape) {
    for (unsigned d = 0; d < dimensions; d++)
        if (!box->count[d] || box->start[d] > shape[d] || box->count[d] > shape[d] - box->start[d])
            return false;
    return true;
}

uint64_t cairn_box_before(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape,
                          uint64_t element) {
    uint64_t stride = 1, own = cairn_box_elements(box, dimensions), before = 0;
    for (unsigned d = 0; d < dimensions; d++) stride *= shape[d];
    if (element >= stride) return own;
    for (unsigned d = 0; d < dimensions; d++) {
        stride /= shape[d];
        own /= box->count[d];
        uint64_t at = element / stride;
        element %= stride;
        if (at < box->start[d]) return before;
        if (at - box->start[d] >= box->count[d]) return before + box->count[d] * own;
        before += (at - box->start[d]) * own;
    }
    return before;
}

uint64_t cairn_box_place(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape,
                         uint64_t element) {
    uint64_t stride = 1, place = 0;
    for (unsigned d = dimensions; d-- > 0;) {
        place += (box->start[d] + element % box->count[d]) * stride;
        element /= box->count[d];
        stride *= shape[d];
    }
    return place;
}

uint64_t cairn_box_run(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape) {
    uint64_t run = 1;
    for (unsigned d = dimensions; d-- > 0;) {
        run *= box->count[d];
        if (box->count[d] != shape[d]) break;
    }
    return run;
}

unsigned cairn_box_cut(const struct cairn_box *box, unsigned dimensions, uint64_t first,
                       uint64_t elements, struct cairn_box ret[2 * CAIRN_DIMENSIONS_MAX]) {
    unsigned count = 0;
    while (elements) {
        CAIRN_ASSERT(count < 2 * CAIRN_DIMENSIONS_MAX); /* boxes.h#3 */
        struct cairn_box *made = &ret[count++];
        uint64_t inner = 1, left = first;
        unsigned cut = dimensions;
        /* The outermost dimension that the range's begin and its length allow to be cut. */
        while (cut && inner * box->count[cut - 1] <= elements &&
               first % (inner * box->count[cut - 1]) == 0)
            inner *= box->count[--cut];
        *made = *box;
        for (unsigned d = dimensions; d-- > 0; left /= box->count[d]) {
            if (d >= cut) continue;
            made->start[d] = box->start[d] + left % box->count[d];
            made->count[d] = 1;
        }
        uint64_t taken = inner;
        if (cut) {
            unsigned d = cut - 1;
            uint64_t room = box->count[d] - (made->start[d] - box->start[d]);
            made->count[d] = elements / inner < room ? elements / inner : room;
            taken *= made->count[d];
        }
        first += taken;
        elements -= taken;
    }
    return count;
}

/* ---- the proof ---- */

struct proof {
    const struct cairn_box *boxes;
    unsigned dimensions;
    const uint64_t *shape;
    uint64_t at[CAIRN_DIMENSIONS_MAX];
    uint64_t steps;
};
struct border {
    uint64_t start;
    size_t box;
};

static int by_start(const void *a, const void *b) {
    const struct border *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static enum cairn_code refuse(const struct proof *proof, unsigned known, const char *what,
                              struct cairn_error *err) {
    uint64_t element = 0;
    for (unsigned d = 0; d < proof->dimensions; d++)
        element = element * proof->shape[d] + (d < known ? proof->at[d] : 0);
    return cairn_fail(err, CAIRN_INVALID, "its pieces %s at element %" PRIu64, what, element);
}

static enum cairn_code sweep(struct proof *proof, unsigned dimension, const size_t *numbers,
                             size_t count, struct cairn_error *err);

/* From a border on, those boxes are open; where the next of them ends. */
static uint64_t next_border(const struct proof *proof, unsigned dimension, uint64_t at,
                            const size_t *open, size_t open_count, uint64_t next_start) {
    uint64_t next = next_start;
    for (size_t i = 0; i < open_count; i++) {
        const struct cairn_box *box = &proof->boxes[open[i]];
        uint64_t end = box->start[dimension] + box->count[dimension];
        if (end < next) next = end;
    }
    CAIRN_ASSERT(next > at);
    return next;
}

static enum cairn_code sweep_sorted(struct proof *proof, unsigned dimension,
                                    const struct border *sorted, size_t count, size_t *open,
                                    struct cairn_error *err) {
    size_t taken = 0, open_count = 0;
    for (uint64_t at = 0, size = proof->shape[dimension]; at < size;) {
        size_t kept = 0;
        for (size_t i = 0; i < open_count; i++) {
            const struct cairn_box *box = &proof->boxes[open[i]];
            if (box->start[dimension] + box->count[dimension] > at) open[kept++] = open[i];
        }
        while (taken < count && sorted[taken].start == at) open[kept++] = sorted[taken++].box;
        open_count = kept;
        proof->at[dimension] = at;
        if (!open_count) return refuse(proof, dimension + 1, "leave a hole", err);
        proof->steps += open_count;
        if (proof->steps > STEPS_MAX)
            return cairn_fail(err, CAIRN_TOO_LARGE,
                              "its pieces are cut in too many ways to be compared");
        CAIRN_TRY(sweep(proof, dimension + 1, open, open_count, err));
        at = next_border(proof, dimension, at, open, open_count,
                         taken < count ? sorted[taken].start : size);
    }
    return CAIRN_OK;
}

static enum cairn_code sweep(struct proof *proof, unsigned dimension, const size_t *numbers,
                             size_t count, struct cairn_error *err) {
    if (dimension == proof->dimensions)
        return count == 1 ? CAIRN_OK
                          : refuse(proof, dimension, count ? "overlap" : "leave a hole", err);
    CAIRN_AUTO_HEAP struct border *sorted = calloc(count + 1, sizeof *sorted);
    CAIRN_AUTO_HEAP size_t *open = calloc(count + 1, sizeof *open);
    if (!sorted || !open) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare pieces");
    for (size_t i = 0; i < count; i++)
        sorted[i] = (struct border){proof->boxes[numbers[i]].start[dimension], numbers[i]};
    if (count) qsort(sorted, count, sizeof *sorted, by_start);
    return sweep_sorted(proof, dimension, sorted, count, open, err);
}

enum cairn_code cairn_boxes_prove(const struct cairn_box *boxes, size_t count, unsigned dimensions,
                                  const uint64_t *shape, struct cairn_error *err) {
    struct proof proof = {.boxes = boxes, .dimensions = dimensions, .shape = shape};
    CAIRN_AUTO_HEAP size_t *numbers = calloc(count + 1, sizeof *numbers);
    if (!numbers) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare pieces");
    for (size_t i = 0; i < count; i++) numbers[i] = i;
    return sweep(&proof, 0, numbers, count, err);
}
