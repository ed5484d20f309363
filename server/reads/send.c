/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions, range and slot of an answer of bytes; see send.h. */
#include "server/reads/send.h"

#include <inttypes.h>
#include <strings.h>

#include "server/http/waiters.h"
#include "server/reads/range.h"
#include "server/reads/stream.h"

#define SLOT_WAIT_MS 20000
#define LOOK_AGAIN_MS 500
#define WHOLE_BYTES_MAX (16 * CAIRN_KIB) /* a reply of its own costs less than a stream's steps */

struct send {
    struct cairn_srv_request *request;
    struct cairn_srv_reply *reply;
    struct cairn_srv_source *source;
    const char *what, *tag;
    uint64_t begin, end;
};

/* RFC 9110, 13.2.2: If-Match, If-None-Match, then Range with If-Range. */
static enum cairn_code judge_conditions(struct send *send, bool *ret_done,
                                        struct cairn_error *err) {
    const struct cairn_srv_request *request = send->request;
    uint64_t size = send->source->size_bytes;
    *ret_done = false;
    send->begin = 0;
    send->end = size;
    send->reply->status = 200;
    if (request->if_match[0] && !cairn_srv_tag_listed(request->if_match, send->tag, false))
        return cairn_fail(err, CAIRN_PRECONDITION, "the %s's ETag is %s", send->what, send->tag);
    if (cairn_srv_tag_listed(request->if_none_match, send->tag, true)) {
        send->reply->status = 304;
        *ret_done = true;
        return CAIRN_OK;
    }
    /* A range of a unit that is not known is ignored, and so are several (RFC 9110, 14.2). */
    if (strncasecmp(request->range, "bytes=", 6) != 0 || strchr(request->range, ',') ||
        (request->if_range[0] && strcmp(request->if_range, send->tag)))
        return CAIRN_OK;
    enum cairn_code code =
        cairn_srv_range_parse(request->range, size, &send->begin, &send->end, err);
    if (code) {
        cairn_srv_reply_header(send->reply, "Content-Range", "bytes */%" PRIu64, size);
        return code;
    }
    send->reply->status = 206;
    cairn_srv_reply_header(send->reply, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                           send->begin, send->end - 1, size);
    return CAIRN_OK;
}

/* More readers than slots take turns (stream.h#3). A reader that takes nothing is noticed by
 * time alone, so a parked request looks again every 500 ms. *err is why it may not wait longer. */
static enum cairn_code wait_for_slot(struct send *send, struct cairn_error *err) {
    const struct cairn_srv_request *request = send->request;
    uint64_t now_ms = cairn_srv_mono_ms(request->server);
    uint64_t until_ms = request->arrived_ms + SLOT_WAIT_MS;
    if (now_ms >= until_ms) return CAIRN_BUSY;
    if (err) *err = (struct cairn_error){0};
    send->reply->park = true;
    send->reply->park_key = cairn_srv_key_of(CAIRN_SRV_STREAMS_KEY);
    send->reply->park_until_ms = cairn_min_u64(now_ms + LOOK_AGAIN_MS, until_ms);
    return CAIRN_OK;
}

/* Trees have files by the thousand. */
static void send_whole(struct cairn_srv_reply *reply) {
    if (reply->flow.size_bytes > WHOLE_BYTES_MAX) return;
    reply->body.limit = WHOLE_BYTES_MAX;
    if (!cairn_srv_stream_whole(reply->flow.owner, &reply->body)) return;
    reply->flow.free(reply->flow.owner);
    reply->flow = (struct cairn_srv_flow){0};
}

static enum cairn_code send_bytes(struct send *send, struct cairn_error *err) {
    struct cairn_srv_request *request = send->request;
    bool done = false;
    CAIRN_TRY(judge_conditions(send, &done, err));
    send->reply->content_type = "application/octet-stream";
    cairn_srv_reply_header(send->reply, "ETag", "%s", send->tag);
    cairn_srv_reply_header(send->reply, "Accept-Ranges", "bytes");
    cairn_srv_reply_cached(request, send->reply);
    if (done || send->begin == send->end) return CAIRN_OK;
    if (request->head_only) {
        send->reply->head_bytes = send->end - send->begin;
        return CAIRN_OK;
    }
    struct cairn_srv_stream_options options = {.server = request->server,
                                               .worker = request->store,
                                               .take_source = CAIRN_TAKE(send->source),
                                               .begin = send->begin,
                                               .end = send->end};
    enum cairn_code code = cairn_srv_stream_open(&options, &send->reply->flow, err);
    /* The problem must not carry what was meant for the bytes. */
    if (code) send->reply->header_count = 0;
    if (!code) send_whole(send->reply);
    return code == CAIRN_BUSY ? wait_for_slot(send, err) : code;
}

enum cairn_code cairn_srv_send(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                               struct cairn_srv_source *take_source, const char *what,
                               const char *tag, struct cairn_error *err) {
    struct send send = {
        .request = request, .reply = reply, .source = take_source, .what = what, .tag = tag};
    enum cairn_code code = send_bytes(&send, err);
    cairn_srv_source_free(send.source);
    return code;
}
