/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}/shards and {C}/shards/{name}, from rows while the version is open, else the manifest;
 * {C}/shards/{name}/data; {C}/manifest, /checksums, /layout as stored; presigned URLs. */
#include "server/reads/shard_calls.h"

#include <inttypes.h>
#include <stdio.h>

#include "server/guard/identity.h"
#include "server/ledger/shards.h"
#include "server/reads/send.h"

/* ---- the version ---- */

static enum cairn_code find_version(struct srv_tx *tx, const struct srv_request *request,
                                    struct srv_version *ret, struct cairn_error *err) {
    struct srv_ref ref = {&request->params.run_name, request->params.ref, false};
    CAIRN_TRY(srv_version_find(tx, &ref, ret, err));
    return srv_version_there(ret, err);
}

/* Q36: while the catalog is behind, only versions with a record in the store are readable. */
static enum cairn_code record_there(struct srv_request *request, const struct srv_version *version,
                                    struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code behind = srv_run_thawed(request->server, &version->name, &why);
    if (!behind) return CAIRN_OK;
    struct cairn_version_place place = srv_version_place(version);
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(request->store, &head, err);
    if (code == CAIRN_NOT_FOUND && err) *err = why;
    return code == CAIRN_NOT_FOUND ? behind : code;
}

enum cairn_code srv_readable(struct srv_request *request, struct srv_version *ret,
                             struct cairn_error *err) {
    SRV_AUTO(version) version = {0};
    if (!cairn_version_id_valid(cairn_view_of(request->params.ref)))
        CAIRN_TRY(srv_thawed(request->server, err));
    {
        SRV_LOOK(look, request->server->catalog, err);
        CAIRN_TRY(find_version(look.tx, request, &version, err));
    }
    if (srv_version_shown(&version) == CAIRN_STATE_OPEN)
        return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s (step %" PRIu64 ") is not committed yet",
                          version.id.text, version.step);
    if (version.state != CAIRN_STATE_COMMITTED)
        return cairn_fail(err, CAIRN_ABORTED, "%s was given up: %s", version.id.text,
                          version.reason);
    CAIRN_TRY(record_there(request, &version, err));
    *ret = version;
    version = (struct srv_version){0};
    return CAIRN_OK;
}

/* ---- the list ---- */

struct find {
    struct srv_list list;
    struct srv_version version;
    uint64_t rank;
    bool by_rank, single;
    const char *content; /* content filter; NULL: all */
};

static void release(struct find *find) {
    srv_version_release(&find->version);
    srv_list_release(&find->list);
}

static enum cairn_code add_shard(struct find *find, const struct srv_shard_row *row,
                                 const char *state, const char *content, struct cairn_error *err) {
    if (!srv_list_takes(&find->list, row->name)) return CAIRN_OK;
    return srv_list_add(&find->list,
                        cairn_listing_shard(row->name, row->rank, row->size,
                                            row->registered ? &row->crc32c : NULL, state, content),
                        err);
}

static enum cairn_code list_rows(struct srv_tx *tx, struct find *find, struct cairn_error *err) {
    SRV_AUTO(rows) rows = {0};
    const struct srv_shard_page page = {.version = find->version.id.text,
                                        .after = find->list.after,
                                        .by_rank = find->by_rank,
                                        .rank = find->rank,
                                        .limit = find->list.limit + 1};
    if (find->content) return CAIRN_OK; /* unknown before the commit */
    CAIRN_TRY(find->single ? srv_shard_named(tx, page.version, page.after, &rows, err)
                           : srv_shards_page(tx, &page, &rows, err));
    SQL_EACH(&rows, err) {
        const struct srv_shard_row row = srv_row_shard(&rows);
        CAIRN_TRY(add_shard(find, &row, row.registered ? "registered" : "sealed", NULL, err));
    }
    return CAIRN_OK;
}

static enum cairn_code look_at_rows(struct find *find, struct cairn_error *err) {
    const struct srv_request *request = find->list.request;
    SRV_LOOK(look, request->server->catalog, err);
    CAIRN_TRY(find_version(look.tx, request, &find->version, err));
    if (srv_version_shown(&find->version) == CAIRN_STATE_COMMITTED) return CAIRN_OK;
    return list_rows(look.tx, find, err);
}

/* The content of a manifest's shard; NULL: its layout is unreadable. */
static const char *content_of(const struct srv_version *version, const struct srv_held *layout,
                              const struct cairn_manifest_shard *shard) {
    if (version->has_layout && !layout) return NULL;
    return cairn_listing_content(layout ? &layout->layout : NULL, shard->rank, shard->name);
}

static enum cairn_code list_shards(struct find *find, const struct srv_held *held,
                                   const struct srv_held *layout, struct cairn_error *err) {
    for (size_t i = 0; i < held->manifest.shard_count && !find->list.more; i++) {
        const struct cairn_manifest_shard *shard = &held->manifest.shards[i];
        int order = strcmp(shard->name, find->list.after);
        if (find->single ? order != 0 : order <= 0) continue;
        if (find->by_rank && shard->rank != find->rank) continue;
        const char *content = content_of(&find->version, layout, shard);
        if (find->content && (!content || strcmp(content, find->content) != 0)) continue;
        struct srv_shard_row row = {.name = shard->name,
                                    .rank = shard->rank,
                                    .size = shard->size_bytes,
                                    .crc32c = shard->crc32c,
                                    .registered = true};
        CAIRN_TRY(add_shard(find, &row, "committed", content, err));
    }
    return CAIRN_OK;
}

/* A damaged layout hides no shard; it is an error only with a content filter. */
static enum cairn_code list_manifest(struct srv_request *request, struct find *find,
                                     struct cairn_error *err) {
    struct srv_held *held = NULL, *layout = NULL;
    struct cairn_error why = {0};
    CAIRN_TRY(srv_cache_manifest(request->server, request->store, &find->version, &held, err));
    enum cairn_code code = CAIRN_OK;
    if (find->version.has_layout)
        code = srv_cache_layout(request->server, request->store, &find->version, &layout, &why);
    if (code && find->content && err) *err = why;
    if (!find->content || !code) code = list_shards(find, held, layout, err);
    srv_cache_give(request->server, layout);
    srv_cache_give(request->server, held);
    return code;
}

static enum cairn_code find_shards(struct srv_request *request, struct find *find,
                                   struct cairn_error *err) {
    CAIRN_TRY(look_at_rows(find, err));
    if (srv_version_shown(&find->version) != CAIRN_STATE_COMMITTED) return CAIRN_OK;
    return list_manifest(request, find, err);
}

static enum cairn_code read_filters(const struct cairn_query *query, struct find *find,
                                    struct cairn_error *err) {
    const char *rank = cairn_query_get(query, "rank");
    find->content = cairn_query_get(query, "content");
    if (find->content && strcmp(find->content, "tensors") && strcmp(find->content, "opaque"))
        return cairn_fail(err, CAIRN_INVALID, "content: want tensors or opaque");
    find->by_rank = rank != NULL;
    if (!rank) return CAIRN_OK;
    return cairn_within(err, cairn_parse_u64(cairn_view_of(rank), &find->rank, err), "rank");
}

SRV_HANDLER(shard_list) {
    CAIRN_RELEASED(release) struct find find = {.by_rank = false};
    CAIRN_TRY(srv_list_open(request, &find.list, err));
    CAIRN_TRY(read_filters(&request->query, &find, err));
    CAIRN_TRY(find_shards(request, &find, err));
    return srv_list_reply(&find.list, reply, err);
}

SRV_HANDLER(shard_get) {
    CAIRN_RELEASED(release)
    struct find find = {.list = {.request = request, .limit = 1, .items = json_array()},
                        .single = true};
    (void)cairn_text_copy(find.list.after, sizeof(find.list.after), request->params.shard);
    CAIRN_TRY(find_shards(request, &find, err));
    json_t *shard = json_array_get(find.list.items, 0);
    if (shard) return srv_reply_json(reply, 200, json_incref(shard), err);
    return cairn_fail(err, CAIRN_NOT_FOUND, "%s has no shard \"%s\"", find.version.id.text,
                      request->params.shard);
}

/* ---- presigned URLs (A03, C03) ---- */

#define LIFE_MS_MAX (UINT64_C(300) * 1000)

enum cairn_code srv_urls_find(struct srv *server, const struct srv_version *version,
                              struct cairn_store **ret, struct cairn_error *err) {
    struct srv_where where = {.count = 0};
    *ret = cairn_store_profile(server->store)->presigns ? server->store : NULL;
    if (!version->copied) return CAIRN_OK;
    CAIRN_TRY(srv_where_of(server, version->id.text, NULL, &where, err));
    if (!where.count) return CAIRN_OK; /* main is the only store */
    *ret = NULL;
    for (int damaged = 0; damaged < 2; damaged++) /* a URL has no fallback: sound copies first */
        for (size_t i = 0; i < where.count && !*ret; i++)
            if (where.damaged[i] == (damaged == 1) &&
                cairn_store_profile(where.tiers[i]->store)->presigns)
                *ret = where.tiers[i]->store;
    return CAIRN_OK;
}

/* The grace counts from a tick that may be one sweep interval old; that much is subtracted. */
static enum cairn_code grace_left(struct srv *server, const struct srv_version *version,
                                  uint64_t *ret_ms, struct cairn_error *err) {
    uint64_t grace_ms = server->settings->trash_grace_ms, gone_ms = 0;
    if (version->trashed) {
        SRV_LOOK(look, server->catalog, err);
        uint64_t tick = srv_tick(look.tx);
        gone_ms = tick > version->trashed_tick ? tick - version->trashed_tick : 0;
    }
    gone_ms += server->settings->sweep_interval_ms;
    *ret_ms = grace_ms > gone_ms ? grace_ms - gone_ms : 0;
    return CAIRN_OK;
}

enum cairn_code srv_urls_life(struct srv *server, const struct srv_version *version,
                              uint64_t leased_ms, uint32_t *ret_s, struct cairn_error *err) {
    uint64_t left_ms = 0;
    CAIRN_TRY(grace_left(server, version, &left_ms, err));
    left_ms = cairn_max_u64(left_ms, leased_ms);
    *ret_s = (uint32_t)cairn_max_u64(1, cairn_min_u64(LIFE_MS_MAX, left_ms) / 1000);
    return CAIRN_OK;
}

enum cairn_code srv_urls_sign(struct cairn_store *store, const struct srv_version *version,
                              const char *shard, uint32_t life_s, struct cairn_buf *ret_url,
                              uint32_t *ret_life_s, struct cairn_error *err) {
    struct cairn_version_place place = srv_version_place(version);
    struct cairn_key key;
    cairn_key_shard(&place, cairn_view_of(shard), &key);
    return cairn_store_presign(store, key.text, life_s, ret_url, ret_life_s, err);
}

/* ---- manifest, checksums and layout, as stored ---- */

SRV_HANDLER(manifest_get) {
    enum cairn_route_id which = request->route->id;
    struct srv *server = request->server;
    struct srv_held *held = NULL;
    SRV_GET(version, version, srv_readable(request, &version, err));
    if (which == CAIRN_ROUTE_LAYOUT_GET)
        CAIRN_TRY(srv_cache_layout(server, request->store, &version, &held, err));
    else
        CAIRN_TRY(srv_cache_manifest(server, request->store, &version, &held, err));
    const struct cairn_buf *bytes =
        which == CAIRN_ROUTE_CHECKSUMS_GET ? &held->checksums : &held->text;
    reply->body.limit = bytes->size + 1;
    enum cairn_code code = cairn_buf_append(&reply->body, bytes->data, bytes->size, err);
    srv_cache_give(server, held);
    if (code) return code;
    srv_reply_cached(request, reply);
    if (which != CAIRN_ROUTE_MANIFEST_GET) reply->content_type = "application/octet-stream";
    return CAIRN_OK;
}

SRV_HANDLED_AS(checksums_get, manifest_get)
SRV_HANDLED_AS(layout_get, manifest_get)

/* ---- bytes ---- */

struct shard_read {
    struct srv_request *request;
    struct srv_reply *reply;
    struct srv_version version;
    struct srv_held *held;
    const struct cairn_manifest_shard *shard;
    char tag[48];
};

/* A03, C03: a URL of this one object, which ends before its deletion; its bytes are unverified. */
static enum cairn_code redirect(struct shard_read *read, struct cairn_error *err) {
    struct srv *server = read->request->server;
    struct cairn_store *store = NULL;
    uint32_t life_s = 0;
    CAIRN_TRY(srv_urls_find(server, &read->version, &store, err));
    if (!store)
        return cairn_fail(err, CAIRN_INVALID,
                          "via=redirect: this server's store is a folder, which has no URLs");
    CAIRN_TRY(srv_urls_life(server, &read->version, 0, &life_s, err));
    CAIRN_TRY(srv_urls_sign(store, &read->version, read->shard->name, life_s,
                            &read->reply->location, NULL, err));
    read->reply->status = 307;
    srv_reply_header(read->reply, "Cache-Control", "no-store");
    srv_reply_header(read->reply, "Referrer-Policy", "no-referrer");
    return CAIRN_OK;
}

/* ?via=proxy (the default) or redirect; HEAD is proxied, since the URL is signed for GET only. */
static enum cairn_code wants_redirect(const struct srv_request *request, bool *ret,
                                      struct cairn_error *err) {
    const char *via = cairn_query_get(&request->query, "via");
    if (via && strcmp(via, "proxy") != 0 && strcmp(via, "redirect") != 0)
        return cairn_fail(err, CAIRN_INVALID, "via is proxy or redirect");
    *ret = via && !strcmp(via, "redirect") && !request->head_only;
    return CAIRN_OK;
}

static enum cairn_code send_shard(struct shard_read *read, struct cairn_error *err) {
    struct cairn_version_place place = srv_version_place(&read->version);
    struct srv_source *source = NULL;
    CAIRN_TRY(srv_source_shard(read->request->server, CAIRN_TAKE(read->held), read->shard, &place,
                               &source, err));
    return srv_send(read->request, read->reply, source, "shard", read->tag, err);
}

static enum cairn_code read_shard(struct shard_read *read, struct cairn_error *err) {
    struct srv_request *request = read->request;
    bool elsewhere = false;
    CAIRN_TRY(wants_redirect(request, &elsewhere, err));
    CAIRN_TRY(srv_readable(request, &read->version, err));
    CAIRN_TRY(
        srv_cache_manifest(request->server, request->store, &read->version, &read->held, err));
    read->shard = cairn_manifest_find(&read->held->manifest, cairn_view_of(request->params.shard));
    if (!read->shard)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s has no shard \"%s\"", read->version.id.text,
                          request->params.shard);
    snprintf(read->tag, sizeof(read->tag), "\"%08x-%" PRIu64 "\"", read->shard->crc32c,
             read->shard->size_bytes);
    return elsewhere ? redirect(read, err) : send_shard(read, err);
}

SRV_HANDLER(shard_data) {
    struct shard_read read = {.request = request, .reply = reply};
    enum cairn_code code = read_shard(&read, err);
    srv_cache_give(request->server, read.held);
    srv_version_release(&read.version);
    return code;
}

SRV_HANDLED_AS(shard_data_head, shard_data)
