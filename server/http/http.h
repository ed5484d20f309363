/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: receives and checks requests, sends replies.
 *
 * Why:     libmicrohttpd 0.9.75 accepts two Content-Length headers, cuts paths at %00, has only an
 *          idle time-out, and has no setting for any of these; the missing checks are here.
 * Promise: B03  a request whose bytes in memory violate RFC 9112 gets 400 and its connection is
 *               closed; no later byte of that connection is parsed.
 *          B04  what a route does not accept (method, type, encoding, length) is refused before the
 *               body is buffered.
 *          B05  each connection has its own deadlines for receiving a request, answering it and
 *               being idle. Connections are bounded in total and per address; at a bound the oldest
 *               incomplete request is closed first, then the connection that is idle longest.
 *          B07  every byte from outside is checked before it is written to a header.
 *          K08  when file descriptors run out, open connections are still served, and waiting
 *               callers are accepted as soon as a descriptor is free; no loop spins.
 *          B08  a request for another host's name or a change by a page of another site is refused.
 *          B10  memory is counted for bytes received, not announced, and for the values of a large
 *               body before it is parsed; when it runs out, stalled peers are reset first.
 *          1   every answer is JSON or problem+json, also to requests that libmicrohttpd itself
 *              refuses; without three words in the first line the connection is closed, by some
 *              releases silently.
 *          2   a refusal before the body has arrived reaches the caller, also through a proxy that
 *              sends the body first: up to 64 MiB are read and dropped before the close.
 *          3   when the server stops, a waiting request is answered as if its wait had timed out.
 * Limits:  server/settings.def; 64 MiB a body.
 * Threads: event loops, one per core and at most 4; deadlines thread; acceptor; requests pool
 *          (handlers).
 * Next:    server/http/acceptor.c (accepting), server/http/shape.c (the B03 check),
 *          server/http/conns.c (deadlines), server/http/request.h.
 */
#pragma once

#include "server/server.h"

enum cairn_code srv_http_start(struct srv *server, struct srv_http **ret, uint16_t *ret_port,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Reads certificate and key again; they apply to new connections. */
void srv_http_reload(struct srv_http *http);
/* Stops accepting. Waiting and new requests get 503; requests being answered continue. */
void srv_http_close(struct srv_http *http);
/* True when no request is being answered. */
bool srv_http_is_quiet(const struct srv_http *http);
/* Stops accepting, answers waiting requests with 503, then closes every connection. Also stops the
 * server's pools and waiters, since they hold connections. NULL is fine. */
void srv_http_stop(struct srv_http *http);

/* At startup the server sends itself one valid request and one with a bare line feed. shape.c reads
 * parsed pointers from libmicrohttpd's buffer, and another release may lay that buffer out
 * differently. A server that accepts the second request or refuses the first does not start. */
enum cairn_code srv_http_self_test(const char *listen, uint16_t port,
                                   struct cairn_error *err) CAIRN_MUST_USE;
