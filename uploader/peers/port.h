/* SPDX-License-Identifier: Apache-2.0 */
/*
 * port: the HTTP port on which uploaders of other nodes ask this one.
 *
 * Why:     nodes of one attempt hold each other's bytes nearer than the store does.
 * Promise: 1   nothing is served but to a node that holds an attempt which this node holds, too
 *              (api/wire/rights.h); everybody else hears 401 or 403, and nothing that he sends is kept.
 *          2   a head has CAIRN_UP_PORT_MS from its first byte, and every MiB sent or received has
 *              as long; who is slower is cut. A quiet connection lives CAIRN_UP_PORT_QUIET_MS.
 *          3   a route that works for longer says so (102) every CAIRN_UP_PORT_SIGN_MS, so that who
 *              asks can tell this node from a dead one.
 *          4   stop returns when no route runs any more.
 *          5   answers to admitted requests carry a MAC over status and length (api/wire/rights.h).
 * Limits:  peer_connections at once, a thread and a head each; one more is answered 503 and closed.
 *          While more than three quarters are open each ends with its answer.
 *          Bodies lie in memory of the routes. No TLS: who reads the wire reads the bytes.
 * Threads: one that accepts and one for each connection, on which routes run; init, route, start
 *          and stop by the main thread.
 * Next:    uploader/peers/head.h, uploader/peers/ask.h for the other side; docs/peers.md.
 */
#pragma once

#include "api/wire/rights.h"
#include "uploader/peers/head.h"
#include "uploader/peers/members.h"

#define CAIRN_UP_PORT_MS 2000
#define CAIRN_UP_PORT_QUIET_MS 15000
#define CAIRN_UP_PORT_SIGN_MS 500
#define CAIRN_UP_ROUTES_MAX 8

struct cairn_up_port;
/* One request under way. A route answers it exactly once: refuse, or answer and then all of the
 * body. */
struct cairn_up_call {
    struct cairn_up_port *port;
    struct cairn_up_head head;
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
/* HOST:PORT that other nodes are told. */
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
