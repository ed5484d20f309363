/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what the files of server/http/ share, and the only include of microhttpd.h.
 *
 * Why:     one struct holds all state of a request, so that it has one owner at a time.
 * Promise: 1   the event loop owns an exchange until it is suspended, then the pool or the waiters
 *              own it until it is resumed, then the event loop again.
 * Limits:  one exchange a connection.
 * Threads: as inside.h#1 says.
 * Next:    server/http/http.c.
 */
#pragma once

#include <microhttpd.h>
#include <stdarg.h>
#include <sys/queue.h>

#include "common/process.h"
#include "server/http/http.h"
#include "server/http/request.h"
#include "server/http/waiters.h"

#define SRV_PEER_BUCKETS 1024
#define SRV_TARGET_BYTES_MAX (CAIRN_ROUTE_PATH_BYTES_MAX + CAIRN_QUERY_BYTES_MAX + 1)
#define SRV_CONNECTION_MEMORY_BYTES (32 * CAIRN_KIB)
#define SRV_LOBBY_MAX 128           /* accepted sockets not yet handed to libmicrohttpd */
#define SRV_HEALTH_PLACES 16        /* beyond http_connections_max, for health checks */
#define SRV_PROXY_HEADER_BYTES 1024 /* including extensions that a proxy appends */
#define SRV_AUTHORIZATION_BYTES 256 /* a scheme, spaces, a token */
#define SRV_HOST_BYTES_MAX 262      /* a name of 255 bytes, a colon, a port */
#define SRV_TARGET_TOO_LONG "path and query of a request have at most %d bytes here"
#define SRV_HEAD_TOO_LONG                                                                          \
    "first line and headers have to fit into 32 KiB, with 64 bytes more for each header: send "    \
    "fewer or shorter ones"

/* Bounds on memory that peers can make the server hold. Heartbeats, shards, seals and ends of saves
 * have their own share, so that other bodies cannot starve them. */
enum srv_memory {
    SRV_MEMORY_BODIES,
    SRV_MEMORY_BODIES_OF_SAVES,
    SRV_MEMORY_REPLIES,
    SRV_MEMORY_KINDS
};

/* The connections of one address; in the table while it has any. */
struct srv_peer {
    uint8_t address[16];  /* IPv4 as ::ffff:a.b.c.d */
    uint32_t connections; /* plus requests through trusted proxies */
    LIST_ENTRY(srv_peer) place;
};

/* Eviction queues: at a bound, the oldest connection of a queue is closed first. */
enum srv_conn_line {
    SRV_LINE_ARRIVING, /* no request yet, or an incomplete one */
    SRV_LINE_IDLE,     /* answered; no further request yet */
    SRV_LINES,
    SRV_LINE_NONE = SRV_LINES /* a request is being handled or answered */
};

/* One connection's entry in the deadline table, and the memory that it holds. */
struct srv_conn {
    int fd;
    _Atomic uint64_t deadline_ms; /* mono clock; UINT64_MAX = none */
    _Atomic uint64_t held_bytes;  /* all of held_kind */
    _Atomic int held_kind;
    _Atomic uint64_t moved_ms; /* last send or receive of the peer; UINT64_MAX: none is due */
    /* The exchange between first line and first callback; owned by the event loop. libmicrohttpd
     * does not always notify the end of a request that it refuses. */
    struct srv_exchange *arriving;
    struct MHD_Connection *connection;
    /* under the lock */
    LIST_ENTRY(srv_conn) place;
    enum srv_conn_line line;
    TAILQ_ENTRY(srv_conn) line_place;
    uint64_t line_ms;      /* mono clock; when it joined its line */
    bool is_begun;         /* line ARRIVING: the request's first line has arrived */
    struct srv_peer *peer; /* NULL: reset, or a proxy's connection; not counted */
    bool is_proxy;         /* its requests count for their own callers */
    bool is_beyond;        /* over its address's bound; for health checks */
    bool is_reset;
    struct srv_exchange *parked; /* under parked_lock; NULL: not watched */
};

struct srv_tls;  /* tls.c */
struct srv_kept; /* reply.c */

struct srv_http {
    struct srv *server;
    struct MHD_Daemon *daemon;
    struct srv_tls *tls; /* the newest; NULL: plain HTTP. Main thread only */
    int listen_fd;
    _Atomic bool stopping;
    _Atomic uint64_t memory[SRV_MEMORY_KINDS]; /* held for all connections */
    _Atomic uint32_t answering;                /* complete requests without an answer yet */
    struct srv_kept *kept;
    char hostname[256];
    struct srv_trusted *trusted; /* accept.c */
    size_t trusted_count;
    _Atomic uint64_t bound_said_ms;
    struct cairn_thread conns_thread, acceptor_thread;
    struct srv_lobby *lobby; /* owned by the acceptor thread */
    int acceptor_wake_fd;    /* an eventfd: signalled when accepting stops */
    uint32_t connections_max;
    _Atomic uint32_t connections; /* handed to the library and not ended */
    int parked_fd;                /* epoll set: connections of parked requests */
    struct cairn_lock parked_lock;
    struct {
        size_t count;
    } parked;
    struct cairn_lock lock;
    struct {
        LIST_HEAD(, srv_conn) conns;
        size_t conn_count; /* lags a handover until the event loop adds it */
        struct {
            TAILQ_HEAD(, srv_conn) conns;
            size_t count;
        } lines[SRV_LINES];
        size_t resets; /* of conns: reset, but not yet closed by the library */
        LIST_HEAD(srv_peers, srv_peer) peers[SRV_PEER_BUCKETS];
    } locked;
};

struct srv_exchange {
    struct srv_task task;     /* first */
    struct srv_waiter waiter; /* second */
    struct srv_http *http;
    struct MHD_Connection *connection;
    struct srv_conn *conn;
    struct srv_peer *peer; /* the caller, through a trusted proxy; under the lock */
    const char *uri;       /* in the library's buffer: only for shape.c */
    size_t uri_size;
    char *target; /* owned: path and query; NULL: the request target is invalid */
    char authority[SRV_HOST_BYTES_MAX]; /* of a target in absolute form; "": another form */
    bool begun, dispatched, ready;
    bool asks_only;         /* an allowed CORS preflight (OPTIONS) */
    char origin[280];       /* its Origin, if in allowed_origins; else "" */
    const char *title;      /* of a refusal; NULL: the title of its code */
    bool refused;           /* answered before its body, which is dropped */
    uint64_t dropped_bytes; /* body bytes dropped since then */
    uint64_t begun_ms;      /* mono clock; its deadline moves as bytes arrive */
    uint64_t begun_us;      /* the same moment; 0: the library refused it first */
    struct cairn_buf body;
    size_t lined_bytes;    /* body size at the last move to the end of its line */
    uint64_t values_bytes; /* counted memory of the parsed body; 0: a small body */
    struct srv_request request;
    struct srv_reply reply;
    enum cairn_code code; /* the handler's, or an earlier refusal's */
    unsigned status;      /* of a refusal, if not its code's status; 0: its code's */
    struct cairn_error error;
    size_t pointer_bytes; /* srv_pointer_bytes of error and body */
};

/* shape.c: the B03 check of the pointers in the first callback. */
enum cairn_code srv_shape_check(struct srv_exchange *exchange, const char *method,
                                const char *version, struct cairn_error *err) CAIRN_MUST_USE;
/* accept.c: checks route, headers, lengths and types of a well-formed request. */
enum cairn_code srv_http_accept(struct srv_exchange *exchange, const char *method,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Copies a header's value without trailing spaces; false when it exceeds capacity. */
bool srv_http_header(const struct srv_exchange *exchange, const char *name, char *ret,
                     size_t capacity, bool *ret_there);
/* shape.c: refuses requests for other hosts, and changes sent by pages of other sites. */
enum cairn_code srv_site_check(struct srv_exchange *exchange, const char *method,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* CORS headers for a page of allowed_origins, up to name NULL; value NULL: the page's origin. */
struct srv_cors {
    const char *name, *value;
};
const struct srv_cors *srv_site_cors(const struct srv_exchange *exchange);
void srv_site_init(struct srv_http *http);
/* accept.c */
enum cairn_code srv_proxied_open(struct srv_http *http, struct cairn_error *err) CAIRN_MUST_USE;
/* Sets request.from to the caller that a trusted proxy names. */
void srv_proxied_note(struct srv_exchange *exchange);
bool srv_proxied_is_proxy(const struct srv_http *http, const struct sockaddr *address);
/* True when this proxy sends a PROXY protocol header before the first byte of each caller. */
bool srv_proxied_speaks(const struct srv_http *http, const struct sockaddr *address);
enum srv_proxy_header {
    SRV_PROXY_HEADER_WHOLE, /* or no PROXY header: *ret_size is 0 */
    SRV_PROXY_HEADER_MORE,
    SRV_PROXY_HEADER_BROKEN
};
/* Parses a PROXY header (1 or 2). The address stays AF_UNSPEC for LOCAL, UNKNOWN and no header. */
enum srv_proxy_header srv_proxied_header(const uint8_t *bytes, size_t size,
                                         struct sockaddr_storage *ret_address, size_t *ret_size);
/* request.from as a 16-byte address, the key of per-address bounds. */
void srv_proxied_caller(const struct srv_exchange *exchange, uint8_t ret[16]);
/* conns.c: false when memory is exhausted even after resetting stalled connections. */
bool srv_memory_take(struct srv_exchange *exchange, enum srv_memory kind,
                     uint64_t bytes) CAIRN_MUST_USE;
void srv_memory_give(struct srv_http *http, struct srv_conn *conn);
/* reply.c: sends our own problem for requests that the library refuses by itself. */
void srv_refuse_working_on(const struct srv_conn *conn);
void srv_refuse_log(void *cls, const char *format, va_list arguments);
/* reply.c */
enum MHD_Result srv_http_reply(struct srv_exchange *exchange);
/* Refuses at once; the rest of the body must be read and dropped (http.h#2). */
void srv_http_refuse(struct srv_exchange *exchange);
/* Replies with a cached answer; false: no valid one is cached. */
bool srv_http_reply_again(struct srv_exchange *exchange, enum MHD_Result *ret);
/* tls.c: loads certificate and key of the settings, at startup and on reload. */
enum cairn_code srv_tls_load(struct srv_http *http, struct cairn_error *err) CAIRN_MUST_USE;
void srv_tls_free(struct srv_http *http); /* call after the last handshake has ended */
bool srv_tls_is_on(void);
/* Certificate callback for libmicrohttpd; runs in each handshake. */
void *srv_tls_picker(void);
/* Call on the connection's event loop. */
bool srv_tls_send(struct MHD_Connection *connection, const void *data, size_t size);
/* Sends one self-test request to this server; accepts any certificate. */
enum cairn_code srv_tls_ask(int fd, const char *text, char *ret_answer, size_t size,
                            struct cairn_error *err) CAIRN_MUST_USE;
/* acceptor.c */
enum cairn_code srv_acceptor_open(struct srv_http *http, struct cairn_error *err) CAIRN_MUST_USE;
void srv_acceptor_close(struct srv_http *http);
/* conns.c: add before the request is parked, remove when it wakes. */
enum cairn_code srv_parked_open(struct srv_http *http, struct cairn_error *err) CAIRN_MUST_USE;
void srv_parked_close(struct srv_http *http);
void srv_parked_add(struct srv_exchange *exchange);
void srv_parked_remove(struct srv_exchange *exchange);
/* conns.c */
void srv_exchange_free(struct srv_exchange *exchange); /* NULL is fine */
/* Call when answered; the event loop owns the exchange again when this returns. */
void srv_exchange_finish(struct srv_exchange *exchange);
enum cairn_code srv_conn_start(struct srv_http *http, struct cairn_error *err) CAIRN_MUST_USE;
void srv_conn_stop(struct srv_http *http);
void srv_conn_notify(void *cls, struct MHD_Connection *connection, void **socket_context,
                     enum MHD_ConnectionNotificationCode what);
struct srv_conn *srv_conn_of(struct MHD_Connection *connection);
/* UINT64_MAX removes the deadline. conn may be NULL. */
void srv_conn_set(struct srv_conn *conn, uint64_t within_ms);
/* Moves conn to the end of that line, even if it is in that line already. */
void srv_conn_line(struct srv_http *http, struct srv_conn *conn, enum srv_conn_line line);
/* Refuses a request whose caller exceeds connections_per_address, in connections plus requests
 * through proxies; health checks are always admitted. */
enum cairn_code srv_conn_admit(struct srv_exchange *exchange,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Undoes srv_conn_admit when the request ends. */
void srv_conn_leave(struct srv_exchange *exchange);
/* Counts a bound that was reached, and logs it at intervals. */
void srv_conn_bound(struct srv_http *http, unsigned bound, const char *from);
/* Closes the oldest incomplete requests, then connections idle for longest and at least idle_ms,
 * until count are closing; false: none is closing. */
bool srv_conn_make_room(struct srv_http *http, size_t count, uint64_t idle_ms);
/* reply.c: the cache of answers. */
enum cairn_code srv_kept_new(struct srv_kept **ret, struct cairn_error *err) CAIRN_MUST_USE;
void srv_kept_free(struct srv_kept *kept); /* NULL is fine; no event loop may run */
