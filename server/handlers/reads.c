/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}/manifest, /checksums, /layout and the bytes of a shard. */
#include <inttypes.h>
#include <stdio.h>

#include "server/cache.h"
#include "server/handlers/range.h"
#include "server/handlers/request.h"
#include "server/handlers/shards.h"
#include "server/handlers/stream.h"
#include "server/handlers/urls.h"
#include "server/waiters.h"

#define SLOT_WAIT_MS 20000
#define LOOK_AGAIN_MS 500

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
    uint64_t begin, end;
};

/* RFC 9110, 13.2.2: If-Match, If-None-Match, then Range with If-Range. */
static enum cairn_code judge_conditions(struct read *read, bool *ret_done,
                                        struct cairn_error *err) {
    const struct cairn_srv_request *request = read->request;
    uint64_t size = read->shard->size_bytes;
    *ret_done = false;
    read->begin = 0;
    read->end = size;
    read->reply->status = 200;
    if (request->if_match[0] && !cairn_srv_tag_listed(request->if_match, read->tag, false))
        return cairn_fail(err, CAIRN_PRECONDITION, "the shard's ETag is %s", read->tag);
    if (cairn_srv_tag_listed(request->if_none_match, read->tag, true)) {
        read->reply->status = 304;
        *ret_done = true;
        return CAIRN_OK;
    }
    if (!request->range[0] || (request->if_range[0] && strcmp(request->if_range, read->tag)))
        return CAIRN_OK;
    enum cairn_code code =
        cairn_srv_range_parse(request->range, size, &read->begin, &read->end, err);
    if (code) {
        cairn_srv_reply_header(read->reply, "Content-Range", "bytes */%" PRIu64, size);
        return code;
    }
    read->reply->status = 206;
    cairn_srv_reply_header(read->reply, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                           read->begin, read->end - 1, size);
    return CAIRN_OK;
}

/* A03, C03: a URL for this one object that ends before the object could. What it gives is the
 * stored bytes, not checked. */
static enum cairn_code redirect(struct read *read, struct cairn_error *err) {
    struct cairn_srv *server = read->request->server;
    uint32_t life_s = 0;
    CAIRN_TRY(cairn_srv_urls_life(server, &read->version, 0, &life_s, err));
    CAIRN_TRY(cairn_srv_urls_sign(server, &read->version, read->shard->name, life_s,
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
    if (*ret && !cairn_srv_urls_known(request->server))
        return cairn_fail(err, CAIRN_INVALID,
                          "via=redirect: this server's store is a folder, which has no URLs");
    return CAIRN_OK;
}

/* More readers than slots take turns (stream.h#3). A reader that takes nothing is noticed by
 * time alone, so a parked request looks again every 500 ms. *err is why it may not wait longer. */
static enum cairn_code wait_for_slot(struct read *read, struct cairn_error *err) {
    const struct cairn_srv_request *request = read->request;
    uint64_t now_ms = cairn_srv_mono_ms(request->server);
    uint64_t until_ms = request->arrived_ms + SLOT_WAIT_MS;
    if (now_ms >= until_ms) return CAIRN_BUSY;
    if (err) *err = (struct cairn_error){0};
    read->reply->park = true;
    read->reply->park_key = cairn_srv_key_of(CAIRN_SRV_STREAMS_KEY);
    read->reply->park_until_ms = cairn_min_u64(now_ms + LOOK_AGAIN_MS, until_ms);
    return CAIRN_OK;
}

static enum cairn_code send_bytes(struct read *read, struct cairn_error *err) {
    struct cairn_srv_request *request = read->request;
    bool done = false;
    CAIRN_TRY(judge_conditions(read, &done, err));
    read->reply->content_type = "application/octet-stream";
    cairn_srv_reply_header(read->reply, "ETag", "%s", read->tag);
    cairn_srv_reply_header(read->reply, "Accept-Ranges", "bytes");
    cairn_srv_reply_cached(request, read->reply);
    if (done || read->begin == read->end) return CAIRN_OK;
    if (request->head_only) {
        read->reply->head_bytes = read->end - read->begin;
        return CAIRN_OK;
    }
    struct cairn_srv_stream_options options = {.server = request->server,
                                               .worker = request->store,
                                               .take_held = CAIRN_TAKE(read->held),
                                               .shard = read->shard,
                                               .place = cairn_srv_version_place(&read->version),
                                               .begin = read->begin,
                                               .end = read->end};
    enum cairn_code code = cairn_srv_stream_open(&options, &read->reply->stream, err);
    /* The problem must not carry what was meant for the bytes. */
    if (code) read->reply->header_count = 0;
    return code == CAIRN_BUSY ? wait_for_slot(read, err) : code;
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
    return elsewhere ? redirect(read, err) : send_bytes(read, err);
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
