/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}/shards and {C}/shards/{name}: rows while the version is open, the manifest afterwards. */
#include "server/reads/shard_calls.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/documents/committed.h"
#include "common/text.h"
#include "server/guard/freeze.h"
#include "server/ledger/shard_lists.h"
#include "server/ledger/shards.h"
#include "server/reads/cache.h"

struct find {
    struct cairn_srv_request *request;
    struct cairn_srv_version version;
    uint64_t limit, rank;
    bool by_rank, single;
    const char *content; /* only these; NULL: all */
    char after[CAIRN_SHARD_NAME_BYTES_MAX + 1];
    json_t *items, *next;
    char last[CAIRN_SHARD_NAME_BYTES_MAX + 1];
};

static enum cairn_code find_version(struct cairn_srv_tx *tx, struct find *find,
                                    struct cairn_error *err) {
    const struct cairn_srv_request *request = find->request;
    struct cairn_srv_ref ref = {&request->params.run_name, request->params.ref, false};
    CAIRN_TRY(cairn_srv_version_find(tx, &ref, &find->version, err));
    return cairn_srv_version_there(&find->version, err);
}

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    return find_version(tx, argument, err);
}

/* Q36: while the catalog is behind, only what the store itself calls committed is read. */
static enum cairn_code record_there(struct cairn_srv_request *request,
                                    const struct cairn_srv_version *version,
                                    struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code behind = cairn_srv_run_thawed(request->server, &version->name, &why);
    if (!behind) return CAIRN_OK;
    struct cairn_version_place place = cairn_srv_version_place(version);
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(request->store, &head, err);
    if (code == CAIRN_NOT_FOUND && err) *err = why;
    return code == CAIRN_NOT_FOUND ? behind : code;
}

enum cairn_code cairn_srv_readable(struct cairn_srv_request *request, struct cairn_srv_version *ret,
                                   struct cairn_error *err) {
    struct find find = {.request = request};
    if (!cairn_version_id_valid(cairn_view_of(request->params.ref)))
        CAIRN_TRY(cairn_srv_thawed(request->server, err));
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, look, &find, err);
    const struct cairn_srv_version *version = &find.version;
    if (!code && cairn_srv_version_shown(version) == CAIRN_STATE_OPEN)
        code = cairn_fail(err, CAIRN_NOT_COMMITTED, "%s (step %" PRIu64 ") is not committed yet",
                          version->id.text, version->step);
    if (!code && version->state != CAIRN_STATE_COMMITTED)
        code = cairn_fail(err, CAIRN_ABORTED, "%s was given up: %s", version->id.text,
                          version->reason);
    if (!code) code = record_there(request, version, err);
    if (code) {
        cairn_srv_version_release(&find.version);
        return code;
    }
    *ret = find.version;
    return CAIRN_OK;
}

/* One shard for the list; the one behind the limit only makes the cursor. */
static enum cairn_code add(struct find *find, const struct cairn_srv_shard_row *row,
                           const char *state, const char *content, struct cairn_error *err) {
    if (json_array_size(find->items) == find->limit) {
        if (!find->next) find->next = cairn_srv_cursor_write(find->request->server, find->last);
        return CAIRN_OK;
    }
    (void)cairn_text_copy(find->last, sizeof(find->last), row->name);
    json_t *item = cairn_listing_shard(row->name, row->rank, row->size,
                                       row->registered ? &row->crc32c : NULL, state, content);
    if (json_array_append_new(find->items, item))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    return CAIRN_OK;
}

static enum cairn_code add_row(void *argument, const struct cairn_srv_shard_row *row,
                               struct cairn_error *err) {
    struct find *find = argument;
    if (find->content) return CAIRN_OK; /* not known yet */
    return add(find, row, row->registered ? "registered" : "sealed", NULL, err);
}

static enum cairn_code list_rows(struct cairn_srv_tx *tx, struct find *find,
                                 struct cairn_error *err) {
    const char *id = find->version.id.text;
    if (find->single) return cairn_srv_shard_named(tx, id, find->after, add_row, find, err);
    struct cairn_srv_shard_page page = {.version = id,
                                        .after = find->after,
                                        .by_rank = find->by_rank,
                                        .rank = find->rank,
                                        .limit = find->limit + 1}; /* to know of a next page */
    return cairn_srv_shards_page(tx, &page, add_row, find, err);
}

static enum cairn_code look_at_rows(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct find *find = argument;
    CAIRN_TRY(find_version(tx, find, err));
    if (cairn_srv_version_shown(&find->version) == CAIRN_STATE_COMMITTED) return CAIRN_OK;
    return list_rows(tx, find, err);
}

/* Of one shard of the manifest; NULL: its layout cannot be read. */
static const char *content_of(const struct cairn_srv_version *version,
                              const struct cairn_srv_held *layout,
                              const struct cairn_manifest_shard *shard) {
    if (version->has_layout && !layout) return NULL;
    return cairn_listing_content(layout ? &layout->layout : NULL, shard->rank, shard->name);
}

static enum cairn_code list_shards(struct find *find, const struct cairn_srv_held *held,
                                   const struct cairn_srv_held *layout, struct cairn_error *err) {
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < held->manifest.shard_count && !code && !find->next; i++) {
        const struct cairn_manifest_shard *shard = &held->manifest.shards[i];
        int order = strcmp(shard->name, find->after);
        if (find->single ? order != 0 : order <= 0) continue;
        if (find->by_rank && shard->rank != find->rank) continue;
        const char *content = content_of(&find->version, layout, shard);
        if (find->content && (!content || strcmp(content, find->content) != 0)) continue;
        struct cairn_srv_shard_row row = {.name = shard->name,
                                          .rank = shard->rank,
                                          .size = shard->size_bytes,
                                          .crc32c = shard->crc32c,
                                          .registered = true};
        code = add(find, &row, "committed", content, err);
    }
    return code;
}

/* A layout that is damaged hides no shard; it is an error where their content was asked for. */
static enum cairn_code list_manifest(struct find *find, struct cairn_error *err) {
    struct cairn_srv_request *request = find->request;
    struct cairn_srv_held *held = NULL, *layout = NULL;
    struct cairn_error why = {0};
    CAIRN_TRY(
        cairn_srv_cache_manifest(request->server, request->store, &find->version, &held, err));
    enum cairn_code code = CAIRN_OK;
    if (find->version.has_layout)
        code = cairn_srv_cache_layout(request->server, request->store, &find->version, &layout,
                                      &why);
    if (code && find->content && err) *err = why;
    if (!find->content || !code) code = list_shards(find, held, layout, err);
    cairn_srv_cache_give(request->server, layout);
    cairn_srv_cache_give(request->server, held);
    return code;
}

static enum cairn_code run(struct find *find, struct cairn_error *err) {
    find->items = json_array();
    CAIRN_TRY(cairn_srv_catalog_read(find->request->server->catalog, look_at_rows, find, err));
    if (cairn_srv_version_shown(&find->version) != CAIRN_STATE_COMMITTED) return CAIRN_OK;
    return list_manifest(find, err);
}

static void release(struct find *find) {
    cairn_srv_version_release(&find->version);
    json_decref(find->items);
    json_decref(find->next);
}

static enum cairn_code read_filters(struct find *find, struct cairn_error *err) {
    const struct cairn_srv_request *request = find->request;
    CAIRN_TRY(cairn_srv_query_limit(request, &find->limit, err));
    CAIRN_TRY(cairn_srv_cursor_read(request, find->after, sizeof(find->after), err));
    const char *rank = cairn_query_get(&request->query, "rank");
    find->content = cairn_query_get(&request->query, "content");
    if (find->content && strcmp(find->content, "tensors") && strcmp(find->content, "opaque"))
        return cairn_fail(err, CAIRN_INVALID, "content: want tensors or opaque");
    find->by_rank = rank != NULL;
    if (!rank) return CAIRN_OK;
    return cairn_within(err, cairn_parse_u64(cairn_view_of(rank), &find->rank, err), "rank");
}

enum cairn_code cairn_srv_on_shard_list(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct find find = {.request = request};
    CAIRN_TRY(read_filters(&find, err));
    enum cairn_code code = run(&find, err);
    if (!code)
        code = cairn_srv_reply_page(reply, CAIRN_TAKE(find.items), CAIRN_TAKE(find.next), err);
    release(&find);
    return code;
}

enum cairn_code cairn_srv_on_shard_get(struct cairn_srv_request *request,
                                       struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct find find = {.request = request, .limit = 1, .single = true};
    (void)cairn_text_copy(find.after, sizeof(find.after), request->params.shard);
    enum cairn_code code = run(&find, err);
    if (!code && !json_array_size(find.items))
        code = cairn_fail(err, CAIRN_NOT_FOUND, "%s has no shard \"%s\"", find.version.id.text,
                          request->params.shard);
    if (!code)
        code = cairn_srv_reply_json(reply, 200, json_incref(json_array_get(find.items, 0)), err);
    release(&find);
    return code;
}
