/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}/tensors: the layout's names, paged. */
#include <stdio.h>

#include "api/documents/committed.h"
#include "api/table/layout.h"
#include "common/text.h"
#include "server/http/request.h"
#include "server/reads/cache.h"
#include "server/reads/shard_calls.h"

struct page {
    const struct cairn_srv *server;
    uint64_t limit, from;
    const char *part; /* of the name; NULL = all */
};

static enum cairn_code read_page(const struct cairn_srv_request *request, struct page *ret,
                                 struct cairn_error *err) {
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
            *ret_next = cairn_srv_cursor_write(page->server, cursor);
            return CAIRN_OK;
        }
        if (json_array_append_new(items, cairn_listing_tensor(layout, (uint32_t)i)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_tensor_list(struct cairn_srv_request *request,
                                         struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct page page = {.server = request->server};
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
    return cairn_srv_reply_page(reply, CAIRN_TAKE(items), next, err);
}
