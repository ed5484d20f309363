/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: requests in, replies out, and nothing that hurts in between.
 *
 * Why:     libmicrohttpd 0.9.75 accepts two Content-Length headers, cuts paths at %00, has only an
 *          idle time-out, and has no setting for any of these; the missing checks are here.
 * Promise: B03  a request that is not exactly what RFC 9112 asks for, seen from its bytes in
 *              memory, is 400 and its connection is closed; nothing behind it is ever parsed.
 *          B04  what a route does not take (method, type, encoding, length) is refused before its
 *               body is buffered.
 *          B05  each connection has a deadline of its own for arriving, for being answered and for
 *               being idle; connections are bounded in all and per address, and at a bound the
 *               request goes that has not come whole for longest, then the longest idle.
 *          B07  no byte from outside reaches a header without being checked.
 *          K08  where the system has no descriptor, open connections are served, and callers that
 *              wait are accepted within a moment of there being one again; no loop spins.
 *          B08  a request that names another host is refused, and what changes something is not
 *               taken from a page of another site.
 *          B10  memory is taken by what has arrived and not by what was announced, and for the
 *               values of a large body before it is parsed; where it ends, peers that stand still
 *               lose theirs first.
 *          1    every answer is JSON or problem+json, also to what libmicrohttpd refuses by itself;
 *               after a first line of other than three words the connection is closed, by some
 *               releases without one.
 *          2   a refusal that is given before the body has come reaches its caller, also through a
 *              proxy that sends the whole body first: at most 64 MiB of that are read and dropped
 *              before the connection is closed.
 *          3   at a stop, a request that waits for something is answered as when its time is over.
 * Limits:  server/settings.def; 64 MiB a body.
 * Threads: event loops, one per core and at most 4; one thread for deadlines and one that
 *          accepts; handlers run on the requests pool.
 * Next:    server/http/acceptor.c (who comes in), server/http/shape.c (the proof),
 *          server/http/conns.c (deadlines), server/http/request.h.
 */
#pragma once

#include "server/server.h"

enum cairn_code cairn_srv_http_start(struct cairn_srv *server, struct cairn_srv_http **ret,
                                     uint16_t *ret_port, struct cairn_error *err) CAIRN_MUST_USE;
/* Certificate and key are read again, for connections that come from here on. */
void cairn_srv_http_reload(struct cairn_srv_http *http);
/* No new connections; what waits or still comes is answered 503; what is being answered goes on. */
void cairn_srv_http_close(struct cairn_srv_http *http);
/* No request is being answered. */
bool cairn_srv_http_is_quiet(const struct cairn_srv_http *http);
/* No new connections; what waits is answered 503; then everything is closed. Stops the server's
 * pools and waiters on the way, since they hold connections. NULL is fine. */
void cairn_srv_http_stop(struct cairn_srv_http *http);

/* One good request and one with a bare line feed, sent to ourselves at start: shape.c reads
 * what libmicrohttpd has parsed from where that library keeps it, and another release may keep it
 * elsewhere. A server that takes the second, or refuses the first, does not start. */
enum cairn_code cairn_srv_http_self_test(const char *listen, uint16_t port,
                                         struct cairn_error *err) CAIRN_MUST_USE;
