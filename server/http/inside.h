/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what the files of server/http/ share, and the only way to microhttpd.h.
 *
 * Why:     one request passes through the proof, the pool and the reply; its parts are
 *          in one struct so that each has one owner at a time.
 * Promise: 1   an exchange belongs to the event loop until it is suspended, then to the pool or the
 *              waiters until it is resumed, then to the event loop again.
 * Limits:  one exchange a connection.
 * Threads: as inside.h#1 says.
 * Next:    server/http/http.c.
 */
#pragma once

#include <microhttpd.h>
#include <stdarg.h>

#include "common/process.h"
#include "server/http/http.h"
#include "server/http/request.h"
#include "server/http/waiters.h"

#define CAIRN_SRV_PEER_BUCKETS 1024
#define CAIRN_SRV_TARGET_BYTES_MAX (CAIRN_ROUTE_PATH_BYTES_MAX + CAIRN_QUERY_BYTES_MAX + 1)
#define CAIRN_SRV_CONNECTION_MEMORY_BYTES (32 * CAIRN_KIB)
#define CAIRN_SRV_LOBBY_MAX 128           /* callers that are not handed to the library yet */
#define CAIRN_SRV_HEALTH_PLACES 16        /* beyond http_connections_max, for checks of health */
#define CAIRN_SRV_PROXY_HEADER_BYTES 1024 /* with all that a proxy adds to it */
#define CAIRN_SRV_AUTHORIZATION_BYTES 256 /* a scheme, spaces, a token */
#define CAIRN_SRV_TARGET_TOO_LONG "path and query of a request have at most %d bytes here"
#define CAIRN_SRV_HEAD_TOO_LONG                                                                    \
    "first line and headers have to fit into 32 KiB, with 64 bytes more for each header: send "    \
    "fewer or shorter ones"

/* Memory that peers can make the server hold. Heartbeats, shards, seals and ends of saves have a
 * share of their own, so that other bodies do not keep them out. */
enum cairn_srv_memory {
    CAIRN_SRV_MEMORY_BODIES,
    CAIRN_SRV_MEMORY_BODIES_OF_SAVES,
    CAIRN_SRV_MEMORY_REPLIES,
    CAIRN_SRV_MEMORY_KINDS
};

/* The connections of one address; in a table while it has any. */
struct cairn_srv_peer {
    uint8_t address[16];  /* IPv4 as ::ffff:a.b.c.d */
    uint32_t connections; /* and requests by way of trusted proxies */
    struct cairn_srv_peer *next;
};

/* What a connection does; at a bound those of a line go, the first of it first. */
enum cairn_srv_conn_line {
    CAIRN_SRV_LINE_ARRIVING, /* it has sent no request yet, or one that is not whole */
    CAIRN_SRV_LINE_IDLE,     /* it was answered, and asks for nothing */
    CAIRN_SRV_LINES,
    CAIRN_SRV_LINE_NONE = CAIRN_SRV_LINES /* a request of it is worked on or answered */
};

/* One connection's place in the table of deadlines, and what it makes the server hold. */
struct cairn_srv_conn {
    int fd;
    _Atomic uint64_t deadline_ms; /* mono clock; UINT64_MAX = none */
    _Atomic uint64_t held_bytes;  /* of memory, all of one kind */
    _Atomic int held_kind;
    _Atomic uint64_t moved_ms; /* when its peer last sent or took; UINT64_MAX: it need do neither */
    /* Its first line has come and the library has not called us; of its event loop. The end of a
     * request that the library refuses is not always notified. */
    struct cairn_srv_exchange *arriving;
    struct MHD_Connection *connection;
    /* under the lock */
    struct cairn_srv_conn *next, **at;
    enum cairn_srv_conn_line line;
    struct cairn_srv_conn *line_next, **line_at;
    uint64_t line_ms;            /* since when it is there; mono clock */
    bool is_begun;               /* of the line ARRIVING: the first line of a request has come */
    struct cairn_srv_peer *peer; /* NULL: it was reset, or is a proxy's; it counts no more */
    bool is_proxy;               /* its requests count for their own callers */
    bool is_beyond;              /* the bound of its address: it is for checks of health */
    bool is_reset;
    struct cairn_srv_exchange *parked; /* under parked_lock; NULL: it is not watched */
};

struct cairn_srv_tls;  /* tls.c */
struct cairn_srv_kept; /* reply.c */

struct cairn_srv_http {
    struct cairn_srv *server;
    struct MHD_Daemon *daemon;
    struct cairn_srv_tls *tls; /* the newest; NULL: plain HTTP. Of the main thread */
    int listen_fd;
    _Atomic bool stopping;
    _Atomic uint64_t memory[CAIRN_SRV_MEMORY_KINDS]; /* held for all connections */
    _Atomic uint32_t answering;                      /* requests that came whole, until answered */
    struct cairn_srv_kept *kept;
    char hostname[256];                /* this machine's own name */
    struct cairn_srv_trusted *trusted; /* accept.c */
    size_t trusted_count;
    _Atomic uint64_t bound_said_ms; /* when a bound was last logged */
    struct cairn_thread conns_thread, acceptor_thread;
    struct cairn_srv_lobby *lobby; /* of the acceptor's thread */
    int acceptor_wake_fd;          /* an eventfd: no caller is accepted any more */
    uint32_t connections_max;
    _Atomic uint32_t connections; /* that were handed to the library and have not ended */
    int parked_fd;                /* an epoll of the connections of parked requests */
    struct cairn_lock parked_lock;
    struct {
        size_t count;
    } parked;
    struct cairn_lock lock;
    struct {
        struct cairn_srv_conn *conns;
        size_t conn_count; /* event loops list them a moment after they were handed over */
        struct {
            struct cairn_srv_conn *first, **end;
            size_t count;
        } lines[CAIRN_SRV_LINES];
        size_t resets; /* of conns: reset, and not closed by the library yet */
        struct cairn_srv_peer *peers[CAIRN_SRV_PEER_BUCKETS];
    } locked;
};

struct cairn_srv_exchange {
    struct cairn_srv_task task;     /* first */
    struct cairn_srv_waiter waiter; /* second */
    struct cairn_srv_http *http;
    struct MHD_Connection *connection;
    struct cairn_srv_conn *conn;
    struct cairn_srv_peer *peer; /* of a request through a trusted proxy; under the lock */
    const char *uri;             /* where the library keeps it: for the proof only */
    size_t uri_size;
    char *target; /* owned; NULL when it is not one */
    bool begun, dispatched, ready;
    bool asks_only;         /* a browser's OPTIONS before the call of a page that may make it */
    char origin[280];       /* of that page, as allowed_origins names it; else "" */
    const char *title;      /* of a refusal, instead of its code's; NULL: that */
    bool refused;           /* answered before its body; what comes of that is dropped */
    uint64_t dropped_bytes; /* of it, since then */
    uint64_t begun_ms;      /* mono clock; its deadline moves on with what arrives */
    uint64_t begun_us;      /* the same moment; 0: the library has refused it before */
    struct cairn_buf body;
    size_t lined_bytes;    /* of the body, when its connection went to the end of its line */
    uint64_t values_bytes; /* of memory that the body's values take; 0: of a small one */
    struct cairn_srv_request request;
    struct cairn_srv_reply reply;
    enum cairn_code code; /* of the handler, or of a refusal before it */
    unsigned status; /* of a refusal, where HTTP wants another than the code's; 0: the code's */
    struct cairn_error error;
};

/* shape.c: B03 over the first callback's pointers. */
enum cairn_code cairn_srv_shape_check(struct cairn_srv_exchange *exchange, const char *method,
                                      const char *version, struct cairn_error *err) CAIRN_MUST_USE;
/* accept.c: route, headers, lengths and types of a well-shaped request. */
enum cairn_code cairn_srv_http_accept(struct cairn_srv_exchange *exchange, const char *method,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The value of a header without the spaces behind it; false when it is longer than capacity. */
bool cairn_srv_http_header(const struct cairn_srv_exchange *exchange, const char *name, char *ret,
                           size_t capacity, bool *ret_there);
/* shape.c: is the request for this server, and not made by a page of another site? */
enum cairn_code cairn_srv_site_check(struct cairn_srv_exchange *exchange, const char *method,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* The headers by which a browser lets a page of allowed_origins see the answer; they end with a
 * name that is NULL. value NULL: the page's origin. */
struct cairn_srv_cors {
    const char *name, *value;
};
const struct cairn_srv_cors *cairn_srv_site_cors(const struct cairn_srv_exchange *exchange);
void cairn_srv_site_init(struct cairn_srv_http *http);
/* accept.c */
enum cairn_code cairn_srv_proxied_open(struct cairn_srv_http *http,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* request.from becomes whom the proxy names, where it is one that is trusted. */
void cairn_srv_proxied_note(struct cairn_srv_exchange *exchange);
bool cairn_srv_proxied_is_proxy(const struct cairn_srv_http *http, const struct sockaddr *address);
/* Does it name each caller before his first byte, by the PROXY protocol? */
bool cairn_srv_proxied_speaks(const struct cairn_srv_http *http, const struct sockaddr *address);
enum cairn_srv_proxy_header {
    CAIRN_SRV_PROXY_HEADER_WHOLE, /* or none at all: then its size is 0 */
    CAIRN_SRV_PROXY_HEADER_MORE,
    CAIRN_SRV_PROXY_HEADER_BROKEN
};
/* The PROXY header (versions 1 and 2) with which these bytes begin. The address stays AF_UNSPEC
 * where it names nobody: LOCAL, UNKNOWN, or no header. */
enum cairn_srv_proxy_header cairn_srv_proxied_header(const uint8_t *bytes, size_t size,
                                                     struct sockaddr_storage *ret_address,
                                                     size_t *ret_size);
/* request.from, as bounds count it. */
void cairn_srv_proxied_caller(const struct cairn_srv_exchange *exchange, uint8_t ret[16]);
/* conns.c: false when there is none, also after connections were reset whose peers neither send
 * nor take. */
bool cairn_srv_memory_take(struct cairn_srv_exchange *exchange, enum cairn_srv_memory kind,
                           uint64_t bytes) CAIRN_MUST_USE;
void cairn_srv_memory_give(struct cairn_srv_http *http, struct cairn_srv_conn *conn);
/* reply.c: what the library refuses before its first callback, answered in our words. */
void cairn_srv_refuse_working_on(const struct cairn_srv_conn *conn);
void cairn_srv_refuse_log(void *cls, const char *format, va_list arguments);
/* reply.c */
enum MHD_Result cairn_srv_http_reply(struct cairn_srv_exchange *exchange);
/* A refusal, at once; what its caller still sends is to be read and dropped (http.h#2). */
void cairn_srv_http_refuse(struct cairn_srv_exchange *exchange);
/* With an answer that was given before; false: there is none that holds. */
bool cairn_srv_http_reply_again(struct cairn_srv_exchange *exchange, enum MHD_Result *ret);
/* tls.c: certificate and key of the settings, at the start and again when they may be others. */
enum cairn_code cairn_srv_tls_load(struct cairn_srv_http *http,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_tls_free(struct cairn_srv_http *http); /* no handshake is under way any more */
bool cairn_srv_tls_is_on(void);
/* What each handshake asks, as the library wants it. */
void *cairn_srv_tls_picker(void);
/* On the connection's event loop. */
bool cairn_srv_tls_send(struct MHD_Connection *connection, const void *data, size_t size);
/* One request of the self-test to ourselves, by whatever certificate. */
enum cairn_code cairn_srv_tls_ask(int fd, const char *text, char *ret_answer, size_t size,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* acceptor.c */
enum cairn_code cairn_srv_acceptor_open(struct cairn_srv_http *http,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* No caller is accepted any more. */
void cairn_srv_acceptor_close(struct cairn_srv_http *http);
/* conns.c: add before the request is parked, remove when it is woken. */
enum cairn_code cairn_srv_parked_open(struct cairn_srv_http *http,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_parked_close(struct cairn_srv_http *http);
void cairn_srv_parked_add(struct cairn_srv_exchange *exchange);
void cairn_srv_parked_remove(struct cairn_srv_exchange *exchange);
/* conns.c */
void cairn_srv_exchange_free(struct cairn_srv_exchange *exchange); /* NULL is fine */
/* It was answered: the event loop owns it again when this returns. */
void cairn_srv_exchange_finish(struct cairn_srv_exchange *exchange);
enum cairn_code cairn_srv_conn_start(struct cairn_srv_http *http,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_conn_stop(struct cairn_srv_http *http);
void cairn_srv_conn_notify(void *cls, struct MHD_Connection *connection, void **socket_context,
                           enum MHD_ConnectionNotificationCode what);
struct cairn_srv_conn *cairn_srv_conn_of(struct MHD_Connection *connection);
/* UINT64_MAX takes the deadline away. conn may be NULL. */
void cairn_srv_conn_set(struct cairn_srv_conn *conn, uint64_t within_ms);
/* To the end of that line, where it may stand already. */
void cairn_srv_conn_line(struct cairn_srv_http *http, struct cairn_srv_conn *conn,
                         enum cairn_srv_conn_line line);
/* May this request be worked on? Not where its caller has as many connections, or requests by way
 * of a proxy, as connections_per_address lets him; checks of health always may. */
enum cairn_code cairn_srv_conn_admit(struct cairn_srv_exchange *exchange,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* The request is over. */
void cairn_srv_conn_leave(struct cairn_srv_exchange *exchange);
/* A bound was met: it is counted, and said now and then. */
void cairn_srv_conn_bound(struct cairn_srv_http *http, unsigned bound, const char *from);
/* Closes requests that have not come whole for longest, then who has been idle for longest, and for
 * idle_ms at least, until count are on their way out; false: none is. */
bool cairn_srv_conn_make_room(struct cairn_srv_http *http, size_t count, uint64_t idle_ms);
/* reply.c: answers that are given again. */
enum cairn_code cairn_srv_kept_new(struct cairn_srv_kept **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_kept_free(struct cairn_srv_kept *kept); /* NULL is fine; no event loop runs */
