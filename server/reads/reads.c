/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}/manifest, /checksums, /layout and the bytes of a shard. */
#include <inttypes.h>
#include <stdio.h>

#include "server/http/request.h"
#include "server/reads/cache.h"
#include "server/reads/send.h"
#include "server/reads/shard_calls.h"
#include "server/reads/urls.h"

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

struct read {
    struct cairn_srv_request *request;
    struct cairn_srv_reply *reply;
    struct cairn_srv_version version;
    struct cairn_srv_held *held;
    const struct cairn_manifest_shard *shard;
    char tag[48];
};

/* A03, C03: a URL for this one object that ends before the object could. What it gives is the
 * stored bytes, not checked. */
static enum cairn_code redirect(struct read *read, struct cairn_error *err) {
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

/* ?via=proxy, which is the default, or redirect. A URL that is signed for GET serves no HEAD. */
static enum cairn_code wants_redirect(const struct cairn_srv_request *request, bool *ret,
                                      struct cairn_error *err) {
    const char *via = cairn_query_get(&request->query, "via");
    if (via && strcmp(via, "proxy") != 0 && strcmp(via, "redirect") != 0)
        return cairn_fail(err, CAIRN_INVALID, "via is proxy or redirect");
    *ret = via && !strcmp(via, "redirect") && !request->head_only;
    return CAIRN_OK;
}

static enum cairn_code send_shard(struct read *read, struct cairn_error *err) {
    struct cairn_version_place place = cairn_srv_version_place(&read->version);
    struct cairn_srv_source *source = NULL;
    CAIRN_TRY(cairn_srv_source_shard(read->request->server, CAIRN_TAKE(read->held), read->shard,
                                     &place, &source, err));
    return cairn_srv_send(read->request, read->reply, source, "shard", read->tag, err);
}

static enum cairn_code read_shard(struct read *read, struct cairn_error *err) {
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
    struct read read = {.request = request, .reply = reply};
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
