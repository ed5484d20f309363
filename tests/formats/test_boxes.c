/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes against counting every element, and tensors that are put together from them. */
#include "api/table/dtype.h"
#include "formats/assembly/assembly.h"
#include "tests/harness.h"

#define SIDE_MAX 6
#define ELEMENTS_MAX 1296
#define BOXES_MAX 64

static uint64_t below(uint64_t *random, uint64_t end) {
    *random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (*random >> 33) % end;
}

struct case_of {
    unsigned dimensions;
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    uint64_t elements;
    struct cairn_box boxes[BOXES_MAX];
    size_t count;
};

/* A tensor that is cut in two again and again, each part along a dimension of its own. */
static void make_case(struct case_of *made, uint64_t *random) {
    *made = (struct case_of){.dimensions = 1 + (unsigned)below(random, 4), .elements = 1};
    for (unsigned d = 0; d < made->dimensions; d++) {
        made->shape[d] = made->boxes[0].count[d] = 1 + below(random, SIDE_MAX);
        made->elements *= made->shape[d];
    }
    made->count = 1;
    for (size_t i = below(random, 24); i-- > 0;) {
        struct cairn_box *box = &made->boxes[below(random, made->count)];
        unsigned d = (unsigned)below(random, made->dimensions);
        if (box->count[d] < 2) continue;
        uint64_t left = 1 + below(random, box->count[d] - 1);
        struct cairn_box *other = &made->boxes[made->count++];
        *other = *box;
        other->start[d] += left;
        other->count[d] -= left;
        box->count[d] = left;
    }
}

/* Is this element of the tensor in the box? */
static bool holds(const struct case_of *of, const struct cairn_box *box, uint64_t element) {
    bool in = true;
    for (unsigned d = of->dimensions; d-- > 0; element /= of->shape[d]) {
        uint64_t at = element % of->shape[d];
        in &= at >= box->start[d] && at - box->start[d] < box->count[d];
    }
    return in;
}

TEST(elements_of_a_box_are_counted_as_one_by_one) {
    uint64_t random = cairn_test_seed(), wrong = 0;
    for (int round = 0; round < 300; round++) {
        struct case_of of;
        make_case(&of, &random);
        const struct cairn_box *box = &of.boxes[below(&random, of.count)];
        uint64_t seen = 0, run = cairn_box_run(box, of.dimensions, of.shape), last = 0;
        for (uint64_t element = 0; element < of.elements; element++) {
            wrong += cairn_box_before(box, of.dimensions, of.shape, element) != seen;
            if (!holds(&of, box, element)) continue;
            wrong += cairn_box_place(box, of.dimensions, of.shape, seen) != element;
            wrong += seen % run && element != last + 1;
            last = element;
            seen++;
        }
        wrong += cairn_box_elements(box, of.dimensions) != seen;
        wrong += cairn_box_before(box, of.dimensions, of.shape, of.elements) != seen;
    }
    EXPECT_EQ_U64(wrong, 0);
}

TEST(a_range_of_a_box_is_cut_into_few_boxes_in_its_order) {
    uint64_t random = cairn_test_seed(), wrong = 0;
    for (int round = 0; round < 300; round++) {
        struct case_of of;
        struct cairn_box cut[2 * CAIRN_DIMENSIONS_MAX];
        make_case(&of, &random);
        const struct cairn_box *box = &of.boxes[below(&random, of.count)];
        uint64_t all = cairn_box_elements(box, of.dimensions);
        uint64_t first = below(&random, all + 1), size = below(&random, all - first + 1);
        unsigned count = cairn_box_cut(box, of.dimensions, first, size, cut);
        wrong += count > 2 * of.dimensions - 1;
        for (unsigned i = 0; i < count; i++) {
            uint64_t elements = cairn_box_elements(&cut[i], of.dimensions);
            for (uint64_t e = 0; e < elements; e++)
                wrong += cairn_box_place(&cut[i], of.dimensions, of.shape, e) !=
                         cairn_box_place(box, of.dimensions, of.shape, first + e);
            first += elements;
            size -= elements;
        }
        wrong += size != 0;
    }
    EXPECT_EQ_U64(wrong, 0);
}

TEST(boxes_that_fill_a_tensor_are_proved_and_no_others) {
    uint64_t random = cairn_test_seed(), wrong = 0;
    for (int round = 0; round < 600; round++) {
        struct case_of of;
        make_case(&of, &random);
        wrong += cairn_boxes_prove(of.boxes, of.count, of.dimensions, of.shape, NULL) != CAIRN_OK;
        struct cairn_box *box = &of.boxes[below(&random, of.count)];
        unsigned d = (unsigned)below(&random, of.dimensions);
        if (below(&random, 3) == 0)
            *box = of.boxes[--of.count];
        else if (below(&random, 2) && box->start[d]) /* an overlap, and no hole */
            box->start[d]--, box->count[d]++;
        else if (box->count[d] > 1)
            box->count[d]--;
        uint64_t bad = 0;
        for (uint64_t element = 0; element < of.elements; element++) {
            uint64_t times = 0;
            for (size_t i = 0; i < of.count; i++) times += holds(&of, &of.boxes[i], element);
            bad += times != 1;
        }
        enum cairn_code code = cairn_boxes_prove(of.boxes, of.count, of.dimensions, of.shape, NULL);
        wrong += code != (bad ? CAIRN_INVALID : CAIRN_OK);
    }
    EXPECT_EQ_U64(wrong, 0);
}

static enum cairn_code read_memory(void *context, uint64_t offset, void *into, size_t size,
                                   struct cairn_error *err) {
    (void)err;
    memcpy(into, (const char *)context + offset, size);
    return CAIRN_OK;
}

/* The file holds the boxes one behind the other, each in its own order; each is added as two ranges
 * of it, the last one first. */
static enum cairn_code build(const struct case_of *of, struct cairn_assembly *assembly,
                             uint16_t *file, const struct cairn_input *input) {
    uint64_t at = 0;
    uint32_t number;
    CAIRN_TRY(cairn_assembly_add_input(assembly, input, &number, NULL));
    CAIRN_TRY(
        cairn_assembly_add_tensor(assembly, "t", CAIRN_DTYPE_U16, of->dimensions, of->shape, NULL));
    for (size_t i = of->count; i-- > 0;) {
        const struct cairn_box *box = &of->boxes[i];
        uint64_t elements = cairn_box_elements(box, of->dimensions), half = elements / 2;
        for (uint64_t e = 0; e < elements; e++)
            file[at + e] = (uint16_t)cairn_box_place(box, of->dimensions, of->shape, e);
        CAIRN_TRY(cairn_assembly_add_box(
            assembly,
            &(struct cairn_assembly_piece){.input = number,
                                           .offset_bytes = (at + half) * 2,
                                           .size_bytes = (elements - half) * 2},
            box, half, NULL));
        CAIRN_TRY(cairn_assembly_add_box(assembly,
                                         &(struct cairn_assembly_piece){.input = number,
                                                                        .offset_bytes = at * 2,
                                                                        .size_bytes = half * 2},
                                         box, 0, NULL));
        at += elements;
    }
    return cairn_assembly_check(assembly, NULL);
}

TEST(any_range_of_a_tensor_is_read_out_of_its_boxes) {
    uint64_t random = cairn_test_seed(), wrong = 0;
    for (int round = 0; round < 300; round++) {
        struct case_of of;
        uint16_t file[ELEMENTS_MAX], into[ELEMENTS_MAX];
        struct cairn_assembly assembly = {0};
        make_case(&of, &random);
        const struct cairn_input input = {
            .size_bytes = of.elements * 2, .context = file, .read = read_memory};
        enum cairn_code code = build(&of, &assembly, file, &input);
        uint64_t first = below(&random, of.elements), size = below(&random, of.elements - first);
        if (code == CAIRN_OK)
            code = cairn_assembly_read(&assembly, &assembly.tensors[0], first * 2, (char *)into,
                                       size * 2, NULL);
        wrong += code != CAIRN_OK;
        for (uint64_t e = 0; code == CAIRN_OK && e < size; e++) wrong += into[e] != first + e;
        cairn_assembly_release(&assembly);
    }
    EXPECT_EQ_U64(wrong, 0);
}

TEST(a_wide_tensor_of_columns_is_read_through_bounded_memory) {
    enum { ROWS = 300, COLUMNS = 4096, RANKS = 4 };
    static uint16_t file[ROWS * COLUMNS], into[ROWS * COLUMNS];
    const struct cairn_input input = {
        .size_bytes = sizeof file, .context = file, .read = read_memory};
    struct case_of of = {.dimensions = 2, .shape = {ROWS, COLUMNS}, .count = RANKS};
    struct cairn_assembly assembly = {0};
    uint64_t wrong = 0;
    for (size_t r = 0; r < RANKS; r++)
        of.boxes[r] = (struct cairn_box){{0, r * COLUMNS / RANKS}, {ROWS, COLUMNS / RANKS}};
    REQUIRE(build(&of, &assembly, file, &input) == CAIRN_OK);
    EXPECT(assembly.tensors[0].boxed);
    EXPECT(cairn_assembly_read(&assembly, &assembly.tensors[0], 0, (char *)into, sizeof into,
                               NULL) == CAIRN_OK);
    for (uint64_t e = 0; e < ROWS * COLUMNS; e++) wrong += into[e] != (uint16_t)e;
    EXPECT_EQ_U64(wrong, 0);
    cairn_assembly_release(&assembly);
}

TEST(boxes_that_are_rows_become_pieces_in_the_tensors_order) {
    uint16_t file[24];
    const struct cairn_input input = {
        .size_bytes = sizeof file, .context = file, .read = read_memory};
    struct case_of of = {.dimensions = 2,
                         .shape = {6, 4},
                         .boxes = {{{0, 0}, {3, 4}}, {{3, 0}, {3, 4}}},
                         .count = 2};
    struct cairn_assembly assembly = {0};
    REQUIRE(build(&of, &assembly, file, &input) == CAIRN_OK);
    EXPECT(!assembly.tensors[0].boxed);
    EXPECT_ALL_U64(assembly.tensors[0].piece_count, 2, assembly.pieces[0].offset_bytes, 24);
    cairn_assembly_release(&assembly);
}

TEST(boxes_of_less_than_a_byte_and_outside_of_their_tensor_are_refused) {
    char file[64] = "";
    const struct cairn_input input = {
        .size_bytes = sizeof file, .context = file, .read = read_memory};
    const struct cairn_box outside = {{5}, {4}}, inside = {{0}, {8}};
    struct cairn_assembly assembly = {0};
    uint32_t number;
    const uint64_t shape[] = {8};
    REQUIRE(cairn_assembly_add_input(&assembly, &input, &number, NULL) == CAIRN_OK);
    REQUIRE(cairn_assembly_add_tensor(&assembly, "a", CAIRN_DTYPE_F32, 1, shape, NULL) == CAIRN_OK);
    const struct cairn_assembly_piece piece = {
        .input = number, .offset_bytes = 0, .size_bytes = 16};
    EXPECT(cairn_assembly_add_box(&assembly, &piece, &outside, 0, NULL) == CAIRN_INVALID);
    EXPECT(cairn_assembly_add_box(&assembly, &piece, &inside, 5, NULL) == CAIRN_INVALID);
    REQUIRE(cairn_assembly_add_tensor(&assembly, "b", CAIRN_DTYPE_F4, 1, shape, NULL) == CAIRN_OK);
    EXPECT(cairn_assembly_add_box(&assembly, &piece, &inside, 0, NULL) == CAIRN_UNSUPPORTED);
    cairn_assembly_release(&assembly);
}
