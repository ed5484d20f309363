/* SPDX-License-Identifier: Apache-2.0 */
/* A step sends until the socket is full, then receives until it is empty. Each part is bounded, so
 * that one fast connection does not starve the others. */
#include "common/http/inside.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "common/clock.h"
#include "common/text.h"

#define TURN_BYTES (4 * CAIRN_MIB)
/* How far a paced request may run ahead, so that it is not woken for each packet. */
#define PACE_AHEAD_BYTES (256 * CAIRN_KIB)
#define PACE_AHEAD_BYTES_MIN (4 * CAIRN_KIB)

/* ---- the head ---- */

static bool is_one_line(const char *text) {
    return !text[strcspn(text, "\r\n")];
}

static enum cairn_code add_line(struct cairn_buf *head, const char *line, struct cairn_error *err) {
    if (!is_one_line(line)) return cairn_fail(err, CAIRN_INVALID, "a header holds a line end");
    CAIRN_TRY(cairn_buf_append_text(head, line, err));
    return cairn_buf_append_text(head, "\r\n", err);
}

enum cairn_code cairn_http_direct_prepare(struct cairn_http_transfer *transfer,
                                          struct cairn_error *err) {
    const struct cairn_http_request *request = transfer->request;
    struct cairn_buf *head = &transfer->head;
    struct cairn_url url;
    if (!cairn_url_split(request->url, &url) || !is_one_line(request->url) ||
        strchr(request->url, ' '))
        return cairn_fail(err, CAIRN_INVALID, "this is no URL");
    int path_size = (int)strcspn(url.path, "#");
    cairn_buf_clear(head);
    CAIRN_TRY(cairn_buf_printf(head, err, "%s %s%.*s HTTP/1.1\r\n", request->method,
                               *url.path == '/' ? "" : "/", path_size, url.path));
    CAIRN_TRY(cairn_buf_printf(head, err, "Host: %.*s\r\n", (int)url.host.size,
                               (const char *)url.host.data));
    CAIRN_TRY(add_line(head, "User-Agent: cairn", err));
    CAIRN_TRY(add_line(head, "Accept: */*", err));
    for (size_t i = 0; i < request->header_count; i++)
        CAIRN_TRY(add_line(head, request->headers[i], err));
    if (request->has_body)
        CAIRN_TRY(cairn_buf_printf(head, err, "Content-Length: %zu\r\n", request->body.size));
    return cairn_buf_append_text(head, "\r\n", err);
}

enum cairn_code cairn_http_direct_start(struct cairn_http_transfer *transfer,
                                        struct cairn_error *err) {
    /* Keeps request->sent_bytes, which counts even if the second link cannot be opened. */
    transfer->head_sent = 0;
    transfer->sent_bytes = transfer->received_bytes = 0;
    transfer->header_bytes = 0;
    transfer->reading = CAIRN_HTTP_STATUS_LINE;
    transfer->request->sent_at_us = 0;
    transfer->started_us = 0;
    transfer->queued_bytes = 0;
    return cairn_http_link_take(transfer, err);
}

/* ---- sending ---- */

static uint64_t body_size(const struct cairn_http_transfer *transfer) {
    return transfer->request->has_body ? transfer->request->body.size : 0;
}

static bool is_sent(const struct cairn_http_transfer *transfer) {
    return transfer->request->sent_at_us != 0;
}

/* Constant for a request, since an interrupted write must be repeated unchanged. Short enough that
 * waiting for the next piece never looks like a stall. */
static uint64_t pace_ahead(const struct cairn_http_request *request) {
    uint64_t stall_ms = request->stall_ms ? request->stall_ms : 30000;
    uint64_t quarter = request->send_bytes_per_s / 4000 * stall_ms;
    return cairn_max_u64(PACE_AHEAD_BYTES_MIN, cairn_min_u64(PACE_AHEAD_BYTES, quarter));
}

static uint64_t allowed_bytes(const struct cairn_http_transfer *transfer) {
    uint64_t pace = transfer->request->send_bytes_per_s;
    if (!pace) return UINT64_MAX;
    double elapsed_us = (double)(cairn_mono_us() - transfer->started_us);
    return pace_ahead(transfer->request) + (uint64_t)((double)pace * elapsed_us / 1e6);
}

static struct cairn_view next_piece(const struct cairn_http_transfer *transfer) {
    const struct cairn_http_request *request = transfer->request;
    uint64_t sent = (uint64_t)transfer->sent_bytes, pace = request->send_bytes_per_s;
    if (transfer->head_sent < transfer->head.size)
        return (struct cairn_view){transfer->head.data + transfer->head_sent,
                                   transfer->head.size - transfer->head_sent};
    uint64_t size = cairn_min_u64(body_size(transfer) - sent, TURN_BYTES);
    if (pace) size = cairn_min_u64(size, pace_ahead(request));
    if (!size || (pace && sent > allowed_bytes(transfer))) return (struct cairn_view){0};
    return (struct cairn_view){(const char *)request->body.data + sent, size};
}

static void note_sent(struct cairn_http_transfer *transfer, size_t size) {
    transfer->moved_us = cairn_mono_us();
    if (transfer->head_sent < transfer->head.size) {
        transfer->head_sent += size;
        return;
    }
    transfer->sent_bytes += (curl_off_t)size;
    transfer->request->sent_bytes = (uint64_t)transfer->sent_bytes;
}

static CURLcode send_turn(struct cairn_http_transfer *transfer) {
    CURLcode result = CURLE_OK;
    uint64_t moved = 0;
    while (result == CURLE_OK && moved < TURN_BYTES) {
        struct cairn_view piece = next_piece(transfer);
        if (!piece.size) break;
        size_t size = 0;
        result = cairn_http_link_send(transfer->link, piece, &size);
        if (result == CURLE_OK) note_sent(transfer, size);
        moved += size;
    }
    if (result == CURLE_OK && moved >= TURN_BYTES) transfer->link->ready = true;
    return result;
}

/* CURLE_OK: the kernel has all bytes, or the request's turn is over. */
static CURLcode send_some(struct cairn_http_transfer *transfer) {
    const struct cairn_http_tls *tls = transfer->link->tls;
    uint64_t before = tls ? cairn_http_tls_sent(tls) : 0;
    CURLcode result = send_turn(transfer);
    if (result == CURLE_OK) result = cairn_http_link_flush(transfer->link);
    if (tls && cairn_http_tls_sent(tls) != before) transfer->moved_us = cairn_mono_us();
    if (result == CURLE_OK && (transfer->head_sent == transfer->head.size &&
                               (uint64_t)transfer->sent_bytes >= body_size(transfer)))
        transfer->request->sent_at_us = cairn_mono_us();
    if (result == CURLE_AGAIN || transfer->request->sent_at_us)
        (void)cairn_http_direct_drains(transfer); /* starts watching the peer's queue */
    return result;
}

/* ---- reading the reply ---- */

static void refuse(struct cairn_http_transfer *transfer, const char *why) {
    if (!transfer->refused)
        transfer->refused = cairn_fail(&transfer->error, CAIRN_PROTOCOL, "%s", why);
}

static void take_status(struct cairn_http_transfer *transfer, const char *line, size_t size) {
    bool good = size >= 12 && !memcmp(line, "HTTP/1.", 7) && (line[7] == '0' || line[7] == '1') &&
                line[8] == ' ' && (size == 12 || line[12] == ' ');
    int status = 0;
    for (int i = 9; good && i < 12; i++) {
        good = line[i] >= '0' && line[i] <= '9';
        status = 10 * status + (line[i] - '0');
    }
    if (!good || status < 100) {
        refuse(transfer, "the answer is no HTTP/1");
        return;
    }
    cairn_http_reply_start(transfer, status);
    transfer->says_close = line[7] == '0';
    transfer->reading = CAIRN_HTTP_HEADERS;
    cairn_http_reply_line(transfer, line, size);
}

/* Decides how the body ends (RFC 9112, section 6.3). */
static void choose_framing(struct cairn_http_transfer *transfer) {
    struct cairn_http_request *request = transfer->request;
    if (!transfer->headers_over) {
        transfer->reading = CAIRN_HTTP_STATUS_LINE; /* a 1xx reply; the final one follows */
    } else if (request->status == 204 || request->status == 304) {
        transfer->reading = CAIRN_HTTP_WHOLE;
    } else if (transfer->strange_coding) {
        refuse(transfer, "a transfer coding other than chunked");
    } else if (transfer->chunked) {
        transfer->reading = CAIRN_HTTP_CHUNK_SIZE;
    } else if (request->content_length != UINT64_MAX) {
        transfer->reading = request->content_length ? CAIRN_HTTP_BODY : CAIRN_HTTP_WHOLE;
    } else {
        transfer->reading = CAIRN_HTTP_BODY_REST;
    }
}

/* Does the line begin with visible characters and a colon (no space before it, no folded line)? */
static bool has_name(const char *line, size_t size) {
    const char *colon = memchr(line, ':', size);
    const char *at = line;
    while (at<line + size && * at> ' ' && *at < 0x7f && *at != ':') at++;
    return colon && at == colon && at > line;
}

static void take_header_line(struct cairn_http_transfer *transfer, const char *line, size_t size) {
    if (size && !has_name(line, size)) {
        refuse(transfer, "a header line without a name");
        return;
    }
    cairn_http_reply_line(transfer, line, size);
    if (!size) choose_framing(transfer);
}

static void take_chunk_size(struct cairn_http_transfer *transfer, const char *line, size_t size) {
    uint64_t bytes = 0;
    size_t digits = 0;
    for (; digits < size && digits < 16; digits++) {
        int value = cairn_hex_digit(line[digits]);
        if (value < 0) break;
        bytes = bytes << 4 | (uint64_t)value;
    }
    bool ended = digits == size || line[digits] == ';' || line[digits] == ' ';
    if (!digits || !ended || digits == 16) {
        refuse(transfer, "a chunk without a size");
        return;
    }
    transfer->chunk_left = bytes;
    transfer->reading = bytes ? CAIRN_HTTP_CHUNK : CAIRN_HTTP_TRAILERS;
}

static void take_line(struct cairn_http_transfer *transfer, const char *line, size_t size) {
    switch (transfer->reading) {
    case CAIRN_HTTP_STATUS_LINE:
        take_status(transfer, line, size);
        return;
    case CAIRN_HTTP_HEADERS:
        take_header_line(transfer, line, size);
        return;
    case CAIRN_HTTP_CHUNK_SIZE:
        take_chunk_size(transfer, line, size);
        return;
    case CAIRN_HTTP_CHUNK_END:
        if (size) refuse(transfer, "a chunk is longer than it says");
        transfer->reading = CAIRN_HTTP_CHUNK_SIZE;
        return;
    case CAIRN_HTTP_TRAILERS:
        if (size && !has_name(line, size)) refuse(transfer, "a trailer without a name");
        if (!transfer->refused) cairn_http_reply_line(transfer, line, size);
        if (!size) transfer->reading = CAIRN_HTTP_WHOLE;
        return;
    case CAIRN_HTTP_BODY:
    case CAIRN_HTTP_BODY_REST:
    case CAIRN_HTTP_CHUNK:
    case CAIRN_HTTP_WHOLE:
        break;
    }
    CAIRN_ASSERT(false);
}

/* false: the line is incomplete. */
static bool read_line(struct cairn_http_transfer *transfer) {
    struct cairn_http_link *link = transfer->link;
    const char *from = link->input + link->from;
    size_t size = link->to - link->from;
    const char *end = size ? memchr(from, '\n', size) : NULL;
    if (transfer->reading == CAIRN_HTTP_STATUS_LINE && size &&
        memcmp(from, "HTTP/", cairn_min_u64(size, 5)) != 0) {
        refuse(transfer, "the answer is no HTTP/1");
        return true;
    }
    if (!end) {
        if (size == sizeof link->input) refuse(transfer, "a reply line is longer than 16 KiB");
        return transfer->refused != CAIRN_OK;
    }
    link->from += (size_t)(end - from) + 1;
    size = (size_t)(end - from);
    if (transfer->engine->options.verbose_trace && transfer->reading < CAIRN_HTTP_BODY)
        cairn_http_trace_lines('<', (struct cairn_view){from, size});
    if (!size || from[size - 1] != '\r' || memchr(from, '\0', size) || memchr(from, '\r', size - 1))
        refuse(transfer, "a reply line does not end with CR LF");
    else
        take_line(transfer, from, size - 1);
    return true;
}

/* Copies body bytes that arrived in `input`: after a head, or chunked. */
static bool read_body(struct cairn_http_transfer *transfer, uint64_t most) {
    struct cairn_http_link *link = transfer->link;
    size_t size = (size_t)cairn_min_u64(link->to - link->from, most);
    if (!size) return false;
    cairn_http_reply_body(transfer, link->input + link->from, size);
    link->from += size;
    return true;
}

static uint64_t body_left(const struct cairn_http_transfer *transfer) {
    return transfer->request->content_length - transfer->request->reply_bytes;
}

/* false: more bytes are needed, or the reply has ended. */
static bool read_next(struct cairn_http_transfer *transfer) {
    uint64_t before = transfer->request->reply_bytes;
    if (transfer->refused) return false;
    switch (transfer->reading) {
    case CAIRN_HTTP_WHOLE:
        return false;
    case CAIRN_HTTP_BODY:
        if (!read_body(transfer, body_left(transfer))) return false;
        if (!transfer->refused && !body_left(transfer)) transfer->reading = CAIRN_HTTP_WHOLE;
        return true;
    case CAIRN_HTTP_BODY_REST:
        return read_body(transfer, UINT64_MAX);
    case CAIRN_HTTP_CHUNK:
        if (!read_body(transfer, transfer->chunk_left)) return false;
        transfer->chunk_left -= transfer->request->reply_bytes - before;
        if (!transfer->chunk_left) transfer->reading = CAIRN_HTTP_CHUNK_END;
        return true;
    default:
        return read_line(transfer);
    }
}

/* ---- receiving ---- */

/* Where to receive: the caller's memory for a body of known length, else the link's input. */
static size_t receive_room(struct cairn_http_transfer *transfer, void **ret, bool *ret_in_place) {
    struct cairn_http_link *link = transfer->link;
    *ret_in_place = false;
    if (transfer->reading == CAIRN_HTTP_BODY && link->from == link->to) {
        size_t room = cairn_http_reply_room(transfer, ret);
        *ret_in_place = room > 0;
        if (room) return (size_t)cairn_min_u64(room, body_left(transfer));
    }
    if (link->from) memmove(link->input, link->input + link->from, link->to - link->from);
    link->to -= link->from;
    link->from = 0;
    *ret = link->input + link->to;
    return sizeof link->input - link->to;
}

static CURLcode receive_once(struct cairn_http_transfer *transfer, size_t *ret_size) {
    void *into = NULL;
    bool in_place;
    size_t room = receive_room(transfer, &into, &in_place);
    CAIRN_ASSERT(room);
    CURLcode result = cairn_http_link_receive(transfer->link, into, room, ret_size);
    if (result != CURLE_OK || !*ret_size) return result;
    transfer->moved_us = cairn_mono_us();
    if (!transfer->request->reply_at_us) transfer->request->reply_at_us = transfer->moved_us;
    if (in_place) {
        cairn_http_reply_arrived(transfer, *ret_size);
        if (!body_left(transfer)) transfer->reading = CAIRN_HTTP_WHOLE;
    } else {
        transfer->link->to += *ret_size;
    }
    return CURLE_OK;
}

static bool reply_ends_it(const struct cairn_http_transfer *transfer) {
    if (transfer->refused) return true;
    if (transfer->reading != CAIRN_HTTP_WHOLE) return false;
    return is_sent(transfer) || transfer->request->status >= 300;
}

/* CURLE_OK: the reply is whole or refused, or the peer has ended (*ret_ended). */
static CURLcode receive_some(struct cairn_http_transfer *transfer, bool *ret_ended) {
    uint64_t moved = 0;
    for (;;) {
        while (read_next(transfer)) continue;
        if (transfer->refused || transfer->reading == CAIRN_HTTP_WHOLE) return CURLE_OK;
        if (moved >= TURN_BYTES) {
            transfer->link->ready = true;
            return CURLE_AGAIN;
        }
        size_t size = 0;
        CURLcode result = receive_once(transfer, &size);
        *ret_ended = result == CURLE_OK && !size;
        if (result != CURLE_OK || *ret_ended) return result;
        moved += size;
    }
}

/* ---- the end ---- */

/* The kernel's times cover all requests of the connection, so the start values are subtracted. */
static void note_link(struct cairn_http_transfer *transfer) {
    struct cairn_http_request *request = transfer->request;
    const struct cairn_net_times *before = &transfer->times;
    struct cairn_net_times now;
    if (!request->first_byte_us || !transfer->has_times) return;
    if (!cairn_net_times(transfer->link->fd, &now)) return;
    uint64_t sending_us = now.sending_us - before->sending_us;
    uint64_t room_us = cairn_min_u64(sending_us, now.room_us - before->room_us);
    request->link_us = cairn_min_u64(request->first_byte_us, sending_us - room_us);
}

static void end_with(struct cairn_http_transfer *transfer, enum cairn_code code,
                     const struct cairn_error *error, bool keep) {
    struct cairn_http_link *link = transfer->link;
    struct cairn_http_request *request = transfer->request;
    if (request->reply_at_us && transfer->started_us)
        request->first_byte_us = cairn_max_u64(
            1, request->reply_at_us - cairn_min_u64(request->reply_at_us, transfer->started_us));
    note_link(transfer);
    if (keep && link->from == link->to)
        cairn_http_link_keep(link);
    else
        cairn_http_link_drop(link);
    cairn_http_end(transfer, code, error);
}

static void end_with_reply(struct cairn_http_transfer *transfer) {
    struct cairn_error error = {0};
    enum cairn_code code = cairn_http_reply_judge(transfer, &error);
    bool keep = !code && is_sent(transfer) && !transfer->says_close &&
                transfer->reading == CAIRN_HTTP_WHOLE;
    end_with(transfer, code, &error, keep);
}

/* inside.h#6. Other idle links to the origin are at least as old, so they are dropped, too. */
bool cairn_http_direct_replace(struct cairn_http_transfer *transfer) {
    struct cairn_http_link *link = transfer->link;
    struct cairn_error error = {0};
    if (!link->kept || transfer->resent || transfer->request->reply_at_us) return false;
    transfer->resent = true;
    cairn_http_link_drop_idle(transfer->engine, transfer->request->url);
    cairn_http_link_drop(link);
    enum cairn_code code = cairn_http_direct_start(transfer, &error);
    if (code) cairn_http_end(transfer, code, &error);
    return true;
}

static void end_broken(struct cairn_http_transfer *transfer, const char *why) {
    struct cairn_error error = {0};
    if (cairn_http_direct_replace(transfer)) return;
    uint64_t bytes = transfer->request->reply_bytes, length = transfer->request->content_length;
    if (transfer->headers_over && length != UINT64_MAX && bytes < length)
        cairn_fail(&error, CAIRN_UNAVAILABLE, "%s; the reply ended after %llu of %llu bytes", why,
                   (unsigned long long)bytes, (unsigned long long)length);
    else
        cairn_fail(&error, CAIRN_UNAVAILABLE, "%s", why);
    end_with(transfer, CAIRN_UNAVAILABLE, &error, false);
}

static void end_closed(struct cairn_http_transfer *transfer) {
    if (transfer->reading == CAIRN_HTTP_BODY_REST) {
        transfer->reading = CAIRN_HTTP_WHOLE;
        transfer->says_close = true;
        if (reply_ends_it(transfer)) {
            end_with_reply(transfer);
            return;
        }
    }
    end_broken(transfer, transfer->request->reply_at_us
                             ? "the peer closed the connection in the middle of its reply"
                             : "the peer closed the connection without a reply");
}

/* ---- the interface ---- */

static void begin(struct cairn_http_transfer *transfer) {
    transfer->started_us = transfer->moved_us = cairn_mono_us();
    transfer->has_times = cairn_net_times(transfer->link->fd, &transfer->times);
    transfer->request->starts++;
    transfer->on_kept = transfer->link->kept;
    transfer->request->reached = true;
    if (transfer->engine->options.verbose_trace)
        cairn_http_trace_lines('>', cairn_buf_view(&transfer->head));
}

void cairn_http_direct_step(struct cairn_http_transfer *transfer) {
    struct cairn_http_link *link = transfer->link;
    bool ended = false;
    link->ready = false;
    if (!transfer->started_us) begin(transfer);
    CURLcode sending = is_sent(transfer) ? cairn_http_link_flush(link) : send_some(transfer);
    bool broken = sending != CURLE_OK && sending != CURLE_AGAIN;
    CURLcode receiving = receive_some(transfer, &ended);
    if (reply_ends_it(transfer)) {
        end_with_reply(transfer);
    } else if (ended) {
        end_closed(transfer);
    } else if (broken || (receiving != CURLE_OK && receiving != CURLE_AGAIN)) {
        end_broken(transfer, broken ? "the connection broke while the body was being sent"
                                    : "the connection broke");
    }
}

short cairn_http_direct_events(const struct cairn_http_transfer *transfer) {
    bool paced = !is_sent(transfer) && cairn_http_direct_due_us(transfer) != UINT64_MAX;
    bool pending = transfer->link->tls && cairn_http_tls_pending(transfer->link->tls);
    bool replied = transfer->reading == CAIRN_HTTP_WHOLE; /* maybe before all is sent */
    return (short)((replied ? 0 : CURL_WAIT_POLLIN) |
                   ((is_sent(transfer) || paced) && !pending ? 0 : CURL_WAIT_POLLOUT));
}

uint64_t cairn_http_direct_due_us(const struct cairn_http_transfer *transfer) {
    uint64_t pace = transfer->request->send_bytes_per_s, sent = (uint64_t)transfer->sent_bytes;
    if (!pace || !transfer->started_us || sent >= body_size(transfer)) return UINT64_MAX;
    if (sent <= allowed_bytes(transfer)) return UINT64_MAX;
    return transfer->started_us +
           (uint64_t)((double)(sent - pace_ahead(transfer->request)) * 1e6 / (double)pace) + 1;
}

bool cairn_http_direct_drains(struct cairn_http_transfer *transfer) {
    int queued = 0;
    const struct cairn_http_link *link = transfer->link;
    if (!link || link->fd < 0 || ioctl(link->fd, SIOCOUTQ, &queued) != 0) return false;
    bool less = queued < transfer->queued_bytes;
    transfer->looked_us = cairn_mono_us();
    transfer->queued_bytes = queued;
    return less;
}
