/* SPDX-License-Identifier: Apache-2.0 */
/* Options and callbacks of libcurl, for speed (buffers) and safety (no redirect, no proxy, no
 * unchecked reply). Traces show a closed list of headers, so that an unknown header stays hidden.
 * The kernel knows when the peer last acknowledged anything, which finds dead kept connections. */
#include "common/http/inside.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/text.h"

/* The default of 64 KiB halves the speed; 1 MiB equals a bare send(). */
#define UPLOAD_BUFFER_BYTES (1L << 20)
#define DOWNLOAD_BUFFER_BYTES (1L << 19)

/* ---- callbacks of libcurl ---- */

static void forget_socket(struct cairn_http_engine *engine, int fd) {
    for (uint32_t i = 0; i < engine->socket_count; i++) {
        if (engine->sockets[i] != fd) continue;
        engine->sockets[i] = engine->sockets[--engine->socket_count];
        return;
    }
}

static int on_socket(void *owner, curl_socket_t fd, curlsocktype purpose) {
    const struct cairn_http_dial *dial = owner;
    const char *congestion = dial->engine->congestion;
    if (purpose != CURLSOCKTYPE_IPCXN) return CURL_SOCKOPT_OK;
    /* Keepalive probes find an idle connection whose peer is gone without FIN or RST (a machine
     * without power, a gateway that dropped its state) before a request waits on it. setsockopt
     * fails on a Unix socket, so its result is ignored. */
    const int on = 1, idle_s = 10, each_s = 5, count = 3;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &each_s, sizeof each_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    if (congestion)
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion));
    return CURL_SOCKOPT_OK;
}

/* Refuses link-local addresses: an outside name that resolves to one would reach the instance
 * metadata and its keys instead of a store. */
static curl_socket_t on_open(void *owner, curlsocktype purpose, struct curl_sockaddr *address) {
    struct cairn_http_dial *dial = owner;
    (void)purpose;
    if (dial->engine->options.refuses_link_local && cairn_net_is_metadata(&address->addr)) {
        dial->refused = true;
        return CURL_SOCKET_BAD;
    }
    dial->tried = true;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    /* libcurl does not tell which socket a request in progress uses, so opened and closed sockets
     * are recorded and found by their local port. */
    if (fd >= 0 && dial->engine->socket_count < dial->engine->socket_room)
        dial->engine->sockets[dial->engine->socket_count++] = fd;
    return fd;
}

/* Closes by reset: a cancelled request's bytes in the kernel must not be sent and complete the
 * request (http.h#3); for an idle connection it makes no difference. */
static int on_close(void *owner, curl_socket_t fd) {
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    forget_socket(owner, fd);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    return close(fd);
}

static int on_progress(void *owner, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                       curl_off_t up) {
    (void)down_total;
    (void)up_total;
    struct cairn_http_transfer *transfer = owner;
    struct cairn_http_request *request = transfer->request;
    if (up == transfer->sent_bytes && down == transfer->received_bytes) return 0;
    transfer->sent_bytes = up;
    transfer->received_bytes = down;
    transfer->moved_us = cairn_mono_us();
    request->sent_bytes = (uint64_t)up;
    if (!request->sent_at_us && (uint64_t)up >= request->body.size)
        request->sent_at_us = transfer->moved_us;
    return 0;
}

static size_t on_header(char *line, size_t one, size_t size, void *owner) {
    (void)one;
    struct cairn_http_transfer *transfer = owner;
    if (size >= 5 && !memcmp(line, "HTTP/", 5) && !transfer->headers_over) {
        long status = 0;
        curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
        cairn_http_reply_start(transfer, (int)status);
    }
    cairn_http_reply_line(transfer, line, size);
    return transfer->refused ? 0 : size;
}

static size_t on_body(char *bytes, size_t one, size_t size, void *owner) {
    (void)one;
    struct cairn_http_transfer *transfer = owner;
    cairn_http_reply_body(transfer, bytes, size);
    return transfer->refused ? 0 : size;
}

static int on_trace(CURL *easy, curl_infotype type, char *text, size_t size, void *owner) {
    (void)easy;
    (void)owner;
    if (type == CURLINFO_HEADER_IN) cairn_http_trace_lines('<', (struct cairn_view){text, size});
    if (type == CURLINFO_HEADER_OUT) cairn_http_trace_lines('>', (struct cairn_view){text, size});
    return 0;
}

/* ---- one request ---- */

void cairn_http_set_safety(CURL *easy) {
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    /* Otherwise cancelling a request waits for its name lookup, and all other requests with it. */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_HTTP09_ALLOWED, 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
}

static uint16_t port_of(int fd) {
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof own;
    const void *any = &own;
    if (getsockname(fd, (struct sockaddr *)&own, &size) != 0) return 0;
    if (own.ss_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)any)->sin6_port);
    return own.ss_family == AF_INET ? ntohs(((const struct sockaddr_in *)any)->sin_port) : 0;
}

static int socket_of(const struct cairn_http_transfer *transfer) {
    const struct cairn_http_engine *engine = transfer->engine;
    if (transfer->direct) return transfer->link ? transfer->link->fd : -1;
    for (uint32_t i = 0; i < engine->socket_count; i++)
        if (transfer->local_port && port_of(engine->sockets[i]) == transfer->local_port)
            return engine->sockets[i];
    return -1;
}

/* Called before each time the request is sent. */
static int on_start(void *owner, char *peer, char *local, int peer_port, int local_port) {
    struct cairn_http_transfer *transfer = owner;
    long connects = 1;
    (void)peer, (void)local, (void)peer_port;
    curl_easy_getinfo(transfer->easy, CURLINFO_NUM_CONNECTS, &connects);
    transfer->on_kept = !connects;
    transfer->local_port = (uint16_t)local_port;
    transfer->has_times = cairn_net_times(socket_of(transfer), &transfer->times);
    transfer->started_us = cairn_mono_us();
    transfer->request->starts++;
    return CURL_PREREQFUNC_OK;
}

static void set_callbacks(struct cairn_http_transfer *transfer) {
    CURL *easy = transfer->easy;
    curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(easy, CURLOPT_XFERINFODATA, transfer);
    curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_start);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->curl_text);
    if (!transfer->engine->options.verbose_trace) return;
    curl_easy_setopt(easy, CURLOPT_DEBUGFUNCTION, on_trace);
    curl_easy_setopt(easy, CURLOPT_VERBOSE, 1L);
}

void cairn_http_set_connection(struct cairn_http_dial *dial, CURL *easy) {
    struct cairn_http_engine *engine = dial->engine;
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, dial);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, dial);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, engine);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)engine->options.connect_ms);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, DOWNLOAD_BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    /* A store's name has many addresses; a shared first answer would send all to one machine. */
    curl_easy_setopt(easy, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
    if (engine->ca_bundle) curl_easy_setopt(easy, CURLOPT_CAINFO, engine->ca_bundle);
    /* With a bundle of the caller's, the folder that libcurl was built with is trusted no more. */
    if (engine->ca_folder || engine->options.ca_bundle)
        curl_easy_setopt(easy, CURLOPT_CAPATH, engine->ca_folder);
    if (engine->interface_name) curl_easy_setopt(easy, CURLOPT_INTERFACE, engine->interface_name);
}

/* Sends a body as POSTFIELDS under the wanted method: libcurl then needs no read callback and
 * rewinds when a kept connection turns out to be dead. */
static void set_method(struct cairn_http_transfer *transfer) {
    CURL *easy = transfer->easy;
    const struct cairn_http_request *request = transfer->request;
    if (request->has_body) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body.size ? request->body.data : "");
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.size);
    } else if (!strcmp(request->method, "HEAD")) {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
        return;
    } else {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    }
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
}

static bool add_header(struct cairn_http_transfer *transfer, const char *line) {
    struct curl_slist *longer = curl_slist_append(transfer->headers, line);
    if (longer) transfer->headers = longer;
    return longer != NULL;
}

enum cairn_code cairn_http_transfer_prepare(struct cairn_http_transfer *transfer,
                                            struct cairn_error *err) {
    cairn_http_set_safety(transfer->easy);
    set_callbacks(transfer);
    transfer->dial = (struct cairn_http_dial){.engine = transfer->engine};
    cairn_http_set_connection(&transfer->dial, transfer->easy);
    CURL *easy = transfer->easy;
    const struct cairn_http_request *request = transfer->request;
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, request->fresh_connection ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "cairn");
    curl_easy_setopt(easy, CURLOPT_MAX_SEND_SPEED_LARGE, (curl_off_t)request->send_bytes_per_s);
    if (request->unix_socket)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, request->unix_socket);
    set_method(transfer);
    bool typed = false, added = add_header(transfer, "Expect:");
    for (size_t i = 0; i < request->header_count; i++) {
        if (!strncasecmp(request->headers[i], "Content-Type:", 13)) typed = true;
        added = added && add_header(transfer, request->headers[i]);
    }
    if (!typed) added = added && add_header(transfer, "Content-Type:");
    if (!added) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for request headers");
    curl_easy_setopt(transfer->easy, CURLOPT_HTTPHEADER, transfer->headers);
    if (curl_easy_setopt(transfer->easy, CURLOPT_URL, transfer->request->url) != CURLE_OK)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the URL");
    return CAIRN_OK;
}

/* ---- replies, one line or run of bytes at a time, from libcurl or a link ---- */

#define REPLY_HEADER_BYTES_MAX (64 * CAIRN_KIB)
#define DISCARDED_BYTES_MAX CAIRN_MIB

static bool name_is(struct cairn_view name, const char *wanted) {
    return name.size == strlen(wanted) && !strncasecmp(name.data, wanted, name.size);
}

static struct cairn_view trimmed(const char *from, const char *to) {
    return cairn_text_trimmed((struct cairn_view){from, (size_t)(to - from)});
}

/* Is `wanted` in a comma-separated list, as in "keep-alive, close"? */
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

static void take_header(struct cairn_http_transfer *transfer, const char *line, size_t size) {
    struct cairn_http_request *request = transfer->request;
    const char *colon = memchr(line, ':', size);
    if (!colon || *line == ' ' || *line == '\t') return;
    struct cairn_view name = {line, (size_t)(colon - line)};
    struct cairn_view value = trimmed(colon + 1, line + size);
    if (name_is(name, "Content-Length")) {
        uint64_t bytes;
        if (cairn_parse_u64(value, &bytes, NULL) != CAIRN_OK)
            transfer->refused = cairn_fail(&transfer->error, CAIRN_PROTOCOL, "bad Content-Length");
        else if (request->content_length != UINT64_MAX && request->content_length != bytes)
            transfer->refused = cairn_fail(&transfer->error, CAIRN_PROTOCOL,
                                           "two different Content-Length headers");
        else
            request->content_length = bytes;
    }
    if (name_is(name, "Connection") && has_word(value, "close")) transfer->says_close = true;
    if (name_is(name, "Transfer-Encoding")) {
        transfer->strange_coding |= transfer->chunked || !name_is(value, "chunked");
        transfer->chunked = true;
    }
    if (request->on_header) request->on_header(request, name, value);
}

static void end_headers(struct cairn_http_transfer *transfer) {
    struct cairn_http_request *request = transfer->request;
    if (request->status < 200) return; /* 1xx: the final reply follows */
    transfer->headers_over = true;
    /* With both lengths the chunks count, and bytes after them are not trusted. */
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
        return; /* trailers are ignored */
    else if (!trimmed(line, line + size).size)
        end_headers(transfer);
    else if (request->status >= 200)
        take_header(transfer, line, size);
}

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

/* Without an announced length a clean close in the middle of a body looks like success, so the
 * caller must check the length if content_length is unknown. */
enum cairn_code cairn_http_reply_judge(const struct cairn_http_transfer *transfer,
                                       struct cairn_error *err) {
    const struct cairn_http_request *request = transfer->request;
    if (transfer->refused) return cairn_pass(err, transfer->refused, &transfer->error);
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

/* ---- connections that are half open ---- */

#define AGAIN_US 250000
#define RETRANSMISSIONS_MIN 2
#define ROUNDING_US 10000 /* the kernel's times are rounded to its ticks */

uint64_t cairn_http_half_open_due_us(const struct cairn_http_transfer *transfer) {
    if (!transfer->on_kept || transfer->resent || transfer->request->reply_at_us) return UINT64_MAX;
    if (transfer->heard && (transfer->direct || transfer->request->sent_at_us)) return UINT64_MAX;
    return cairn_max_u64(transfer->half_open_check_us,
                         transfer->started_us + CAIRN_HTTP_HALF_OPEN_US);
}

/* After the peer's FIN libcurl stops reading and keeps sending, into a window that stays full. */
static bool peer_has_ended(const struct cairn_http_transfer *transfer, int fd,
                           const struct tcp_info *info) {
    int unread = 0;
    return !transfer->direct && !transfer->request->sent_at_us &&
           info->tcpi_state == TCP_CLOSE_WAIT && ioctl(fd, FIONREAD, &unread) == 0 && !unread;
}

bool cairn_http_half_open_check(struct cairn_http_transfer *transfer) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    uint64_t now = cairn_mono_us(), passed_us = now - transfer->started_us;
    int fd = socket_of(transfer);
    transfer->half_open_check_us = now + AGAIN_US;
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
        transfer->heard = true; /* a Unix socket always reports its peer's end */
        return false;
    }
    uint64_t silent_us = (uint64_t)info.tcpi_last_ack_recv * 1000 + ROUNDING_US;
    if (peer_has_ended(transfer, fd, &info)) return true;
    /* A peer in the same rack, or on this machine, acknowledges the beginning sooner than the
     * kernel's times can tell, and then perhaps nothing while it waits for a core. */
    struct cairn_net_times times;
    bool acked = transfer->has_times && cairn_net_times(fd, &times) &&
                 times.acked_bytes > transfer->times.acked_bytes;
    transfer->heard = acked || !info.tcpi_unacked || silent_us < passed_us;
    return !transfer->heard && info.tcpi_retransmits >= RETRANSMISSIONS_MIN;
}

/* ---- traces ---- */

#define SHOWN_BYTES_MAX 512

static const char *const shown_headers[] = {
    "Accept",
    "Accept-Ranges",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-MD5",
    "Content-Range",
    "Content-Type",
    "Date",
    "ETag",
    "Expect",
    "Host",
    "If-Match",
    "If-None-Match",
    "Last-Modified",
    "Range",
    "Retry-After",
    "Server",
    "Transfer-Encoding",
    "User-Agent",
    "x-amz-bucket-region",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-mode",
    "x-amz-checksum-type",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-id-2",
    "x-amz-meta-cairn-upload",
    "x-amz-request-id",
};
static const char *const shown_parameters[] = {
    "continuation-token",
    "delimiter",
    "encoding-type",
    "key-marker",
    "list-type",
    "max-keys",
    "max-parts",
    "max-uploads",
    "partNumber",
    "part-number-marker",
    "prefix",
    "uploadId",
    "upload-id-marker",
    "uploads",
    "location",
    "limit",
    "wait",
    "for",
};

static bool listed(const char *const *list, size_t count, struct cairn_view name) {
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i]) == name.size && !strncasecmp(list[i], name.data, name.size))
            return true;
    return false;
}

static size_t find(struct cairn_view text, char wanted) {
    const char *at = text.size ? memchr(text.data, wanted, text.size) : NULL;
    return at ? (size_t)(at - (const char *)text.data) : text.size;
}

static struct cairn_view part(struct cairn_view text, size_t from, size_t to) {
    return (struct cairn_view){(const char *)text.data + from, to - from};
}

static enum cairn_code append(struct cairn_buf *ret, struct cairn_view text,
                              struct cairn_error *err) {
    return cairn_buf_append(ret, text.data, text.size, err);
}

static enum cairn_code redact_query(struct cairn_view query, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    for (size_t from = 0; from <= query.size;) {
        size_t end = from + find(part(query, from, query.size), '&');
        struct cairn_view pair = part(query, from, end);
        size_t equals = find(pair, '=');
        CAIRN_TRY(cairn_buf_append_text(ret, from ? "&" : "?", err));
        CAIRN_TRY(append(ret, part(pair, 0, equals), err));
        if (equals < pair.size) {
            bool show =
                listed(shown_parameters, CAIRN_COUNT(shown_parameters), part(pair, 0, equals));
            struct cairn_view hidden = CAIRN_VIEW("=<hidden>");
            CAIRN_TRY(append(ret, show ? part(pair, equals, pair.size) : hidden, err));
        }
        from = end + 1;
    }
    return CAIRN_OK;
}

/* Is it "PUT /bucket/key" or "HTTP/1.1 200"? A method is all capitals, so no header and no folded
 * line with a value that begins with a slash is mistaken for one. */
static bool is_start_line(struct cairn_view line, size_t space) {
    const char *text = line.data;
    if (line.size > 5 && !memcmp(text, "HTTP/", 5)) return true;
    size_t method = 0;
    while (method < line.size && text[method] >= 'A' && text[method] <= 'Z') method++;
    return method > 0 && method == space && space + 1 < line.size && text[space + 1] == '/';
}

enum cairn_code cairn_http_trace_redact(struct cairn_view line, struct cairn_buf *ret,
                                        struct cairn_error *err) {
    if (!line.size) return CAIRN_OK;
    size_t colon = find(line, ':'), space = find(line, ' ');
    bool is_header = colon < line.size && colon < space;
    if (is_start_line(line, space)) {
        /* "PUT /bucket/key?query HTTP/1.1": the query ends at the next space. */
        size_t question = find(line, '?');
        if (question == line.size) return append(ret, line, err);
        size_t end = question + find(part(line, question, line.size), ' ');
        CAIRN_TRY(append(ret, part(line, 0, question), err));
        CAIRN_TRY(redact_query(part(line, question + 1, end), ret, err));
        return append(ret, part(line, end, line.size), err);
    }
    if (!is_header) return cairn_buf_append_text(ret, "<hidden>", err);
    CAIRN_TRY(append(ret, part(line, 0, colon), err));
    if (!listed(shown_headers, CAIRN_COUNT(shown_headers), part(line, 0, colon)))
        return cairn_buf_append_text(ret, ": <hidden>", err);
    return append(ret, part(line, colon, line.size), err);
}

void cairn_http_trace_lines(char mark, struct cairn_view block) {
    for (size_t from = 0; from < block.size;) {
        size_t end = from + find(part(block, from, block.size), '\n');
        size_t stop = end > from && ((const char *)block.data)[end - 1] == '\r' ? end - 1 : end;
        if (stop - from > SHOWN_BYTES_MAX) stop = from + SHOWN_BYTES_MAX;
        CAIRN_AUTO(buf) text = {.limit = 8192};
        if (stop > from &&
            cairn_http_trace_redact(part(block, from, stop), &text, NULL) == CAIRN_OK)
            cairn_log(DEBUG, "http.line", "way=%c text=\"%s\"", mark, text.data);
        from = end + 1;
    }
}
