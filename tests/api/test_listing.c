/* SPDX-License-Identifier: Apache-2.0 */
#include "api/documents/committed.h"
#include "api/table/dtype.h"
#include "api/table/layout.h"
#include "tests/harness.h"

static const char *text_at(const json_t *item, const char *key) {
    const char *text = json_string_value(json_object_get(item, key));
    return text ? text : "(none)";
}

TEST(an_alias_that_names_no_element_type_is_listed_with_a_null_dtype_I1, err) {
    struct cairn_table_builder *builder = NULL;
    CAIRN_AUTO(buf) table_bytes = {0}, layout_bytes = {0};
    struct cairn_table table;
    uint32_t shard = 0;
    struct cairn_tensor tensor = {.name = CAIRN_VIEW("w"),
                                  .dtype = CAIRN_DTYPE_F32,
                                  .dimension_count = 1,
                                  .shape = {3},
                                  .kind = CAIRN_TENSOR_SHARDED};
    struct cairn_fragment whole = {.form = CAIRN_FRAGMENT_FLAT, .count = {3}, .size_bytes = 12};
    struct cairn_tensor alias = {
        .name = CAIRN_VIEW("tied"), .kind = CAIRN_TENSOR_ALIAS, .alias_of = CAIRN_VIEW("w")};
    struct cairn_table_shard row = {CAIRN_VIEW("model.safetensors"), 12, false};
    REQUIRE_OK(cairn_table_builder_new(0, &builder, &err));
    REQUIRE_OK(cairn_table_add_shard(builder, &row, &shard, &err));
    REQUIRE_OK(cairn_table_add_tensor(builder, &tensor, &whole, 1, &err));
    REQUIRE_OK(cairn_table_add_tensor(builder, &alias, NULL, 0, &err));
    REQUIRE_OK(cairn_table_finish(builder, &table_bytes, &err));
    cairn_table_builder_free(builder);
    REQUIRE_OK(cairn_table_open(cairn_buf_view(&table_bytes), &table, &err));
    REQUIRE_OK(cairn_layout_build(&table, 1, &layout_bytes, &err));
    WITH_OK(layout, layout, cairn_layout_open(cairn_buf_view(&layout_bytes), &layout, &err));
    REQUIRE(layout.name_count == 2);
    CAIRN_AUTO_JSON json_t *tied = cairn_listing_tensor(&layout, 0);
    CAIRN_AUTO_JSON json_t *w = cairn_listing_tensor(&layout, 1);
    REQUIRE(tied != NULL);
    EXPECT_EQ_TEXT(text_at(tied, "name"), "tied");
    EXPECT_EQ_TEXT(text_at(tied, "alias_of"), "w");
    EXPECT(json_is_null(json_object_get(tied, "dtype")));
    REQUIRE(w != NULL);
    EXPECT_EQ_TEXT(text_at(w, "dtype"), "F32");
    EXPECT_EQ_U64(json_integer_value(json_object_get(w, "bytes")), 12);
}
