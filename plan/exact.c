/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts the region along straight lines that no box crosses, one dimension after the other, until
 * single boxes are left; without such a line (a pinwheel), compares pairs. Chosen boxes can make
 * cutting or comparing quadratic, so both consume an effort, and once it is spent the fingerprint
 * decides. Waiting parts are in a heap-allocated list, not on the stack: a staircase of a million
 * boxes is a million parts deep.
 */
#include "plan/exact.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/trace.h"

/* ---- fingerprint ---- */

/*
 * An element's weight is the product of one random number per dimension; a box's weight is the
 * product of their sums, so of W(high) - W(low) with a random W(x) per coordinate. As polynomials
 * in the W(x), both sides are equal exactly if each element is counted once (Schwartz and Zippel:
 * in the field of 2^61 - 1 numbers unequal polynomials collide once in 2^58; two keys are used).
 *
 * Bisection locates an error: a wrong region has a wrong half.
 */
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
            wide longer = (wide)product * reduce(high + PRIME - low);
            product = reduce((uint64_t)(longer & PRIME) + (uint64_t)(longer >> 61));
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
            uint32_t kept = 0;
            for (uint32_t i = 0; i < printer->active_count; i++) {
                struct cairn_plan_box part;
                uint32_t box = printer->active[i];
                if (cairn_plan_box_intersect(region, &printer->boxes[box], printer->dimensions,
                                             &part))
                    printer->active[kept++] = box;
            }
            printer->active_count = kept;
        }
    }
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
    struct cairn_plan_box place = *region;
    bool equal = false;
    *ret = (struct cairn_plan_proof){.finding = CAIRN_PLAN_FOUND_NOTHING};
    CAIRN_TRY(compare(&printer, region, &equal));
    if (equal) return CAIRN_OK;
    CAIRN_TRY(narrow(&printer, &place));
    ret->finding = CAIRN_PLAN_FOUND_HOLE;
    ret->region = place;
    if (printer.active_count < 2) return CAIRN_OK;
    uint32_t a = printer.active[0], b = printer.active[1];
    ret->finding = CAIRN_PLAN_FOUND_OVERLAP;
    ret->first = a < b ? a : b;
    ret->second = a < b ? b : a;
    bool met = cairn_plan_box_intersect(&printer.boxes[a], &printer.boxes[b], printer.dimensions,
                                        &ret->region);
    CAIRN_ASSERT(met);
    return CAIRN_OK;
}

/* ---- cuts ---- */

/* A grid of boxes is sorted once per dimension, at most eight times. */
#define EFFORT_PER_BOX 128
#define EFFORT_ANYWAY (UINT64_C(1) << 22)
#define SORT_EFFORT 8 /* per sorted box, relative to a box already in order */

/* Locating a hole is only a courtesy: after this many comparisons its part is reported. */
#define HOLE_COMPARISONS_MAX (UINT32_C(1) << 24)

struct edge { /* a box along the dimension being cut */
    uint64_t low, high;
    uint32_t box;
};
struct part {
    struct cairn_plan_box region;
    uint32_t from, to;  /* its boxes in order[] */
    unsigned dimension; /* next to try */
    unsigned tried;     /* dimensions that had no cut */
};
struct prover {
    const struct cairn_plan_box *boxes;
    unsigned dimensions;
    uint32_t *order;
    struct edge *edges;
    struct part *parts;
    size_t part_count, part_capacity;
    struct cairn_plan_proof proof;
    struct cairn_plan_effort *effort;
    bool spent; /* the effort is spent, or *stop was set */
    struct cairn_error *err;
};

static bool spend(struct prover *prover, uint64_t units) {
    struct cairn_plan_effort *effort = prover->effort;
    bool stopped = effort->stop && atomic_load_explicit(effort->stop, memory_order_relaxed);
    if (stopped || effort->left < units) {
        effort->left = 0;
        prover->spent = true;
        return false;
    }
    effort->left -= units;
    return true;
}

static void found_hole(struct prover *prover, const struct cairn_plan_box *region) {
    prover->proof.finding = CAIRN_PLAN_FOUND_HOLE;
    prover->proof.region = *region;
}

static bool found_overlap(struct prover *prover, uint32_t first, uint32_t second) {
    struct cairn_plan_box shared;
    if (!cairn_plan_box_intersect(&prover->boxes[first], &prover->boxes[second], prover->dimensions,
                                  &shared)) {
        return false;
    }
    prover->proof = (struct cairn_plan_proof){
        .finding = CAIRN_PLAN_FOUND_OVERLAP,
        .region = shared,
        .first = first < second ? first : second,
        .second = first < second ? second : first,
    };
    return true;
}

static enum cairn_code push(struct prover *prover, const struct part *part) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(prover->parts, prover->part_count, prover->part_capacity, UINT32_MAX,
                               "parts of a cover proof", prover->err));
    prover->parts[prover->part_count++] = *part;
    return CAIRN_OK;
}

static int compare_edges(const void *a, const void *b) {
    const struct edge *edge_a = a, *edge_b = b;
    if (edge_a->low != edge_b->low) return edge_a->low < edge_b->low ? -1 : 1;
    return edge_a->box < edge_b->box ? -1 : edge_a->box > edge_b->box;
}

static void sort_edges(struct prover *prover, const struct part *part, unsigned dimension) {
    uint32_t count = part->to - part->from;
    bool sorted = true;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t box = prover->order[part->from + i];
        prover->edges[i] = (struct edge){prover->boxes[box].low[dimension],
                                         prover->boxes[box].high[dimension], box};
        sorted = sorted && (i == 0 || prover->edges[i - 1].low <= prover->edges[i].low);
    }
    if (!spend(prover, (uint64_t)count * (sorted ? 1 : SORT_EFFORT))) return;
    if (!sorted) qsort(prover->edges, count, sizeof *prover->edges, compare_edges);
    for (uint32_t i = 0; i < count; i++) prover->order[part->from + i] = prover->edges[i].box;
}

/* ---- parts without a straight cut ---- */

/* Subtracts `box`, which overlaps `region`: at most two slabs per dimension. Returns their
 * number. */
static unsigned subtract(const struct cairn_plan_box *region, const struct cairn_plan_box *box,
                         unsigned dimensions, struct cairn_plan_box *ret) {
    struct cairn_plan_box rest = *region;
    unsigned count = 0;
    for (unsigned d = 0; d < dimensions; d++) {
        if (rest.low[d] < box->low[d]) {
            ret[count] = rest;
            ret[count++].high[d] = box->low[d];
            rest.low[d] = box->low[d];
        }
        if (box->high[d] < rest.high[d]) {
            ret[count] = rest;
            ret[count++].low[d] = box->high[d];
            rest.high[d] = box->high[d];
        }
    }
    return count;
}

/* Finds a location of the hole that non-overlapping boxes leave in the part. */
static enum cairn_code find_hole(struct prover *prover, const struct part *part) {
    size_t base = prover->part_count; /* the list of waiting parts serves as the stack */
    struct part first = *part;
    CAIRN_TRY(push(prover, &first));
    for (uint64_t work = 0; prover->part_count > base && work < HOLE_COMPARISONS_MAX; work++) {
        struct part left = prover->parts[--prover->part_count];
        struct cairn_plan_box shared, slabs[2 * CAIRN_DIMENSIONS_MAX];
        uint32_t i = left.from;
        while (i < left.to &&
               !cairn_plan_box_intersect(&left.region, &prover->boxes[prover->order[i]],
                                         prover->dimensions, &shared)) {
            i++;
        }
        if (i == left.to) {
            found_hole(prover, &left.region);
            return CAIRN_OK;
        }
        work += i - left.from;
        unsigned count = subtract(&left.region, &shared, prover->dimensions, slabs);
        for (unsigned k = count; k-- > 0;) {
            struct part slab = {.region = slabs[k], .from = i + 1, .to = left.to};
            CAIRN_TRY(push(prover, &slab));
        }
    }
    found_hole(prover, &part->region); /* the hole is somewhere in the part */
    return CAIRN_OK;
}

static bool volume_adds_up(const struct prover *prover, const struct part *part) {
    uint64_t wanted = 1, sum = 0;
    for (unsigned d = 0; d < prover->dimensions; d++) {
        wanted *= part->region.high[d] - part->region.low[d];
    }
    for (uint32_t i = part->from; i < part->to; i++) {
        const struct cairn_plan_box *box = &prover->boxes[prover->order[i]];
        uint64_t volume = 1;
        for (unsigned d = 0; d < prover->dimensions; d++) volume *= box->high[d] - box->low[d];
        if (cairn_add_overflows(sum, volume, &sum)) return false;
    }
    return sum == wanted;
}

static enum cairn_code compare_pairs(struct prover *prover, const struct part *part) {
    sort_edges(prover, part, 0);
    uint32_t count = part->to - part->from;
    for (uint32_t i = 0; i < count && !prover->spent; i++) {
        const struct edge *edge = &prover->edges[i];
        for (uint32_t k = i + 1; k < count && prover->edges[k].low < edge->high; k++) {
            if (!spend(prover, 1)) return CAIRN_OK;
            if (found_overlap(prover, edge->box, prover->edges[k].box)) return CAIRN_OK;
        }
    }
    if (prover->spent) return CAIRN_OK;
    if (volume_adds_up(prover, part)) return CAIRN_OK;
    return find_hole(prover, part);
}

/* ---- cutting ---- */

/* Handles a group between two cuts: done if it is one box that fills it. */
static enum cairn_code put_group(struct prover *prover, const struct part *group) {
    if (group->to - group->from > 1) return push(prover, group);
    struct cairn_plan_box slabs[2 * CAIRN_DIMENSIONS_MAX];
    const struct cairn_plan_box *box = &prover->boxes[prover->order[group->from]];
    if (subtract(&group->region, box, prover->dimensions, slabs) > 0) {
        found_hole(prover, &slabs[0]);
    }
    return CAIRN_OK;
}

static bool found(const struct prover *prover) {
    return prover->proof.finding != CAIRN_PLAN_FOUND_NOTHING;
}

/* Cuts the part along its dimension; without a cut, queues it for the next dimension. */
static enum cairn_code cut(struct prover *prover, const struct part *part) {
    unsigned d = part->dimension;
    uint32_t count = part->to - part->from, from = 0;
    sort_edges(prover, part, d);
    if (prover->spent) return CAIRN_OK;
    uint64_t end = part->region.low[d]; /* end of the boxes so far */
    struct part group = *part;
    group.dimension = (d + 1) % prover->dimensions;
    group.tried = 1;
    for (uint32_t i = 0; i <= count && !found(prover); i++) {
        uint64_t low = i < count ? prover->edges[i].low : part->region.high[d];
        if (low > end) {
            /* No box reaches the stretch [end, low) of the dimension. */
            struct cairn_plan_box gap = part->region;
            gap.low[d] = end;
            gap.high[d] = low;
            found_hole(prover, &gap);
        }
        bool whole = i == count && from == 0; /* no cut found */
        if (!whole && i > from && low >= end && !found(prover)) {
            group.region.low[d] = prover->edges[from].low;
            group.region.high[d] = end;
            group.from = part->from + from;
            group.to = part->from + i;
            CAIRN_TRY(put_group(prover, &group));
            from = i;
        }
        if (i < count) end = cairn_max_u64(end, prover->edges[i].high);
    }
    if (from > 0 || found(prover)) return CAIRN_OK;
    group = *part;
    group.dimension = (d + 1) % prover->dimensions;
    group.tried = part->tried + 1;
    if (group.tried <= prover->dimensions) return push(prover, &group);
    return compare_pairs(prover, part);
}

static enum cairn_code prove(struct prover *prover, const struct cairn_plan_box *region,
                             uint32_t count) {
    struct part all = {.region = *region, .from = 0, .to = count, .tried = 1};
    if (count == 0) {
        found_hole(prover, region);
        return CAIRN_OK;
    }
    CAIRN_TRY(put_group(prover, &all));
    while (prover->part_count && !found(prover) && !prover->spent) {
        struct part part = prover->parts[--prover->part_count];
        CAIRN_TRY(cut(prover, &part));
    }
    return CAIRN_OK;
}

struct cairn_plan_effort cairn_plan_effort_of(uint64_t boxes) {
    return (struct cairn_plan_effort){.left = EFFORT_ANYWAY + EFFORT_PER_BOX * boxes};
}

enum cairn_code cairn_plan_exact(struct cairn_plan_effort *effort,
                                 const struct cairn_plan_box *region, unsigned dimensions,
                                 const struct cairn_plan_box *boxes, uint32_t count,
                                 struct cairn_plan_proof *ret, struct cairn_error *err) {
    struct cairn_plan_effort own = cairn_plan_effort_of(count);
    if (!effort) effort = &own;
    struct prover prover = {.boxes = boxes, .dimensions = dimensions, .effort = effort, .err = err};
    prover.order = calloc((size_t)count + 1, sizeof *prover.order);
    prover.edges = calloc((size_t)count + 1, sizeof *prover.edges);
    enum cairn_code code = prover.order && prover.edges
                               ? CAIRN_OK
                               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the cover proof");
    if (code == CAIRN_OK) {
        for (uint32_t i = 0; i < count; i++) prover.order[i] = i;
        code = prove(&prover, region, count);
    }
    free(prover.order);
    free(prover.edges);
    free(prover.parts);
    if (code) return code;
    *ret = prover.proof;
    if (!prover.spent || found(&prover)) return CAIRN_OK;
    return cairn_plan_fingerprint(region, dimensions, boxes, count, effort->stop, ret, err);
}
