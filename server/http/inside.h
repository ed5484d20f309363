/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what the files of server/http/ share, and the only way to microhttpd.h.
 *
 * Why:     one request passes through the proof, the guard, the pool and the reply; its parts are
 *          in one struct so that each has one owner at a time.
 * Promise: X1  an exchange belongs to the event loop until it is suspended, then to the pool or the
 *              waiters until it is resumed, then to the event loop again.
 * Limits:  one exchange a connection.
 * Threads: as X1 says.
 * Next:    server/http/http.c.
 */
#pragma once

#include <microhttpd.h>

#include "common/lock.h"
#include "server/http/http.h"
#include "server/pool.h"
#include "server/request.h"
#include "server/waiters.h"

#define CAIRN_SRV_TARGET_BYTES_MAX (CAIRN_ROUTE_PATH_BYTES_MAX + CAIRN_QUERY_BYTES_MAX + 1)

/* One connection's place in the table of deadlines. */
struct cairn_srv_guard {
    int fd;
    _Atomic uint64_t deadline_ms; /* mono clock; UINT64_MAX = none */
    struct cairn_srv_guard *next, **at;
};

struct cairn_srv_http {
    struct cairn_srv *server;
    struct MHD_Daemon *daemon;
    int listen_fd;
    _Atomic bool stopping;
    _Atomic uint64_t body_bytes; /* of all requests that are arriving or being worked on */
    pthread_t guard_thread;
    bool guarded;
    pthread_t door_thread;
    int door_wake_fd; /* an eventfd: the door is to be closed */
    bool door_is_open;
    uint32_t connections_max;
    _Atomic uint32_t connections; /* that were handed to the library and have not ended */
    struct cairn_lock lock;
    struct cairn_condition work;
    struct {
        struct cairn_srv_guard *guards;
        bool stopping;
    } locked;
};

struct cairn_srv_exchange {
    struct cairn_srv_task task;     /* first */
    struct cairn_srv_waiter waiter; /* second */
    struct cairn_srv_http *http;
    struct MHD_Connection *connection;
    struct cairn_srv_guard *guard;
    const char *uri; /* where the library keeps it: for the proof only */
    size_t uri_size;
    char *target; /* owned; NULL when it is not one */
    bool begun, dispatched, ready;
    uint64_t reserved_bytes;
    struct cairn_buf body;
    struct cairn_srv_request request;
    struct cairn_srv_reply reply;
    enum cairn_code code; /* of the handler, or of a refusal before it */
    struct cairn_error error;
};

/* shape.c: B03 over the first callback's pointers. */
enum cairn_code cairn_srv_shape_check(struct cairn_srv_exchange *exchange, const char *method,
                                      const char *version, struct cairn_error *err) CAIRN_MUST_USE;
/* accept.c: route, headers, lengths and types of a well-shaped request. */
enum cairn_code cairn_srv_http_accept(struct cairn_srv_exchange *exchange, const char *method,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* reply.c */
enum MHD_Result cairn_srv_http_reply(struct cairn_srv_exchange *exchange);
/* door.c */
enum cairn_code cairn_srv_door_open(struct cairn_srv_http *http,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Nobody is accepted any more. */
void cairn_srv_door_close(struct cairn_srv_http *http);
/* guard.c */
enum cairn_code cairn_srv_guard_start(struct cairn_srv_http *http,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_guard_stop(struct cairn_srv_http *http);
void cairn_srv_guard_notify(void *cls, struct MHD_Connection *connection, void **socket_context,
                            enum MHD_ConnectionNotificationCode what);
struct cairn_srv_guard *cairn_srv_guard_of(struct MHD_Connection *connection);
/* UINT64_MAX takes the deadline away. guard may be NULL. */
void cairn_srv_guard_set(struct cairn_srv_guard *guard, uint64_t within_ms);
