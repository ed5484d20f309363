/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}/tensors: the layout's names, paged. */
#include <stdio.h>

#include "common/text.h"
#include "server/cache.h"
#include "server/handlers/shards.h"
#include "server/request.h"

static json_t *text_of(struct cairn_view view) {
    return json_stringn(view.data, view.size);
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

static json_t *tensor_json(const struct cairn_layout *layout, uint32_t index) {
    struct cairn_view name;
    uint32_t first = 0, count = 0;
    cairn_layout_name_at(layout, index, &name, &first, &count);
    struct cairn_tensor tensor = {0};
    uint64_t fragments = count_fragments(layout, first, count, &tensor);
    uint64_t elements = 0, bytes = 0;
    bool sized =
        cairn_tensor_size(tensor.dtype, tensor.dimension_count, tensor.shape, &elements, &bytes);
    json_t *shape = json_array();
    for (unsigned i = 0; i < tensor.dimension_count; i++) {
        if (json_array_append_new(shape, json_integer((json_int_t)tensor.shape[i]))) return NULL;
    }
    json_t *json =
        json_pack("{s:o, s:s, s:o, s:s, s:I, s:I}", "name", text_of(name), "dtype",
                  cairn_dtype_text(tensor.dtype), "shape", shape, "kind", kind_text(tensor.kind),
                  "bytes", sized ? (json_int_t)bytes : 0, "fragments", (json_int_t)fragments);
    if (json && tensor.kind == CAIRN_TENSOR_ALIAS &&
        json_object_set_new(json, "alias_of", text_of(tensor.alias_of))) {
        json_decref(json);
        return NULL;
    }
    return json;
}

struct page {
    uint64_t limit, from;
    const char *part; /* of the name; NULL = all */
};

static enum cairn_code read_page(const struct cairn_srv_request *request, struct page *ret,
                                 struct cairn_error *err) {
    static const char *const allowed[] = {"limit", "cursor", "q"};
    CAIRN_TRY(cairn_query_only(&request->query, allowed, CAIRN_COUNT(allowed), err));
    CAIRN_TRY(cairn_srv_query_limit(request, &ret->limit, err));
    char cursor[32];
    CAIRN_TRY(cairn_srv_cursor_read(request, cursor, sizeof(cursor), err));
    if (cursor[0]) CAIRN_TRY(cairn_parse_u64(cairn_view_of(cursor), &ret->from, err));
    ret->part = cairn_query_get(&request->query, "q");
    return CAIRN_OK;
}

static enum cairn_code list(const struct cairn_layout *layout, const struct page *page,
                            json_t *items, json_t **ret_next, struct cairn_error *err) {
    for (uint64_t i = page->from; i < layout->name_count; i++) {
        struct cairn_view name;
        uint32_t first = 0, count = 0;
        cairn_layout_name_at(layout, (uint32_t)i, &name, &first, &count);
        if (page->part && !memmem(name.data, name.size, page->part, strlen(page->part))) continue;
        if (json_array_size(items) == page->limit) {
            char cursor[32];
            snprintf(cursor, sizeof(cursor), "%llu", (unsigned long long)i);
            *ret_next = cairn_srv_cursor_write(cursor);
            return CAIRN_OK;
        }
        if (json_array_append_new(items, tensor_json(layout, (uint32_t)i)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_tensor_list(struct cairn_srv_request *request,
                                         struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct page page = {0};
    CAIRN_TRY(read_page(request, &page, err));
    CAIRN_AUTO(srv_version) version = {0};
    CAIRN_TRY(cairn_srv_readable(request, &version, err));
    CAIRN_AUTO_JSON json_t *items = json_array();
    json_t *next = NULL;
    if (version.has_layout) {
        struct cairn_srv_held *held = NULL;
        CAIRN_TRY(cairn_srv_cache_layout(request->server, request->store, &version, &held, err));
        enum cairn_code code = list(&held->layout, &page, items, &next, err);
        cairn_srv_cache_give(request->server, held);
        if (code) return code;
    }
    return cairn_srv_reply_json(reply, 200,
                                json_pack("{s:O, s:o?}", "items", items, "next_cursor", next), err);
}
