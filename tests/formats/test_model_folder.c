/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensor begins a file, what files are called, and their index. */
#include "formats/safetensors.h"

#include "api/table/dtype.h"
#include "tests/harness.h"

TEST(a_tensor_begins_a_file_when_the_one_before_would_grow_beyond_its_bound) { /* safetensors.h#5 */
    struct cairn_model_split split = {.file_bytes_max = 100}, whole = {0};
    size_t files = 0;
    EACH(row, FIELDS(uint64_t bytes; bool begins), {40, true}, {60, false}, /* exactly full */
         {1, true}, {99, false}, {0, false}, {1, true},
         {500, true},                   /* larger than a file: one of its own */
         {1, true}, {UINT64_MAX, true}, /* and no sum wraps */
         {UINT64_MAX, true}) {
        files += row->begins;
        if (!EXPECT(cairn_model_split_begins(&split, row->bytes) == row->begins))
            printf("    tensor %zu\n", AT(row));
        EXPECT_EQ_U64(split.file_count, files);
        EXPECT(cairn_model_split_begins(&whole, 1 + AT(row)) ==
               !AT(row)); /* without a bound there is one */
    }
    EXPECT_EQ_U64(whole.file_count, 1);
}

TEST(empty_tensors_fill_no_file) {
    struct cairn_model_split split = {.file_bytes_max = 10};
    EXPECT(cairn_model_split_begins(&split, 0));
    EXPECT(!cairn_model_split_begins(&split, 0));
    EXPECT(!cairn_model_split_begins(&split, 500)); /* nothing is in it yet */
    EXPECT(cairn_model_split_begins(&split, 1));
}

TEST(one_file_has_the_plain_name_and_several_say_which_of_how_many) { /* safetensors.h#6 */
    char name[CAIRN_MODEL_FILE_NAME_BYTES];
    cairn_model_file_name("model", "safetensors", 0, 1, name);
    EXPECT_EQ_TEXT(name, "model.safetensors");
    cairn_model_file_name("model", "safetensors", 0, 2, name);
    EXPECT_EQ_TEXT(name, "model-00001-of-00002.safetensors");
    cairn_model_file_name("pytorch_model", "bin", CAIRN_MODEL_FILES_MAX - 1, CAIRN_MODEL_FILES_MAX,
                          name);
    EXPECT_EQ_TEXT(name, "pytorch_model-100000-of-100000.bin");
}

TEST(floats_become_what_is_wanted_and_all_else_stays) { /* safetensors.h#7 */
    EXPECT_ALL_U64(
        cairn_model_dtype(CAIRN_VIEW("w"), CAIRN_DTYPE_F32, CAIRN_DTYPE_BF16), CAIRN_DTYPE_BF16,
        cairn_model_dtype(CAIRN_VIEW("w"), CAIRN_DTYPE_F32, CAIRN_DTYPE_NONE), CAIRN_DTYPE_F32,
        cairn_model_dtype(CAIRN_VIEW("w"), CAIRN_DTYPE_I64, CAIRN_DTYPE_BF16), CAIRN_DTYPE_I64,
        cairn_model_dtype(CAIRN_VIEW("w"), CAIRN_DTYPE_U8, CAIRN_DTYPE_F16), CAIRN_DTYPE_U8);
}

TEST(the_index_names_the_file_of_each_tensor, err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_AUTO_JSON json_t *map = json_object();
    EXPECT(cairn_model_index_add(map, CAIRN_VIEW("b.weight"), "two"));
    EXPECT(cairn_model_index_add(map, (struct cairn_view){"a.bias and more", 6}, "one"));
    CAIRN_AUTO_JSON json_t *index = cairn_model_index(map, UINT64_C(1) << 40);
    REQUIRE_OK(cairn_json_dump(index, &text, &err));
    EXPECT_EQ_TEXT(text.data, "{\"metadata\":{\"total_size\":1099511627776},"
                              "\"weight_map\":{\"a.bias\":\"one\",\"b.weight\":\"two\"}}");
}
