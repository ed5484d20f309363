/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a reply says, and where its body goes. Called for each line and each run of bytes, by
 * libcurl's callbacks and by the direct path alike; nothing here knows how they came.
 */
#include <strings.h>

#include "common/clock.h"
#include "common/http/inside.h"
#include "common/text.h"

#define REPLY_HEADER_BYTES_MAX (64 * CAIRN_KIB)
#define DISCARDED_BYTES_MAX CAIRN_MIB

/* ---- the head ---- */

static bool name_is(struct cairn_view name, const char *wanted) {
    return name.size == strlen(wanted) && !strncasecmp(name.data, wanted, name.size);
}

static struct cairn_view trimmed(const char *from, const char *to) {
    return cairn_text_trimmed((struct cairn_view){from, (size_t)(to - from)});
}

/* One of the words of a list, as in "keep-alive, close". */
static bool has_word(struct cairn_view list, const char *wanted) {
    const char *at = list.data, *end = at + list.size;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        if (name_is(trimmed(at, stop), wanted)) return true;
        at = stop + 1;
    }
    return false;
}

static void take_content_length(struct cairn_http_transfer *transfer, struct cairn_view value) {
    uint64_t bytes;
    struct cairn_http_request *request = transfer->request;
    if (cairn_parse_u64(value, &bytes, NULL) != CAIRN_OK)
        transfer->refused = cairn_fail(&transfer->error, CAIRN_PROTOCOL, "bad Content-Length");
    else if (request->content_length != UINT64_MAX && request->content_length != bytes)
        transfer->refused =
            cairn_fail(&transfer->error, CAIRN_PROTOCOL, "two different Content-Length headers");
    else
        request->content_length = bytes;
}

static void take_header(struct cairn_http_transfer *transfer, const char *line, size_t size) {
    struct cairn_http_request *request = transfer->request;
    const char *colon = memchr(line, ':', size);
    if (!colon || *line == ' ' || *line == '\t') return;
    struct cairn_view name = {line, (size_t)(colon - line)};
    struct cairn_view value = trimmed(colon + 1, line + size);
    if (name_is(name, "Content-Length")) take_content_length(transfer, value);
    if (name_is(name, "Connection") && has_word(value, "close")) transfer->says_close = true;
    if (name_is(name, "Transfer-Encoding")) {
        transfer->strange_coding |= transfer->chunked || !name_is(value, "chunked");
        transfer->chunked = true;
    }
    if (request->on_header) request->on_header(request, name, value);
}

static void end_headers(struct cairn_http_transfer *transfer) {
    struct cairn_http_request *request = transfer->request;
    if (request->status < 200) return; /* 1xx: the final reply is still to come */
    transfer->headers_over = true;
    /* Both lengths at once: the chunks hold, and what comes behind them is not trusted. */
    if (transfer->chunked && request->content_length != UINT64_MAX) transfer->says_close = true;
    if (transfer->chunked) request->content_length = UINT64_MAX;
    if (!transfer->refused && request->on_reply)
        transfer->refused = request->on_reply(request, &transfer->error);
}

void cairn_http_reply_start(struct cairn_http_transfer *transfer, int status) {
    transfer->request->status = status;
    transfer->request->content_length = UINT64_MAX;
    transfer->chunked = transfer->says_close = transfer->strange_coding = false;
}

void cairn_http_reply_line(struct cairn_http_transfer *transfer, const char *line, size_t size) {
    struct cairn_http_request *request = transfer->request;
    transfer->moved_us = cairn_mono_us();
    if (!request->reply_at_us) request->reply_at_us = transfer->moved_us;
    transfer->header_bytes += size;
    if (transfer->header_bytes > REPLY_HEADER_BYTES_MAX)
        transfer->refused =
            cairn_fail(&transfer->error, CAIRN_PROTOCOL, "more than 64 KiB of reply headers");
    else if (transfer->headers_over)
        return; /* trailers say nothing that we trust */
    else if (!trimmed(line, line + size).size)
        end_headers(transfer);
    else if (request->status >= 200)
        take_header(transfer, line, size);
}

/* ---- the body ---- */

static enum cairn_code keep(struct cairn_http_request *request, const void *bytes, size_t size,
                            struct cairn_error *err) {
    bool is_error = request->status >= 300;
    if (request->reply_buf && (is_error || !request->reply_data)) {
        if (cairn_buf_append(request->reply_buf, bytes, size, NULL) == CAIRN_OK) return CAIRN_OK;
        return cairn_fail(err, CAIRN_PROTOCOL, "the reply is longer than the %zu bytes taken",
                          request->reply_buf->limit);
    }
    if (request->reply_data && !is_error) {
        if (size > request->reply_capacity - request->reply_bytes)
            return cairn_fail(err, CAIRN_PROTOCOL,
                              "the reply is longer than the %zu bytes asked for",
                              request->reply_capacity);
        memcpy((char *)request->reply_data + request->reply_bytes, bytes, size);
        if (request->on_bytes) request->on_bytes(request, bytes, size);
        return CAIRN_OK;
    }
    if (request->reply_bytes + size > DISCARDED_BYTES_MAX)
        return cairn_fail(err, CAIRN_PROTOCOL, "an unwanted reply body is longer than 1 MiB");
    return CAIRN_OK;
}

void cairn_http_reply_body(struct cairn_http_transfer *transfer, const void *bytes, size_t size) {
    struct cairn_http_request *request = transfer->request;
    transfer->moved_us = cairn_mono_us();
    transfer->refused = keep(request, bytes, size, &transfer->error);
    if (!transfer->refused) request->reply_bytes += size;
}

size_t cairn_http_reply_room(const struct cairn_http_transfer *transfer, void **ret) {
    const struct cairn_http_request *request = transfer->request;
    if (!request->reply_data || request->status >= 300) return 0;
    *ret = (char *)request->reply_data + request->reply_bytes;
    return request->reply_capacity - request->reply_bytes;
}

void cairn_http_reply_arrived(struct cairn_http_transfer *transfer, size_t size) {
    struct cairn_http_request *request = transfer->request;
    CAIRN_ASSERT(size <= request->reply_capacity - request->reply_bytes);
    transfer->moved_us = cairn_mono_us();
    const char *bytes = (const char *)request->reply_data + request->reply_bytes;
    if (request->on_bytes) request->on_bytes(request, bytes, size);
    request->reply_bytes += size;
}

/* ---- the whole ---- */

/* A clean close in the middle of a body looks like success when no length was announced, so the
 * caller must compare with what it expects when content_length is not said. */
enum cairn_code cairn_http_reply_judge(const struct cairn_http_transfer *transfer,
                                       struct cairn_error *err) {
    const struct cairn_http_request *request = transfer->request;
    if (transfer->refused) {
        if (err) *err = transfer->error;
        return transfer->refused;
    }
    if (!transfer->headers_over) return cairn_fail(err, CAIRN_PROTOCOL, "no whole reply came");
    bool bodiless =
        !strcmp(request->method, "HEAD") || request->status == 204 || request->status == 304;
    if (!bodiless && request->content_length != UINT64_MAX &&
        request->content_length != request->reply_bytes)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "the reply ended after %llu of %llu bytes",
                          (unsigned long long)request->reply_bytes,
                          (unsigned long long)request->content_length);
    return CAIRN_OK;
}
