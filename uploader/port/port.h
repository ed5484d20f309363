/* SPDX-License-Identifier: Apache-2.0 */
/*
 * port: an uploader's two HTTP/1.1 servers: for other nodes' uploaders, and for GET /metrics.
 *
 * Why:     nodes of one attempt hold each other's bytes nearer than the store; and metrics are
 *          scraped over the network, while the trainers' socket is local.
 * Promise: 1   peers: only a node with an attempt that this node holds, too, is served
 *              (api/wire/rights.h); all others get 401 or 403, and their bytes are dropped.
 *          2   a head has CAIRN_UP_PORT_MS from its first byte, and so has every MiB sent or
 *              received; slower peers are cut. A quiet connection lives CAIRN_UP_PORT_QUIET_MS.
 *          3   a slower route signs (102) every CAIRN_UP_PORT_SIGN_MS, as proof that it works.
 *          4   stop returns when no route runs any more.
 *          5   answers to admitted requests carry a MAC over status and length (api/wire/rights.h).
 *          6   a head is HTTP/1.1 with Host, GET or PUT, a path of unreserved characters, one range
 *              "bytes=FIRST-LAST", a Content-Length in digits; each of these headers once. Line
 *              ends are CRLF; a space before a colon, a folded line, a control character and any
 *              transfer coding are refused. A refusal is a status; later bytes are unread.
 *          7   metrics: only GET /metrics gets more than a status, and no request changes anything.
 *          8   a caller has CAIRN_UP_SCRAPE_MS to send its request and as long to read the answer,
 *              then it is cut; no trainer, sender or report waits for it.
 *          9   no caller waits for another: beyond CAIRN_UP_SCRAPE_CALLERS_MAX a new one replaces
 *              the one whose head is incomplete for longest.
 * Limits:  peer_connections at once, a thread and a head each; the next is answered 503 and closed.
 *          While more than three quarters are open, each closes after its answer. Bodies lie in
 *          memory of the routes. No TLS. Metrics: heads of 8 KiB; off unless metrics_listen is set.
 * Threads: peers: one that accepts, and one per connection, which runs routes. Metrics: one. new,
 *          route, start, stop: the main thread.
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
    char range[64];  /* as received; "": none */
    char right[512]; /* the value of Authorization; "": none */
    char nonce[33];  /* from Cairn-Nonce: 32 hex digits; "": none */
    uint64_t first, last;
    bool has_range, has_body, closes;
    uint64_t body_bytes;
};
/* text includes the empty line. Returns 0, or the status of the refusal. */
int cairn_up_head_read(struct cairn_view text, struct cairn_up_request_head *ret);

#define CAIRN_UP_PORT_MS 2000
#define CAIRN_UP_PORT_QUIET_MS 15000
#define CAIRN_UP_PORT_SIGN_MS 500
#define CAIRN_UP_ROUTES_MAX 8

struct cairn_up_port;
/* A request in progress. A route answers it exactly once: refuse, or answer and the whole body. */
struct cairn_up_call {
    struct cairn_up_port *port;
    struct cairn_up_request_head head;
    struct cairn_peer_right right; /* verified: run, attempt and node of the caller */
    const char *rest;              /* the path after the route's */
    /* used by port.c */
    struct cairn_up_connection *connection;
    uint64_t received_bytes, owed_bytes; /* of the two bodies */
    bool answered, broken;
    bool admitted; /* key is the attempt's */
    uint8_t key[CAIRN_PEER_KEY_BYTES];
};
struct cairn_up_route {
    const char *method, *path; /* the path's prefix */
    void (*serve)(struct cairn_up_call *call, void *owner);
    void *owner;
};

struct cairn_up_port_options {
    const char *listen, *advertise; /* the settings peer_listen and peer_advertise */
    const char *node;               /* this node */
    uint64_t connections_max;
    struct cairn_up_members *members;
};
/* Listens without accepting before start. Options' texts must stay. */
enum cairn_code cairn_up_port_new(const struct cairn_up_port_options *options,
                                  struct cairn_up_port **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_port_route(struct cairn_up_port *port, const struct cairn_up_route *route);
enum cairn_code cairn_up_port_start(struct cairn_up_port *port,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* NULL is allowed, and a second call. */
void cairn_up_port_stop(struct cairn_up_port *port);
void cairn_up_port_free(struct cairn_up_port *port);
/* The HOST:PORT that other nodes connect to. */
const char *cairn_up_port_address(const struct cairn_up_port *port);
bool cairn_up_port_stopping(struct cairn_up_port *port);

/* ---- for routes; all fail once the connection is broken ---- */
enum cairn_code cairn_up_call_sign(struct cairn_up_call *call,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* headers: whole lines or "". A body of `bytes` follows by cairn_up_call_send. */
enum cairn_code cairn_up_call_answer(struct cairn_up_call *call, int status, const char *headers,
                                     uint64_t bytes, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_call_send(struct cairn_up_call *call, struct cairn_view bytes,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Reads exactly the next `bytes` of the request's body; head.body_bytes in all. */
enum cairn_code cairn_up_call_receive(struct cairn_up_call *call, void *into, uint64_t bytes,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Answers the code's HTTP status and {"code": slug}. */
void cairn_up_call_refuse(struct cairn_up_call *call, enum cairn_code code);

#define CAIRN_UP_SCRAPE_MS 2000
#define CAIRN_UP_SCRAPE_CALLERS_MAX 32

struct cairn_up_scrape;
/* write_page writes current metrics, on the metrics thread. *ret stays NULL without an address. */
enum cairn_code cairn_up_scrape_start(
    const char *address,
    enum cairn_code (*write_page)(void *owner, struct cairn_buf *ret, struct cairn_error *err),
    void *owner, struct cairn_up_scrape **ret, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_scrape_stop(struct cairn_up_scrape *scrape); /* also frees; NULL is allowed */
