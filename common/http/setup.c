/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How libcurl is told what to do, and what it tells us back. The numbers and switches here are
 * what makes it fast (buffers) and safe (no redirect, no proxy, no trusted reply).
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/http/half_open.h"
#include "common/http/inside.h"
#include "common/http/trace.h"
#include "common/net.h"

/* The default of 64 KiB costs half of the speed; 1 MiB equals a bare send(). */
#define UPLOAD_BUFFER_BYTES (1L << 20)
#define DOWNLOAD_BUFFER_BYTES (1L << 19)

/* ---- callbacks of libcurl ---- */

/* An idle connection whose other end has gone without FIN or RST (a machine that lost its power, a
 * gateway that forgot it) is found before a request waits on it. Not of a Unix socket, hence no
 * check. */
static void probe_when_idle(curl_socket_t fd) {
    const int on = 1, idle_s = 10, each_s = 5, count = 3;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &each_s, sizeof each_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static int on_socket(void *owner, curl_socket_t fd, curlsocktype purpose) {
    const struct cairn_http_dial *dial = owner;
    const char *congestion = dial->engine->congestion;
    if (purpose != CURLSOCKTYPE_IPCXN) return CURL_SOCKOPT_OK;
    probe_when_idle(fd);
    /* Not of a Unix socket, hence no check. */
    if (congestion)
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion));
    return CURL_SOCKOPT_OK;
}

/* A name of the outside that points there reaches what was never meant to be a store: the instance
 * metadata with its keys. */
static curl_socket_t on_open(void *owner, curlsocktype purpose, struct curl_sockaddr *address) {
    struct cairn_http_dial *dial = owner;
    (void)purpose;
    if (dial->engine->options.refuses_link_local && cairn_net_is_metadata(&address->addr)) {
        dial->refused = true;
        return CURL_SOCKET_BAD;
    }
    dial->tried = true;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0) cairn_http_half_open_add(dial->engine, fd);
    return fd;
}

/* Always a reset: a connection is closed when its request was given up (http.h#3: what the kernel
 * still holds of the body must not go out and complete the request), or when it is idle, where it
 * makes no difference. */
static int on_close(void *owner, curl_socket_t fd) {
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    cairn_http_half_open_remove(owner, fd);
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
    /* Else giving a request up waits for the end of its look-up, and with it all others. */
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

/* Before the request goes out, each time. */
static int on_start(void *owner, char *peer, char *local, int peer_port, int local_port) {
    struct cairn_http_transfer *transfer = owner;
    long connects = 1;
    (void)peer, (void)local, (void)peer_port;
    curl_easy_getinfo(transfer->easy, CURLINFO_NUM_CONNECTS, &connects);
    transfer->on_kept = !connects;
    transfer->local_port = (uint16_t)local_port;
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
    /* A store's name stands for many machines; whoever asks first must not name one for all. */
    curl_easy_setopt(easy, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
    if (engine->ca_bundle) curl_easy_setopt(easy, CURLOPT_CAINFO, engine->ca_bundle);
    if (engine->interface_name) curl_easy_setopt(easy, CURLOPT_INTERFACE, engine->interface_name);
}

static void set_request(struct cairn_http_transfer *transfer) {
    CURL *easy = transfer->easy;
    const struct cairn_http_request *request = transfer->request;
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, request->fresh_connection ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "cairn");
    curl_easy_setopt(easy, CURLOPT_MAX_SEND_SPEED_LARGE, (curl_off_t)request->send_bytes_per_s);
    if (request->unix_socket)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, request->unix_socket);
}

/* A body goes out as POSTFIELDS under the wanted method: libcurl then needs no read callback and
 * rewinds by itself when a kept connection turns out to be dead. */
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

static enum cairn_code set_headers(struct cairn_http_transfer *transfer, struct cairn_error *err) {
    const struct cairn_http_request *request = transfer->request;
    bool typed = false, added = add_header(transfer, "Expect:");
    for (size_t i = 0; i < request->header_count; i++) {
        if (!strncasecmp(request->headers[i], "Content-Type:", 13)) typed = true;
        added = added && add_header(transfer, request->headers[i]);
    }
    if (!typed) added = added && add_header(transfer, "Content-Type:");
    if (!added) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for request headers");
    curl_easy_setopt(transfer->easy, CURLOPT_HTTPHEADER, transfer->headers);
    return CAIRN_OK;
}

enum cairn_code cairn_http_transfer_prepare(struct cairn_http_transfer *transfer,
                                            struct cairn_error *err) {
    cairn_http_set_safety(transfer->easy);
    set_callbacks(transfer);
    transfer->dial = (struct cairn_http_dial){.engine = transfer->engine};
    cairn_http_set_connection(&transfer->dial, transfer->easy);
    set_request(transfer);
    set_method(transfer);
    CAIRN_TRY(set_headers(transfer, err));
    if (curl_easy_setopt(transfer->easy, CURLOPT_URL, transfer->request->url) != CURLE_OK)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the URL");
    return CAIRN_OK;
}
