/* SPDX-License-Identifier: Apache-2.0 */
/* listing: JSON of shards and tensors. */
#include "api/listing.h"

#include "api/dtype.h"
#include "api/layout.h"
#include "api/messages.h"
#include "common/text.h"

#include <stdio.h>

struct name {
    char text[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
};

static const char *text_of(struct cairn_view view, struct name *ret) {
    CAIRN_PROMISE(view.size < sizeof ret->text, return NULL);
    if (view.size) memcpy(ret->text, view.data, view.size);
    ret->text[view.size] = '\0';
    return ret->text;
}

static const char *kind_text(enum cairn_tensor_kind kind) {
    switch (kind) {
    case CAIRN_TENSOR_SHARDED:
        return "sharded";
    case CAIRN_TENSOR_REPLICATED:
        return "replicated";
    case CAIRN_TENSOR_ALIAS:
        return "alias";
    case CAIRN_TENSOR_LOCAL:
        return "local";
    }
    return "unknown";
}

/* Fragments of all ranks that list the name. */
static uint64_t count_fragments(const struct cairn_layout *layout, uint32_t first, uint32_t count,
                                struct cairn_tensor *ret_tensor) {
    uint64_t fragments = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t table = 0, index = 0;
        struct cairn_tensor tensor;
        cairn_layout_ref_at(layout, first + i, &table, &index);
        cairn_table_tensor_at(&layout->tables[table], index, &tensor);
        if (i == 0) *ret_tensor = tensor;
        fragments += tensor.fragment_count;
    }
    return fragments;
}

json_t *cairn_listing_tensor(const struct cairn_layout *layout, uint32_t index) {
    struct cairn_view name;
    uint32_t first = 0, count = 0;
    cairn_layout_name_at(layout, index, &name, &first, &count);
    struct cairn_tensor tensor = {0};
    uint64_t fragments = count_fragments(layout, first, count, &tensor);
    uint64_t elements = 0, bytes = 0;
    bool sized =
        cairn_tensor_size(tensor.dtype, tensor.dimension_count, tensor.shape, &elements, &bytes);
    CAIRN_AUTO_JSON json_t *shape = json_array();
    for (unsigned i = 0; i < tensor.dimension_count; i++) {
        if (json_array_append_new(shape, json_integer((json_int_t)tensor.shape[i]))) return NULL;
    }
    struct name own, other;
    bool alias = tensor.kind == CAIRN_TENSOR_ALIAS;
    return CAIRN_PACK(tensor_row, .name = text_of(name, &own),
                      .dtype = cairn_dtype_text(tensor.dtype), .shape = shape,
                      .kind = kind_text(tensor.kind),
                      .alias_of = alias ? text_of(tensor.alias_of, &other) : NULL,
                      .bytes = sized ? bytes : 0, .fragments = fragments);
}

const char *cairn_listing_content(const struct cairn_layout *layout, uint32_t rank,
                                  const char *shard) {
    bool described = layout && cairn_layout_describes(layout, rank, cairn_view_of(shard));
    return described ? "tensors" : "opaque";
}

json_t *cairn_listing_shard(const char *name, uint64_t rank, uint64_t size_bytes,
                            const uint32_t *crc32c, const char *state, const char *content) {
    char text[16] = "";
    if (crc32c) snprintf(text, sizeof text, "%08x", *crc32c);
    return CAIRN_PACK(shard_row, .name = name, .rank = rank, .bytes = size_bytes,
                      .crc32c = crc32c ? text : NULL, .state = state, .content = content);
}
