/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that libmicrohttpd refuses before it calls us: a first line or a header that is none,
 * too much of either, another version, no Host, a Content-Length that is no number. Its own answer
 * is a page of HTML, and of release 0.9.75 sometimes one with two header blocks, since it goes on
 * as if nothing had been queued. It says what it does to its logger, on the event loop and before
 * it queues anything; so the problem is sent from there, and the connection is closed for writing,
 * which ends whatever the library would send after it.
 *
 * Which connection that is, it does not say. An event loop works on one connection until there is
 * nothing left to do for it: on the one that it has read from last, or on the one whose answer has
 * just ended and behind which another request had come already. The library reads with recv(2),
 * and the one that it finds is the one below. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "server/http/inside.h"

static _Thread_local int working_fd = -1;

/* recv, for the library, too. By its own name it could not be declared beside the inline one of
 * fortified headers. */
CAIRN_EXPORT ssize_t cairn_srv_refuse_recv(int fd, void *to, size_t size,
                                           int flags) __asm__("recv");

ssize_t cairn_srv_refuse_recv(int fd, void *to, size_t size, int flags) {
    working_fd = fd;
    return recvfrom(fd, to, size, flags, NULL, NULL);
}

void cairn_srv_refuse_working_on(const struct cairn_srv_conn *conn) {
    working_fd = conn ? conn->fd : -1;
}

/* It stays while it is refused, since only its event loop, this thread, ends it. */
static struct cairn_srv_conn *find_refused(struct cairn_srv_http *http) {
    CAIRN_HOLD(&http->lock);
    struct cairn_srv_conn *one = http->locked.conns;
    while (one && one->fd != working_fd) one = one->next;
    return one;
}

static enum cairn_code judge_headers(struct cairn_srv_exchange *exchange, unsigned status) {
    struct cairn_error *err = &exchange->error;
    char value[32];
    bool host = false, coding = false, length = false;
    (void)cairn_srv_http_header(exchange, "Host", value, sizeof(value), &host);
    (void)cairn_srv_http_header(exchange, "Transfer-Encoding", value, sizeof(value), &coding);
    bool fits = cairn_srv_http_header(exchange, "Content-Length", value, sizeof(value), &length);
    bool number = fits && value[0] && strspn(value, "0123456789") == strlen(value);
    if (coding)
        return cairn_fail(err, CAIRN_LENGTH_REQUIRED,
                          "Transfer-Encoding is not taken: send Content-Length");
    if (!host) return cairn_fail(err, CAIRN_INVALID, "exactly one Host is needed");
    if (length && status == 413)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "Content-Length is larger than any number of bytes");
    if (length && !number)
        return cairn_fail(err, CAIRN_INVALID, "Content-Length is not a number of bytes");
    exchange->status = 431;
    return cairn_fail(err, CAIRN_INVALID, "%s", CAIRN_SRV_HEAD_TOO_LONG);
}

/* By the status that the library was about to answer with. */
static enum cairn_code judge(struct cairn_srv_exchange *exchange, unsigned status) {
    struct cairn_error *err = &exchange->error;
    bool in_headers = exchange->connection != NULL;
    if (in_headers &&
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE))
        return judge_headers(exchange, status);
    if (status >= 500 && status != 505)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    exchange->status = status == 413 ? 431 : status;
    if (status == 505)
        return cairn_fail(err, CAIRN_INVALID, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    if (status == 414)
        return cairn_fail(err, CAIRN_INVALID, CAIRN_SRV_TARGET_TOO_LONG,
                          CAIRN_SRV_TARGET_BYTES_MAX);
    if (status != 400) return cairn_fail(err, CAIRN_INVALID, "%s", CAIRN_SRV_HEAD_TOO_LONG);
    if (in_headers)
        return cairn_fail(err, CAIRN_INVALID, "a line of the headers is not \"Name: value\"");
    return cairn_fail(err, CAIRN_INVALID, "the first line is not \"METHOD /path HTTP/1.1\"");
}

/* The kernel has room for it: nothing else is on its way on this connection. */
static enum cairn_code write_problem(const struct cairn_srv_exchange *exchange,
                                     struct cairn_buf *text, struct cairn_error *err) {
    const struct cairn_srv_reply *reply = &exchange->reply;
    unsigned status = (unsigned)reply->status;
    CAIRN_TRY(cairn_buf_printf(text, err,
                               "HTTP/1.1 %u %s\r\nContent-Type: %s\r\n"
                               "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"
                               "Connection: close\r\nContent-Length: %zu\r\n",
                               status, MHD_get_reason_phrase_for(status), reply->content_type,
                               reply->body.size));
    for (size_t i = 0; i < reply->header_count; i++)
        CAIRN_TRY(cairn_buf_printf(text, err, "%s: %s\r\n", reply->headers[i].name,
                                   reply->headers[i].value));
    for (const struct cairn_srv_cors *cors = cairn_srv_site_cors(exchange); cors->name; cors++)
        CAIRN_TRY(cairn_buf_printf(text, err, "%s: %s\r\n", cors->name,
                                   cors->value ? cors->value : exchange->origin));
    return cairn_buf_printf(text, err, "\r\n%s", reply->body.data);
}

void cairn_srv_refuse_send(struct cairn_srv_exchange *exchange) {
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) text = {0};
    if (cairn_srv_http_problem(exchange, &err) || write_problem(exchange, &text, &err)) return;
    if (cairn_srv_tls_is_on())
        (void)!cairn_srv_tls_send(exchange->conn->connection, text.data, text.size);
    else
        (void)!send(exchange->conn->fd, text.data, text.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(exchange->conn->fd, SHUT_WR);
}

void cairn_srv_refuse_log(void *cls, const char *format, va_list arguments) {
    static const char refusal[] = "Error processing request";
    struct cairn_srv_http *http = cls;
    if (strncmp(format, refusal, sizeof(refusal) - 1) != 0) return;
    unsigned status = va_arg(arguments, unsigned);
    struct cairn_srv_conn *conn = find_refused(http);
    if (!conn) return;
    struct cairn_srv_exchange exchange = {.http = http, .conn = conn};
    if (conn->arriving) exchange.connection = conn->arriving->connection;
    exchange.code = judge(&exchange, status);
    cairn_srv_refuse_send(&exchange);
    cairn_srv_reply_release(&exchange.reply);
}
