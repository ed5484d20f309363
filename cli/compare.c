/* SPDX-License-Identifier: Apache-2.0 */
/* Names of both sides merged, then windows of pairs by several threads. */
#include "cli/compare.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "cli/workers.h"
#include "common/memory.h"
#include "common/text.h"
#include "formats/convert.h"

#define WINDOW_ELEMENTS (UINT64_C(1) << 20)
#define ELEMENT_BYTES_MAX 16
#define WINDOW_BYTES (WINDOW_ELEMENTS * ELEMENT_BYTES_MAX)

struct job {
    struct cairn_cli_compare *compare;
    struct cairn_cli_meter meter;
    struct cairn_cli_workers workers;
    struct { /* by the lock of the workers */
        size_t pair;
        uint64_t element; /* of the pair, the next window */
    } locked;
};
/* What one worker has in hand. */
struct hand {
    char *a, *b;   /* bytes as they are stored */
    float *x, *y;  /* the same as fp32 */
    uint64_t size; /* elements */
};

static const struct cairn_assembly_tensor *bytes_of(const struct cairn_assembly *assembly,
                                                    const struct cairn_assembly_tensor *tensor) {
    return tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS ? tensor
                                                       : &assembly->tensors[tensor->alias_of];
}

/* Elements of less than a byte are compared by bytes. */
static uint64_t width_of(unsigned dtype) {
    unsigned bits = cairn_dtype_bits(dtype);
    return bits < 8 ? 1 : bits / 8;
}

/* ---- names ---- */

static int by_name(const void *a, const void *b) {
    const struct cairn_assembly_tensor *x = *(const struct cairn_assembly_tensor *const *)a;
    const struct cairn_assembly_tensor *y = *(const struct cairn_assembly_tensor *const *)b;
    return strcmp(x->name, y->name);
}

static enum cairn_code sort_names(const struct cairn_assembly *assembly, const char *only,
                                  const struct cairn_assembly_tensor ***ret, size_t *ret_count,
                                  struct cairn_error *err) {
    const struct cairn_assembly_tensor **sorted =
        calloc(assembly->tensor_count + 1, sizeof *sorted);
    if (!sorted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the names of tensors");
    *ret = sorted;
    *ret_count = 0;
    for (size_t i = 0; i < assembly->tensor_count; i++)
        if (!only || fnmatch(only, assembly->tensors[i].name, 0) == 0)
            sorted[(*ret_count)++] = &assembly->tensors[i];
    if (*ret_count) qsort(sorted, *ret_count, sizeof *sorted, by_name);
    return CAIRN_OK;
}

static bool same_shape(const struct cairn_assembly_tensor *a,
                       const struct cairn_assembly_tensor *b) {
    return a->dimension_count == b->dimension_count &&
           memcmp(a->shape, b->shape, a->dimension_count * sizeof *a->shape) == 0;
}

static void judge(struct cairn_cli_pair *pair) {
    if (!pair->a || !pair->b)
        pair->verdict = pair->a ? CAIRN_CLI_ONLY_A : CAIRN_CLI_ONLY_B;
    else if (!same_shape(pair->a, pair->b))
        pair->verdict = CAIRN_CLI_OTHER_SHAPE;
    else if (pair->a->dtype != pair->b->dtype &&
             !(cairn_convertible(pair->a->dtype, CAIRN_DTYPE_F32) &&
               cairn_convertible(pair->b->dtype, CAIRN_DTYPE_F32)))
        pair->verdict = CAIRN_CLI_OTHER_TYPE;
    else
        pair->elements = pair->a->size_bytes / width_of(pair->a->dtype);
}

static enum cairn_code merge_names(struct cairn_cli_compare *compare, struct cairn_error *err) {
    CAIRN_AUTO_HEAP const struct cairn_assembly_tensor **a = NULL, **b = NULL;
    size_t a_count = 0, b_count = 0;
    CAIRN_TRY(sort_names(compare->a, compare->only, &a, &a_count, err));
    CAIRN_TRY(sort_names(compare->b, compare->only, &b, &b_count, err));
    compare->pairs = calloc(a_count + b_count + 1, sizeof *compare->pairs);
    if (!compare->pairs) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the tensors");
    for (size_t i = 0, j = 0; i < a_count || j < b_count;) {
        struct cairn_cli_pair *pair = &compare->pairs[compare->count++];
        int order = i == a_count ? 1 : j == b_count ? -1 : strcmp(a[i]->name, b[j]->name);
        if (order <= 0) pair->a = a[i++];
        if (order >= 0) pair->b = b[j++];
        judge(pair);
    }
    return CAIRN_OK;
}

/* ---- one window ---- */

/* An integer's value; false: the type is none. */
static bool integer_at(unsigned dtype, const void *bytes, uint64_t i, double *ret) {
    switch (dtype) {
    case CAIRN_DTYPE_BOOL:
    case CAIRN_DTYPE_U8:
        *ret = ((const uint8_t *)bytes)[i];
        return true;
    case CAIRN_DTYPE_I8:
        *ret = ((const int8_t *)bytes)[i];
        return true;
    case CAIRN_DTYPE_U16:
        *ret = ((const uint16_t *)bytes)[i];
        return true;
    case CAIRN_DTYPE_I16:
        *ret = ((const int16_t *)bytes)[i];
        return true;
    case CAIRN_DTYPE_U32:
        *ret = ((const uint32_t *)bytes)[i];
        return true;
    case CAIRN_DTYPE_I32:
        *ret = ((const int32_t *)bytes)[i];
        return true;
    case CAIRN_DTYPE_U64:
        *ret = (double)((const uint64_t *)bytes)[i];
        return true;
    case CAIRN_DTYPE_I64:
        *ret = (double)((const int64_t *)bytes)[i];
        return true;
    case CAIRN_DTYPE_F64:
        *ret = ((const double *)bytes)[i];
        return true;
    default:
        return false;
    }
}

static void note_distance(struct cairn_cli_pair *sum, double x, double y) {
    double distance = fabs(x - y);
    sum->measured = true;
    if (distance > sum->largest) sum->largest = distance;
}

/* Of one type: an element differs where its bytes do. */
static void compare_alike(const struct hand *hand, unsigned dtype, struct cairn_cli_pair *sum) {
    uint64_t width = width_of(dtype);
    if (memcmp(hand->a, hand->b, (size_t)(hand->size * width)) == 0) return;
    bool floats = dtype != CAIRN_DTYPE_F64 && cairn_convertible(dtype, CAIRN_DTYPE_F32);
    if (floats) {
        cairn_convert(dtype, hand->a, CAIRN_DTYPE_F32, hand->x, (size_t)hand->size);
        cairn_convert(dtype, hand->b, CAIRN_DTYPE_F32, hand->y, (size_t)hand->size);
    }
    for (uint64_t i = 0; i < hand->size; i++) {
        double x, y;
        if (memcmp(hand->a + i * width, hand->b + i * width, (size_t)width) == 0) continue;
        sum->differing++;
        if (floats)
            note_distance(sum, (double)hand->x[i], (double)hand->y[i]);
        else if (integer_at(dtype, hand->a, i, &x) && integer_at(dtype, hand->b, i, &y))
            note_distance(sum, x, y);
    }
}

static void compare_values(const struct hand *hand, unsigned a, unsigned b,
                           struct cairn_cli_pair *sum) {
    cairn_convert(a, hand->a, CAIRN_DTYPE_F32, hand->x, (size_t)hand->size);
    cairn_convert(b, hand->b, CAIRN_DTYPE_F32, hand->y, (size_t)hand->size);
    for (uint64_t i = 0; i < hand->size; i++) {
        float x = hand->x[i], y = hand->y[i];
        if (x == y || (isnan(x) && isnan(y))) continue;
        sum->differing++;
        note_distance(sum, (double)x, (double)y);
    }
}

static enum cairn_code compare_window(struct job *job, const struct cairn_cli_pair *pair,
                                      uint64_t element, struct hand *hand,
                                      struct cairn_cli_pair *sum, struct cairn_error *err) {
    const struct cairn_cli_compare *compare = job->compare;
    uint64_t a = width_of(pair->a->dtype), b = width_of(pair->b->dtype);
    hand->size = cairn_min_u64(WINDOW_ELEMENTS, pair->elements - element);
    enum cairn_code code = cairn_assembly_read(compare->a, bytes_of(compare->a, pair->a),
                                               element * a, hand->a, hand->size * a, err);
    if (code == CAIRN_OK)
        code = cairn_assembly_read(compare->b, bytes_of(compare->b, pair->b), element * b, hand->b,
                                   hand->size * b, err);
    if (code != CAIRN_OK) return cairn_within(err, code, "%s", cairn_short(pair->a->name).text);
    if (pair->a->dtype == pair->b->dtype)
        compare_alike(hand, pair->a->dtype, sum);
    else
        compare_values(hand, pair->a->dtype, pair->b->dtype, sum);
    return CAIRN_OK;
}

/* ---- workers ---- */

static bool next_window(struct job *job, struct cairn_cli_pair **ret, uint64_t *ret_element) {
    CAIRN_HOLD(&job->workers.lock);
    while (job->workers.locked.code == CAIRN_OK && job->locked.pair < job->compare->count) {
        *ret = &job->compare->pairs[job->locked.pair];
        *ret_element = job->locked.element;
        job->locked.element += WINDOW_ELEMENTS;
        if (*ret_element < (*ret)->elements) {
            cairn_cli_workers_take_locked(&job->workers);
            return true;
        }
        job->locked.pair++;
        job->locked.element = 0;
    }
    return false;
}

static void note_sum(struct job *job, struct cairn_cli_pair *pair,
                     const struct cairn_cli_pair *sum) {
    CAIRN_HOLD(&job->workers.lock);
    pair->differing += sum->differing;
    pair->measured |= sum->measured;
    if (sum->largest > pair->largest) pair->largest = sum->largest;
    if (pair->differing) pair->verdict = CAIRN_CLI_DIFFERS;
}

static void *work(void *argument) {
    struct job *job = argument;
    struct cairn_error err = {0};
    struct cairn_cli_pair *pair;
    uint64_t element;
    struct hand hand = {.a = cairn_pages_map(WINDOW_BYTES),
                        .b = cairn_pages_map(WINDOW_BYTES),
                        .x = cairn_pages_map(WINDOW_ELEMENTS * sizeof(float)),
                        .y = cairn_pages_map(WINDOW_ELEMENTS * sizeof(float))};
    enum cairn_code code = hand.a && hand.b && hand.x && hand.y
                               ? CAIRN_OK
                               : cairn_fail(&err, CAIRN_NO_MEMORY, "no memory for a window");
    while (code == CAIRN_OK && next_window(job, &pair, &element)) {
        struct cairn_cli_pair sum = {0};
        code = compare_window(job, pair, element, &hand, &sum, &err);
        if (code != CAIRN_OK) break;
        note_sum(job, pair, &sum);
        cairn_cli_workers_done(&job->workers);
        cairn_cli_meter_add(&job->meter, hand.size * width_of(pair->a->dtype),
                            element + hand.size == pair->elements);
    }
    if (code != CAIRN_OK) cairn_cli_workers_failed(&job->workers, code, &err);
    cairn_pages_unmap(hand.a, WINDOW_BYTES);
    cairn_pages_unmap(hand.b, WINDOW_BYTES);
    cairn_pages_unmap(hand.x, WINDOW_ELEMENTS * sizeof(float));
    cairn_pages_unmap(hand.y, WINDOW_ELEMENTS * sizeof(float));
    return NULL;
}

static enum cairn_code compare_all(struct job *job, struct cairn_error *err) {
    struct cairn_cli_compare *compare = job->compare;
    uint64_t bytes = 0, items = 0;
    for (size_t i = 0; i < compare->count; i++) {
        if (compare->pairs[i].elements) bytes += compare->pairs[i].a->size_bytes;
        items += compare->pairs[i].elements != 0;
    }
    cairn_cli_meter_init(&job->meter, compare->cli, "diff", bytes, items);
    enum cairn_code code =
        cairn_cli_workers_run(&job->workers, compare->cli->workers, work, job, err);
    CAIRN_ASSERT(code || job->locked.pair == compare->count);
    if (code == CAIRN_OK) code = cairn_assembly_settle(compare->a, err);
    if (code == CAIRN_OK) code = cairn_assembly_settle(compare->b, err);
    cairn_cli_meter_end(&job->meter, code == CAIRN_OK);
    return code;
}

enum cairn_code cairn_cli_compare_run(struct cairn_cli_compare *compare, struct cairn_error *err) {
    struct job job = {.compare = compare};
    CAIRN_TRY(merge_names(compare, err));
    return compare_all(&job, err);
}

void cairn_cli_compare_release(struct cairn_cli_compare *job) {
    free(job->pairs);
    job->pairs = NULL;
    job->count = 0;
}
