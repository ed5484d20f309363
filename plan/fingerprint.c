/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An element's weight is the product of one random number per dimension; a box's weight is the
 * product of their sums, so of W(high) - W(low) with a random W(x) per coordinate. As polynomials
 * in the W(x), both sides are equal exactly if each element is counted once (Schwartz and Zippel:
 * in the field of 2^61 - 1 numbers unequal polynomials collide once in 2^58; two keys are used).
 *
 * Bisection locates an error: a wrong region has a wrong half.
 */
#include "plan/fingerprint.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/trace.h"

#define PRIME ((UINT64_C(1) << 61) - 1)
#define KEYS 2
#define LOOK_EVERY 65536 /* boxes between two checks of *stop */

__extension__ typedef unsigned __int128 wide;

struct printer {
    uint64_t keys[KEYS];
    unsigned dimensions;
    const struct cairn_plan_box *boxes;
    uint32_t *active; /* boxes that intersect the region */
    uint32_t active_count;
    const _Atomic bool *stop;
    struct cairn_error *err;
};
struct print {
    uint64_t sums[KEYS];
};

static uint64_t reduce(uint64_t x) {
    x = (x & PRIME) + (x >> 61);
    return x >= PRIME ? x - PRIME : x;
}

static uint64_t times(uint64_t a, uint64_t b) {
    wide product = (wide)a * b;
    return reduce((uint64_t)(product & PRIME) + (uint64_t)(product >> 61));
}

/* MurmurHash3's finaliser, applied twice with the key in between: random without the key. */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static uint64_t weight(uint64_t key, unsigned d, uint64_t x) {
    return reduce(mix(key ^ mix(x + (d + 1) * UINT64_C(0x9e3779b97f4a7c15) + key)));
}

static void add_box(const struct printer *printer, const struct cairn_plan_box *box,
                    struct print *print) {
    for (unsigned k = 0; k < KEYS; k++) {
        uint64_t product = 1;
        for (unsigned d = 0; d < printer->dimensions; d++) {
            uint64_t high = weight(printer->keys[k], d, box->high[d]);
            uint64_t low = weight(printer->keys[k], d, box->low[d]);
            product = times(product, reduce(high + PRIME - low));
        }
        print->sums[k] = reduce(print->sums[k] + product);
    }
}

/* Do the active boxes, clipped to the region, cover it exactly? */
static enum cairn_code compare(const struct printer *printer, const struct cairn_plan_box *region,
                               bool *ret_equal) {
    struct print sum = {{0}}, wanted = {{0}};
    add_box(printer, region, &wanted);
    for (uint32_t i = 0; i < printer->active_count; i++) {
        struct cairn_plan_box part;
        if (i % LOOK_EVERY == 0 && printer->stop && atomic_load(printer->stop))
            return cairn_fail(printer->err, CAIRN_CANCELLED, "the cover proof was stopped");
        if (cairn_plan_box_intersect(region, &printer->boxes[printer->active[i]],
                                     printer->dimensions, &part))
            add_box(printer, &part, &sum);
    }
    *ret_equal = !memcmp(&sum, &wanted, sizeof sum);
    return CAIRN_OK;
}

static void keep_overlapping(struct printer *printer, const struct cairn_plan_box *region) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < printer->active_count; i++) {
        struct cairn_plan_box part;
        uint32_t box = printer->active[i];
        if (cairn_plan_box_intersect(region, &printer->boxes[box], printer->dimensions, &part))
            printer->active[kept++] = box;
    }
    printer->active_count = kept;
}

/* Narrows a region that is not covered exactly to one wrong element. */
static enum cairn_code narrow(struct printer *printer, struct cairn_plan_box *region) {
    for (unsigned d = 0; d < printer->dimensions; d++) {
        while (region->high[d] - region->low[d] > 1) {
            struct cairn_plan_box half = *region;
            bool equal = false;
            half.high[d] = region->low[d] + (region->high[d] - region->low[d]) / 2;
            CAIRN_TRY(compare(printer, &half, &equal));
            if (equal)
                region->low[d] = half.high[d];
            else
                region->high[d] = half.high[d];
            keep_overlapping(printer, region);
        }
    }
    return CAIRN_OK;
}

static enum cairn_code judge(struct printer *printer, const struct cairn_plan_box *region,
                             struct cairn_plan_proof *ret) {
    struct cairn_plan_box place = *region;
    bool equal = false;
    *ret = (struct cairn_plan_proof){.finding = CAIRN_PLAN_FOUND_NOTHING};
    CAIRN_TRY(compare(printer, region, &equal));
    if (equal) return CAIRN_OK;
    CAIRN_TRY(narrow(printer, &place));
    ret->finding = CAIRN_PLAN_FOUND_HOLE;
    ret->region = place;
    if (printer->active_count < 2) return CAIRN_OK;
    uint32_t a = printer->active[0], b = printer->active[1];
    ret->finding = CAIRN_PLAN_FOUND_OVERLAP;
    ret->first = a < b ? a : b;
    ret->second = a < b ? b : a;
    bool met = cairn_plan_box_intersect(&printer->boxes[a], &printer->boxes[b], printer->dimensions,
                                        &ret->region);
    CAIRN_ASSERT(met);
    return CAIRN_OK;
}

enum cairn_code cairn_plan_fingerprint(const struct cairn_plan_box *region, unsigned dimensions,
                                       const struct cairn_plan_box *boxes, uint32_t count,
                                       const _Atomic bool *stop, struct cairn_plan_proof *ret,
                                       struct cairn_error *err) {
    struct printer printer = {
        .dimensions = dimensions, .boxes = boxes, .active_count = count, .stop = stop, .err = err};
    CAIRN_AUTO_HEAP uint32_t *active = calloc((size_t)count + 1, sizeof *active);
    if (!active) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the cover proof");
    for (uint32_t i = 0; i < count; i++) active[i] = i;
    printer.active = active;
    cairn_random(printer.keys, sizeof printer.keys);
    return judge(&printer, region, ret);
}
