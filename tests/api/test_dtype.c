/* SPDX-License-Identifier: Apache-2.0 */
/* Element types: their numbers, sizes, and what safetensors' header shows them as. */
#include "api/table/dtype.h"

#include "tests/harness.h"

TEST(element_types_have_stable_names_and_widths) {
    unsigned dtype = 0;
    EXPECT(cairn_dtype_parse(CAIRN_VIEW("BF16"), &dtype));
    EXPECT_EQ_U64(dtype, 10);
    EXPECT_EQ_TEXT(cairn_dtype_text(10), "BF16");
    EXPECT_EQ_U64(cairn_dtype_bits(CAIRN_DTYPE_F6_E2M3), 6);
    EXPECT(cairn_dtype_parse(CAIRN_VIEW("C128"), &dtype));
    EXPECT_ALL_U64(dtype, 24, CAIRN_DTYPE_ITEM, 62);
    EXPECT(!cairn_dtype_parse(CAIRN_VIEW("bf16"), &dtype));
    EXPECT(!cairn_dtype_parse(CAIRN_VIEW(""), &dtype));
    EXPECT(cairn_dtype_text(0) == NULL);
    EXPECT(cairn_dtype_text(200) == NULL);
    EXPECT_EQ_U64(cairn_dtype_bits(1000), 0);
    EXPECT(!cairn_dtype_is_shown(0));
    EXPECT(!cairn_dtype_is_shown(1000));
}

/* The names are those of safetensors' own list of types (0.8), counted; the page of the format has
 * what they are. */
TEST(what_safetensors_has_a_name_for_is_shown_as_itself_and_all_else_as_one_of_those) {
    unsigned own = 0;
    for (unsigned dtype = 1; cairn_dtype_text(dtype); dtype++) {
        const uint64_t shape[1] = {8};
        struct cairn_dtype_shown shown;
        cairn_dtype_shown(dtype, 1, shape, &shown);
        own += cairn_dtype_is_shown(dtype);
        EXPECT(cairn_dtype_is_shown(shown.dtype));
        EXPECT_EQ_U64(shown.dtype == dtype, cairn_dtype_is_shown(dtype));
    }
    EXPECT_EQ_U64(own, 22);
}

TEST(a_tensor_and_what_it_is_shown_as_have_the_same_bytes) {
    uint64_t state = cairn_test_seed();
    for (int i = 0; i < 20000; i++) {
        uint64_t shape[CAIRN_DIMENSIONS_MAX] = {0}, elements = 0, bytes = 0, shown_bytes = 0;
        unsigned dtype = 1 + (unsigned)(cairn_test_random(&state) % 62);
        unsigned dimensions = (unsigned)(cairn_test_random(&state) % (CAIRN_DIMENSIONS_MAX + 1));
        for (unsigned d = 0; d < dimensions; d++) shape[d] = cairn_test_random(&state) % 9;
        struct cairn_dtype_shown shown;
        if (!cairn_tensor_size(dtype, dimensions, shape, &elements, &bytes)) continue;
        cairn_dtype_shown(dtype, dimensions, shape, &shown);
        EXPECT(shown.dimension_count <= CAIRN_DIMENSIONS_MAX);
        EXPECT(cairn_tensor_size(shown.dtype, shown.dimension_count, shown.shape, &elements,
                                 &shown_bytes));
        EXPECT_EQ_U64(shown_bytes, bytes);
    }
}

static const char *shown_text(unsigned dtype, unsigned dimensions, const uint64_t *shape,
                              char ret[200]) {
    struct cairn_dtype_shown shown;
    cairn_dtype_shown(dtype, dimensions, shape, &shown);
    size_t used = (size_t)snprintf(ret, 200, "%s", cairn_dtype_text(shown.dtype));
    for (unsigned d = 0; d < shown.dimension_count; d++)
        used +=
            (size_t)snprintf(ret + used, 200 - used, " %llu", (unsigned long long)shown.shape[d]);
    return ret;
}

TEST(complex_numbers_have_their_parts_in_a_last_dimension_and_packed_elements_are_bytes) {
    static const uint64_t shape[8] = {2, 4, 1, 1, 1, 1, 1, 3}, none[2] = {0, 4};
    char text[200];
    EXPECT_EQ_TEXT(shown_text(CAIRN_DTYPE_C128, 2, shape, text), "F64 2 4 2");
    EXPECT_EQ_TEXT(shown_text(CAIRN_DTYPE_C128, 0, shape, text), "F64 2");
    EXPECT_EQ_TEXT(shown_text(CAIRN_DTYPE_C128, 2, none, text), "F64 0 4 2");
    EXPECT_EQ_TEXT(shown_text(CAIRN_DTYPE_C32, 8, shape, text), "F16 2 4 1 1 1 1 1 6");
    EXPECT_EQ_TEXT(shown_text(CAIRN_DTYPE_F128, 1, shape, text), "U8 2 16");
    EXPECT_EQ_TEXT(shown_text(CAIRN_DTYPE_I4, 2, shape, text), "U8 4");
    EXPECT_EQ_TEXT(shown_text(CAIRN_DTYPE_U1, 2, shape, text), "U8 1");
    EXPECT_EQ_TEXT(shown_text(CAIRN_DTYPE_QI8, 2, shape, text), "I8 2 4");
    EXPECT_EQ_TEXT(shown_text(CAIRN_DTYPE_F4, 2, shape, text), "F4 2 4");
    EXPECT_EQ_TEXT(shown_text(CAIRN_DTYPE_F4X2, 2, shape, text), "U8 2 4");
}
