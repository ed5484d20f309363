/* SPDX-License-Identifier: Apache-2.0 */
/* exact: the cover proof against brute force, and against sums of random functions. */
#include "plan/exact.h"

#include "tests/harness.h"
#include "tests/plan/stored.h"

#define BOXES_MAX 64
#define GRID 6 /* extent of each dimension, for brute force */
#define PRIME ((UINT64_C(1) << 61) - 1)

static uint64_t mul_mod(uint64_t a, uint64_t b) {
    /* Schoolbook in 32-bit halves: 2^61 is 1 modulo the prime. */
    uint64_t result = 0;
    for (int i = 60; i >= 0; i--) {
        result = result * 2 % PRIME;
        if (b >> i & 1) result = (result + a) % PRIME;
    }
    return result;
}

/* A random function of (dimension, coordinate). */
static uint64_t weight(uint64_t seed, unsigned d, uint64_t x) {
    uint64_t state =
        seed ^ (d + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ x * UINT64_C(0xbf58476d1ce4e5b9);
    return cairn_test_random(&state) % PRIME;
}

static uint64_t box_sum(uint64_t seed, const struct cairn_plan_box *box, unsigned dimensions) {
    uint64_t product = 1;
    for (unsigned d = 0; d < dimensions; d++) {
        uint64_t difference =
            (weight(seed, d, box->high[d]) + PRIME - weight(seed, d, box->low[d])) % PRIME;
        product = mul_mod(product, difference);
    }
    return product;
}

/* Exact covers give equal sums; others do only with probability dimensions / 2^61. */
static bool fingerprint_covers(uint64_t seed, const struct cairn_plan_box *region,
                               unsigned dimensions, const struct cairn_plan_box *boxes,
                               uint32_t count) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum = (sum + box_sum(seed, &boxes[i], dimensions)) % PRIME;
    }
    return sum == box_sum(seed, region, dimensions);
}

static uint32_t holders(const struct cairn_plan_box *boxes, uint32_t count, unsigned dimensions,
                        const uint64_t *point) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool in = true;
        for (unsigned d = 0; d < dimensions; d++) {
            in = in && boxes[i].low[d] <= point[d] && point[d] < boxes[i].high[d];
        }
        found += in;
    }
    return found;
}

static bool brute_covers(const struct cairn_plan_box *region, unsigned dimensions,
                         const struct cairn_plan_box *boxes, uint32_t count) {
    uint64_t point[CAIRN_DIMENSIONS_MAX];
    memcpy(point, region->low, sizeof point);
    for (;;) {
        if (holders(boxes, count, dimensions, point) != 1) return false;
        unsigned d = dimensions;
        while (d > 0 && ++point[d - 1] == region->high[d - 1]) {
            point[d - 1] = region->low[d - 1];
            d--;
        }
        if (d == 0) return true;
    }
}

/* Five boxes around each other: no straight line goes through. */
static uint32_t pinwheel(struct cairn_plan_box *ret) {
    static const uint64_t rows[5][4] = {
        {0, 2, 0, 4}, {0, 4, 4, 6}, {4, 6, 2, 6}, {2, 6, 0, 2}, {2, 4, 2, 4}};
    for (int i = 0; i < 5; i++) {
        ret[i] = (struct cairn_plan_box){.low = {rows[i][0], rows[i][2]},
                                         .high = {rows[i][1], rows[i][3]}};
    }
    return 5;
}

/* Any change that keeps boxes inside the region and non-empty; often none at all. */
static uint32_t mutate(struct cairn_stored *random, const struct cairn_plan_box *region,
                       unsigned dimensions, struct cairn_plan_box *boxes, uint32_t count) {
    uint32_t at = (uint32_t)cairn_stored_below(random, count);
    unsigned d = (unsigned)cairn_stored_below(random, dimensions);
    struct cairn_plan_box *box = &boxes[at];
    switch (cairn_stored_below(random, 6)) {
    case 0: /* drop one */
        *box = boxes[count - 1];
        return count - 1;
    case 1: /* double one */
        if (count < BOXES_MAX) boxes[count++] = *box;
        return count;
    case 2: /* move an edge in */
        if (box->high[d] - box->low[d] > 1) box->low[d]++;
        return count;
    case 3: /* move an edge out */
        if (box->high[d] < region->high[d]) box->high[d]++;
        return count;
    case 4: /* move the whole box */
        if (box->low[d] > region->low[d]) {
            box->low[d]--;
            box->high[d]--;
        }
        return count;
    default: /* another order only */
        boxes[BOXES_MAX] = *box;
        *box = boxes[0];
        boxes[0] = boxes[BOXES_MAX];
        return count;
    }
}

/* What the proof says must be true of the place that it names. */
static void check_place(const struct cairn_plan_proof *proof, unsigned dimensions,
                        const struct cairn_plan_box *boxes, uint32_t count) {
    uint32_t found = holders(boxes, count, dimensions, proof->region.low);
    if (proof->finding == CAIRN_PLAN_FOUND_HOLE) EXPECT_EQ_U64(found, 0);
    if (proof->finding != CAIRN_PLAN_FOUND_OVERLAP) return;
    EXPECT(found >= 2);
    EXPECT(proof->first < proof->second);
    EXPECT_EQ_U64(holders(boxes + proof->first, 1, dimensions, proof->region.low), 1);
    EXPECT_EQ_U64(holders(boxes + proof->second, 1, dimensions, proof->region.low), 1);
}

TEST(the_proof_agrees_with_brute_force_and_with_fingerprints_over_20000_mutated_covers, err) {
    struct cairn_stored random = {.random = cairn_test_seed()};
    uint32_t covers = 0, refused = 0;
    for (int round = 0; round < 20000; round++) {
        unsigned dimensions = 1 + (unsigned)cairn_stored_below(&random, 3);
        struct cairn_plan_box region = {0}, boxes[BOXES_MAX + 1];
        for (unsigned d = 0; d < dimensions; d++) {
            region.high[d] = 1 + cairn_stored_below(&random, GRID);
        }
        uint32_t count = cairn_stored_cuts(&random, &region, dimensions, boxes, BOXES_MAX / 2);
        if (dimensions == 2 && cairn_stored_below(&random, 4) == 0) {
            region.high[0] = region.high[1] = GRID;
            count = pinwheel(boxes);
        }
        uint64_t changes = cairn_stored_below(&random, 3);
        for (uint64_t i = 0; i < changes && count; i++) {
            count = mutate(&random, &region, dimensions, boxes, count);
        }
        struct cairn_plan_proof proof = {0};
        REQUIRE_OK(cairn_plan_exact(NULL, &region, dimensions, boxes, count, &proof, &err));
        bool exact = proof.finding == CAIRN_PLAN_FOUND_NOTHING;
        REQUIRE(exact == brute_covers(&region, dimensions, boxes, count));
        REQUIRE(exact == fingerprint_covers(random.random, &region, dimensions, boxes, count));
        check_place(&proof, dimensions, boxes, count);
        REQUIRE_OK(cairn_plan_fingerprint(&region, dimensions, boxes, count, NULL, &proof, &err));
        REQUIRE(exact == (proof.finding == CAIRN_PLAN_FOUND_NOTHING)); /* exact.h#4, exact.h#5 */
        check_place(&proof, dimensions, boxes, count);                 /* exact.h#6 */
        *(exact ? &covers : &refused) += 1;
    }
    EXPECT(covers > 2000); /* both kinds were really met */
    EXPECT(refused > 2000);
}

TEST(a_pinwheel_is_a_cover_and_its_missing_middle_is_named, err) {
    struct cairn_plan_box boxes[5], region = {.high = {6, 6}};
    struct cairn_plan_proof proof = {0};
    pinwheel(boxes);
    REQUIRE_OK(cairn_plan_exact(NULL, &region, 2, boxes, 5, &proof, &err));
    EXPECT_EQ_U64(proof.finding, CAIRN_PLAN_FOUND_NOTHING);
    REQUIRE_OK(cairn_plan_exact(NULL, &region, 2, boxes, 4, &proof, &err));
    EXPECT_EQ_U64(proof.finding, CAIRN_PLAN_FOUND_HOLE);
    char text[CAIRN_PLAN_REGION_TEXT_BYTES];
    cairn_plan_region_text(&proof.region, 2, text);
    EXPECT_EQ_TEXT(text, "[2:4, 2:4]");
}

TEST(a_doubled_box_is_named_with_both_holders, err) {
    struct cairn_plan_box boxes[3] = {
        {.low = {0}, .high = {5}}, {.low = {5}, .high = {9}}, {.low = {4}, .high = {6}}};
    struct cairn_plan_box region = {.high = {9}};
    struct cairn_plan_proof proof = {0};
    REQUIRE_OK(cairn_plan_exact(NULL, &region, 1, boxes, 3, &proof, &err));
    EXPECT_ALL_U64(proof.finding, CAIRN_PLAN_FOUND_OVERLAP, proof.first, 0, proof.second, 2);
}

TEST(a_staircase_as_deep_as_its_boxes_are_many_needs_no_stack, err) {
    enum { STEPS = 3000 };
    struct cairn_plan_box *boxes = calloc(2 * STEPS + 1, sizeof *boxes);
    struct cairn_plan_box rest = {.high = {STEPS + 1, STEPS + 1}}, region = rest;
    struct cairn_plan_proof proof = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        for (unsigned d = 0; d < 2; d++) { /* cut one row off, then one column */
            boxes[count] = rest;
            boxes[count++].high[d] = rest.low[d] + 1;
            rest.low[d]++;
        }
    }
    boxes[count++] = rest;
    enum cairn_code code = cairn_plan_exact(NULL, &region, 2, boxes, count, &proof, &err);
    EXPECT_CODE(code, CAIRN_OK);
    EXPECT_EQ_U64(proof.finding, CAIRN_PLAN_FOUND_NOTHING);
    free(boxes);
}

/* ---- boxes that were laid to take long ---- */

/* Of the processor: a busy machine takes no longer. */
static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Rows of one element, and around them a pinwheel: no straight line goes through, and along the
 * first dimension every row lies beside every other. */
static struct cairn_plan_box *rows_in_a_pinwheel(uint32_t rows, uint32_t *ret_count,
                                                 struct cairn_plan_box *ret_region) {
    struct cairn_plan_box *boxes = calloc((size_t)rows + 4, sizeof *boxes);
    uint64_t low = 1, high = 1 + (uint64_t)rows, end = high + 1;
    for (uint32_t i = 0; i < rows; i++)
        boxes[i] = (struct cairn_plan_box){.low = {low, low + i}, .high = {high, low + i + 1}};
    boxes[rows] = (struct cairn_plan_box){.low = {0, 0}, .high = {1, high}};
    boxes[rows + 1] = (struct cairn_plan_box){.low = {0, high}, .high = {high, end}};
    boxes[rows + 2] = (struct cairn_plan_box){.low = {high, low}, .high = {end, end}};
    boxes[rows + 3] = (struct cairn_plan_box){.low = {1, 0}, .high = {end, 1}};
    *ret_count = rows + 4;
    *ret_region = (struct cairn_plan_box){.high = {end, end}};
    return boxes;
}

TEST(boxes_without_a_straight_cut_are_judged_in_a_second_however_many_they_are, err) /* exact.h#3 */
{
    uint32_t count = 0;
    struct cairn_plan_box region, *boxes = rows_in_a_pinwheel(60000, &count, &region);
    struct cairn_plan_proof proof = {0};
    double start = seconds();
    EXPECT_CODE(cairn_plan_exact(NULL, &region, 2, boxes, count, &proof, &err), CAIRN_OK);
    EXPECT_EQ_U64(proof.finding, CAIRN_PLAN_FOUND_NOTHING);
    boxes[777].high[0]--; /* a hole of one element */
    EXPECT_CODE(cairn_plan_exact(NULL, &region, 2, boxes, count, &proof, &err), CAIRN_OK);
    EXPECT_ALL_U64(proof.finding, CAIRN_PLAN_FOUND_HOLE, proof.region.low[0], 60000,
                   proof.region.low[1], 778);
    boxes[777].high[0]++;
    boxes[778].low[1]--; /* and an overlap */
    EXPECT_CODE(cairn_plan_exact(NULL, &region, 2, boxes, count, &proof, &err), CAIRN_OK);
    EXPECT_ALL_U64(proof.finding, CAIRN_PLAN_FOUND_OVERLAP, proof.first, 777, proof.second, 778);
    EXPECT(seconds() - start < 9.0); /* 0.1 s each; sanitizers allowed for */
    free(boxes);
}

/* Each cut takes one box off and leaves all others to be sorted again. */
TEST(a_long_staircase_is_judged_in_a_second, err) { /* exact.h#3 */
    enum { STEPS = 40000 };
    struct cairn_plan_box *boxes = calloc(2 * STEPS + 1, sizeof *boxes);
    struct cairn_plan_box rest = {.high = {STEPS + 1, STEPS + 1}}, region = rest;
    struct cairn_plan_proof proof = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        for (unsigned d = 0; d < 2; d++) {
            boxes[count] = rest;
            boxes[count++].high[d] = rest.low[d] + 1;
            rest.low[d]++;
        }
    }
    boxes[count++] = rest;
    double start = seconds();
    EXPECT_CODE(cairn_plan_exact(NULL, &region, 2, boxes, count, &proof, &err), CAIRN_OK);
    EXPECT_EQ_U64(proof.finding, CAIRN_PLAN_FOUND_NOTHING);
    EXPECT(seconds() - start < 3.0);
    free(boxes);
}

TEST(a_proof_that_is_stopped_says_so, err) {
    struct cairn_plan_box boxes[2] = {{.low = {0}, .high = {5}}, {.low = {5}, .high = {9}}};
    struct cairn_plan_box region = {.high = {9}};
    struct cairn_plan_proof proof = {0};
    _Atomic bool stop = true;
    struct cairn_plan_effort effort = cairn_plan_effort_of(2);
    effort.stop = &stop;
    EXPECT_CODE(cairn_plan_exact(&effort, &region, 1, boxes, 2, &proof, &err), CAIRN_CANCELLED);
}

TEST(a_flat_range_becomes_few_boxes_that_hold_exactly_its_elements_in_order) {
    struct cairn_stored random = {.random = cairn_test_seed()};
    for (int round = 0; round < 20000; round++) {
        struct cairn_tensor tensor = {0};
        tensor.dimension_count = 1 + (unsigned)cairn_stored_below(&random, 4);
        uint64_t elements = 1;
        for (unsigned d = 0; d < tensor.dimension_count; d++) {
            tensor.shape[d] = 1 + cairn_stored_below(&random, 5);
            elements *= tensor.shape[d];
        }
        uint64_t start = cairn_stored_below(&random, elements);
        uint64_t next = start, end = start + 1 + cairn_stored_below(&random, elements - start);
        struct cairn_plan_box boxes[CAIRN_PLAN_SPLIT_MAX];
        unsigned count =
            cairn_plan_flat_split(tensor.shape, tensor.dimension_count, start, end, boxes);
        REQUIRE(count <= 2 * tensor.dimension_count - 1);
        for (unsigned i = 0; i < count; i++) {
            uint64_t extent[CAIRN_DIMENSIONS_MAX], volume = 1;
            for (unsigned d = 0; d < tensor.dimension_count; d++) {
                extent[d] = boxes[i].high[d] - boxes[i].low[d];
                volume *= extent[d];
            }
            for (uint64_t n = 0; n < volume; n++, next++) {
                REQUIRE(cairn_stored_nth(&tensor, boxes[i].low, extent, n) == next);
            }
        }
        REQUIRE(next == end);
    }
}
