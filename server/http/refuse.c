/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that libmicrohttpd refuses before it calls us: no Host, a Content-Length that is no
 * number. Its own answer is a page of HTML, and of release 0.9.75 one with two header blocks, since
 * it goes on as if nothing had been queued. It says what it does to its logger, on the event loop
 * and before it queues anything; so the problem is sent from there, and the connection is closed
 * for writing, which ends whatever the library would send after it (H4).
 *
 * Which connection that is, it does not say. It is the one of this event loop whose headers have
 * all arrived while we have not been called: between two rounds there is none of that kind. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "server/http/inside.h"

void cairn_srv_refuse_arriving(struct cairn_srv_exchange *exchange) {
    struct cairn_srv_http *http = exchange->http;
    exchange->loop = pthread_self();
    CAIRN_HOLD(&http->lock);
    exchange->arriving_next = http->locked.arriving;
    exchange->arriving_at = &http->locked.arriving;
    if (exchange->arriving_next) exchange->arriving_next->arriving_at = &exchange->arriving_next;
    http->locked.arriving = exchange;
}

void cairn_srv_refuse_arrived(struct cairn_srv_exchange *exchange) {
    CAIRN_HOLD(&exchange->http->lock); /* neighbours of other event loops write arriving_at, too */
    if (!exchange->arriving_at) return;
    *exchange->arriving_at = exchange->arriving_next;
    if (exchange->arriving_next) exchange->arriving_next->arriving_at = exchange->arriving_at;
    exchange->arriving_next = NULL;
    exchange->arriving_at = NULL;
}

static struct cairn_srv_exchange *find_refused(struct cairn_srv_http *http) {
    CAIRN_HOLD(&http->lock);
    struct cairn_srv_exchange *one = http->locked.arriving;
    while (one) {
        if (pthread_equal(one->loop, pthread_self()) &&
            MHD_get_connection_info(one->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE))
            return one;
        one = one->arriving_next;
    }
    return NULL;
}

static enum cairn_code judge(struct cairn_srv_exchange *exchange, unsigned status) {
    struct cairn_error *err = &exchange->error;
    char value[16];
    bool host = false, coding = false;
    (void)cairn_srv_http_header(exchange, "Host", value, sizeof(value), &host);
    (void)cairn_srv_http_header(exchange, "Transfer-Encoding", value, sizeof(value), &coding);
    if (coding)
        return cairn_fail(err, CAIRN_LENGTH_REQUIRED,
                          "Transfer-Encoding is not taken: send Content-Length");
    if (!host) return cairn_fail(err, CAIRN_INVALID, "exactly one Host is needed");
    if (status == 413)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "Content-Length is larger than any number of bytes");
    return cairn_fail(err, CAIRN_INVALID, "Content-Length is not a number of bytes");
}

static void send_problem(struct cairn_srv_exchange *exchange) {
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) text = {0};
    if (cairn_srv_http_problem(exchange, &err)) return;
    const struct cairn_buf *body = &exchange->reply.body;
    unsigned status = (unsigned)cairn_code_info(exchange->code)->http_status;
    if (cairn_buf_printf(&text, &err,
                         "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nX-Content-Type-Options: nosniff\r\n"
                         "Cache-Control: no-store\r\nConnection: close\r\nContent-Length: %zu"
                         "\r\n\r\n%s",
                         status, MHD_get_reason_phrase_for(status), exchange->reply.content_type,
                         body->size, body->data))
        return;
    /* Nothing else is on its way on this connection, so the kernel has room for it. */
    (void)!send(exchange->guard->fd, text.data, text.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(exchange->guard->fd, SHUT_WR);
}

void cairn_srv_refuse_log(void *cls, const char *format, va_list arguments) {
    static const char refusal[] = "Error processing request";
    struct cairn_srv_http *http = cls;
    if (strncmp(format, refusal, sizeof(refusal) - 1) != 0) return;
    unsigned status = va_arg(arguments, unsigned);
    struct cairn_srv_exchange *exchange = find_refused(http);
    if (!exchange || !exchange->guard) return;
    exchange->code = judge(exchange, status);
    send_problem(exchange);
}
