/* SPDX-License-Identifier: Apache-2.0 */
/*
 * port: the two HTTP/1.1 servers of an uploader: one on which uploaders of other nodes ask this
 *       one, and one for GET /metrics.
 *
 * Why:     nodes of one attempt hold each other's bytes nearer than the store does; and what
 *          scrapes a node comes over the network, while the trainers' socket is for trainers.
 * Promise: 1   peers: nothing is served but to a node that holds an attempt which this node holds,
 *          too (api/wire/rights.h); all others hear 401 or 403, and nothing that they send is kept.
 *          2   a head has CAIRN_UP_PORT_MS from its first byte, and every MiB sent or received has
 *              as long; who is slower is cut. A quiet connection lives CAIRN_UP_PORT_QUIET_MS.
 *          3   a route that works for longer says so (102) every CAIRN_UP_PORT_SIGN_MS, so that who
 *              asks can tell this node from a dead one.
 *          4   stop returns when no route runs any more.
 *          5   answers to admitted requests carry a MAC over status and length (api/wire/rights.h).
 *          6   a head is HTTP/1.1 with Host, GET or PUT, a path of unreserved characters, one range
 *              "bytes=FIRST-LAST", a Content-Length in digits; each of these headers once. Line
 *              ends are CRLF; a space before a colon, a folded line, a control character and any
 *              transfer coding are refused. A refusal is the status to answer; nothing behind a
 *              refused head is read.
 *          7   metrics: nothing but GET /metrics is answered with more than a status, and nothing
 *              that is sent is kept: a caller changes nothing.
 *          8   a caller has CAIRN_UP_SCRAPE_MS for its request and as long to take the answer; one
 *              that needs longer is cut, and no trainer, sender or report waits for it.
 *          9   no caller waits for another one: where CAIRN_UP_SCRAPE_CALLERS_MAX are there, the
 *              one goes for the next whose head has not come whole for longest.
 * Limits:  peer_connections at once, a thread and a head each; one more is answered 503 and closed.
 *          While more than three quarters are open each ends with its answer. Bodies lie in memory
 *          of the routes. No TLS: who reads the wire reads the bytes. Metrics: heads of 8 KiB; off
 *          unless metrics_listen is set.
 * Threads: peers: one that accepts and one for each connection, on which routes run. Metrics: one.
 *          new, route, start, stop: the main thread.
 * Next:    uploader/port/ask.h for the other side; docs/peers.md, docs/metrics.md.
 */
#pragma once

#include "api/wire/rights.h"
#include "uploader/port/peers.h"

#define CAIRN_UP_HEAD_BYTES_MAX 8192
#define CAIRN_UP_HEAD_LINES_MAX 32
#define CAIRN_UP_PATH_BYTES_MAX 1024

struct cairn_up_request_head {
    char method[8];
    char path[CAIRN_UP_PATH_BYTES_MAX];
    char range[64];  /* as it came; "" for none */
    char right[512]; /* the value of Authorization; "" for none */
    char nonce[33];  /* of Cairn-Nonce: 32 hex digits; "" for none */
    uint64_t first, last;
    bool has_range, has_body, closes;
    uint64_t body_bytes;
};
/* text ends with the empty line. 0, or the status of the refusal. */
int cairn_up_head_read(struct cairn_view text, struct cairn_up_request_head *ret);

#define CAIRN_UP_PORT_MS 2000
#define CAIRN_UP_PORT_QUIET_MS 15000
#define CAIRN_UP_PORT_SIGN_MS 500
#define CAIRN_UP_ROUTES_MAX 8

struct cairn_up_port;
/* One request under way. A route answers it exactly once: refuse, or answer and then all of the
 * body. */
struct cairn_up_call {
    struct cairn_up_port *port;
    struct cairn_up_request_head head;
    struct cairn_peer_right right; /* checked: run, attempt and node of who asks */
    const char *rest;              /* of the path, behind the route's */
    /* of port.c alone */
    struct cairn_up_connection *connection;
    uint64_t received_bytes, owed_bytes; /* of the two bodies */
    bool answered, broken;
    bool admitted; /* the key is the attempt's */
    uint8_t key[CAIRN_PEER_KEY_BYTES];
};
struct cairn_up_route {
    const char *method, *path; /* what the path begins with */
    void (*serve)(struct cairn_up_call *call, void *owner);
    void *owner;
};

struct cairn_up_port_options {
    const char *listen, *advertise; /* as the settings peer_listen and peer_advertise */
    const char *node;               /* this one */
    uint64_t connections_max;
    struct cairn_up_members *members;
};
/* Listens; nobody is accepted before the start. Options' texts must stay. */
enum cairn_code cairn_up_port_new(const struct cairn_up_port_options *options,
                                  struct cairn_up_port **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_port_route(struct cairn_up_port *port, const struct cairn_up_route *route);
enum cairn_code cairn_up_port_start(struct cairn_up_port *port,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* NULL is fine, and so is a second time. */
void cairn_up_port_stop(struct cairn_up_port *port);
void cairn_up_port_free(struct cairn_up_port *port);
/* The HOST:PORT that other nodes connect to. */
const char *cairn_up_port_address(const struct cairn_up_port *port);
bool cairn_up_port_stopping(struct cairn_up_port *port);

/* ---- for routes; all fail once the connection is broken ---- */
enum cairn_code cairn_up_call_sign(struct cairn_up_call *call,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* headers: whole lines, "" for none. A body of `bytes` follows by cairn_up_call_send. */
enum cairn_code cairn_up_call_answer(struct cairn_up_call *call, int status, const char *headers,
                                     uint64_t bytes, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_call_send(struct cairn_up_call *call, struct cairn_view bytes,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* The next bytes of the request's body, exactly so many; head.body_bytes in all. */
enum cairn_code cairn_up_call_receive(struct cairn_up_call *call, void *into, uint64_t bytes,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* With the code's HTTP status and {"code": slug}. */
void cairn_up_call_refuse(struct cairn_up_call *call, enum cairn_code code);

#define CAIRN_UP_SCRAPE_MS 2000
#define CAIRN_UP_SCRAPE_CALLERS_MAX 32

struct cairn_up_scrape;
/* write_page writes what is counted now; called on the thread of metrics. *ret stays NULL where
 * address is empty. */
enum cairn_code cairn_up_scrape_start(
    const char *address,
    enum cairn_code (*write_page)(void *owner, struct cairn_buf *ret, struct cairn_error *err),
    void *owner, struct cairn_up_scrape **ret, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_scrape_stop(struct cairn_up_scrape *scrape); /* and free it; NULL is fine */
