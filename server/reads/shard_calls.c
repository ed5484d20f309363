/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}/shards and {C}/shards/{name}, from rows while the version is open, else the manifest;
 * {C}/shards/{name}/data; {C}/manifest, /checksums, /layout as stored; presigned URLs. */
#include "server/reads/shard_calls.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/documents/committed.h"
#include "common/text.h"
#include "server/guard/identity.h"
#include "server/http/request.h"
#include "server/ledger/shards.h"
#include "server/reads/send.h"
#include "server/reads/tier_reads.h"

/* ---- the version ---- */

struct find {
    struct cairn_srv_request *request;
    struct cairn_srv_version version;
    uint64_t limit, rank;
    bool by_rank, single;
    const char *content; /* content filter; NULL: all */
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

/* Q36: while the catalog is behind, only versions with a record in the store are readable. */
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

/* ---- the list ---- */

/* Adds one shard; the one after the limit only makes the cursor. */
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
    if (find->content) return CAIRN_OK; /* unknown before the commit */
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
                                        .limit = find->limit + 1}; /* detects a next page */
    return cairn_srv_shards_page(tx, &page, add_row, find, err);
}

static enum cairn_code look_at_rows(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct find *find = argument;
    CAIRN_TRY(find_version(tx, find, err));
    if (cairn_srv_version_shown(&find->version) == CAIRN_STATE_COMMITTED) return CAIRN_OK;
    return list_rows(tx, find, err);
}

/* The content of a manifest's shard; NULL: its layout is unreadable. */
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

/* A damaged layout hides no shard; it is an error only with a content filter. */
static enum cairn_code list_manifest(struct find *find, struct cairn_error *err) {
    struct cairn_srv_request *request = find->request;
    struct cairn_srv_held *held = NULL, *layout = NULL;
    struct cairn_error why = {0};
    CAIRN_TRY(
        cairn_srv_cache_manifest(request->server, request->store, &find->version, &held, err));
    enum cairn_code code = CAIRN_OK;
    if (find->version.has_layout)
        code =
            cairn_srv_cache_layout(request->server, request->store, &find->version, &layout, &why);
    if (code && find->content && err) *err = why;
    if (!find->content || !code) code = list_shards(find, held, layout, err);
    cairn_srv_cache_give(request->server, layout);
    cairn_srv_cache_give(request->server, held);
    return code;
}

static enum cairn_code find_shards(struct find *find, struct cairn_error *err) {
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
    enum cairn_code code = find_shards(&find, err);
    if (!code)
        code = cairn_srv_reply_page(reply, CAIRN_TAKE(find.items), CAIRN_TAKE(find.next), err);
    release(&find);
    return code;
}

enum cairn_code cairn_srv_on_shard_get(struct cairn_srv_request *request,
                                       struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct find find = {.request = request, .limit = 1, .single = true};
    (void)cairn_text_copy(find.after, sizeof(find.after), request->params.shard);
    enum cairn_code code = find_shards(&find, err);
    if (!code && !json_array_size(find.items))
        code = cairn_fail(err, CAIRN_NOT_FOUND, "%s has no shard \"%s\"", find.version.id.text,
                          request->params.shard);
    if (!code)
        code = cairn_srv_reply_json(reply, 200, json_incref(json_array_get(find.items, 0)), err);
    release(&find);
    return code;
}

/* ---- presigned URLs (A03, C03) ---- */

#define LIFE_MS_MAX (UINT64_C(300) * 1000)

enum cairn_code cairn_srv_urls_find(struct cairn_srv *server,
                                    const struct cairn_srv_version *version,
                                    struct cairn_store **ret, struct cairn_error *err) {
    struct cairn_srv_where where = {.count = 0};
    *ret = cairn_store_profile(server->store)->presigns ? server->store : NULL;
    if (!version->copied) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_where_of(server, version->id.text, NULL, &where, err));
    if (!where.count) return CAIRN_OK; /* main is the only store */
    *ret = NULL;
    for (int damaged = 0; damaged < 2; damaged++) /* a URL has no fallback: sound copies first */
        for (size_t i = 0; i < where.count && !*ret; i++)
            if (where.damaged[i] == (damaged == 1) &&
                cairn_store_profile(where.tiers[i]->store)->presigns)
                *ret = where.tiers[i]->store;
    return CAIRN_OK;
}

static enum cairn_code read_tick(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    (void)err;
    uint64_t *tick = argument;
    *tick = cairn_srv_tick(tx);
    return CAIRN_OK;
}

/* The grace counts from a tick that may be one sweep interval old; that much is subtracted. */
static enum cairn_code grace_left(struct cairn_srv *server, const struct cairn_srv_version *version,
                                  uint64_t *ret_ms, struct cairn_error *err) {
    uint64_t grace_ms = server->settings->trash_grace_ms, gone_ms = 0, tick = 0;
    if (version->trashed) {
        CAIRN_TRY(cairn_srv_catalog_read(server->catalog, read_tick, &tick, err));
        gone_ms = tick > version->trashed_tick ? tick - version->trashed_tick : 0;
    }
    gone_ms += server->settings->sweep_interval_ms;
    *ret_ms = grace_ms > gone_ms ? grace_ms - gone_ms : 0;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_urls_life(struct cairn_srv *server,
                                    const struct cairn_srv_version *version, uint64_t leased_ms,
                                    uint32_t *ret_s, struct cairn_error *err) {
    uint64_t left_ms = 0;
    CAIRN_TRY(grace_left(server, version, &left_ms, err));
    left_ms = cairn_max_u64(left_ms, leased_ms);
    *ret_s = (uint32_t)cairn_max_u64(1, cairn_min_u64(LIFE_MS_MAX, left_ms) / 1000);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_urls_sign(struct cairn_store *store,
                                    const struct cairn_srv_version *version, const char *shard,
                                    uint32_t life_s, struct cairn_buf *ret_url,
                                    uint32_t *ret_life_s, struct cairn_error *err) {
    struct cairn_version_place place = cairn_srv_version_place(version);
    struct cairn_key key;
    cairn_key_shard(&place, cairn_view_of(shard), &key);
    return cairn_store_presign(store, key.text, life_s, ret_url, ret_life_s, err);
}

/* ---- manifest, checksums and layout, as stored ---- */

enum stored { MANIFEST, CHECKSUMS, LAYOUT };

static enum cairn_code reply_stored(struct cairn_srv_request *request,
                                    struct cairn_srv_reply *reply, enum stored which,
                                    struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_srv_held *held = NULL;
    CAIRN_TRY(cairn_srv_readable(request, &version, err));
    if (which == LAYOUT)
        CAIRN_TRY(cairn_srv_cache_layout(server, request->store, &version, &held, err));
    else
        CAIRN_TRY(cairn_srv_cache_manifest(server, request->store, &version, &held, err));
    const struct cairn_buf *bytes = which == CHECKSUMS ? &held->checksums : &held->text;
    reply->body.limit = bytes->size + 1;
    enum cairn_code code = cairn_buf_append(&reply->body, bytes->data, bytes->size, err);
    cairn_srv_cache_give(server, held);
    if (code) return code;
    cairn_srv_reply_cached(request, reply);
    if (which != MANIFEST) reply->content_type = "application/octet-stream";
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_manifest_get(struct cairn_srv_request *request,
                                          struct cairn_srv_reply *reply, struct cairn_error *err) {
    return reply_stored(request, reply, MANIFEST, err);
}

enum cairn_code cairn_srv_on_checksums_get(struct cairn_srv_request *request,
                                           struct cairn_srv_reply *reply, struct cairn_error *err) {
    return reply_stored(request, reply, CHECKSUMS, err);
}

enum cairn_code cairn_srv_on_layout_get(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    return reply_stored(request, reply, LAYOUT, err);
}

/* ---- bytes ---- */

struct shard_read {
    struct cairn_srv_request *request;
    struct cairn_srv_reply *reply;
    struct cairn_srv_version version;
    struct cairn_srv_held *held;
    const struct cairn_manifest_shard *shard;
    char tag[48];
};

/* A03, C03: a URL of this one object, which ends before its deletion; its bytes are unverified. */
static enum cairn_code redirect(struct shard_read *read, struct cairn_error *err) {
    struct cairn_srv *server = read->request->server;
    struct cairn_store *store = NULL;
    uint32_t life_s = 0;
    CAIRN_TRY(cairn_srv_urls_find(server, &read->version, &store, err));
    if (!store)
        return cairn_fail(err, CAIRN_INVALID,
                          "via=redirect: this server's store is a folder, which has no URLs");
    CAIRN_TRY(cairn_srv_urls_life(server, &read->version, 0, &life_s, err));
    CAIRN_TRY(cairn_srv_urls_sign(store, &read->version, read->shard->name, life_s,
                                  &read->reply->location, NULL, err));
    read->reply->status = 307;
    cairn_srv_reply_header(read->reply, "Cache-Control", "no-store");
    cairn_srv_reply_header(read->reply, "Referrer-Policy", "no-referrer");
    return CAIRN_OK;
}

/* ?via=proxy (the default) or redirect; HEAD is proxied, since the URL is signed for GET only. */
static enum cairn_code wants_redirect(const struct cairn_srv_request *request, bool *ret,
                                      struct cairn_error *err) {
    const char *via = cairn_query_get(&request->query, "via");
    if (via && strcmp(via, "proxy") != 0 && strcmp(via, "redirect") != 0)
        return cairn_fail(err, CAIRN_INVALID, "via is proxy or redirect");
    *ret = via && !strcmp(via, "redirect") && !request->head_only;
    return CAIRN_OK;
}

static enum cairn_code send_shard(struct shard_read *read, struct cairn_error *err) {
    struct cairn_version_place place = cairn_srv_version_place(&read->version);
    struct cairn_srv_source *source = NULL;
    CAIRN_TRY(cairn_srv_source_shard(read->request->server, CAIRN_TAKE(read->held), read->shard,
                                     &place, &source, err));
    return cairn_srv_send(read->request, read->reply, source, "shard", read->tag, err);
}

static enum cairn_code read_shard(struct shard_read *read, struct cairn_error *err) {
    struct cairn_srv_request *request = read->request;
    bool elsewhere = false;
    CAIRN_TRY(wants_redirect(request, &elsewhere, err));
    CAIRN_TRY(cairn_srv_readable(request, &read->version, err));
    CAIRN_TRY(cairn_srv_cache_manifest(request->server, request->store, &read->version, &read->held,
                                       err));
    read->shard = cairn_manifest_find(&read->held->manifest, cairn_view_of(request->params.shard));
    if (!read->shard)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s has no shard \"%s\"", read->version.id.text,
                          request->params.shard);
    snprintf(read->tag, sizeof(read->tag), "\"%08x-%" PRIu64 "\"", read->shard->crc32c,
             read->shard->size_bytes);
    return elsewhere ? redirect(read, err) : send_shard(read, err);
}

enum cairn_code cairn_srv_on_shard_data(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct shard_read read = {.request = request, .reply = reply};
    enum cairn_code code = read_shard(&read, err);
    cairn_srv_cache_give(request->server, read.held);
    cairn_srv_version_release(&read.version);
    return code;
}

enum cairn_code cairn_srv_on_shard_data_head(struct cairn_srv_request *request,
                                             struct cairn_srv_reply *reply,
                                             struct cairn_error *err) {
    return cairn_srv_on_shard_data(request, reply, err);
}
